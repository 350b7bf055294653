// A training checkpoint: the folder RUN/step-N, complete in itself.
//   config.json, model.safetensors   the model (model/model_folder.h), masters in f32
//   tokenizer files                  copied from the data
//   training.safetensors             AdamW's moments "m.NAME" and "v.NAME", "calibration" f64 [norms, 2]: A and B; of a
//                                    FakeLN run "fakeln" f64 [norms, kinds of token, 2]: the running means' sum, weight
//   training.json                    the manifest, written last (train/checkpoint_manifest.h)
// It is written as RUN/step-N.partial, synced and renamed, so a folder step-N is whole, whatever happened. What a
// killed run left behind goes at the next start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "data/tokenizer.h"
#include "train/checkpoint_manifest.h"
#include "train/trainer.h"

namespace taper {

// Writes RUN/step-N for the state's step N and returns it. Error where a parameter is not finite or the disk refuses;
// older checkpoints are untouched then and nothing is left behind.
std::filesystem::path save_checkpoint(const std::filesystem::path& run, const Transformer& model,
                                      const Trainer& trainer, const DataPosition& data, const Tokenizer* tokenizer);

// Which checkpoints stay when a new one was saved.
struct CheckpointKeeping {
  int64_t last = 2;   // as many of the newest
  int64_t every = 0;  // and those whose step is a multiple of this; 0: no others
};

// Removes the complete checkpoints that need not stay.
void remove_old_checkpoints(const std::filesystem::path& run, const CheckpointKeeping& keeping);
void remove_all_checkpoints(const std::filesystem::path& run);
// Removes what interrupted saves left behind.
void remove_partial_checkpoints(const std::filesystem::path& run);

// The newest checkpoint whose files are all there as they were written. Those passed over are named to `message`, with
// what is wrong in them.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run,
                                                       const std::function<void(const std::string&)>& message);

// The training state of a checkpoint; parameters come from load_model. Error names file and entry.
DataPosition load_training_state(const std::filesystem::path& checkpoint, Trainer& trainer);

}  // namespace taper
