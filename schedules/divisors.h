// Values of a parameter that has to divide a size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace attnc {

// Multiples of `multiple` that divide `of`, from `least` to `most`, in ascending order.
inline std::vector<int64_t> divisors(int64_t of, int64_t multiple, int64_t least, int64_t most) {
    std::vector<int64_t> found;
    for (int64_t n = multiple; n <= std::min(of, most); n += multiple) {
        if (n >= least && of % n == 0) found.push_back(n);
    }
    return found;
}

}  // namespace attnc
