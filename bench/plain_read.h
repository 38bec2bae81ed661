// Reads memory and does nothing with it: what a call that is bound by its bytes is held against.
#pragma once

#include <cstddef>
#include <span>

namespace attnc::bench {

// The sum of all numbers, with this CPU's widest loads, in as many streams at once as it takes. A multiple of 64 numbers.
float read_plainly(std::span<const float> numbers);

}  // namespace attnc::bench
