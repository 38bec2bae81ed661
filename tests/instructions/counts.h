// Instructions of calls, as they are kept in the repository and as they are found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc::test {

// Of one call: those of generated kernels, and those of the runtime round them.
struct Count {
    std::string call;  // "d512_h8_f32:b2_q50 causal": a problem, then what the call has besides
    int64_t kernels = 0, runtime = 0;
    int64_t all() const { return kernels + runtime; }
};

// The text of a file of counts: lines "kernels runtime call"; '#' begins a comment. Throws std::runtime_error:
// "counts line 3: 'x' is not a number".
std::vector<Count> parse_counts(std::string_view text);
// The same text with other numbers; comments stay.
std::string with_counts(std::string_view text, const std::vector<Count>& counts);

// What is to be said where a call takes over 2 % more or less than is stored; "" where it doesn't. `update` is the command
// that stores new numbers.
std::string complaint(const Count& stored, const Count& found, std::string_view update);

}  // namespace attnc::test
