// Products by oneDNN 2.6: primitives are made once for each kind of product and thread, then found by it.
#ifdef TAPER_ONEDNN
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <cstring>
#include <unordered_map>

#include "engine/core/cpu_features.h"
#include "engine/core/parallel.h"
#include "engine/kernels/cpu/gemm.h"
#include "engine/kernels/cpu/scratch.h"

namespace taper::cpu {
namespace {

using dnnl::memory;

// All that a primitive depends on: everything of a product but its addresses.
struct Key {
  int64_t m, n, k, a_stride, b_stride, c_stride, flags, threads;

  bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0;
    for (const int64_t part : {key.m, key.n, key.k, key.a_stride, key.b_stride, key.c_stride, key.flags, key.threads}) {
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
  }
};

Key key_of(const Gemm& g) {
  const int64_t flags = int64_t{g.a.is_transposed} | int64_t{g.b.is_transposed} << 1 | int64_t{g.adds} << 2 |
                        int64_t{g.bias != nullptr} << 3 | int64_t{g.dtype == Dtype::bf16} << 4 |
                        int64_t{g.c_dtype == Dtype::bf16} << 5;
  return {g.m, g.n, g.k, g.a.stride, g.b.stride, g.c_stride, flags, omp_in_parallel() ? 1 : thread_count()};
}

struct Product {
  dnnl::matmul primitive;
  memory a, b, c, bias, scratchpad;
  int64_t scratchpad_bytes = 0;
};

const dnnl::engine& engine() {
  static const dnnl::engine one = [] {
    if (!has_avx512_bf16()) {
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core);
    } else if (!has_amx_bf16()) {
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    }
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return one;
}

memory::data_type type_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix(int64_t rows, int64_t columns, Dtype dtype, int64_t stride, bool is_transposed) {
  const memory::dims strides = is_transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  return {{rows, columns}, type_of(dtype), strides};
}

Product make_product(const Gemm& g) {
  const memory::desc a = matrix(g.m, g.k, g.dtype, g.a.stride, g.a.is_transposed);
  const memory::desc b = matrix(g.k, g.n, g.dtype, g.b.stride, g.b.is_transposed);
  const memory::desc c = matrix(g.m, g.n, g.c_dtype, g.c_stride, false);
  const memory::desc bias({1, g.n}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (g.adds) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto description = g.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc chosen(description, attributes, engine());
  Product product{dnnl::matmul(chosen),
                  memory(a, engine(), nullptr),
                  memory(b, engine(), nullptr),
                  memory(c, engine(), nullptr),
                  g.bias ? memory(bias, engine(), nullptr) : memory(),
                  memory(chosen.scratchpad_desc(), engine(), nullptr),
                  static_cast<int64_t>(chosen.scratchpad_desc().get_size())};
  return product;
}

}  // namespace

void gemm_onednn(const Gemm& g) {
  if (!omp_in_parallel() && omp_get_max_threads() != thread_count()) omp_set_num_threads(thread_count());
  thread_local std::unordered_map<Key, Product, KeyHash> products;
  thread_local dnnl::stream stream(engine());
  const Key key = key_of(g);
  auto found = products.find(key);
  if (found == products.end()) found = products.emplace(key, make_product(g)).first;
  Product& product = found->second;
  const Scratch<char> scratchpad(product.scratchpad_bytes);
  product.a.set_data_handle(const_cast<void*>(g.a.data));
  product.b.set_data_handle(const_cast<void*>(g.b.data));
  product.c.set_data_handle(g.c);
  product.scratchpad.set_data_handle(scratchpad.get());
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, product.a},
                                            {DNNL_ARG_WEIGHTS, product.b},
                                            {DNNL_ARG_DST, product.c},
                                            {DNNL_ARG_SCRATCHPAD, product.scratchpad}};
  if (g.bias) {
    product.bias.set_data_handle(const_cast<void*>(g.bias));
    arguments.emplace(DNNL_ARG_BIAS, product.bias);
  }
  product.primitive.execute(stream, arguments);
}

}  // namespace taper::cpu
#endif
