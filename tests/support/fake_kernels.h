// The kernels of the fake library, as scalar loops: each refuses arguments against its contract, and else computes. For
// fake_*.cpp alone.
#pragma once

#include <cstdint>

namespace attnc::test::fake {

// In fake_attention.cpp.
int32_t attend(int kernel, void** argv);
int32_t decode(int kernel, void** argv);
int32_t merge(int kernel, void** argv);
int32_t log_sum(int kernel, void** argv);
int32_t probs(int kernel, void** argv);
int32_t show_scores(int kernel, void** argv);
void forget_foretold();  // what the call before said of this one

// In fake_heads.cpp.
int32_t project(int kernel, void** argv);
int32_t copy_heads(int kernel, void** argv);
int32_t norm_heads(int kernel, void** argv);
int32_t rotate_halves(int kernel, void** argv);
int32_t rotate_pairs(int kernel, void** argv);
int32_t rotary_angles(int kernel, void** argv);

}  // namespace attnc::test::fake
