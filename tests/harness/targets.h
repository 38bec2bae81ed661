// Instruction sets as a parameter of tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace attnc::test {

const std::vector<std::string>& all_targets();       // the usual CPU set, best first
bool cpu_runs(const std::string& target);            // on this machine
const std::vector<std::string>& runnable_targets();  // those that it does

// A test for each instruction set: skipped, with the reason, where this CPU lacks it.
class TargetTest : public ::testing::TestWithParam<std::string> {
protected:
    void SetUp() override;
    const std::string& target() const { return GetParam(); }
};

// "avx512_skylake", "avx2_fma_f16c", "baseline".
std::string short_name(const std::string& target);
std::string target_test_name(const ::testing::TestParamInfo<std::string>& info);

}  // namespace attnc::test

#define ATTNC_FOR_EACH_TARGET(suite)                                                        \
    INSTANTIATE_TEST_SUITE_P(Cpu, suite, ::testing::ValuesIn(::attnc::test::all_targets()), \
                             ::attnc::test::target_test_name)
