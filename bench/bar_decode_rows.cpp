// Rows of the bar for one query: a call's time against that of reading as many bytes as its keys and values have.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/bar_row.h"
#include "bench/plain_read.h"
#include "compiler/cached_call.h"

namespace attnc::bench {

namespace {

// Keys and values that don't fit a core's L2 are read from as much memory as leaves none of it there.
constexpr int64_t kL2 = int64_t{1} << 20;
constexpr int64_t kFarMemory = int64_t{192} << 20;

// As many buffers as a decode call has slots, in turn.
class Reads {
public:
    Reads(int64_t bytes, int64_t buffers)
        : count_(static_cast<size_t>(bytes) / sizeof(float)), memory_(static_cast<size_t>(bytes * buffers)) {
        numbers_ = {static_cast<float*>(memory_.data()), count_ * static_cast<size_t>(buffers)};
        std::fill(numbers_.begin(), numbers_.end(), 1.0F);
    }
    void call() {
        sum_ = read_plainly(numbers_.subspan(next_, count_));
        next_ = (next_ + count_) % numbers_.size();
    }

private:
    size_t count_, next_ = 0;
    AlignedBytes memory_;
    std::span<float> numbers_;
    volatile float sum_ = 0;
};

Figure decode(const BarContext& context, int64_t keys) {
    const OneCore core;
    const Problem problem = {parse_config("d512_h8_f32_noin_noout_cache"), {1, 1, keys}};
    const int64_t bytes = kv_bytes(problem);
    const int64_t slots = bytes > kL2 ? std::max<int64_t>(kFarMemory / bytes, 2) : 1;
    CachedCall call(context.setup(problem), slots);
    Reads reads(bytes, slots);
    const auto results = context.time({{"read", static_cast<double>(bytes), [&] { reads.call(); }},
                                       {"decode", static_cast<double>(bytes), [&] { call.call(); }}});
    const auto rate = [&](const TimedResult& result) {
        return static_cast<double>(bytes) / result.ms_best / 1e6;
    };
    return {
        best_ratio(results[0], results[1]),
        fmt::format(
            "{} keys, 8 heads of 64: {:.2f} us, {:.1f} GB/s; plain read {:.1f} GB/s from {}; median {:.3f}",
            keys, results[1].ms_best * 1e3, rate(results[1]), rate(results[0]),
            slots == 1 ? "L2" : fmt::format("{} MiB", bytes * slots >> 20),
            median_ratio(results[0], results[1]))};
}

}  // namespace

void add_decode_rows(const BarContext& context, Rows& rows) {
    for (const auto& [keys, bar] :
         {std::pair<int64_t, double>{128, 0.68}, {1024, 0.90}, {2048, 0.90}, {4096, 0.90}, {8192, 0.90}}) {
        rows.push_back({fmt::format("decode 1 query {} keys", keys), "of a plain read", false, bar,
                        [&context, keys = keys] { return decode(context, keys); }});
    }
}

}  // namespace attnc::bench
