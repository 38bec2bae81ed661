// RMS norms and rotary embeddings on generated kernels: how exact they are, what they leave alone, and that a row depends on
// nothing but itself and its position.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support/tolerance.h"
#include "tests/harness/guarded_memory.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/packed_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

constexpr double u = kUnitRoundoff;

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};

class Heads : public TargetTest {
protected:
    RunOptions options() const { return {.target = target()}; }
    RunResult run(const LayerCall& call) const {
        RunResult result = run_call(call, options());
        EXPECT_EQ(result.status, ATTNC_OK) << result.error;
        return result;
    }
    // attnc_layer_rotate of a layer with the call's options, x of rank 3 or 4 to the same shape.
    Array<float> rotated(const LayerCall& call, attnc_heads heads, const Array<float>& x,
                         const Array<int64_t>& positions, const attnc_executor* executor = nullptr) const {
        attnc_error error = {};
        const attnc_weights weights = call.weights();
        attnc_layer_options layer_options = call.options();
        layer_options.target = target().c_str();
        attnc_layer* created = nullptr;
        EXPECT_EQ(attnc_layer_create(library_of(call.config), &weights, &layer_options, &created, &error),
                  ATTNC_OK)
            << error.text;
        const std::unique_ptr<attnc_layer, LayerDelete> layer(created);
        Array<float> out = filled<float>(x.shape, -1);
        attnc_rotation rotation = ATTNC_ROTATION_INIT;
        rotation.heads = heads;
        rotation.x = x.view(), rotation.positions = positions.view(), rotation.out = out.view();
        attnc_run run = ATTNC_RUN_INIT;
        run.executor = executor;
        EXPECT_EQ(attnc_layer_rotate_workspace(created, &run, &run.workspace_bytes, &error), ATTNC_OK);
        const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, 64);
        run.workspace = workspace.data();
        EXPECT_EQ(attnc_layer_rotate(created, &rotation, &run, &error), ATTNC_OK) << error.text;
        return out;
    }
};
ATTNC_FOR_EACH_TARGET(Heads);

TEST_P(Heads, MatchTheReference) {
    for (const char* const problem :
         {"d64_h2_f32_rope:b2_q37_kv37", "d128_h4_kv2_f32_ropepairs:b2_q19_kv50",
          "d96_h2_f32_qknorm:b2_q20_kv20", "d144_h2_f32_noout_qknorm_rope:b2_q20_kv33",
          "d72_h2_f32_noin_noout_qknorm_ropepairs:b2_q20_kv33", "d160_h2_f32_causal_rope:b1_q70_kv70"}) {
        LayerCall call = random_call(problem, 1);
        EXPECT_TRUE(matches_reference(call, options())) << problem;
        if (call.config.rotary == Rotary::kNone) continue;
        call.position_offsets = filled<int64_t>({call.sizes.batch}, 1000);
        EXPECT_TRUE(matches_reference(call, options())) << problem;
        call.query_positions = filled<int64_t>({call.sizes.batch, call.sizes.seq_q}, 0);
        Random random(2);
        for (int64_t& p : call.query_positions.values) p = random.between(-(1 << 20), 1 << 20);
        EXPECT_TRUE(matches_reference(call, options())) << problem;
    }
}

TEST_P(Heads, OfEveryRotatedSizeMatchTheReference) {
    for (const char* const problem :
         {"d160_h2_f32_noin_noout_rope:b1_q9_kv9", "d160_h2_f32_noin_noout_ropepairs:b1_q9_kv9"}) {
        LayerCall call = random_call(problem, 3);
        for (const int64_t dim : {2, 4, 14, 16, 30, 32, 34, 62, 64, 66, 78, 80}) {
            call.rotary.dim = dim;
            EXPECT_TRUE(matches_reference(call, options())) << problem << " " << dim;
        }
    }
}

