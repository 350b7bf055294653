// Streams the documents of a text corpus. A corpus is a list of inputs, read in the order given:
//   a text file   UTF-8 (or any bytes), documents separated by the marker `<|endoftext|>`
//   .jsonl, .json one JSON object a line, the text in one field; each record is a document
//   .zst          either of these, compressed
//   a folder      all such files below it, sorted by path; hidden files and other kinds are left out
//   -             standard input, as text
// A corpus is never in memory as a whole: a document arrives in pieces of about a mebibyte. A document is cut into
// pieces only before an ASCII white space that follows a non-space, where no splitting rule of a tokenizer reaches
// across, so encoding the pieces one by one gives the ids of the whole.
//
// What is changed: a byte-order mark at the start of a file is dropped. Nothing else: line ends (CRLF too), white space
// around the markers and invalid bytes arrive as they are. Files are documents of their own: between two files a
// document ends, unless only white space stood since the last marker.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/vocabulary.h"

namespace taper {

struct CorpusOptions {
  std::string marker{kEndOfText};  // empty: the marker is ordinary text
  std::string json_field = "text";
  // The longest JSON line, and the longest run of text without a place to cut it.
  uint64_t max_record_bytes = uint64_t{1} << 30;
  // Called about once a block with the bytes read from storage so far and in all (0 where unknown).
  std::function<void(uint64_t bytes_read, uint64_t bytes_total)> on_progress;
};

// A piece of text, valid during the call. `document_ends`: the piece is the last of its document and the marker
// follows; then the text may be empty. The last document of a corpus may end without a marker.
using CorpusSink = std::function<void(std::string_view text, bool document_ends)>;

struct CorpusCounts {
  uint64_t files = 0;
  uint64_t documents = 0;  // markers, and one more where text other than white space follows the last
  uint64_t bytes = 0;      // of text, without markers
};

// The files an input list stands for. UsageError: a missing path (its full name is given), a folder without any
// readable file, an empty list.
std::vector<std::string> expand_inputs(const std::vector<std::string>& paths);

// Errors name the file and, in JSON, the line: unreadable file, bad JSON, missing field, field that is not a string,
// truncated or damaged .zst, a record above the limit. An empty corpus is no error here: the counts tell.
CorpusCounts read_corpus(const std::vector<std::string>& paths, const CorpusOptions& options, const CorpusSink& sink);

}  // namespace taper
