// Turns a corpus into a prepared folder: reads it as a stream, encodes it on all threads and writes token shards. The
// result does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/prepared_data.h"
#include "data/tokenizer.h"

namespace taper {

// Without a word on validation, this share is kept for it where the corpus has at least so many tokens, else none.
inline constexpr double kDefaultValidFraction = 0.01;
inline constexpr uint64_t kMinTokensForDefaultSplit = 100'000;

struct PrepareOptions {
  std::vector<std::string> input;  // files and folders as in corpus.h, and token files as in token_files.h
  std::vector<std::string> valid;  // validation from these; empty: by the fraction
  // The share of the documents that becomes validation: exactly round(share * documents), drawn by the seed. Where that
  // would be less than one document, the last share of the tokens.
  std::optional<double> valid_fraction;
  std::string json_field = "text";
  // Whether <|endoftext|> in the text is the marker, one id and the end of a document, or ordinary text. Between files
  // and after JSON records the marker's id stands in either case.
  bool reads_markers = true;
  uint64_t seed = 42;
  std::string output;  // a folder that is absent or empty
  std::function<void(uint64_t bytes_read, uint64_t bytes_total, uint64_t tokens)> on_progress;
};

// The folder appears under its name only when it is complete; until then it is OUTPUT.partial, which is removed on
// failure. Returns nothing where stop_requested() ended the work. UsageError: used output folder, no tokens, a
// tokenizer without <|endoftext|>, and what the readers refuse.
std::optional<PreparedManifest> prepare(const Tokenizer& tokenizer, const PrepareOptions& options);

}  // namespace taper