// (1, 0) becomes (cos, sin).
TEST_P(Heads, AnglesAreExactForEveryPosition) {
    LayerCall call = random_call("d32_h1_f32_noin_noout_rope:b1_q1_kv1", 4);
    call.rotary.base = 0, call.rotary.magnitude = 1.5;
    const std::vector<double> frequencies = {1,    0,       0x1p-20, 1e-4, 0.1,      0.7,
                                             -0.3, 3.14159, 50.5,    1e-7, 12345.678};
    call.rotary_frequencies = filled<double>({16}, 0);
    Random random(5);
    for (size_t i = 0; i < 16; ++i)
        call.rotary_frequencies.values[i] =
            i < frequencies.size() ? frequencies[i] : double{std::fabs(generated_value(5, i, 1))};
    Array<int64_t> positions = {{1, 8}, {0, 1, -1, 3, 1000003, 2147483647, -2147483647, -1999999999}};
    for (int i = 0; i < 200; ++i) positions.values.push_back(random.between(-2147483647, 2147483647));
    positions.shape[1] = positions.count();
    Array<float> x = filled<float>({1, positions.count(), 32}, 0);
    for (int64_t n = 0; n < positions.count(); ++n) {
        for (int64_t i = 0; i < 16; ++i) x.at(0, n, i) = 1;
    }
    const Array<float> got = rotated(call, ATTNC_HEADS_QUERY, x, positions);
    for (int64_t n = 0; n < positions.count(); ++n) {
        for (int64_t i = 0; i < 16; ++i) {
            const double frequency = call.rotary_frequencies.at(i);
            // Beyond 2^33 radians the comparison itself would be off.
            if (std::fabs(frequency) > 4 && std::abs(positions.at(0, n)) > 10000000) continue;
            const long double angle =
                static_cast<long double>(positions.at(0, n)) * static_cast<long double>(frequency);
            const auto cos = static_cast<double>(std::cos(angle)), sin = static_cast<double>(std::sin(angle));
            const double bound = 1.02 * u * 1.5;
            ASSERT_NEAR(static_cast<double>(got.at(0, n, i)), 1.5 * cos, bound)
                << positions.at(0, n) << " * " << frequency;
            ASSERT_NEAR(static_cast<double>(got.at(0, n, i + 16)), 1.5 * sin, bound)
                << positions.at(0, n) << " * " << frequency;
        }
    }
}

TEST_P(Heads, PositionZeroIsTheIdentityAndFeaturesPastTheRotatedOnesKeepTheirBits) {
    const float odd[] = {1e-42F,
                         -0.0F,
                         std::numeric_limits<float>::infinity(),
                         -3.5F,
                         std::bit_cast<float>(0x7fa12345U),
                         std::numeric_limits<float>::max()};
    for (const char* const problem :
         {"d72_h2_f32_noin_noout_rope:b1_q1_kv1", "d72_h2_f32_noin_noout_ropepairs:b1_q1_kv1"}) {
        LayerCall call = random_call(problem, 6);
        call.rotary.dim = 10;
        Array<float> x = random_array({2, 40, 72}, 7, 2);
        for (int64_t n = 0; n < x.count(); ++n) {
            if (n % 36 >= 10) x.values[static_cast<size_t>(n)] = odd[n % 6];
        }
        Array<int64_t> positions = filled<int64_t>({2, 40}, 0);
        EXPECT_TRUE(same_bits(rotated(call, ATTNC_HEADS_QUERY, x, positions).values, x.values));
        for (int64_t& p : positions.values) p = 123;
        const Array<float> got = rotated(call, ATTNC_HEADS_QUERY, x, positions);
        for (size_t n = 0; n < x.values.size(); ++n) {
            const bool kept = std::bit_cast<uint32_t>(got.values[n]) == std::bit_cast<uint32_t>(x.values[n]);
            ASSERT_EQ(kept, n % 36 >= 10) << n;
        }
    }
}

