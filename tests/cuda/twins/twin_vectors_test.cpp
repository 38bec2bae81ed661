// The stored calls with right answers through twin libraries: the runtime and the kernels of a device, within each file's own
// tolerance. What a device refuses is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

#include "compiler/verify_case.h"
#include "support/case_file.h"
#include "tests/harness/libraries.h"
#include "tests/harness/stored_cases.h"

namespace attnc::test {
namespace {

// What of a call a device does without; empty: nothing.
std::string not_on_device(const CaseFile& file) {
    if (file.past.given()) return "a cache";
    if (file.rotates_only) return "a rotation alone";
    return "";
}

class StoredCallsOnDevice : public ::testing::TestWithParam<std::string> {};

TEST_P(StoredCallsOnDevice, AreAnswered) {
    ATTNC_SKIP_WITHOUT_TWINS();
    const CaseFile file = read_case(GetParam());
    if (!file.unsupported.empty()) GTEST_SKIP() << file.unsupported;
    const attnc_library* const library = twin_library_of(file.config);
    const std::string missing = not_on_device(file);
    if (missing.empty()) {
        EXPECT_EQ(check_case(file, library, kDevice), "");
        return;
    }
    try {
        check_case(file, library, kDevice);
        ADD_FAILURE() << "a device has " << missing << " now: count it";
    } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), ::testing::ContainsRegex("on a device|on target cuda"));
    }
}

INSTANTIATE_TEST_SUITE_P(Files, StoredCallsOnDevice, ::testing::ValuesIn(case_paths()), case_name);

TEST(StoredCallsFolder, HoldsSoManyCallsForADevice) {
    std::map<std::string, int> counts;
    for (const std::string& path : case_paths()) {
        const CaseFile file = read_case(path);
        ++counts[file.unsupported.empty() ? not_on_device(file) : "unsupported"];
    }
    const std::map<std::string, int> expected = {
        {"", 179}, {"a cache", 19}, {"a rotation alone", 8}, {"unsupported", 4}};
    EXPECT_EQ(counts, expected);
}

}  // namespace
}  // namespace attnc::test
