// A kernel's CUDA code, as the generators make it and as NVIDIA's assembler takes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/command/run_attnc.h"

namespace attnc::test {

// Programs of the CUDA toolkit: on PATH, in the toolkit's usual place or in .venv; "" if they are nowhere.
std::string ptxas();
std::string nvdisasm();

#define ATTNC_SKIP_WITHOUT_CUDA_TOOL(tool)                                                       \
    do {                                                                                         \
        if (tool().empty())                                                                      \
            GTEST_SKIP() << #tool " is neither on PATH nor in .venv nor in /usr/local/cuda/bin"; \
    } while (false)

// What a launch asks for.
struct Launch {
    int64_t threads_x = 0, threads_y = 0, shared_bytes = -1;  // -1: not constant
};

// What ptxas reports.
struct Assembled {
    int64_t registers = 0, stack_bytes = 0, spill_bytes = 0;  // spills: the larger one of stores and loads
};

class CudaKernel {
public:
    // Runs `attnc generate`; a failure is the test's.
    CudaKernel(const std::string& generator, const std::string& config, const std::string& schedule);

    std::string ptx() const;
    std::vector<Launch> launches() const;
    // Names that the object leaves undefined.
    std::vector<std::string> undefined_names() const;
    // For sm_<architecture>, with at most so many registers.
    Assembled assemble(int architecture, int64_t registers) const;
    // Instructions of what `assemble` made last, in order.
    std::string sass() const;

private:
    TestFolder folder_;
};

// A loop of SASS: instructions between a label and the jump back to it.
struct SassLoop {
    size_t first = 0, last = 0;
    int64_t instructions = 0, multiply_adds = 0;  // those of inner loops left out
    std::vector<SassLoop> inner;
};
// Outermost loops of a program; the endless one at its end, which is never reached, left out.
std::vector<SassLoop> sass_loops(const std::string& sass);

}  // namespace attnc::test
