#include "tests/harness/targets.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "schedules/cpu_params.h"

namespace attnc::test {

const std::vector<std::string>& all_targets() {
    static const std::vector<std::string> targets(std::begin(kCpuTargets), std::end(kCpuTargets));
    return targets;
}

// Asks the compiler's own CPU detection, so that the runtime's is not checked against itself.
bool cpu_runs(const std::string& target) {
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (target.find("avx512_skylake") != std::string::npos) {
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq");
    }
    return target.find("avx2") == std::string::npos || avx2;
}

const std::vector<std::string>& runnable_targets() {
    static const std::vector<std::string> targets = [] {
        std::vector<std::string> runnable;
        std::copy_if(all_targets().begin(), all_targets().end(), std::back_inserter(runnable), cpu_runs);
        return runnable;
    }();
    return targets;
}

void TargetTest::SetUp() {
    if (!cpu_runs(target())) GTEST_SKIP() << "this CPU does not run " << target();
}

std::string short_name(const std::string& target) {
    const std::string prefix = "x86-64-linux";
    if (target == prefix) return "baseline";
    std::string name = target.starts_with(prefix) ? target.substr(prefix.size() + 1) : target;
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
}

std::string target_test_name(const ::testing::TestParamInfo<std::string>& info) {
    return short_name(info.param);
}

}  // namespace attnc::test
