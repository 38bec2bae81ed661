// Laws of attention through twin libraries: random calls against float64, and what must not change one bit of a result.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "compiler/device_call.h"
#include "compiler/verify_layer.h"
#include "tests/harness/layer_call.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"

namespace attnc::test {
namespace {

std::string name_of(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

const RunOptions kOnDevice = {.target = kDevice};

class RandomCallsOnDevice : public ::testing::TestWithParam<const char*> {};

// Calls of a kind that a device does without are refused, and most are of none.
TEST_P(RandomCallsOnDevice, AreWithinTheirBounds) {
    ATTNC_SKIP_WITHOUT_TWINS();
    constexpr uint64_t kCalls = 16;
    const Config config = parse_config(GetParam());
    const attnc_library* const library = twin_library_of(config);
    uint64_t refused = 0;
    for (uint64_t seed = 1; seed <= kCalls; ++seed) {
        const auto call = attnc::random_call(config, seed);
        try {
            EXPECT_EQ(check_call(library, kDevice, *call, reference_of(*call)), "")
                << to_string(call->problem) << ", seed " << seed;
        } catch (const StatusError& error) {
            EXPECT_TRUE(is_beyond_device(error, kDevice)) << error.what() << ", seed " << seed;
            ++refused;
        }
    }
    EXPECT_LE(refused, kCalls / 8);
}

INSTANTIATE_TEST_SUITE_P(Layers, RandomCallsOnDevice,
                         ::testing::Values("d48_h3_f32_nomask", "d64_h4_kv2_f32_noprobs",
                                           "d40_h2_hd20_vhd40_f32_biaskv_zeroattn_sink",
                                           "d32_h2_f32_alibi_softcap_scores", "d32_h2_f32_qknorm_rope",
                                           "d64_h4_f32_noin_noout_ropepairs"),
                         name_of);

LayerCall padded_call() {
    LayerCall call = random_call("d32_h2_f32:b3_q40_kv70", 5);
    call.key_lengths = {{3}, {70, 33, 0}};
    call.query_lengths = {{3}, {40, 7, 40}};
    call.lse = call.probs = true;
    return call;
}

TEST(LayersOnDevice, HaveRowsThatDoNotDependOnTheirBatch) {
    ATTNC_SKIP_WITHOUT_TWINS();
    const LayerCall call = padded_call();
    const RunResult all = run_call(call, kOnDevice);
    ASSERT_EQ(all.status, ATTNC_OK) << all.error;
    const size_t rows = all.out.size() / 3;
    for (int64_t item = 0; item < 3; ++item) {
        const RunResult alone = run_call(item_of(call, item), kOnDevice);
        ASSERT_EQ(alone.status, ATTNC_OK) << alone.error;
        const auto begin = all.out.begin() + item * static_cast<int64_t>(rows);
        EXPECT_TRUE(same_bits(alone.out, {begin, begin + static_cast<int64_t>(rows)})) << "item " << item;
    }
}

// Rows past a length are never read.
TEST(LayersOnDevice, DoNotReadPadding) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = padded_call();
    const RunResult clean = run_call(call, kOnDevice);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int64_t item = 0; item < 3; ++item) {
        for (int64_t d = 0; d < 32; ++d) {
            for (int64_t j = call.key_length(item); j < 70; ++j)
                call.key.at(item, j, d) = call.value.at(item, j, d) = nan;
            for (int64_t i = call.query_length(item); i < 40; ++i) call.query.at(item, i, d) = nan;
        }
    }
    EXPECT_TRUE(same_bits(clean, run_call(call, kOnDevice)));
}

TEST(LayersOnDevice, FutureKeysDoNotChangePastRows) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = random_call("d32_h2_f32:b1_q75_kv75", 6);
    call.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    const RunResult before = run_call(call, kOnDevice);
    ASSERT_EQ(before.status, ATTNC_OK) << before.error;
    constexpr int64_t kPast = 41;  // inside of a tile of queries and of a block of keys
    for (int64_t j = kPast; j < 75; ++j) {
        for (int64_t d = 0; d < 32; ++d) {
            call.key.at(0, j, d) = 100;
            call.value.at(0, j, d) = std::numeric_limits<float>::infinity();
        }
    }
    const RunResult after = run_call(call, kOnDevice);
    ASSERT_EQ(after.status, ATTNC_OK) << after.error;
    EXPECT_TRUE(same_bits({before.out.begin(), before.out.begin() + kPast * 32},
                          {after.out.begin(), after.out.begin() + kPast * 32}));
}

// Asking for more changes no bit of out.
TEST(LayersOnDevice, HaveTheSameOutWithMoreOutputs) {
    ATTNC_SKIP_WITHOUT_TWINS();
    LayerCall call = random_call("d32_h2_f32:b2_q9_kv70", 7);
    const RunResult plain = run_call(call, kOnDevice);
    call.probs = call.probs_averaged = call.lse = true;
    EXPECT_TRUE(same_bits(plain, run_call(call, kOnDevice)));
}

}  // namespace
}  // namespace attnc::test
