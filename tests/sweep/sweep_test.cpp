// Shapes over wide ranges, every buffer between guard pages: first against the upper ones, then against the lower ones.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

constexpr int64_t kLengths[] = {1, 2, 7, 31, 33, 50, 65, 129, 197};

// Head sizes of common models and odd ones; grouped heads and other value sizes among them.
const char* const kLayers[] = {
    "d2_h2_f32",                        // head_dim 1
    "d20_h4_kv2_hd5_f32",               // 5
    "d32_h4_f32",                       // 8
    "d48_h3_kv1_f32",                   // 16
    "d34_h2_f32",                       // 17
    "d64_h2_kv1_f32",                   // 32
    "d37_h1_f32",                       // 37
    "d128_h2_f32",                      // 64
    "d80_h2_kv1_hd80_f32",              // 80
    "d96_h1_hd128_f32",                 // 128
    "d40_h4_kv2_hd8_vhd17_f32",         // narrow keys, wider values
    "d24_h2_hd17_vhd5_kdim7_vdim9_f32"  // other widths of key and value
};

class Shapes : public ::testing::TestWithParam<const char*> {
protected:
    // The reference once, then every instruction set; both placements give the same bits.
    static void check(const LayerCall& call) {
        const Reference want = call.reference();
        for (const std::string& target : runnable_targets()) {
            RunOptions options = {.target = target};
            const RunResult at_end = run_call(call, options);
            ASSERT_TRUE(matches_reference(call, at_end, options, &want));
            options.placement = Placement::kAtStart;
            options.executor = Executor::kSequential;
            options.concurrency = 2;
            ASSERT_TRUE(same_bits(at_end, run_call(call, options)))
                << repeat_line(to_string(Problem{call.config, call.sizes}), target, call.seed);
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Layers, Shapes, ::testing::ValuesIn(kLayers),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Shapes, OfSelfAttention) {
    const Config config = parse_config(GetParam());
    for (const int64_t seq : kLengths) {
        for (const int64_t batch : {1, 2}) {
            LayerCall call = random_call(config, {batch, seq, seq}, static_cast<uint64_t>(100 * seq + batch));
            call.lse = batch == 2;
            call.causal = batch == 2 && seq % 3 == 1 ? ATTNC_CAUSAL_BOTTOM_RIGHT : ATTNC_CAUSAL_NONE;
            check(call);
        }
    }
}

TEST_P(Shapes, OfCrossAttentionWithMasksAndLengths) {
    const Config config = parse_config(GetParam());
    uint64_t seed = 7;
    for (size_t n = 0; n < std::size(kLengths); ++n) {
        const int64_t seq_q = kLengths[n], seq_kv = kLengths[(4 * n + 5) % std::size(kLengths)];
        LayerCall call = random_call(config, {2, seq_q, seq_kv}, ++seed);
        Random random(seed);
        call.keep_mask = filled<uint8_t>({2, n % 2 == 0 ? 1 : config.num_heads, seq_q, seq_kv}, 1);
        for (uint8_t& element : call.keep_mask.values) element = random.chance(0.75) ? 1 : 0;
        call.bias = random_array({1, config.num_heads, n % 3 == 0 ? 1 : seq_q, seq_kv}, seed, 2);
        call.key_drop_mask = filled<uint8_t>({2, seq_kv}, 0);
        for (uint8_t& element : call.key_drop_mask.values) element = random.chance(0.1) ? 1 : 0;
        call.key_lengths = {{2}, {random.between(0, seq_kv), seq_kv}};
        call.query_lengths = {{2}, {seq_q, random.between(0, seq_q)}};
        call.causal = n % 2 == 0 ? ATTNC_CAUSAL_NONE : ATTNC_CAUSAL_BOTTOM_RIGHT;
        call.probs = call.probs_averaged = call.lse = true;
        check(call);
    }
}

}  // namespace
}  // namespace attnc::test
