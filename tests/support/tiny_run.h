// A training run small enough for a test: random text of 256 byte tokens, a model of a few thousand parameters.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/token_shards.h"
#include "data/tokenizer.h"
#include "train/training_run.h"

namespace taper::test {

// The 256 bytes and nothing else: a token is a byte.
Tokenizer byte_tokenizer();

// A shard of `count` tokens below `vocab_size` with some order in them, written to `path`.
TokenDataset write_tokens(const std::filesystem::path& path, uint64_t count, uint64_t vocab_size = 256);

// metrics.jsonl without the speed, which no two runs share.
std::vector<std::string> metrics_of(const std::filesystem::path& run);
// All that two equal runs share after so many steps: the checkpoint's model and training state, and the metrics.
std::string state_of(const std::filesystem::path& run, int64_t step);

struct TinyRun {
  explicit TinyRun(const std::filesystem::path& data_folder);

  // Trains into `folder`: from the start, or on from its newest checkpoint.
  RunResult run(const std::filesystem::path& folder, bool resumes = false);

  TokenDataset train, valid;
  Tokenizer tokenizer;
  ModelConfig config;
  Precision precision = Precision::f32;
  TrainerOptions trainer;
  RunOptions options;  // folder and checkpoint are set by run()
};

}  // namespace taper::test
