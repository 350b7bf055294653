// A prepared folder: train-*.bin and valid-*.bin (possibly none), the tokenizer's files, and data.json, which names the
// shards and says where they come from. data.json is written last, so a folder without it is incomplete.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_shards.h"
#include "data/tokenizer.h"

namespace taper {

// The training or the validation side of a folder.
struct PreparedSplit {
  uint64_t tokens = 0;
  uint64_t documents = 0;
  std::vector<std::string> shards;  // file names within the folder
};

struct PreparedManifest {
  ShardInfo info;
  PreparedSplit train, valid;
  uint64_t text_bytes = 0;  // of the sources, without markers
  std::vector<std::string> sources;
  std::string split;  // how validation was chosen, in words

  void write(const std::string& folder) const;
  // UsageError where the folder or its data.json is missing or damaged.
  static PreparedManifest read(const std::string& folder);
};

// Of the tables: two tokenizers with the same hash give the same ids.
uint64_t tokenizer_hash(const Tokenizer& tokenizer);

// UsageError where the model's or run's folder has a tokenizer, and it is not the one that made the data's ids.
void require_tokenizer_of(const std::string& folder, const TokenDataset& data);

bool is_prepared_folder(const std::string& path);

// The shards of one side. UsageError where the folder has none (a folder without validation data) or where they
// contradict data.json.
TokenDataset open_training_data(const std::string& folder);
TokenDataset open_validation_data(const std::string& folder);

}  // namespace taper
