// Decoding on a CUDA device: five launches a layer (engine/kernels/decode_cuda.h). Prompts go through the same kernels,
// a block of tokens at once. A step is recorded and then launched as a whole, and so are prompts of a length that comes
// up again.
#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <optional>

#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"
#include "infer/cuda_weights.h"
#include "infer/decode_engine.h"
#include "infer/decode_profile.h"
#include "model/attention.h"

namespace taper {
namespace {

template <class T>
T* data_of(const Tensor& tensor) {
  return View(tensor).as<T>();
}

// All memory a pass writes, for at most `rows` rows.
struct Workspace {
  Tensor h;         // [rows, C], the residual stream
  Tensor q;         // [rows, H D]
  Tensor attended;  // [rows, H D]
  Tensor hidden;    // [rows, F]
  Tensor logits;    // [logits_rows, V]
  Tensor part_values, part_extremes;
  Tensor rows;  // i32 [3, rows]: tokens, sequences, positions
  int parts = 1;

  Workspace(const ModelConfig& config, int64_t row_count, int64_t logits_rows) {
    const int64_t inner = config.heads * config.head_size;
    const auto make = [](const Shape& shape, Dtype dtype = Dtype::f32) {
      return Tensor::empty(shape, dtype, Device::cuda, "decode: workspace");
    };
    h = make({row_count, config.width});
    q = make({row_count, inner});
    attended = make({row_count, inner});
    hidden = make({row_count, config.mlp_hidden});
    logits = make({logits_rows, config.vocab_size});
    rows = make({3, row_count}, Dtype::i32);
    // A part for each 64 positions: a head is few blocks' work, and a device has many multiprocessors.
    parts = static_cast<int>(std::clamp<int64_t>(config.context / 64, 1, kMaxAttentionParts));
    if (parts == 1) return;
    part_values = make({parts, row_count, inner});
    part_extremes = make({parts, row_count, config.heads, 2});
  }
};

// What the choice of tokens keeps on the device.
struct ChoiceState {
  Tensor sampler;    // the bytes of a DeviceSampler
  Tensor draws;      // i32 [sequences]
  Tensor seen;       // i32 [sequences, V]
  Tensor weights;    // 64 bits [sequences, V]
  Tensor step_rows;  // i32 [3, sequences]: the tokens chosen last, their sequences and positions

  ChoiceState(int64_t sequences, int64_t vocab_size) {
    const auto make = [](const Shape& shape, Dtype dtype) {
      return Tensor::zeros(shape, dtype, Device::cuda, "decode: sampler");
    };
    sampler = make({int64_t{sizeof(DeviceSampler) / sizeof(double)}}, Dtype::f64);
    draws = make({sequences}, Dtype::i32);
    seen = make({sequences, vocab_size}, Dtype::i32);
    weights = make({sequences, vocab_size}, Dtype::f64);
    step_rows = make({3, sequences}, Dtype::i32);
  }
};

class CudaEngine final : public DecodeEngine {
 public:
  CudaEngine(const Transformer& model, const DecoderOptions& options)
      : config_(model.config()),
        options_(options),
        weights_(model, options.plan, options.weights),
        row_capacity_(std::max(options.block, options.sequences)),
        ws_(config_, row_capacity_, options.all_logits ? row_capacity_ : options.sequences),
        choice_(options.sequences, config_.vocab_size),
        step_positions_(static_cast<size_t>(options.sequences), -1) {
    cache_.dtype = weights_.dtype();
    cache_.heads = config_.heads;
    cache_.kv_heads = config_.kv_heads;
    cache_.head_size = config_.head_size;
    cache_.context = config_.context;
    cache_.stride = device_stride(config_.head_size, cache_.dtype);
    // Zeros behind the heads are read and stay.
    for (Tensor* half : {&keys_, &values_}) {
      *half = Tensor::zeros({config_.layers, options.sequences * config_.kv_heads, config_.context, cache_.stride},
                            cache_.dtype, Device::cuda, "key-value cache");
    }
    scale_ = static_cast<float>(attention_options(config_).scale);
    host_logits_.resize(static_cast<size_t>(ws_.logits.numel()));
  }

