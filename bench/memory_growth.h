// How much a process grows for a call: meant for one that has done nothing else yet.
#pragma once

#include <cstdint>
#include <filesystem>

#include "stages/config.h"

namespace attnc::bench {

// Most bytes that are resident at a time from when the layer is made until a call of it has returned, less those that
// were resident before: input, output and workspace. Throws std::runtime_error.
int64_t memory_growth(const Problem& problem, const std::filesystem::path& archive);

}  // namespace attnc::bench
