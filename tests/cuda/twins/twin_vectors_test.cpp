// The stored calls with right answers through twin libraries: the runtime and the kernels of a device, within each file's own
// tolerance.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "compiler/verify_case.h"
#include "support/case_file.h"
#include "tests/harness/libraries.h"
#include "tests/harness/stored_cases.h"

namespace attnc::test {
namespace {

class StoredCallsOnDevice : public ::testing::TestWithParam<std::string> {};

TEST_P(StoredCallsOnDevice, AreAnswered) {
    ATTNC_SKIP_WITHOUT_TWINS();
    const CaseFile file = read_case(GetParam());
    if (!file.unsupported.empty()) GTEST_SKIP() << file.unsupported;
    const attnc_library* const library = twin_library_of(file.config);
    EXPECT_EQ(check_case(file, library, kDevice), "");
}

INSTANTIATE_TEST_SUITE_P(Files, StoredCallsOnDevice, ::testing::ValuesIn(case_paths()), case_name);

TEST(StoredCallsFolder, HoldsSoManyCallsForADevice) {
    std::map<std::string, int> counts;
    for (const std::string& path : case_paths()) {
        const CaseFile file = read_case(path);
        const bool plain = file.unsupported.empty() && !file.past.given() && !file.rotates_only;
        ++counts[!file.unsupported.empty() ? "unsupported"
                 : plain                   ? "a call"
                 : file.rotates_only       ? "a rotation alone"
                                           : "a call with a cache"];
    }
    const std::map<std::string, int> expected = {
        {"a call", 179}, {"a call with a cache", 19}, {"a rotation alone", 8}, {"unsupported", 4}};
    EXPECT_EQ(counts, expected);
}

}  // namespace
}  // namespace attnc::test
