// NaN and infinity: in what is dropped they change no bit, in what is attended they reach exactly the rows that
// depend on them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kRows = 5, kKeys = 7, kHeads = 3, kWidth = 48;

// A way to drop keys; dropped(row, key) says which this one drops, in every head of item 0.
struct Form {
    const char* name;
    std::function<void(LayerCall&)> apply;
    std::function<bool(int64_t row, int64_t key)> dropped;
};

bool odd_spots(int64_t row, int64_t key) { return (row + 2 * key) % 3 == 0; }
bool odd_keys(int64_t, int64_t key) { return key % 2 == 1; }

const std::vector<Form>& forms() {
    static const std::vector<Form> all = {
        {"keep_mask",
         [](LayerCall& call) {
             call.keep_mask = filled<uint8_t>({1, 1, kRows, kKeys}, 1);
             for (int64_t n = 0; n < kRows * kKeys; ++n) {
                 if (odd_spots(n / kKeys, n % kKeys)) call.keep_mask.at(0, 0, n / kKeys, n % kKeys) = 0;
             }
         },
         odd_spots},
        {"drop_mask",
         [](LayerCall& call) {
             call.drop_mask = filled<uint8_t>({1, kHeads, kRows, kKeys}, 0);
             for (int64_t n = 0; n < kHeads * kRows * kKeys; ++n) {
                 const int64_t row = n / kKeys % kRows, key = n % kKeys;
                 if (odd_spots(row, key)) call.drop_mask.at(0, n / (kRows * kKeys), row, key) = 1;
             }
         },
         odd_spots},
        {"bias",
         [](LayerCall& call) {
             call.bias = filled<float>({1, 1, kRows, kKeys}, 0.5F);
             for (int64_t n = 0; n < kRows * kKeys; ++n) {
                 if (odd_spots(n / kKeys, n % kKeys)) call.bias.at(0, 0, n / kKeys, n % kKeys) = -kInfinity;
             }
         },
         odd_spots},
        {"key_keep_mask",
         [](LayerCall& call) {
             call.key_keep_mask = {{1, kKeys}, {1, 0, 1, 0, 1, 0, 1}};
         },
         odd_keys},
        {"key_drop_mask",
         [](LayerCall& call) {
             call.key_drop_mask = {{1, kKeys}, {0, 1, 0, 1, 0, 1, 0}};
         },
         odd_keys},
        {"key_bias",
         [](LayerCall& call) {
             call.key_bias = {{1, kKeys}, {1, -kInfinity, 0, -kInfinity, 2, -kInfinity, 0}};
         },
         odd_keys},
        {"key_lengths",
         [](LayerCall& call) {
             call.key_lengths = {{1}, {4}};
         },
         [](int64_t, int64_t key) { return key >= 4; }},
        {"causal", [](LayerCall& call) { call.causal = ATTNC_CAUSAL_TOP_LEFT; },
         [](int64_t row, int64_t key) { return key > row; }},
        {"none", [](LayerCall&) {}, [](int64_t, int64_t) { return false; }},
    };
    return all;
}

class NonFinite : public ::testing::TestWithParam<std::tuple<std::string, int>> {
protected:
    void SetUp() override {
        if (!cpu_runs(target())) GTEST_SKIP() << "this CPU does not run " << target();
    }
    const std::string& target() const { return std::get<0>(GetParam()); }
    const Form& form() const { return forms()[static_cast<size_t>(std::get<1>(GetParam()))]; }

    LayerCall bare_call() const {
        LayerCall call = random_call("d48_h3_f32_noin_noout:b1_q5_kv7", 41);
        form().apply(call);
        call.probs = call.lse = true;
        return call;
    }
};
INSTANTIATE_TEST_SUITE_P(Cpu, NonFinite,
                         ::testing::Combine(::testing::ValuesIn(all_targets()),
                                            ::testing::Range(0, static_cast<int>(forms().size()))),
                         [](const auto& test) {
                             return short_name(std::get<0>(test.param)) + "_" +
                                    forms()[static_cast<size_t>(std::get<1>(test.param))].name;
                         });

std::vector<float> row_of(const RunResult& result, int64_t row) {
    return {result.out.begin() + row * kWidth, result.out.begin() + (row + 1) * kWidth};
}

