// The machine's rate of multiply-adds, measured beside what is compared with it: independent FMAs that never leave the
// registers.
#pragma once

#include <cstdint>
#include <string>

namespace attnc {

class FmaProbe {
public:
    // With the best instruction set of this CPU.
    FmaProbe();
    // With the instruction set that a target's kernels use, which this CPU must have.
    static FmaProbe of_target(const std::string& target);

    // "avx512", "avx2" or "sse2" (which multiplies and adds apart).
    const char* name() const { return name_; }

    // Runs `pieces` pieces of the probe, tens of microseconds each, on the calling thread.
    void run(int64_t pieces) const;

    // Floating-point operations of a piece: 2 for each lane of a multiply-add.
    double operations() const;

private:
    using Rounds = void (*)();
    FmaProbe(const char* name, Rounds rounds, double operations)
        : name_(name), rounds_(rounds), instruction_operations_(operations) {}

    const char* name_;
    Rounds rounds_;
    double instruction_operations_;
};

}  // namespace attnc
