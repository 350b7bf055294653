// What the benchmarks of decoding share: one model in every plan, measured in turn, so that a machine's moods fall on
// all alike.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infer/decoder.h"
#include "tools/common/cli.h"

namespace taper {

// The weights that --precision asks for, and where --device puts them (tools/common/device.h). int8 is for the
// processor: its choice with auto, UsageError with cuda.
WeightType decode_weights(const CommonOptions& common);
Device decode_device(const CommonOptions& common);

// Random parameters, all norms tapered to gate 0: fit for every plan, for speed alone. The context is at least
// `context`.
Transformer random_model(const std::string& size, int64_t context, uint64_t seed);

struct BenchDecoder {
  Plan plan;
  std::unique_ptr<Decoder> decoder;
};

// `plan`: normed, scaled, folded or all: those that the model has (live norms may run on any model here). UsageError
// where one plan is asked for and the model lacks it.
std::vector<BenchDecoder> bench_decoders(const Transformer& model, const std::string& plan,
                                         const DecoderOptions& options);

// run(decoder) returns tokens/s. Once each without counting, then `repeat` times in turn.
// {"normed": {"tokens_per_s": {"median", "min", "max"}}, ..., "ratios": {"scaled", "folded"}}, ratios of medians to
// normed's, null where one of the two is missing. With a limit, which returns the tokens/s that no plan can exceed, it
// takes its turn as well: {"limit": {"tokens_per_s"}, "normed": {..., "share_of_limit"}, ...}.
nlohmann::json measure_in_turn(std::vector<BenchDecoder>& decoders, int64_t repeat,
                               const std::function<double(Decoder&)>& run, const std::function<double()>& limit = {});

// The same; on a CUDA device with steps recorded, and once more as "separate_launches" with every kernel launched for
// itself, as the paper measured (Kanavalau et al., arXiv 2602.10408).
nlohmann::json measure_settings(std::vector<BenchDecoder>& decoders, Device device, int64_t repeat,
                                const std::function<double(Decoder&)>& run, const std::function<double()>& limit = {});
inline constexpr const char* kSeparateLaunchesHelp =
    "On a CUDA device: with a step's work launched as a whole, and under separate_launches kernel by kernel.\n";

// With --profile: its table leaves out what came before, and its limit of reading is that of the decoder's matrices.
void profile_from_here(const Decoder& decoder);
inline constexpr const char* kDecodeProfileHelp =
    "--profile lists the stages of decoding, without loading: on the processor as they take the first thread, and\n"
    "decode_wait is its waiting for the others. On a CUDA device kernels are then launched one by one.";

}  // namespace taper
