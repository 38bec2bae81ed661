// What is said of a library's forms is what the runtime does.
#include "compiler/kernel_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnc::test {
namespace {

using testing::ElementsAre;

constexpr const char* kAvx512 = "x86-64-linux-avx512_skylake";
constexpr const char* kAvx2 = "x86-64-linux-avx2-fma-f16c";

std::vector<std::string> forms(const char* config_text, const char* target) {
    const Config config = parse_config(config_text);
    std::vector<std::string> lines;
    for (const KernelForm& form : kernel_forms(config, default_schedule(config, target)))
        lines.push_back(form.kernel + ": " + form.takes);
    return lines;
}

std::vector<std::string> at(const char* problem_text, const char* target) {
    const Problem problem = parse_problem(problem_text);
    return attention_at(problem.config, default_schedule(problem.config, target), problem.sizes);
}

TEST(KernelForms, FollowTheSchedule) {
    EXPECT_THAT(
        forms("d512_h8_f32_cache", kAvx512),
        ElementsAre("project_heads: rows of tokens in steps of 6",
                    "project_heads_tail: the last rows in steps of 5, where fewer overhang then",
                    "project_out: rows of tokens in steps of 6",
                    "project_out_tail: the last rows in steps of 5, where fewer overhang then",
                    "attend_decode: items of up to 8 queries", "attend_single: 1 to 16 queries of an item",
                    "attend_narrow: 17 to 48 queries of an item", "attend: 49 and more queries of an item",
                    "attend_narrow: any number of queries on a diagonal with up to 511 keys"));
    EXPECT_THAT(forms("d512_h8_f32_noin_noout", kAvx2), ElementsAre("attend: 1 and more queries of an item"));
}

TEST(AttentionAt, NamesEveryKernelThatACallMayRun) {
    EXPECT_THAT(at("d512_h8_f32:b1_q1_kv1", kAvx512), ElementsAre("attend_single"));
    EXPECT_THAT(at("d512_h8_f32:b1_q128_kv128", kAvx512), ElementsAre("attend"));
    EXPECT_THAT(at("d512_h8_f32:b1_q33_kv64", kAvx512), ElementsAre("attend_narrow", "attend_single"));
    EXPECT_THAT(at("d512_h8_f32:b1_q65_kv65", kAvx512), ElementsAre("attend", "attend_single"));
    EXPECT_THAT(at("d512_h8_f32_causal:b1_q128_kv128", kAvx512), ElementsAre("attend_narrow"));
    EXPECT_THAT(at("d512_h8_f32_causal:b1_q1024_kv1024", kAvx512), ElementsAre("attend", "attend_narrow"));
    EXPECT_THAT(at("d512_h8_f32_cache:b1_q8_kv1024", kAvx512), ElementsAre("attend_decode"));
    EXPECT_THAT(at("d512_h8_f32_cache:b1_q9_kv1024", kAvx512), ElementsAre("attend_single"));
    EXPECT_THAT(at("d512_h8_f32:b1_q65_kv65", kAvx2), ElementsAre("attend"));
    EXPECT_THAT(at("d512_h8_f32:b1_q65_kv0", kAvx2), ElementsAre());
}

}  // namespace
}  // namespace attnc::test
