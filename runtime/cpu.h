// What this CPU and operating system can run.
#pragma once

#include <cstdint>

namespace attnc {

// ATTNC_CPU_* bits: what CPUID reports, less what the operating system does not save (XGETBV).
int64_t detect_cpu_features();

}  // namespace attnc
