// The embedded default corpus: small English stories for children, in the spirit of TinyStories (Eldan and Li, 2023,
// arXiv 2305.07759). It is synthetic: a seeded generator casts a hero, a friend and others, chooses one of a few dozen
// plots (story_plots.cpp) and tells it with words from story_words.cpp. It stands in where no real corpus is at hand;
// losses on it do not compare with losses on real text.
//
// Same seed, same bytes, on every machine: story i depends on (seed, i) alone and on integer arithmetic only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace taper {

// One who appears in a story. Hero and friend differ in gender, so a pronoun never has two readings between them.
struct StoryCharacter {
  std::string name;
  std::string kind;     // "girl", "badger"
  std::string trait;    // "curious"
  std::string clothes;  // "green scarf"
  std::string hands;    // what it holds things with: "hands", "paws", "wings"
  bool is_female = false;
};

struct Story {
  std::string text;  // paragraphs separated by an empty line, without a line end after the last
  std::vector<StoryCharacter> cast;
};

// The story with number `index` of a seed.
Story generate_story(uint64_t seed, uint32_t index);

// Whole stories from number 0 on, each followed by a line end and a line `<|endoftext|>`, until at least `bytes` bytes
// are given out; piece by piece.
void generate_stories(uint64_t seed, uint64_t bytes, const std::function<void(std::string_view piece)>& sink);

// The template language of the words and plots:
//   {season} {day} {home}   those of the story
//   [a|b|c]      one of these, at random; may be nested
//   {@list}      one entry of a word list; {@list f e} tells it of the roles f and e, which the list calls x and y
//   {key=@list}  chooses an entry once and keeps it as {key}; its last word is {key.noun}
//   {h} {h.he} {h.him} {h.his} {h.self} {h.kind} {h.trait} {h.hands} {h.clothes}   the hero; f the friend, e the elder,
//   w a stranger;
//                {h.He} and {h.His} with a capital
// `a` becomes `an` where the next word asks for it, and sentences and quotes begin with a capital.
struct WordList {
  std::string_view name;
  std::string_view alternatives;  // a|b|c
};
const std::vector<WordList>& story_words();
const std::vector<std::string_view>& story_plots();

}  // namespace taper
