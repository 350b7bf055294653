// A model's norms as a plan of decoding has them, for either device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/kernels/decode.h"
#include "infer/plan.h"
#include "model/transformer.h"

namespace taper {

// Error for the folded plan where norms that taper are left: fold the model first; and for a model whose masters are
// not f32.
void check_decodable(const Transformer& model, Plan plan);

// The norm of this name and site. A plain norm is a norm and a removed one is nothing in any plan. keep() puts a vector
// [C] where the kernels will read it.
DecodeNorm decode_norm(const Transformer& model, const std::string& name, NormSite site, Plan plan,
                       const std::function<const float*(std::vector<float>)>& keep);

}  // namespace taper
