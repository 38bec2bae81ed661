// A packed batch on generated kernels: each sequence has the bits that it has alone.
#include <gtest/gtest.h>

#include <string>

#include "tests/harness/libraries.h"
#include "tests/harness/packed_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

class Packed : public ::testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (!cpu_runs(GetParam())) GTEST_SKIP() << "this CPU does not run " << GetParam();
    }
};
INSTANTIATE_TEST_SUITE_P(Cpu, Packed, ::testing::ValuesIn(all_targets()),
                         [](const auto& test) { return short_name(test.param); });

// The item of `padded` has the rows of the item alone, bit for bit.
void expect_alone(const LayerCall& call, const RunResult& packed, int64_t item, const std::string& target) {
    LayerCall alone = item_of(call, item);
    const int64_t rows = call.query_length(item), features = call.config.d_model;
    const RunResult got = run_call(alone, target);
    ASSERT_EQ(got.status, ATTNC_OK) << got.error;
    const auto first = packed.out.begin() + item * call.sizes.seq_q * features;
    EXPECT_TRUE(same_bits(std::vector<float>(first, first + rows * features),
                          std::vector<float>(got.out.begin(), got.out.begin() + rows * features)))
        << "item " << item;
}

TEST_P(Packed, EverySequenceHasTheBitsThatItHasAlone) {
    for (const char* const problem : {"d64_h4_f32:b6_q90_kv90", "d64_h4_kv2_f32_causal:b6_q90_kv90"}) {
        LayerCall call = random_call(problem, 1);
        call.key = {}, call.value = {};
        call.query_lengths = filled<int64_t>({6}, 0);
        const int64_t lengths[] = {90, 1, 33, 0, 64, 17};
        for (int64_t b = 0; b < 6; ++b) call.query_lengths.at(b) = lengths[b];
        call.key_lengths = call.query_lengths;
        const RunResult packed = run_packed(library_of(call.config), call, {.target = GetParam().c_str()});
        ASSERT_EQ(packed.status, ATTNC_OK) << packed.error;
        for (int64_t b = 0; b < 6; ++b) expect_alone(call, packed, b, GetParam());
    }
}

}  // namespace
}  // namespace attnc::test