  void run(std::span<const DecodeRow> rows, int64_t first_logits_row) override {
    set_rows(ws_.rows, rows);
    launch({std::ssize(rows), first_logits_row, false}, rows);
    logits_rows_ = std::ssize(rows) - first_logits_row;
    are_logits_here_ = false;
  }

  const float* logits() override {
    if (!are_logits_here_ && logits_rows_ > 0) {
      cuda_runtime().copy_to_host(host_logits_.data(), ws_.logits.raw(),
                                  logits_rows_ * logits_stride() * int64_t{sizeof(float)});
    }
    are_logits_here_ = true;
    return host_logits_.data();
  }
  int64_t logits_stride() const override { return config_.vocab_size; }

  void set_sampler(const SamplerOptions& o) override {
    const DeviceSampler sampler{o.temperature, o.top_p, o.min_p, static_cast<float>(o.repetition_penalty),
                                o.top_k,       o.seed};
    cuda_runtime().copy_to_device(choice_.sampler.raw(), &sampler, sizeof sampler);
    for (const Tensor& each : {choice_.draws, choice_.seen}) cuda_runtime().fill_bytes(each.raw(), 0, each.bytes());
  }

  void choose(std::span<int32_t> tokens, int64_t first_sequence, int64_t first_logits_row) override {
    const auto choice = [&] { queue_choice(first_sequence, first_logits_row, std::ssize(tokens), false); };
    is_profiling() ? profiled({}, 0, choice) : choice();
    fetch_tokens(tokens, first_sequence, first_logits_row);
  }

  void advance(std::span<const DecodeRow> rows, std::span<int32_t> tokens) override {
    set_step_rows(rows);
    launch(advance_work(), rows);
    for (int32_t& position : step_positions_) ++position;
    logits_rows_ = options_.sequences;
    are_logits_here_ = false;
    fetch_tokens(tokens, 0, 0);
  }
  void record_steps(bool records) override { records_ = records; }
  int64_t launches_of_step() const override {
    const auto step = recorded_.find(advance_work());
    return step == recorded_.end() || !step->second ? 0 : step->second->size();
  }

  int64_t weight_bytes() const override { return weights_.matrix_bytes(); }
  int64_t bytes_per_position() const override {
    return 2 * config_.layers * config_.kv_heads * config_.head_size * size_of(cache_.dtype);
  }

 private:
  // target: i32 [3, capacity]
  static void set_rows(const Tensor& target, std::span<const DecodeRow> rows) {
    const auto capacity = static_cast<size_t>(target.dim(1));
    std::vector<int32_t> values(3 * capacity, 0);
    for (size_t i = 0; i < rows.size(); ++i) {
      values[i] = rows[i].token;
      values[capacity + i] = static_cast<int32_t>(rows[i].sequence);
      values[2 * capacity + i] = static_cast<int32_t>(rows[i].position);
    }
    cuda_runtime().copy_to_device(target.raw(), values.data(), target.bytes());
  }

  static DeviceRows rows_of(const Tensor& source, int64_t count) {
    const int32_t* tokens = data_of<int32_t>(source);
    return {count, tokens, tokens + source.dim(1), tokens + 2 * source.dim(1)};
  }

  // The device counts positions itself while a text goes on; what else has happened it is told here.
  void set_step_rows(std::span<const DecodeRow> rows) {
    const bool is_known = std::equal(rows.begin(), rows.end(), step_positions_.begin(), step_positions_.end(),
                                     [](const DecodeRow& row, int32_t position) { return row.position == position; });
    if (is_known) return;
    set_rows(choice_.step_rows, rows);
    for (const DecodeRow& row : rows)
      step_positions_[static_cast<size_t>(row.sequence)] = static_cast<int32_t>(row.position);
  }

