// The machine's rate of multiply-adds, measured beside what is compared with it: independent FMAs that never leave the
// registers, with the best instruction set of this CPU.
#pragma once

#include <cstdint>
#include <string>

namespace attnc {

// "avx512", "avx2" or "sse2" (which multiplies and adds apart).
std::string fma_probe_name();

// Runs `pieces` pieces of the probe, tens of microseconds each, on the calling thread.
void fma_probe_run(int64_t pieces);

// Floating-point operations of a piece: 2 for each lane of a multiply-add.
double fma_probe_operations();

}  // namespace attnc
