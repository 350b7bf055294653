// training.json of a checkpoint, what is no tensor of a training state:
//   step updates data_seed data_windows observed_steps   whole numbers
//   train_data valid_data                                 fingerprints of the data (TokenDataset)
//   scale_mean scale_target                               the running mean of s, and what it was fixed at, or null
//   files checksums                                       of the other files (model/checkpoint_files.h)
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "model/checkpoint_files.h"
#include "train/trainer.h"

namespace taper {

// Where the next step's data comes from.
struct DataPosition {
  uint64_t seed = 0;
  uint64_t windows = 0;                     // drawn so far (BatchSampler::position)
  uint64_t train_data = 0, valid_data = 0;  // TokenDataset::fingerprint
};

struct CheckpointManifest {
  TrainerState state;  // without what lies in training.safetensors
  DataPosition data;
  CheckpointFiles files;

  // Error that names the entry where one is missing or damaged.
  static CheckpointManifest read(const std::filesystem::path& checkpoint);
  std::string to_json() const;
};

}  // namespace taper
