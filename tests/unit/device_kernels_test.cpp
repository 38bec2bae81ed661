// Which kernels a library has for a device: all that the runtime can call, and no more than the table names.
#include "stages/device_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/device_library.h"
#include "runtime/kernel_abi.h"

namespace attnc::test {
namespace {

const char* const kProblems[] = {
    "d32_h2_f32",        "d32_h2_f32_noin",        "d32_h2_f32_noout",
    "d32_h2_f32_nomask", "d32_h2_f32_noprobs",     "d32_h2_f32_alibi_nomask",
    "d32_h2_f32_sink",   "d32_h2_f32_scores",      "d32_h2_f32_softcap_nomask",
    "d32_h2_f32_qknorm", "d32_h2_f32_ropepairs",   "d32_h2_f32_rope_biaskv_zeroattn",
    "d32_h2_f32_cache",  "d32_h2_f32_cache_page48"};

TEST(DeviceKernels, AreThoseThatTheRuntimeCalls) {
    for (const char* const problem : kProblems) {
        const Config config = parse_config(problem);
        const std::vector<int> kernels = device_kernels_of(config);
        for (int kernel = 0; kernel < ATTNC_DEVICE_KERNEL_COUNT; ++kernel) {
            const bool there = std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
            EXPECT_EQ(there, device_calls(config_flags(config), kernel))
                << problem << ": " << device_kernel_name(kernel);
        }
    }
}

TEST(DeviceKernels, AreCompiledFromWhatTheyDependOn) {
    const Config config = parse_config("d96_h2_vhd20_f32_alibi_softcap_sink_ropepairs");
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_ATTEND), "hd48_vhd32");
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_ATTEND_MASKED), "hd48_vhd32_softcap_alibi");
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_ATTEND_MERGE), "hd48_vhd32_sink");
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_ROTATE_HEADS), "hd48_vhd32_pairs");
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_FILL_ITEMS), "hd16_vhd16");
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_FILL_EMPTY), "hd48_vhd32");
    for (const int kernel : device_kernels_of(config))
        EXPECT_NO_THROW(parse_kernel_config(device_kernel_config(config, kernel)));
}

// Those that read keys or values find them by runs, and so do no others.
TEST(DeviceKernels, DependOnACacheWhereTheyReadKeysOrValues) {
    const Config config = parse_config("d96_h2_vhd20_f32_softcap_scores_cache");
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_ATTEND), "hd48_vhd32_cache");
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_ATTEND_DECODE), "hd48_vhd32_softcap_cache");
    const std::vector<int> kernels = device_kernels_of(config);
    const auto by_runs = std::count_if(kernels.begin(), kernels.end(), [&](int kernel) {
        return parse_kernel_config(device_kernel_config(config, kernel)).cache;
    });
    EXPECT_EQ(by_runs, 7);
    EXPECT_EQ(device_kernel_config(config, ATTNC_DEVICE_KERNEL_APPEND_ROWS), "hd16_vhd16");
}

}  // namespace
}  // namespace attnc::test
