// The float64 reference against results that other implementations gave, in float64 or as published.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/case_file.h"
#include "support/comparison.h"
#include "tests/harness/stored_cases.h"

namespace attnc {
namespace {

using test::case_name;
using test::case_paths;

class StoredResults : public ::testing::TestWithParam<std::string> {};

// Within 1e-12 of float64 results; others state what they are good for.
TEST_P(StoredResults, ReferenceAgrees) {
    const CaseFile file = read_case(GetParam());
    const Reference reference = reference_of(file);
    for (const auto& [role, expected] : file.expected) {
        SCOPED_TRACE(role);
        // float32 arithmetic absorbs scores beside -1e9; the file has what exact arithmetic gives too.
        if (file.expected.contains(role + "_f64_arithmetic")) continue;
        const std::vector<double> got = result_of_role(file, reference, role);
        // Products with mask_factor are rounded to float32 before they are a bias.
        const bool rounded = std::any_of(file.scaled_mask.begin(), file.scaled_mask.end(),
                                         [](float value) { return value != std::floor(value); });
        const bool published = GetParam().find("/onnx") != std::string::npos;
        const Comparison comparison =
            rounded || published ? compare(got, expected) : compare(got, expected.values, [&](int64_t n) {
                return 1e-12 * (1 + std::fabs(expected.values[static_cast<size_t>(n)]));
            });
        EXPECT_TRUE(comparison.ok()) << comparison.text();
    }
}

INSTANTIATE_TEST_SUITE_P(Files, StoredResults, ::testing::ValuesIn(case_paths()), case_name);

TEST(StoredResultsFolder, HoldsAllCases) { EXPECT_EQ(case_paths().size(), 124U + 2U + 76U + 8U); }

}  // namespace
}  // namespace attnc