  // Work that differs in nothing but what is in device memory.
  struct Work {
    int64_t rows, first_logits_row;
    bool is_advance;  // of the tokens chosen last, to the choice of the next

    auto operator<=>(const Work&) const = default;
  };
  Work advance_work() const { return {options_.sequences, 0, true}; }

  void queue(const Work& work) {
    pass(rows_of(work.is_advance ? choice_.step_rows : ws_.rows, work.rows), work.first_logits_row);
    if (work.is_advance) queue_choice(0, 0, work.rows, true);
  }

  // Work that comes up a second time is recorded, by when its kernels have been loaded. A profile wants each of them.
  void launch(const Work& work, std::span<const DecodeRow> rows) {
    if (is_profiling()) return profiled(rows, work.first_logits_row, [&] { queue(work); });
    if (!records_) return queue(work);
    const auto [known, is_new] = recorded_.try_emplace(work);
    if (is_new) return queue(work);
    if (!known->second) known->second = std::make_unique<cuda::Graph>([&] { queue(work); });
    known->second->launch();
  }

  // What it queues, with its laps in the profile. The kernels multiply in f32.
  template <class Queue>
  void profiled(std::span<const DecodeRow> rows, int64_t first_logits_row, Queue&& queue_all) {
    finish_on_device();
    profile_.emplace();
    queue_all();
    profile_->report(config_, {options_.weights, cache_.dtype, Dtype::f32}, rows, first_logits_row);
    profile_.reset();
  }
  void lap(DecodeStage stage) {
    if (!profile_) return;
    finish_on_device();
    profile_->lap(stage);
  }

  void queue_choice(int64_t first_sequence, int64_t first_logits_row, int64_t count, bool moves_on) {
    DeviceChoice choice;
    choice.tokens = data_of<int32_t>(choice_.step_rows);
    if (moves_on) choice.positions = choice.tokens + 2 * options_.sequences;
    choice.logits = data_of<float>(ws_.logits) + first_logits_row * config_.vocab_size;
    choice.stride = choice.vocab_size = config_.vocab_size;
    choice.count = count;
    choice.first_sequence = first_sequence;
    choice.sampler = data_of<DeviceSampler>(choice_.sampler);
    choice.draws = data_of<int32_t>(choice_.draws);
    choice.seen = data_of<int32_t>(choice_.seen);
    choice.weights = data_of<uint64_t>(choice_.weights);
    cuda::decode_choose(choice);
    lap(DecodeStage::choose);
  }

  void fetch_tokens(std::span<int32_t> tokens, int64_t first_sequence, int64_t first_logits_row) {
    std::vector<int32_t> fetched(tokens.size());
    cuda_runtime().copy_to_host(fetched.data(), data_of<int32_t>(choice_.step_rows) + first_sequence,
                                std::ssize(tokens) * int64_t{sizeof(int32_t)});
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (fetched[i] >= 0) continue;
      const float* row = logits() + (first_logits_row + static_cast<int64_t>(i)) * logits_stride();
      greedy({row, static_cast<size_t>(config_.vocab_size)});  // names the logit
      fail("generate: the logit of token {} is not finite after the repetition penalty", -1 - fetched[i]);
    }
    std::copy(fetched.begin(), fetched.end(), tokens.begin());
  }

  // The residual stream through a norm.
  DeviceInput stream(int64_t rows, const DecodeNorm& norm, int64_t first_row = 0) const {
    DeviceInput in;
    in.x = data_of<float>(ws_.h) + first_row * config_.width;
    in.stride = config_.width;
    in.rows = rows - first_row;
    in.norm = norm;
    return in;
  }

