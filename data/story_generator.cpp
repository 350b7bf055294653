#include "data/story_generator.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "data/bpe/vocabulary.h"
#include "engine/core/error.h"
#include "engine/core/random.h"

namespace taper {
namespace {

struct Animal {
  const char* kind;
  const char* hands;
};

constexpr Animal kAnimals[] = {
    {"rabbit", "paws"},   {"fox", "paws"},      {"bear", "paws"},    {"mouse", "paws"},    {"squirrel", "paws"},
    {"hedgehog", "paws"}, {"badger", "paws"},   {"otter", "paws"},   {"beaver", "paws"},   {"raccoon", "paws"},
    {"kitten", "paws"},   {"puppy", "paws"},    {"hamster", "paws"}, {"mole", "paws"},     {"wolf", "paws"},
    {"panda", "paws"},    {"koala", "paws"},    {"lion", "paws"},    {"tiger", "paws"},    {"monkey", "hands"},
    {"frog", "hands"},    {"lizard", "feet"},   {"turtle", "feet"},  {"duck", "wings"},    {"owl", "wings"},
    {"sparrow", "wings"}, {"penguin", "wings"}, {"goose", "wings"},  {"chicken", "wings"}, {"pony", "hooves"},
    {"lamb", "hooves"},   {"goat", "hooves"},   {"deer", "hooves"},  {"piglet", "hooves"}, {"elephant", "feet"},
};

// Words that begin with a vowel's letter but not its sound, and the other way round.
constexpr std::string_view kConsonantSounds[] = {"uni", "use", "one", "once", "euro"};
constexpr std::string_view kVowelSounds[] = {"hour", "honest", "honor", "heir"};

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

char to_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool takes_an(std::string_view word) {
  std::string lower(word.substr(0, 8));
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const auto begins = [&](std::string_view prefix) { return starts_with(lower, prefix); };
  if (std::any_of(std::begin(kVowelSounds), std::end(kVowelSounds), begins)) return true;
  if (std::any_of(std::begin(kConsonantSounds), std::end(kConsonantSounds), begins)) return false;
  return !lower.empty() && std::string_view("aeiou").find(lower[0]) != std::string_view::npos;
}

// Turns the raw expansion into prose: single spaces, paragraphs, `an`, capitals after sentence ends and opening quotes.
class Typesetter {
 public:
  std::string set(std::string_view raw) {
    size_t at = 0;
    while (at < raw.size()) {
      if (raw[at] == ' ' || raw[at] == '\n') {
        const size_t end = std::min(raw.find_first_not_of(" \n", at), raw.size());
        add_space(std::count(raw.begin() + static_cast<std::ptrdiff_t>(at),
                             raw.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
        at = end;
      } else {
        const size_t end = std::min(raw.find_first_of(" \n", at), raw.size());
        add_word(raw.substr(at, end - at));
        at = end;
      }
    }
    return std::move(out_);
  }

 private:
  // Plots begin a paragraph at each line; only the empty line after a plot's last paragraph is dropped.
  void add_space(std::ptrdiff_t line_ends) {
    if (line_ends > 0) {
      space_ = "\n\n";
    } else if (space_.empty()) {
      space_ = " ";
    }
  }

  void add_word(std::string_view word) {
    if (!out_.empty()) out_ += space_;
    const bool begins_paragraph = out_.empty() || space_ == "\n\n";
    space_ = {};
    if (begins_paragraph) quote_is_open_ = false;
    if (article_ != std::string::npos) {
      if (takes_an(word)) out_.insert(article_ + 1, "n");
      article_ = std::string::npos;
    }
    bool wants_capital = begins_paragraph || sentence_ended_;
    const size_t begin = out_.size();
    for (const char c : word) {
      if (c == '"') {
        quote_is_open_ = !quote_is_open_;
        wants_capital = wants_capital || quote_is_open_;
      }
      out_ += wants_capital ? to_upper(c) : c;
      if (is_letter(c)) wants_capital = false;
    }
    const std::string_view added = std::string_view(out_).substr(begin);
    if (added == "a" || added == "A" || added == "\"A") article_ = out_.size() - 1;
    // After a closing quote the sentence may go on with its tag, so plots write that capital themselves.
    sentence_ended_ = std::string_view(".!?").find(word.back()) != std::string_view::npos;
  }

  std::string out_;
  std::string_view space_;
  size_t article_ = std::string::npos;  // of an `a` whose noun has not come yet
  bool sentence_ended_ = false;
  bool quote_is_open_ = false;
};

using Roles = std::map<char, StoryCharacter>;

class StoryTeller {
 public:
  StoryTeller(uint64_t seed, uint32_t index) : random_(seed, RandomStream::stories, index) {}

  Story tell() {
    cast();
    const auto& plots = story_plots();
    std::string raw;
    expand(plots[random_.next_below(plots.size())], {'h', 'f'}, raw);
    Story story{Typesetter().set(raw), {}};
    for (const auto& [role, character] : roles_) story.cast.push_back(character);
    return story;
  }

 private:
  // The roles that a word list calls x and y.
  struct Scope {
    char x, y;
  };

  static const std::unordered_map<std::string_view, std::string_view>& lists() {
    static const auto map = [] {
      std::unordered_map<std::string_view, std::string_view> all;
      for (const WordList& list : story_words()) all.emplace(list.name, list.alternatives);
      return all;
    }();
    return map;
  }

  void cast() {
    const bool hero_is_female = random_.next_below(2) == 0;
    roles_['h'] = someone(hero_is_female);
    for (const char role : {'f', 'w'}) {
      do {
        roles_[role] = someone(!hero_is_female);
      } while (role == 'w' && roles_['w'].name == roles_['f'].name);
    }
    StoryCharacter& elder = roles_['e'] = someone(!hero_is_female);
    elder.name = from_list(elder.is_female ? "elder_woman" : "elder_man");
    elder.kind = elder.is_female ? "woman" : "man";
    elder.hands = "hands";
    const bool hero_is_child = roles_['h'].kind == "girl" || roles_['h'].kind == "boy";
    bound_["season"] = from_list("season");
    bound_["day"] = from_list("part");
    bound_["home"] = from_list(hero_is_child ? "home" : "animal_home");
  }

  StoryCharacter someone(bool is_female) {
    StoryCharacter who;
    who.is_female = is_female;
    who.trait = from_list("trait");
    who.clothes = from_list("clothes");
    if (random_.next_below(5) < 2) {
      who.kind = is_female ? "girl" : "boy";
      who.hands = "hands";
      who.name = from_list(is_female ? "girl_name" : "boy_name");
    } else {
      const Animal& animal = kAnimals[random_.next_below(std::size(kAnimals))];
      who.kind = animal.kind;
      who.hands = animal.hands;
      // Animals have names of their own or people's names.
      const bool is_pet_name = random_.next_below(3) > 0;
      who.name = from_list(is_pet_name ? (is_female ? "girl_pet_name" : "boy_pet_name")
                                       : (is_female ? "girl_name" : "boy_name"));
    }
    return who;
  }

  std::string from_list(std::string_view name, Scope scope = {'h', 'f'}) {
    const auto found = lists().find(name);
    require(found != lists().end(), "story words: no list named '{}'", name);
    std::string out;
    expand_choice(found->second, scope, out);
    return out;
  }

  // One of the alternatives a|b|c, where bars inside brackets belong to the inner choice.
  void expand_choice(std::string_view alternatives, Scope scope, std::string& out) {
    std::vector<std::string_view> parts;
    int depth = 0;
    size_t begin = 0;
    for (size_t i = 0; i < alternatives.size(); ++i) {
      depth += alternatives[i] == '[' ? 1 : alternatives[i] == ']' ? -1 : 0;
      if (alternatives[i] != '|' || depth > 0) continue;
      parts.push_back(alternatives.substr(begin, i - begin));
      begin = i + 1;
    }
    parts.push_back(alternatives.substr(begin));
    expand(parts[random_.next_below(parts.size())], scope, out);
  }

  void expand(std::string_view text, Scope scope, std::string& out) {
    for (size_t i = 0; i < text.size();) {
      if (text[i] == '[') {
        size_t end = i + 1;
        for (int depth = 1; depth > 0; ++end) depth += text[end] == '[' ? 1 : text[end] == ']' ? -1 : 0;
        expand_choice(text.substr(i + 1, end - i - 2), scope, out);
        i = end;
      } else if (text[i] == '{') {
        const size_t end = text.find('}', i);
        expand_slot(text.substr(i + 1, end - i - 1), scope, out);
        i = end + 1;
      } else {
        out += text[i++];
      }
    }
  }

  // @list, @list f e, key=@list, key, key.noun, role or role.form
  void expand_slot(std::string_view slot, Scope scope, std::string& out) {
    const size_t equals = slot.find('=');
    if (equals != std::string_view::npos) {
      bound_[std::string(slot.substr(0, equals))] = from_list(slot.substr(equals + 2), scope);
      return;
    }
    if (slot[0] == '@') {
      const size_t space = std::min(slot.find(' '), slot.size());
      Scope inner = scope;
      if (space + 1 < slot.size()) inner.x = resolve(slot[space + 1], scope);
      if (space + 3 < slot.size()) inner.y = resolve(slot[space + 3], scope);
      out += from_list(slot.substr(1, space - 1), inner);
      return;
    }
    const size_t dot = std::min(slot.find('.'), slot.size());
    const std::string key(slot.substr(0, dot));
    const std::string_view form = slot.substr(std::min(dot + 1, slot.size()));
    const auto bound = bound_.find(key);
    if (bound != bound_.end()) {
      const std::string& text = bound->second;
      out += form == "noun" ? text.substr(text.rfind(' ') + 1) : text;
      return;
    }
    out += form_of(key, form, scope);
  }

  static char resolve(char role, Scope scope) { return role == 'x' ? scope.x : role == 'y' ? scope.y : role; }

  std::string form_of(const std::string& key, std::string_view form, Scope scope) const {
    const auto found = roles_.find(key.size() == 1 ? resolve(key[0], scope) : '?');
    require(found != roles_.end(), "story plots: no slot named '{}'", key);
    const StoryCharacter& who = found->second;
    if (form.empty()) return who.name;
    if (form == "kind") return who.kind;
    if (form == "trait") return who.trait;
    if (form == "hands") return who.hands;
    if (form == "clothes") return who.clothes;
    if (form == "he") return who.is_female ? "she" : "he";
    if (form == "He") return who.is_female ? "She" : "He";
    if (form == "him") return who.is_female ? "her" : "him";
    if (form == "his") return who.is_female ? "her" : "his";
    if (form == "His") return who.is_female ? "Her" : "His";
    require(form == "self", "story plots: no form named '{}'", form);
    return who.is_female ? "herself" : "himself";
  }

  Random random_;
  Roles roles_;
  std::unordered_map<std::string, std::string> bound_;
};

}  // namespace

Story generate_story(uint64_t seed, uint32_t index) { return StoryTeller(seed, index).tell(); }

void generate_stories(uint64_t seed, uint64_t bytes, const std::function<void(std::string_view piece)>& sink) {
  uint64_t written = 0;
  for (uint32_t index = 0; written < bytes; ++index) {
    std::string text = generate_story(seed, index).text;
    text += '\n';
    text += kEndOfText;
    text += '\n';
    written += text.size();
    sink(text);
  }
}

}  // namespace taper
