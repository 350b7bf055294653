// A decoder's forward pass written out in double precision, one token after the other, from the named parameters alone:
// what the engine's own forward pass and the decoder's plans are held against.
#pragma once

#include <cstdint>
#include <vector>

#include "model/transformer.h"

namespace taper::test {

// Logits [T][V] of one sequence at the given gate.
std::vector<std::vector<double>> plain_logits(const Transformer& model, const std::vector<int32_t>& tokens,
                                              double gate);

// Every parameter from small random numbers that leave no part of the network without effect: gains near 1, biases and
// shifts not 0, c of each norm its own.
void fill_randomly(const Transformer& model, uint64_t seed);

}  // namespace taper::test
