// Windows and sinks on generated kernels: the same bits as a mask of the same keys, in chunks and tasks of any size, and
// nothing from outside the window.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/harness/scheduled_test.h"

namespace attnc::test {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

// One block of keys, and blocks of 64.
class Windows : public ScheduledTest {};

ATTNC_FOR_EACH_SCHEDULE(Windows, "", "tile_kv:64");

struct Sides {
    int64_t left, right;
};
constexpr Sides kSides[] = {{0, 0}, {20, 5}, {64, 64}, {100, 0}, {3, 200}};

// Query i of 150 has its own key at i + 150, of 300.
constexpr const char* kProblem = "d64_h4_kv2_f32_noout_sink:b2_q150_kv300";

TEST_P(Windows, MatchTheReferenceInTasksOfAnySize) {
    for (const Sides& sides : kSides) {
        LayerCall call = everything(kProblem, 1);
        call.window_left = sides.left, call.window_right = sides.right;
        const RunResult alone = run(call);
        EXPECT_TRUE(matches_reference(call, alone, options())) << sides.left << " " << sides.right;
        for (const int64_t tasks : {2, 7, 40}) {
            RunOptions many = options();
            many.executor = Executor::kSequential, many.concurrency = tasks;
            EXPECT_TRUE(same_bits(alone, run_call(call, many))) << tasks << " tasks";
        }
    }
}

TEST_P(Windows, HaveTheBitsOfABandedMask) {
    for (const Sides& sides : kSides) {
        LayerCall window = everything(kProblem, 2);
        LayerCall band = window;
        window.window_left = sides.left, window.window_right = sides.right;
        band.keep_mask = filled<uint8_t>({1, 1, 150, 300}, 0);
        for (int64_t i = 0; i < 150; ++i) {
            const int64_t own = i + 150;
            for (int64_t j = 0; j < 300; ++j)
                band.keep_mask.at(0, 0, i, j) = own - sides.left <= j && j <= own + sides.right ? 1 : 0;
        }
        EXPECT_TRUE(same_bits(run(window), run(band))) << sides.left << " " << sides.right;
    }
}

TEST_P(Windows, InChunksOfQueriesAreTheSame) {
    LayerCall call = random_call("d64_h4_kv2_f32_noout_sink:b1_q150_kv300", 3);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    call.window_left = 33;
    const RunResult all = run(call);
    for (const int64_t first : {0, 50, 100}) {
        LayerCall chunk = call;
        chunk.sizes.seq_q = 50;
        chunk.query = filled<float>({1, 50, 64}, 0);
        std::copy_n(call.query.values.begin() + first * 64, 50 * 64, chunk.query.values.begin());
        chunk.causal = ATTNC_CAUSAL_OFFSET;
        chunk.causal_offsets = {{1}, {150 + first}};
        const std::vector<float> want(all.out.begin() + first * 64, all.out.begin() + (first + 50) * 64);
        EXPECT_TRUE(same_bits(run(chunk).out, want)) << "from query " << first;
    }
}

TEST_P(Windows, KeepNonFiniteDataOutside) {
    LayerCall call = everything("d64_h4_kv2_f32_noout_sink:b1_q40_kv300", 4);
    call.window_left = 33, call.window_right = 9;
    const RunResult clean = run(call);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        for (const int64_t key : {0, 100, 240, 270, 299}) {
            LayerCall spoilt = call;
            for (int64_t n = 0; n < 64; ++n) spoilt.key.at(0, key, n) = spoilt.value.at(0, key, n) = bad;
            const RunResult got = run(spoilt);
            for (int64_t n = 0; n < 40 * 64; ++n) {
                const auto at = static_cast<size_t>(n);
                const int64_t own = n / 64 + 260;
                if (own - 33 <= key && key <= own + 9) {
                    ASSERT_FALSE(std::isfinite(got.out[at])) << bad << " key " << key << " element " << n;
                } else {
                    ASSERT_EQ(got.out[at], clean.out[at]) << bad << " key " << key << " element " << n;
                }
            }
        }
    }
}

// Item 1 has no key to attend: it has the sink alone.
TEST_P(Windows, SinksOfAnySizeMatchTheReference) {
    LayerCall call = everything("d64_h4_kv2_f32_noout_sink:b2_q20_kv100", 5);
    call.key_drop_mask = filled<uint8_t>({2, 100}, 0);
    for (int64_t key = 0; key < 100; ++key) call.key_drop_mask.at(1, key) = 1;
    for (const float sink : {kLowest, -1e9F, -5.0F, 0.0F, 7.0F, 1e9F, -kLowest}) {
        call.sink = filled<float>({4}, sink);
        const RunResult got = run(call);
        EXPECT_TRUE(matches_reference(call, got, options())) << sink;
        for (size_t n = 80; n < 160; ++n) EXPECT_EQ(got.lse[n], sink);
        for (size_t n = 20 * 64; n < 40 * 64; ++n) EXPECT_EQ(got.out[n], 0);
    }
}

TEST_P(Windows, TheLowestSinkAndASinkOfZeroHaveTheBitsOfNoneAndOfTheKeyOfZeros) {
    LayerCall sink = random_call("d64_h4_kv2_f32_noout_sink:b2_q20_kv100", 6);
    sink.lse = true;
    LayerCall none = sink, zero_key = sink;
    none.config = parse_config("d64_h4_kv2_f32_noout"), none.sink = {};
    zero_key.config = parse_config("d64_h4_kv2_f32_noout_zeroattn"), zero_key.sink = {};
    sink.sink = filled<float>({4}, kLowest);
    EXPECT_TRUE(same_bits(run(sink), run(none)));
    sink.sink = filled<float>({4}, 0);
    EXPECT_TRUE(same_bits(run(sink), run(zero_key)));
}

}  // namespace
}  // namespace attnc::test
