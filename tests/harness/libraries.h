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

// From now on libraries are built with CPU kernels that check what the runtime gives them, as those of builds don't.
void check_kernel_arguments();

// The layer's target of a library for a device.
inline constexpr const char* kDevice = "cuda";

// The library of a configuration for a device, as its twin: the same runtime and the same kernels, which PoCL runs on a
// stand-in for CUDA's driver. Device memory is any memory there. Small tiles, so that small calls have many and the
// compilation of kernels is short; `cuda_schedule` is laid over those.
const attnc_library* twin_library_of(const Config& config, const std::string& cuda_schedule = "");

// Why no twin can run here; empty: one can.
const std::string& missing_twins();

#define ATTNC_SKIP_WITHOUT_TWINS()                                                                   \
    do {                                                                                             \
        if (!::attnc::test::missing_twins().empty()) GTEST_SKIP() << ::attnc::test::missing_twins(); \
    } while (false)

KeyBlocks key_blocks_of(const attnc_library* library, const std::string& target);

}  // namespace attnc::test
