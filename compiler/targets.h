// Targets by Halide's names, and the CPU features that each needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

// ATTNC_CPU_* bits that the target's code may use, with those that a feature implies. Throws ConfigError for a target
// that attnc has no code for: "target 'x86-64-linux-avx512_zen4' is not supported (avx512_zen4 is not one of ...)".
int64_t cpu_features(std::string_view target);

// The names of the features in `bits`: {"avx", "avx2"}.
std::vector<std::string> feature_names(int64_t bits);

// Checks the targets and puts the best first; empty: the usual CPU set. Throws ConfigError for one that is unknown or
// given twice.
std::vector<std::string> order_targets(std::vector<std::string> targets);

}  // namespace attnc
