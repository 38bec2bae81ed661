// Layout: the numbers that decide memory between kernels. One per library and target, kept in the manifest.
#pragma once

#include <cstdint>

namespace attnc {

struct Layout {
    int64_t panel = 64;  // columns of a packed panel of wq, wk, wv: a multiple of 16; divides the padded head
                         // of both Q/K and V, or is a multiple of them where the two are equal
    int64_t out_panel = 64;  // columns of a packed panel of wo: a multiple of 16
    int64_t tile_kv = 2048;  // keys in a block of attend: its K and V should fit L2; a multiple of 16
    int64_t split_kv = 512;  // keys in a split of attend_decode, at absolute multiples; a multiple of 16
    bool operator==(const Layout&) const = default;
};

}  // namespace attnc
