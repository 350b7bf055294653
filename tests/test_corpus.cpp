#include <doctest/doctest.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "data/byte_stream.h"
#include "data/corpus.h"
#include "engine/core/error.h"
#include "tests/support/temp_dir.h"

using namespace taper;

namespace {

// The corpus as one string, with '|' where a document ends.
std::string joined(const std::vector<std::string>& paths, const CorpusOptions& options = {},
                   CorpusCounts* counts = nullptr) {
  std::string all;
  const CorpusCounts got = read_corpus(paths, options, [&](std::string_view text, bool document_ends) {
    all += text;
    if (document_ends) all += '|';
  });
  if (counts != nullptr) *counts = got;
  return all;
}

std::string error_of(const std::vector<std::string>& paths, const CorpusOptions& options = {}) {
  try {
    joined(paths, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string compressed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

}  // namespace

TEST_CASE("corpus: the marker cuts and nothing else is changed") {
  const test::TempDir scratch;
  CorpusCounts counts;
  const std::string path =
      scratch.write("a.txt", "one \r\n<|endoftext|>\ntwo<|ENDOFTEXT|><|endoftext|><|endoftext|>\xE6\xAD<|endof");
  CHECK(joined({path}, {}, &counts) == "one \r\n|\ntwo<|ENDOFTEXT|>||\xE6\xAD<|endof");
  CHECK(counts.documents == 4);
  CHECK(counts.files == 1);
  CHECK(counts.bytes == std::string("one \r\n\ntwo<|ENDOFTEXT|>\xE6\xAD<|endof").size());
}

TEST_CASE("corpus: without a marker its spelling is text") {
  const test::TempDir scratch;
  CorpusOptions options;
  options.marker.clear();
  CHECK(joined({scratch.write("a.txt", "a<|endoftext|>b")}, options) == "a<|endoftext|>b");
}

TEST_CASE("corpus: a byte-order mark is dropped at the start of each file only") {
  const test::TempDir scratch;
  const std::string a = scratch.write("a.txt", "\xEF\xBB\xBFx\xEF\xBB\xBF");
  const std::string b = scratch.write("b.jsonl", "\xEF\xBB\xBF{\"text\": \"y\"}\n");
  CHECK(joined({a, b}) == "x\xEF\xBB\xBF|y|");
}

TEST_CASE("corpus: files are documents of their own") {
  const test::TempDir scratch;
  const std::string open = scratch.write("a.txt", "open");
  const std::string closed = scratch.write("b.txt", "closed<|endoftext|>\n");
  const std::string empty = scratch.write("c.txt", "");
  CorpusCounts counts;
  CHECK(joined({open, empty, closed, open}, {}, &counts) == "open|closed|\nopen");
  CHECK(counts.documents == 3);
  CHECK(joined({empty}, {}, &counts).empty());
  CHECK(counts.documents == 0);
}

TEST_CASE("corpus: long documents come in pieces cut before a space, and markers at piece ends are found") {
  const test::TempDir scratch;
  std::string text;
  while (text.size() < 5'000'000) text += "word \n \xE3\x80\x80 word\xE3\x80\x80 " + std::to_string(text.size());
  std::string expected = text;
  for (const size_t at : {4'000'000u, 3'000'000u, 1'048'570u, 262'140u}) {
    text.insert(at, kEndOfText);
    expected.insert(at, 1, '|');
  }
  size_t longest = 0;
  std::string all;
  read_corpus({scratch.write("a.txt", text)}, {}, [&](std::string_view piece, bool document_ends) {
    longest = std::max(longest, piece.size());
    const char last = piece.empty() ? 'x' : piece.back();
    if (!document_ends && all.size() + piece.size() < expected.size()) {
      CHECK(last != ' ');
      CHECK(last != '\n');
      CHECK(last != '\x80');
      const char next = expected[all.size() + piece.size()];
      CHECK((next == ' ' || next == '\n'));
    }
    all += piece;
    if (document_ends) all += '|';
  });
  CHECK(all == expected);
  CHECK(longest < 2'000'000);
}

TEST_CASE("corpus: a run without a place to cut is held to the limit") {
  const test::TempDir scratch;
  const std::string path = scratch.write("a.txt", std::string(5'000'000, 'a'));
  CHECK(joined({path}).size() == 5'000'000);
  CorpusOptions options;
  options.max_record_bytes = 2'000'000;
  CHECK(contains(error_of({path}, options), "a.txt: a run of text without white space is too long"));
  CHECK(contains(error_of({scratch.write("b.jsonl", "{\"text\":\"" + std::string(5'000'000, 'a'))}, options),
                 "b.jsonl, line 1: a record is too long"));
}

TEST_CASE("byte stream: a whole file is held to its limit, compressed or not") {
  const test::TempDir scratch;
  const std::string text(1'000'000, 'a');
  for (const std::string& path :
       {scratch.write("a.txt", text).string(), scratch.write("a.zst", compressed(text)).string()}) {
    CAPTURE(path);
    CHECK(read_all(path, text.size()) == text);
    CHECK_THROWS_WITH_AS(read_all(path, text.size() - 1), doctest::Contains("too large; got more than 999999 bytes"),
                         UsageError);
  }
}

TEST_CASE("corpus: JSON lines") {
  const test::TempDir scratch;
  const std::string path = scratch.write(
      "a.jsonl",
      "{\"text\":\"one\\n\\u00e9\",\"n\":1}\r\n\n{\"n\":[2],\"text\":\"two<|endoftext|>three\"}\n{\"text\":\"\"}");
  CHECK(joined({path}) == "one\n\u00e9|two|three||");
  CorpusOptions options;
  options.json_field = "story";
  CHECK(joined({scratch.write("b.jsonl", "{\"story\":\"s\"}")}, options) == "s|");
  CHECK(contains(error_of({path}, options), "a.jsonl, line 1: no field 'story'; the record has: n, text"));
  CHECK(contains(error_of({scratch.write("c.jsonl", "{\"text\":\"a\"}\n{\"text\":3}\n")}),
                 "c.jsonl, line 2: field 'text'"));
  CHECK(contains(error_of({scratch.write("d.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"a\"")}),
                 "d.jsonl, line 3: not valid JSON"));
  CHECK(contains(error_of({scratch.write("e.jsonl", "{\"text\":\"\xE6\xAD\"}")}), "line 1: not valid JSON"));
  CHECK(contains(error_of({scratch.write("f.jsonl", "[\"text\"]")}), "got array, want one object a line"));
  CHECK(contains(error_of({scratch.write("g.jsonl", std::string(100'000, '['))}), "line 1: is nested too deeply"));
}

TEST_CASE("corpus: zstd files of text and JSON lines, in one or several frames") {
  const test::TempDir scratch;
  std::string text;
  while (text.size() < 3'000'000) text += "a line of text " + std::to_string(text.size()) + "\n";
  const std::string packed = compressed(text);
  CHECK(joined({scratch.write("a.txt.zst", packed)}) == text);
  CHECK(joined({scratch.write("b.txt.zst", packed + compressed("end"))}) == text + "end");
  CHECK(joined({scratch.write("c.jsonl.zst", compressed("{\"text\":\"x\"}"))}) == "x|");
  CHECK(joined({scratch.write("d.txt.zst", compressed(""))}).empty());
  CHECK(contains(error_of({scratch.write("e.txt.zst", packed.substr(0, packed.size() / 2))}),
                 "e.txt.zst: the compressed data is cut off"));
  CHECK(contains(error_of({scratch.write("f.txt.zst", packed.substr(0, packed.size() - 1))}),
                 "f.txt.zst: the compressed data is cut off"));
  CHECK(contains(error_of({scratch.write("g.txt.zst", "plain text")}), "g.txt.zst: not valid zstd data"));
  CHECK(contains(error_of({scratch.write("h.txt.zst", "")}), "an empty file is not zstd data"));
}

TEST_CASE("corpus: folders are read recursively, sorted, without hidden and foreign files") {
  const test::TempDir scratch;
  scratch.write("my texts/b.txt", "b<|endoftext|>");
  scratch.write("my texts/a/z.jsonl", "{\"text\":\"z\"}");
  scratch.write("my texts/.hidden.txt", "no");
  scratch.write("my texts/.git/c.txt", "no");
  scratch.write("my texts/picture.png", "no");
  scratch.write("other/picture.png", "no");
  CHECK(joined({(scratch / "my texts").string()}) == "z|b|");
  CHECK(contains(error_of({(scratch / "other").string()}), "no corpus file in this folder"));
  CHECK_THROWS_AS(expand_inputs({(scratch / "absent.txt").string()}), UsageError);
  CHECK(contains(error_of({(scratch / "absent.txt").string()}),
                 (scratch / "absent.txt").string() + ": no such file or folder"));
  CHECK_THROWS_AS(expand_inputs({}), UsageError);
}

TEST_CASE("corpus: progress reaches the total") {
  const test::TempDir scratch;
  const std::string a = scratch.write("a.txt", std::string(600'000, ' '));
  const std::string b = scratch.write("b.txt", "b");
  uint64_t last = 0, total = 0;
  CorpusOptions options;
  options.on_progress = [&](uint64_t read, uint64_t all) {
    CHECK(read >= last);
    last = read;
    total = all;
  };
  joined({a, b}, options);
  CHECK(last == 600'001);
  CHECK(total == 600'001);
}
