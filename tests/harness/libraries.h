// Libraries built while the tests run, by the command's own functions and worker processes.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/attnc.h"
#include "stages/config.h"
#include "support/comparison.h"

namespace attnc::test {

// The library of a configuration for the instruction sets that this CPU runs, built at its first use in this
// process and kept. `schedule` is laid over the default one ("tile_kv:32"). Kernels are shared with all other
// tests through a cache in the build folder. With a target the library has no other one, for schedules that not all
// can have. Throws what the build throws.
const attnc_library* library_of(const Config& config, const std::string& schedule = "",
                                const std::string& only_target = "");

KeyBlocks key_blocks_of(const attnc_library* library, const std::string& target);

}  // namespace attnc::test
