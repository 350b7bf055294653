#include <doctest/doctest.h>

#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "data/story_generator.h"

using namespace taper;

namespace {

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

std::string stories(uint64_t seed, uint64_t bytes) {
  std::string all;
  generate_stories(seed, bytes, [&](std::string_view piece) { all += piece; });
  return all;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '-') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  return words;
}

// Cut after an end sign, and the quote that closes there, before white space.
std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> sentences;
  std::string sentence;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n') sentence += text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\n';
    const bool is_end = std::string(".!?").find(text[i]) != std::string::npos ||
                        (text[i] == '"' && i > 0 && std::string(".!?").find(text[i - 1]) != std::string::npos);
    if (is_end && (next == ' ' || next == '\n')) {
      sentences.push_back(sentence.substr(sentence.find_first_not_of(' ')));
      sentence.clear();
    }
  }
  return sentences;
}

std::vector<std::string> paragraphs_of(const std::string& text) {
  std::vector<std::string> paragraphs;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find("\n\n", begin), text.size());
    paragraphs.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return paragraphs;
}

}  // namespace

TEST_CASE("stories: the same seed gives the same bytes on every machine") {
  CHECK(fnv1a(stories(1, 100'000)) == 17861474957879827680u);
  const std::string text = stories(7, 50'000);
  CHECK(text == stories(7, 50'000));
  CHECK(stories(7, 100'000).substr(0, text.size()) == text);
  CHECK(text != stories(8, 50'000));
  CHECK(text.size() >= 50'000);
  CHECK(text.substr(text.size() - 15) == "\n<|endoftext|>\n");
  CHECK(text.find(generate_story(7, 3).text) != std::string::npos);
  CHECK(stories(7, 0).empty());
}

TEST_CASE("stories: many plots, many words, few sentences twice") {
  CHECK(story_plots().size() >= 20);
  const std::string text = stories(3, 1'000'000);
  std::set<std::string> words;
  for (const std::string& word : words_of(text)) words.insert(word);
  CHECK(words.size() > 1500);
  const std::vector<std::string> sentences = sentences_of(text);
  const std::set<std::string> distinct(sentences.begin(), sentences.end());
  CHECK(static_cast<double>(distinct.size()) > 0.95 * static_cast<double>(sentences.size()));
}

TEST_CASE("stories: the letters of articles, capitals and quotes are right") {
  const std::set<std::string> consonant_sounds = {"unicycle", "one", "used"};
  const std::set<std::string> vowel_sounds = {"honest", "hour"};
  for (uint32_t i = 0; i < 2000; ++i) {
    const Story story = generate_story(11, i);
    CAPTURE(i);
    CAPTURE(story.text);
    REQUIRE(story.text.find_first_of("{}[]|@=") == std::string::npos);
    REQUIRE(story.text.find("  ") == std::string::npos);
    REQUIRE(story.text.find(" ,") == std::string::npos);
    REQUIRE(story.text.find(" a a ") == std::string::npos);
    const std::vector<std::string> words = words_of(story.text);
    for (size_t k = 0; k + 1 < words.size(); ++k) {
      const bool is_vowel = std::string("aeiouAEIOU").find(words[k + 1][0]) != std::string::npos;
      const bool wants_an =
          vowel_sounds.count(words[k + 1]) > 0 || (is_vowel && consonant_sounds.count(words[k + 1]) == 0);
      CAPTURE(words[k + 1]);
      if (words[k] == "a" || words[k] == "A") REQUIRE(!wants_an);
      if (words[k] == "an" || words[k] == "An") REQUIRE(wants_an);
    }
    for (const std::string& paragraph : paragraphs_of(story.text)) {
      REQUIRE(std::count(paragraph.begin(), paragraph.end(), '"') % 2 == 0);
      REQUIRE(std::string(".!?\"").find(paragraph.back()) != std::string::npos);
      bool quote_is_open = false;
      for (size_t k = 0; k < paragraph.size(); ++k) {
        if (paragraph[k] == '"') quote_is_open = !quote_is_open;
        const bool begins =
            k == 0 || (paragraph[k] == '"' && quote_is_open) ||
            (k >= 2 && paragraph[k - 1] == ' ' && std::string(".!?").find(paragraph[k - 2]) != std::string::npos);
        const char letter = paragraph[k] == '"' && k + 1 < paragraph.size() ? paragraph[k + 1] : paragraph[k];
        if (begins) REQUIRE(std::islower(static_cast<unsigned char>(letter)) == 0);
      }
    }
  }
}

TEST_CASE("stories: pronouns come from the cast alone") {
  // Written out in a plot, a pronoun would have a gender whatever the cast; so each one has to be a slot.
  const std::set<std::string> pronouns = {"he",      "she", "him", "her", "his", "hers", "himself",
                                          "herself", "He",  "She", "Him", "Her", "His"};
  std::vector<std::string> templates(story_plots().begin(), story_plots().end());
  for (const WordList& list : story_words()) templates.emplace_back(list.alternatives);
  for (const std::string& text : templates) {
    std::string outside;
    int depth = 0;
    for (const char c : text) {
      depth += c == '{' ? 1 : 0;
      if (depth == 0) outside += c;
      depth -= c == '}' ? 1 : 0;
    }
    CHECK(depth == 0);
    CHECK(std::count(text.begin(), text.end(), '[') == std::count(text.begin(), text.end(), ']'));
    for (const std::string& word : words_of(outside)) {
      CAPTURE(word);
      CHECK(pronouns.count(word) == 0);
    }
  }
}

TEST_CASE("stories: a pronoun has the gender of the name before it") {
  const std::map<std::string, bool> is_female = {{"he", false}, {"him", false}, {"his", false},   {"himself", false},
                                                 {"she", true}, {"her", true},  {"herself", true}};
  int checked = 0;
  for (uint32_t i = 0; i < 500; ++i) {
    const Story story = generate_story(5, i);
    for (const std::string& sentence : sentences_of(story.text)) {
      const std::vector<std::string> words = words_of(sentence);
      // Sentences with exactly one of the cast, named by their first word.
      const StoryCharacter* subject = nullptr;
      int named = 0;
      for (const StoryCharacter& who : story.cast) {
        named += sentence.find(who.name) != std::string::npos ? 1 : 0;
        if (words.front() == who.name) subject = &who;
      }
      if (subject == nullptr || named != 1 || sentence.find('"') != std::string::npos) continue;
      for (const std::string& word : words) {
        const auto pronoun = is_female.find(word);
        if (pronoun == is_female.end()) continue;
        ++checked;
        CAPTURE(sentence);
        CHECK(pronoun->second == subject->is_female);
        break;  // later ones may speak of somebody else
      }
    }
  }
  CHECK(checked > 500);
}

TEST_CASE("stories: hero and friend differ in gender and every story names its hero") {
  std::set<std::string> kinds;
  for (uint32_t i = 0; i < 500; ++i) {
    const Story story = generate_story(6, i);
    REQUIRE(story.cast.size() == 4);
    const auto hero = std::find_if(story.cast.begin(), story.cast.end(), [&](const StoryCharacter& who) {
      return std::count_if(story.cast.begin(), story.cast.end(),
                           [&](const StoryCharacter& other) { return other.is_female == who.is_female; }) == 1;
    });
    REQUIRE(hero != story.cast.end());
    CHECK(story.text.find(hero->name) != std::string::npos);
    kinds.insert(hero->kind);
  }
  CHECK(kinds.size() > 25);
}
