// Stored calls with right answers, through real libraries on every instruction set, within each file's own tolerance.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/verify_case.h"
#include "support/case_file.h"
#include "support/comparison.h"
#include "support/safetensors.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/stored_cases.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

bool has_convertible_mask(const std::string& path) {
    const SafetensorsFile file(path);
    return file.find("scaled_drop_mask") != nullptr || file.find("attention_mask") != nullptr;
}

std::vector<std::string> paths_with_convertible_masks() {
    std::vector<std::string> paths = case_paths();
    std::erase_if(paths, [](const std::string& path) { return !has_convertible_mask(path); });
    return paths;
}

// All instruction sets in one test, so that they share the library of the case.
class StoredCalls : public ::testing::TestWithParam<std::string> {
protected:
    StoredCalls() : file_(read_case(GetParam())) {
        // Only for its sizes, and where float32 results are compared with derived bounds: those of the file decide.
        sizes_.batch = file_.batch, sizes_.num_heads = file_.config.num_heads, sizes_.seq_q = file_.seq_q;
        sizes_.keys = file_.seq_kv + (file_.config.bias_kv ? 1 : 0) + (file_.config.zero_attn ? 1 : 0);
        sizes_.v_head_dim = file_.config.v_head_dim;
        sizes_.out_features =
            file_.config.out_proj ? file_.config.d_model : file_.config.num_heads * file_.config.v_head_dim;
    }

    // One call of a layer, which the harness can place between guard pages.
    bool is_one_call() const { return !file_.past.given() && !file_.rotates_only; }

    // The outputs that the file has answers for; ctx is inside the layer and has none.
    RunResult run(const attnc_inputs& inputs, const RunOptions& options) const {
        const bool scores = file_.options.scores_stage != ATTNC_SCORES_NOT_GIVEN;
        const Wanted wanted = {.probs = file_.expected.contains("probs") ||
                                        (file_.expected.contains("qk_matmul_output") && !scores),
                               .probs_averaged = file_.expected.contains("avg_probs"),
                               .lse = file_.expected.contains("lse"),
                               .scores_stage = file_.options.scores_stage};
        return run_layer(file_.config, file_.weights, inputs, layer_options_of(file_.options), wanted,
                         options);
    }

    void expect_answers(const RunResult& got, const std::string& target) const {
        const Problem problem = {file_.config, {file_.batch, file_.seq_q, file_.seq_kv}};
        const std::string repeat = repeat_line(to_string(problem), target, 0);
        ASSERT_EQ(got.status, ATTNC_OK) << got.error << "\n" << repeat;
        const Reference result = got.as_reference(sizes_);
        for (const auto& [role, expected] : file_.expected) {
            if (role == "ctx" || role.ends_with("_f64_arithmetic")) continue;
            const Comparison comparison = compare(result_of_role(file_, result, role), expected);
            EXPECT_TRUE(comparison.ok()) << role << ": " << comparison.text() << "\n" << repeat;
        }
    }

    CaseFile file_;
    Reference sizes_;
};

TEST_P(StoredCalls, AreAnsweredOnEveryInstructionSet) {
    if (!file_.unsupported.empty()) GTEST_SKIP() << file_.unsupported;
    for (const std::string& target : runnable_targets()) {
        SCOPED_TRACE(target);
        EXPECT_EQ(check_case(file_, library_of(file_.config), target), "");  // as attnc verify --cases does
        if (!is_one_call()) continue;
        const RunResult got = run(file_.inputs, {.target = target});
        expect_answers(got, target);
        // Placed against the lower guard pages and on three tasks: the same bits.
        EXPECT_TRUE(same_bits(got, run(file_.inputs, {.target = target,
                                                      .executor = Executor::kSequential,
                                                      .concurrency = 3,
                                                      .placement = Placement::kAtStart})));
    }
}

// Those whose mask is of another kind than the API's.
class ConvertedCalls : public StoredCalls {};

TEST_P(ConvertedCalls, AreAnsweredThroughTheNamedConversions) {
    attnc_inputs inputs = file_.inputs;
    std::vector<float> bias(file_.scaled_mask.size());
    std::vector<uint8_t> keep(file_.attention_mask.size());
    if (!bias.empty()) {
        attnc_bias_from_scaled_mask(file_.scaled_mask.data(), file_.mask_factor, bias.data(),
                                    static_cast<int64_t>(bias.size()));
        inputs.bias.data = bias.data();
    } else {
        // The tokenizer's mask instead of the lengths: the padding is read, and dropped.
        attnc_keep_mask_from_i64(file_.attention_mask.data(), keep.data(), static_cast<int64_t>(keep.size()));
        inputs.key_keep_mask = attnc_tensor_2d(ATTNC_U8, keep.data(), file_.batch, file_.seq_kv);
        inputs.key_lengths = {};
    }
    for (const std::string& target : runnable_targets()) {
        SCOPED_TRACE(target);
        expect_answers(run(inputs, {.target = target}), target);
    }
}

INSTANTIATE_TEST_SUITE_P(Files, StoredCalls, ::testing::ValuesIn(case_paths()), case_name);
INSTANTIATE_TEST_SUITE_P(Files, ConvertedCalls, ::testing::ValuesIn(paths_with_convertible_masks()),
                         case_name);

TEST(StoredCallsFolder, HoldsAllCases) { EXPECT_EQ(case_paths().size(), 124U + 2U + 76U + 8U); }

TEST(InstructionSets, ThatThisCpuLacksAreNotTested) {
    for (const std::string& target : all_targets()) {
        if (!cpu_runs(target)) GTEST_SKIP() << "this CPU does not run " << target;
    }
}

}  // namespace
}  // namespace attnc::test
