#include <doctest/doctest.h>

#include <string>

#include "data/bpe/vocabulary.h"
#include "engine/core/error.h"

using namespace taper;

namespace {

// The bytes by value, then `ab` and a marker.
Vocabulary sound() {
  Vocabulary v;
  for (int byte = 0; byte < 256; ++byte) v.tokens.emplace_back(1, static_cast<char>(byte));
  v.tokens.emplace_back("ab");
  v.tokens.emplace_back("<end>");
  v.merges = {{'a', 'b', 256}};
  v.added = {{"<end>", 257, true}};
  return v;
}

std::string error_of(const Vocabulary& v) {
  try {
    check(v, "here");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("vocabulary: a sound one passes, each damage is named") {
  CHECK(error_of(sound()) == "");

  Vocabulary v = sound();
  v.tokens['q'] = "qq";
  CHECK(error_of(v) ==
        "here: the byte 0x71, spelt 'q', is not in the vocabulary; want at least those of printable ASCII");
  CHECK(error_of(Vocabulary{}).find("0x20") != std::string::npos);

  v = sound();
  v.tokens[256] = "ba";
  CHECK(error_of(v) == "here: merge 1: 'a' and 'b' do not join to the token of id 256, 'ba'");
  v = sound();
  v.tokens[256] = "";
  CHECK(error_of(v) == "here: the token of id 256 is empty");
  v = sound();
  v.merges.push_back(v.merges[0]);
  CHECK(error_of(v) == "here: merge 2: the pair 'a' 'b' merges a second time");
  for (const Merge& merge : {Merge{-1, 'b', 256}, Merge{'a', 258, 256}, Merge{'a', 'b', 1 << 30}}) {
    v = sound();
    v.merges = {merge};
    CHECK(error_of(v).find("here: merge 1: no such id; got ") == 0);
  }

  v = sound();
  v.added[0].id = 258;
  CHECK(error_of(v) == "here: added token '<end>': no such id; got 258, want 0 to 257");
  v = sound();
  v.added[0].text = "<END>";
  CHECK(error_of(v) == "here: added token '<END>': its id 257 stands for something else, '<end>'");
  v = sound();
  v.added.push_back(v.added[0]);
  CHECK(error_of(v) == "here: added tokens: ids must ascend; got 257 after 257");
  v = sound();
  v.added[0].text = v.tokens[257] = "";
  CHECK_FALSE(error_of(v).empty());
}

TEST_CASE("vocabulary: a byte that a vocabulary from elsewhere lacks has no id") {
  Vocabulary v = sound();
  v.tokens[0xF5] = "\xF4\x8F";
  CHECK(error_of(v) == "");
  CHECK(byte_ids(v, "here")[0xF5] == -1);
  CHECK(byte_ids(v, "here")[0xF4] == 0xF4);
}

TEST_CASE("vocabulary: a byte's id is its own token's, not that of an added one spelt alike") {
  Vocabulary v = sound();
  v.added.insert(v.added.begin(), {"ab", 256, false});
  v.tokens.emplace_back("x");
  v.added.push_back({"x", 258, false});
  check(v, "here");
  CHECK(byte_ids(v, "here")['x'] == 'x');
  // An added token is better than none.
  v.tokens['x'] = "xx";
  CHECK(byte_ids(v, "here")['x'] == 258);
}
