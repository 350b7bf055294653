#include <doctest/doctest.h>

#include "infer/text_stream.h"

using namespace taper;

namespace {

struct Sink {
  std::vector<std::string> writes;
  std::string text;
  TextStream::Write write() {
    return [this](std::string_view bytes) {
      writes.emplace_back(bytes);
      text += bytes;
    };
  }
};

}  // namespace

TEST_CASE("text stream: how much of a character is missing") {
  CHECK(incomplete_suffix("") == 0);
  CHECK(incomplete_suffix("abc") == 0);
  CHECK(incomplete_suffix("\xf0") == 1);
  CHECK(incomplete_suffix("a\xf0\x9f\x98") == 3);
  CHECK(incomplete_suffix("\xf0\x9f\x98\x80") == 0);
  CHECK(incomplete_suffix("\xe6\xad") == 2);
  CHECK(incomplete_suffix("\xc3") == 1);
  // What begins no character is whole as it is.
  CHECK(incomplete_suffix("\xff") == 0);
  CHECK(incomplete_suffix("\x80\x80\x80\x80") == 0);
}

TEST_CASE("text stream: a character over two tokens comes out whole") {
  Sink sink;
  TextStream stream({}, sink.write());
  CHECK_FALSE(stream.push("\xf0\x9f\x98"));
  CHECK(sink.writes.empty());
  CHECK_FALSE(stream.push("\x80"));
  CHECK(sink.writes == std::vector<std::string>{"\xf0\x9f\x98\x80"});
}

TEST_CASE("text stream: the end writes an incomplete character as its bytes") {
  Sink sink;
  TextStream stream({}, sink.write());
  stream.push("a\xf0\x9f\x98");
  CHECK(sink.text == "a");
  stream.finish();
  CHECK(sink.text == "a\xf0\x9f\x98");
}

TEST_CASE("text stream: text before a stop text is written, the stop text never, wherever tokens are cut") {
  const std::string text = "one two STOP three";
  for (size_t step = 1; step <= text.size(); ++step) {
    CAPTURE(step);
    Sink sink;
    TextStream stream({"STOP", "never"}, sink.write());
    bool is_stopped = false;
    for (size_t i = 0; i < text.size() && !is_stopped; i += step) is_stopped = stream.push(text.substr(i, step));
    CHECK(is_stopped);
    stream.finish();
    CHECK(sink.text == "one two ");
  }
}

TEST_CASE("text stream: what only looked like a stop text is written after all") {
  Sink sink;
  TextStream stream({"STOP"}, sink.write());
  stream.push("a ST");
  CHECK(sink.text == "a ");
  stream.push("ART");
  CHECK(sink.text == "a START");
  stream.push(" STO");
  stream.finish();
  CHECK(sink.text == "a START STO");
}
