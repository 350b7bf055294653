// The stages of decoding in a profile (engine/core/profile.h). A stage takes a few microseconds: the clock is read once
// between two, and what a pass took goes to the profile at its end.
//
// On the processor, times are those of the first thread at its part of the work, bytes and operations those of all
// threads. decode_wait is its waiting for the others: at the barriers and at the start and the end of a pass. On a CUDA
// device a stage lasts until the device has done it; decode_qkv is there with the norm, the rotary positions and the
// cache, decode_up and decode_unembed with the norm.
//
// Bytes are those of the matrices and of the cache that a stage reads. What else it moves, vectors, stays in the
// nearest cache and is not counted.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include "engine/core/profile.h"
#include "engine/kernels/decode.h"
#include "infer/decode_engine.h"
#include "model/config.h"

namespace taper {

enum class DecodeStage : uint8_t {
  embed,
  residual,  // the residual sum where no norm stands behind it, and with each form of a norm
  norm,
  scale,
  blend,
  qkv,
  append,  // rotary positions, keys and values to the cache
  attend,
  output,
  up,  // with the activation
  down,
  unembed,
  choose,
  wait,
};
inline constexpr int kDecodeStages = static_cast<int>(DecodeStage::wait) + 1;

const char* to_string(DecodeStage stage);  // as a profile has it: decode_qkv
DecodeStage stage_of(NormForm form);

// Of the matrix that the stage multiplies with, in one layer; 0: none.
int64_t matrix_elements(DecodeStage stage, const ModelConfig& config);

struct DecodeTypes {
  WeightType weights = WeightType::f32;
  Dtype cache = Dtype::f32;
  Dtype products = Dtype::f32;  // bf16 where the processor or the device multiplies bf16
};

// What the stage reads and computes in all layers of a pass: each matrix once, of the cache the positions of each
// sequence up to its last row. Logits are of rows from first_logits_row on.
KernelWork decode_work(DecodeStage stage, const ModelConfig& config, const DecodeTypes& types,
                       std::span<const DecodeRow> rows, int64_t first_logits_row);

// Of one pass, on one thread; the clock starts with its life.
class DecodeProfile {
 public:
  // What has passed since the last lap was this stage.
  void lap(DecodeStage stage) {
    const Clock::time_point now = Clock::now();
    Laps& laps = laps_[static_cast<size_t>(stage)];
    laps.time += now - last_;
    ++laps.count;
    last_ = now;
  }
  // Adds all laps to the profile, with the work of a pass of these rows.
  void report(const ModelConfig& config, const DecodeTypes& types, std::span<const DecodeRow> rows,
              int64_t first_logits_row) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Laps {
    Clock::duration time{};
    int64_t count = 0;
  };
  std::array<Laps, kDecodeStages> laps_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace taper