// The product of a query at p and a key at q depends on p - q.
TEST_P(Heads, ScoresDependOnTheDistanceOfPositions) {
    for (const char* const problem :
         {"d32_h1_f32_noin_noout_rope:b1_q1_kv1", "d32_h1_f32_noin_noout_ropepairs:b1_q1_kv1"}) {
        const LayerCall call = random_call(problem, 8);
        const Array<float> q = random_array({1, 1, 32}, 9, 2), k = random_array({1, 1, 32}, 10, 2);
        const auto score = [&](int64_t at_q, int64_t at_k) {
            const Array<float> a = rotated(call, ATTNC_HEADS_QUERY, q, {{1, 1}, {at_q}});
            const Array<float> b = rotated(call, ATTNC_HEADS_KEY, k, {{1, 1}, {at_k}});
            double sum = 0;
            for (size_t d = 0; d < 32; ++d) sum += double{a.values[d]} * double{b.values[d]};
            return sum;
        };
        // Each feature of q and k is off by at most 4.1 u times the sum of its pair; so is each product.
        double bound = 0;
        for (const float x : q.values) {
            for (const float y : k.values)
                bound = std::max(bound, double{std::fabs(x)} * double{std::fabs(y)});
        }
        bound *= 32 * 4 * 2 * 4.1 * u;
        const double want = score(5, 2);
        for (const int64_t shift : {-5, 1, 100, 4096, 1000000}) {
            // Frequencies are rounded to double: a part of 2^-53 of the angle.
            const double drift = std::abs(static_cast<double>(shift)) * 0x1p-51 * 32 * 8;
            EXPECT_NEAR(score(5 + shift, 2 + shift), want, bound + drift) << shift;
        }
        EXPECT_GT(std::fabs(score(5, 3) - want), 1000 * bound);
    }
}

TEST_P(Heads, NormsDoNotDependOnTheScaleOfTheirInput) {
    LayerCall call = random_call("d144_h2_f32_noin_noout_qknorm:b1_q1_kv1", 11);
    call.qk_norm_epsilon = 0x1p-120F;
    Array<float> x = random_array({2, 19, 144}, 12, 1);
    for (int64_t d = 0; d < 72; ++d) x.at(1, 7, d) = 0;
    const Array<float> want = rotated(call, ATTNC_HEADS_QUERY, x, {});
    for (const int power : {-20, 1, 30}) {
        Array<float> scaled = x;
        for (float& value : scaled.values) value = std::ldexp(value, power);
        EXPECT_TRUE(same_bits(rotated(call, ATTNC_HEADS_QUERY, scaled, {}).values, want.values)) << power;
    }
    for (size_t first = 0; first < x.values.size(); first += 72) {
        double squares = 0;
        for (size_t d = 0; d < 72; ++d) squares += double{x.values[first + d]} * double{x.values[first + d]};
        for (size_t d = 0; d < 72; ++d) {
            const double y = squares == 0 ? 0 : double{x.values[first + d]} / std::sqrt(squares / 72);
            const double exact = y * double{call.q_norm.values[d]};
            ASSERT_NEAR(double{want.values[first + d]}, exact, (72.0 / 2 + 6) * 1.01 * u * std::fabs(exact));
        }
    }
}

// What forward does to heads, by itself: the same bits as a library without, on heads that are rotated already.
TEST_P(Heads, ForwardRotatesAsRotateDoes) {
    for (const char* const options : {"_rope", "_ropepairs", "_qknorm", "_qknorm_rope"}) {
        const std::string plain = "d128_h4_kv2_f32_noin_noout";
        LayerCall call = random_call(plain + options + ":b2_q45_kv60", 13);
        LayerCall bare = call;
        bare.config = parse_config(plain), bare.q_norm = bare.k_norm = {}, bare.rotary = {};
        const auto counted = [&](int64_t rows) {
            Array<int64_t> positions;
            if (call.config.rotary == Rotary::kNone) return positions;
            positions = filled<int64_t>({2, rows}, 0);
            for (int64_t n = 0; n < 2 * rows; ++n) positions.values[static_cast<size_t>(n)] = n % rows;
            return positions;
        };
        bare.query = rotated(call, ATTNC_HEADS_QUERY, call.query, counted(45));
        bare.key = rotated(call, ATTNC_HEADS_KEY, call.key, counted(60));
        EXPECT_TRUE(same_bits(run(call).out, run(bare).out)) << options;
    }
}