  void pass(const DeviceRows& rows, int64_t first_logits_row) {
    cuda::decode_embed(data_of<float>(ws_.h), config_.width, data_of<int32_t>(choice_.seen), rows, weights_.wte,
                       weights_.wpe);
    lap(DecodeStage::embed);
    for (int64_t i = 0; i < config_.layers; ++i) {
      const CudaLayer& layer = weights_.layers[static_cast<size_t>(i)];
      attention(layer, i, rows);
      mlp(layer, rows.count);
    }
    if (first_logits_row == rows.count) return;
    DeviceProduct unembed;
    unembed.y = data_of<float>(ws_.logits);
    unembed.y_stride = config_.vocab_size;
    unembed.in = stream(rows.count, weights_.final_norm, first_logits_row);
    unembed.w = weights_.unembedding;
    cuda::decode_product(unembed);
    lap(DecodeStage::unembed);
  }

  void attention(const CudaLayer& layer, int64_t i, const DeviceRows& rows) {
    DeviceQkv qkv;
    qkv.q = data_of<float>(ws_.q);
    qkv.in = stream(rows.count, layer.norm1);
    qkv.w = layer.qkv;
    qkv.rows = rows;
    qkv.cache = cache_;
    qkv.cache.keys = keys_.rows(i, i + 1).raw();
    qkv.cache.values = values_.rows(i, i + 1).raw();
    qkv.cos = weights_.cos;
    qkv.sin = weights_.sin;
    cuda::decode_qkv(qkv);
    lap(DecodeStage::qkv);

    DeviceAttention attend;
    attend.y = data_of<float>(ws_.attended);
    attend.q = qkv.q;
    attend.rows = qkv.rows;
    attend.cache = qkv.cache;
    attend.scale = scale_;
    if (ws_.parts > 1) {
      attend.parts = {ws_.parts, data_of<float>(ws_.part_values), data_of<float>(ws_.part_extremes), config_.heads,
                      config_.head_size};
    }
    cuda::decode_attention(attend);
    lap(DecodeStage::attend);

    DeviceProduct out;
    out.in.x = attend.y;
    out.in.stride = config_.heads * config_.head_size;
    out.in.rows = rows.count;
    out.in.parts = attend.parts;
    out.w = layer.out;
    add_to_stream(out);
    lap(DecodeStage::output);
  }

  void mlp(const CudaLayer& layer, int64_t rows) {
    DeviceProduct up;
    up.y = data_of<float>(ws_.hidden);
    up.y_stride = config_.mlp_hidden;
    up.in = stream(rows, layer.norm2);
    up.w = layer.up;
    up.act = config_.is_gated_mlp ? Activation::none : config_.activation;
    up.is_gated = config_.is_gated_mlp;
    cuda::decode_product(up);
    lap(DecodeStage::up);

    DeviceProduct down;
    down.in.x = up.y;
    down.in.stride = up.y_stride;
    down.in.rows = rows;
    down.w = layer.down;
    add_to_stream(down);
    lap(DecodeStage::down);
  }

  void add_to_stream(DeviceProduct& product) {
    product.y = data_of<float>(ws_.h);
    product.y_stride = config_.width;
    product.adds = true;
    cuda::decode_product(product);
  }

  ModelConfig config_;
  DecoderOptions options_;
  CudaWeights weights_;
  int64_t row_capacity_;
  Workspace ws_;
  ChoiceState choice_;
  std::vector<int32_t> step_positions_;  // as step_rows has them
  Tensor keys_, values_;                 // [layers, sequences * kv_heads, context, stride]
  DeviceCache cache_;                    // of layer 0
  float scale_ = 1;
  bool records_ = true;
  std::map<Work, std::unique_ptr<cuda::Graph>> recorded_;  // null: done once
  std::vector<float> host_logits_;
  std::optional<DecodeProfile> profile_;  // of the call at work
  int64_t logits_rows_ = 0;               // of the last run
  bool are_logits_here_ = false;
};

}  // namespace

std::unique_ptr<DecodeEngine> make_cuda_engine(const Transformer& model, const DecoderOptions& options) {
  cuda_runtime();  // Error where there is none
  return std::make_unique<CudaEngine>(model, options);
}

}  // namespace taper
