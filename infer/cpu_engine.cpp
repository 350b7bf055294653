// Decoding on the processor. A call is one parallel region; the threads meet at spinning barriers, twice a layer where
// heads and hidden channels divide among them (infer/decoder_pass.h).
#include <algorithm>
#include <optional>

#include "infer/decode_engine.h"
#include "infer/decoder_pass.h"

namespace taper {
namespace {

class CpuEngine final : public DecodeEngine {
 public:
  CpuEngine(const Transformer& model, const DecoderOptions& options)
      : weights_(model, options.plan, options.weights),
        cache_(weights_.shape().config, options.sequences, weights_.kernels().cache_dtype),
        threads_(thread_count()),
        workspace_(weights_, std::max(options.block, options.sequences),
                   options.all_logits ? std::max(options.block, options.sequences) : options.sequences, threads_),
        sequences_(options.sequences) {}

  void run(std::span<const DecodeRow> rows, int64_t first_logits_row) override {
    std::optional<DecodeProfile> profile;
    if (is_profiling()) profile.emplace();
    parallel_team(
        [&](const Worker& worker) {
          DecodeProfile* const own = profile && worker.index == 0 ? &*profile : nullptr;
          DecoderPass(weights_, cache_, workspace_, rows, first_logits_row, worker, own).run();
        },
        threads_);
    if (profile) {
      profile->lap(DecodeStage::wait);
      const DecodeKernels& kernels = weights_.kernels();
      profile->report(weights_.shape().config, {kernels.weight_type, kernels.cache_dtype, kernels.input_dtype}, rows,
                      first_logits_row);
    }
    for (const DecodeRow& row : rows) samplers_[static_cast<size_t>(row.sequence)].accept(row.token);
  }
  void set_sampler(const SamplerOptions& options) override {
    samplers_.clear();
    for (int64_t s = 0; s < sequences_; ++s)
      samplers_.emplace_back(options, weights_.shape().config.vocab_size, static_cast<uint32_t>(s));
  }
  void choose(std::span<int32_t> tokens, int64_t first_sequence, int64_t first_logits_row) override {
    const ProfileScope profile(to_string(DecodeStage::choose));
    const auto vocab_size = static_cast<size_t>(weights_.shape().config.vocab_size);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const float* row = workspace_.logits + (first_logits_row + static_cast<int64_t>(i)) * logits_stride();
      tokens[i] = samplers_[static_cast<size_t>(first_sequence) + i].next({row, vocab_size});
    }
  }
  const float* logits() override { return workspace_.logits; }
  int64_t logits_stride() const override { return weights_.shape().vocabulary; }
  int64_t weight_bytes() const override { return weights_.bytes(); }
  int64_t bytes_per_position() const override { return cache_.bytes_per_position(); }

 private:
  DecodeWeights weights_;
  KvCache cache_;
  int threads_;
  DecodeWorkspace workspace_;
  int64_t sequences_;
  std::vector<Sampler> samplers_;  // of each sequence
};

}  // namespace

std::unique_ptr<DecodeEngine> make_cpu_engine(const Transformer& model, const DecoderOptions& options) {
  return std::make_unique<CpuEngine>(model, options);
}

}  // namespace taper