TEST_P(Heads, RotateHasTheBitsOfARowAlone) {
    const LayerCall call = random_call("d72_h2_f32_noin_noout_qknorm_rope:b1_q1_kv1", 14);
    const Array<float> x = random_array({3, 70, 72}, 15, 2);
    Array<int64_t> positions = filled<int64_t>({3, 70}, 0);
    for (int64_t n = 0; n < 210; ++n) positions.values[static_cast<size_t>(n)] = n * n;
    const Array<float> all = rotated(call, ATTNC_HEADS_QUERY, x, positions);
    for (const int64_t n : {0, 31, 32, 69, 70, 209}) {
        Array<float> row = filled<float>({1, 1, 72}, 0);
        std::copy_n(x.values.begin() + n * 72, 72, row.values.begin());
        const Array<float> alone = rotated(call, ATTNC_HEADS_QUERY, row, {{1, 1}, {n * n}});
        EXPECT_TRUE(same_bits(alone.values, {all.values.begin() + n * 72, all.values.begin() + n * 72 + 72}))
            << n;
    }
    attnc_pool* pool = nullptr;
    ASSERT_EQ(attnc_pool_create(3, &pool, nullptr), ATTNC_OK);
    EXPECT_TRUE(same_bits(rotated(call, ATTNC_HEADS_QUERY, x, positions, attnc_pool_executor(pool)).values,
                          all.values));
    attnc_pool_destroy(pool);
    // Split into heads.
    Array<float> split = filled<float>({3, 2, 70, 36}, 0);
    for (int64_t b = 0; b < 3; ++b) {
        for (int64_t i = 0; i < 70; ++i) {
            for (int64_t d = 0; d < 72; ++d) split.at(b, d / 36, i, d % 36) = x.at(b, i, d);
        }
    }
    const Array<float> per_head = rotated(call, ATTNC_HEADS_QUERY, split, positions);
    for (int64_t b = 0; b < 3; ++b) {
        for (int64_t i = 0; i < 70; ++i) {
            for (int64_t d = 0; d < 72; ++d) ASSERT_EQ(per_head.at(b, d / 36, i, d % 36), all.at(b, i, d));
        }
    }
}

TEST_P(Heads, BitsOfARowDoNotDependOnItemsTasksOrChunks) {
    LayerCall call = random_call("d96_h3_f32_qknorm_rope:b3_q60_kv80", 16);
    call.position_offsets = {{3}, {0, 500, 7}};
    call.lse = true;
    const RunResult all = run(call);
    EXPECT_TRUE(matches_reference(call, all, options()));
    for (const int64_t tasks : {2, 5, 40}) {
        RunOptions many = options();
        many.executor = Executor::kSequential, many.concurrency = tasks;
        EXPECT_TRUE(same_bits(all, run_call(call, many))) << tasks;
    }
    const auto part = [](const std::vector<float>& values, int64_t first, int64_t count) {
        return std::vector<float>(values.begin() + first, values.begin() + first + count);
    };
    for (int64_t item = 0; item < 3; ++item)
        EXPECT_TRUE(same_bits(part(all.out, item * 60 * 96, 60 * 96), run(item_of(call, item)).out)) << item;
    // Queries 20 to 59 of item 1 alone, at their positions.
    LayerCall chunk = item_of(call, 1);
    chunk.sizes.seq_q = 40;
    chunk.query = filled<float>({1, 40, 96}, 0);
    for (int64_t n = 0; n < 40 * 96; ++n)
        chunk.query.values[static_cast<size_t>(n)] = call.query.at(1, 20, n);
    chunk.query_positions = filled<int64_t>({1, 40}, 0);
    for (int64_t n = 0; n < 40; ++n) chunk.query_positions.at(0, n) = 500 + 20 + n;
    EXPECT_TRUE(same_bits(part(all.out, (60 + 20) * 96, 40 * 96), run(chunk).out));
}

TEST_P(Heads, PackedSequencesHaveTheBitsThatTheyHaveAlone) {
    LayerCall call = random_call("d64_h2_f32_qknorm_ropepairs:b4_q50_kv50", 17);
    call.key = {}, call.value = {};
    call.query_lengths = call.key_lengths = {{4}, {50, 3, 0, 31}};
    call.query_positions = filled<int64_t>({4, 50}, 0);
    for (int64_t n = 0; n < 200; ++n) call.query_positions.values[static_cast<size_t>(n)] = n * 7 % 1001;
    const RunResult packed = run_packed(library_of(call.config), call, {.target = target().c_str()});
    ASSERT_EQ(packed.status, ATTNC_OK) << packed.error;
    EXPECT_TRUE(same_bits(packed.out, run(call).out));
}

}  // namespace
}  // namespace attnc::test
