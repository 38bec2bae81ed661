// The innermost loops of a kernel, from its assembly.
#pragma once

#include <string>
#include <vector>

namespace attnc::test {

struct InnerLoop {
    std::vector<std::string> lines;  // from the label to the jump back to it
    int fused_multiply_adds = 0;
};

// Loops without a label inside, in AT&T syntax; the one with most fused multiply-adds first.
std::vector<InnerLoop> inner_loops(const std::string& assembly);

// The first `count` of them as text that FileCheck reads: each between a line LOOP and a line END.
std::string as_text(const std::vector<InnerLoop>& loops, size_t count);

}  // namespace attnc::test
