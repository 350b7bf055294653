// The same function as another model: one that a class of Hugging Face's has a place for. Each step takes a model and
// gives a model, so that the result can be run, compared and written like any other.
//
// A removed norm is the identity. Classes have no norm-free form, but a norm with an eps far above the stream's mean
// square is linear: h / sqrt(mean(h^2) + 4^k) = h / 2^k, and a gain of 2^k makes it h again. Powers of four, since
// their roots, and products with them, are exact (the form is FakeLN's, arXiv 2507.02559, there with 10^12 and 10^6).
#pragma once

#include <optional>
#include <string>

#include "engine/io/safetensors.h"
#include "model/hf_tensors.h"
#include "model/transformer.h"

namespace taper {

// 4^k and 2^k. In f32, 2^40 swallows a mean square below 65536; f16 holds no gain above 65504.
struct LargeEps {
  double eps = 0x1p40;
  double gain = 0x1p20;
};
inline LargeEps large_eps_of(StoredDtype dtype) {
  return dtype == StoredDtype::f16 ? LargeEps{0x1p28, 0x1p14} : LargeEps{};
}

// A copy under another configuration: parameters that both have in one shape are copied, gains are 1, the rest 0.
Transformer rebuilt(const Transformer& model, const ModelConfig& config);

// The norms of a model whose gate is 1 still, without the branch that was to replace them.
Transformer with_plain_norms(const Transformer& model);

// With biases, zeros, in the linear layers; with an unembedding of its own.
Transformer with_biases(const Transformer& model);
Transformer with_own_unembedding(const Transformer& model);

// RMSNorm as LayerNorm: the stream is [x, -x], whose mean is 0 and whose variance is mean(x^2). Twice as wide, heads
// twice as wide and padded with zeros, MLPs as they were. REQUIRES an RMS model without gated MLP and rotary positions
// whose doubled width its heads divide.
Transformer with_doubled_stream(const Transformer& model);

// All norms were removed: the large-eps form. A LayerNorm that centres again what readers centre already changes
// nothing; a bias of the unembedding becomes the last norm's (the centred unembedding has no use for the mean's
// direction: with shift 1 and bias / C added to each of a row's entries, it returns the bias). REQUIRES both sites
// removed.
Transformer with_large_eps(const Transformer& model, LargeEps form);

// The blocks' norms were removed, the last one is real. All norms of a class share one eps, so the last one must stay
// real under the large one: a further block multiplies the stream by 1 + K = sqrt(large eps / eps), for
//   norm((1 + K) h; large eps) = norm(h; eps).
// Its attention is zero and its MLP linear: act(x) - act(-x) = x for GELU and ReLU alike, applied to [a h, -a h] with a
// large, where act is exact. REQUIRES blocks' norms removed, the last plain, a plain MLP.
Transformer with_extra_block(const Transformer& model, LargeEps form);

// Which form an export takes; automatic: the first that fits, custom last.
enum class ExportRoute : uint8_t {
  automatic,
  gpt2,         // GPT2LMHeadModel; RMSNorm models by the doubled stream
  imagegpt,     // ImageGPTForCausalImageModeling: RMSNorm models in their own size
  extra_block,  // GPT2LMHeadModel with one block more, for a last norm that stayed
  custom,       // the folder's own modelling file (model/hf_custom.h): runs without norms
};
const char* to_string(ExportRoute route);

struct StockForm {
  HfClass hf_class = HfClass::gpt2;
  std::optional<Transformer> changed;  // none: the model as it is
  bool has_extra_block = false;
  std::string how;  // for messages

  const Transformer& model(const Transformer& source) const { return changed ? *changed : source; }
};

// The model in a class of Hugging Face's, by the route asked for; none where that is impossible, with the reason in
// `why_not`. REQUIRES no norm that tapers.
std::optional<StockForm> make_stock_form(const Transformer& model, ExportRoute route, LargeEps form,
                                         std::string* why_not);

}  // namespace taper