TEST_P(NonFinite, KeysAndValuesReachExactlyTheRowsThatAttendThem) {
    const LayerCall clean = bare_call();
    const RunResult usual = run_call(clean, target());
    ASSERT_TRUE(matches_reference(clean, usual, {.target = target()}));
    for (const float value : {kNan, kInfinity, -kInfinity}) {
        for (const bool in_value : {false, true}) {
            for (int64_t key = 0; key < kKeys; ++key) {
                LayerCall call = clean;
                // One feature of each head.
                for (int64_t head = 0; head < kHeads; ++head)
                    (in_value ? call.value : call.key).at(0, key, head * 16 + 3) = value;
                const RunResult got = run_call(call, target());
                ASSERT_EQ(got.status, ATTNC_OK) << got.error;
                const std::string place =
                    std::to_string(value) + (in_value ? " in value " : " in key ") + std::to_string(key);
                for (int64_t row = 0; row < kRows; ++row) {
                    if (form().dropped(row, key)) {
                        EXPECT_TRUE(same_bits(row_of(got, row), row_of(usual, row)))
                            << place << ", row " << row;
                    }
                }
                // An infinite key gives scores of either infinity, by the query's sign; the reference has them.
                EXPECT_TRUE(matches_reference(call, got, {.target = target()})) << place;
            }
        }
    }
}

TEST_P(NonFinite, QueriesReachTheirOwnRowsOnly) {
    const LayerCall clean = bare_call();
    const RunResult usual = run_call(clean, target());
    for (int64_t bad = 0; bad < kRows; ++bad) {
        LayerCall call = clean;
        for (int64_t head = 0; head < kHeads; ++head) call.query.at(0, bad, head * 16 + 5) = kNan;
        const RunResult got = run_call(call, target());
        for (int64_t row = 0; row < kRows; ++row) {
            if (row != bad) {
                EXPECT_TRUE(same_bits(row_of(got, row), row_of(usual, row))) << "row " << row;
            }
        }
        EXPECT_TRUE(matches_reference(call, got, {.target = target()})) << "query " << bad;
    }
}

TEST_P(NonFinite, TokensOfALayerReachExactlyTheRowsThatAttendThem) {
    LayerCall clean = random_call("d48_h3_f32:b1_q5_kv7", 42);
    form().apply(clean);
    const RunResult usual = run_call(clean, target());
    for (int64_t key = 0; key < kKeys; ++key) {
        for (auto* tokens : {&clean.key, &clean.value}) {
            const float before = tokens->at(0, key, 7);
            tokens->at(0, key, 7) = kNan;
            const RunResult got = run_call(clean, target());
            tokens->at(0, key, 7) = before;
            ASSERT_EQ(got.status, ATTNC_OK) << got.error;
            for (int64_t row = 0; row < kRows; ++row) {
                if (form().dropped(row, key)) {
                    EXPECT_TRUE(same_bits(row_of(got, row), row_of(usual, row)))
                        << "key " << key << ", row " << row;
                } else {
                    for (const float y : row_of(got, row))
                        ASSERT_TRUE(std::isnan(y)) << "key " << key << ", row " << row;
                }
            }
        }
    }
}

class NonFiniteBias : public TargetTest {};
ATTNC_FOR_EACH_TARGET(NonFiniteBias);

TEST_P(NonFiniteBias, NanReachesItsRowOnly) {
    LayerCall call = random_call("d48_h3_f32_noin_noout:b1_q5_kv7", 43);
    call.bias = filled<float>({1, 1, kRows, kKeys}, 0);
    const RunResult usual = run_call(call, target());
    call.bias.at(0, 0, 2, 4) = kNan;
    const RunResult got = run_call(call, target());
    for (int64_t row = 0; row < kRows; ++row) {
        if (row != 2) {
            EXPECT_TRUE(same_bits(row_of(got, row), row_of(usual, row))) << "row " << row;
        }
    }
    for (const float y : row_of(got, 2)) EXPECT_TRUE(std::isnan(y));
}

// The most negative finite number is a bias like any other: the scores vanish beside it, but the key stays.
TEST_P(NonFiniteBias, HugeNegativeNumbersAreFiniteBiases) {
    for (const float huge : {-65504.0F, -1e9F, -1e30F, std::numeric_limits<float>::lowest()}) {
        LayerCall call = random_call("d48_h3_f32_noin_noout:b1_q5_kv7", 44);
        call.bias = filled<float>({1, 1, kRows, kKeys}, 0);
        for (int64_t key = 0; key < kKeys; ++key) call.bias.at(0, 0, 1, key) = huge;
        for (int64_t key = 1; key < kKeys; ++key) call.bias.at(0, 0, 3, key) = huge;
        const RunResult got = run_call(call, target());
        ASSERT_EQ(got.status, ATTNC_OK) << got.error;
        for (const float y : got.out) ASSERT_TRUE(std::isfinite(y)) << huge;
        for (int64_t c = 0; c < kWidth; ++c) {
            EXPECT_EQ(row_of(got, 3)[static_cast<size_t>(c)], call.value.at(0, 0, c))
                << huge;                 // the one key left
            if (huge > -1e8F) continue;  // -65504 leaves a few bits of the scores
            double mean = 0;
            for (int64_t key = 0; key < kKeys; ++key)
                mean += call.value.at(0, key, c) / static_cast<double>(kKeys);
            EXPECT_NEAR(row_of(got, 1)[static_cast<size_t>(c)], mean, 1e-6) << huge;
        }
    }
}

}  // namespace
}  // namespace attnc::test
