// What a call launches on a device and how long the model takes it to be; which schedules that chooses.
#include "schedules/cuda_launches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/kernel_abi.h"
#include "schedules/cuda_search.h"

namespace attnc {
namespace {

const Config& usual() {
    static const Config config = parse_config("d512_h8_f32");
    return config;
}

// By the default: tiles of 64 rows and 128 columns, blocks of 32 queries and 64 keys.
CudaLaunch launch_of(int kernel, const std::string& sizes, const Config& config = usual()) {
    const std::vector<CudaLaunch> launches =
        launches_of(default_cuda_schedule(config), config, kernel, parse_sizes(sizes));
    EXPECT_EQ(launches.size(), 1U);
    return launches.front();
}

CudaTime time_of(const CudaLaunch& launch, int architecture = 80) {
    return launch_time(launch, default_cuda_schedule(usual()), usual(), cuda_device(architecture));
}

TEST(CudaLaunches, OfProjectionsAreTilesOfAllTheirColumns) {
    const CudaLaunch inputs = launch_of(ATTNC_KERNEL_PROJECT_HEADS, "b2_q100_kv100");
    EXPECT_EQ(inputs.blocks, 4 * 12);  // 200 rows by 64, 1536 columns by 128
    EXPECT_EQ(inputs.steps, 16);
    EXPECT_EQ(inputs.multiply_adds, 200.0 * 512 * 1536);
    const CudaLaunch out = launch_of(ATTNC_KERNEL_PROJECT_OUT, "b2_q100_kv7");
    EXPECT_EQ(out.blocks, 4 * 4);
    EXPECT_EQ(out.multiply_adds, 200.0 * 512 * 512);
}

TEST(CudaLaunches, OfQueriesAndKeysOfTheirOwnAreTwo) {
    const std::vector<CudaLaunch> cross = launches_of(
        default_cuda_schedule(usual()), usual(), ATTNC_KERNEL_PROJECT_HEADS, parse_sizes("b1_q64_kv640"));
    ASSERT_EQ(cross.size(), 2U);
    EXPECT_EQ(cross[0].blocks, 4);
    EXPECT_EQ(cross[1].blocks, 10 * 8);
    const Config config = parse_config("d512_h8_kdim256_vdim128_f32");
    EXPECT_EQ(launches_of(default_cuda_schedule(config), config, ATTNC_KERNEL_PROJECT_HEADS,
                          parse_sizes("b1_q64_kv64"))
                  .size(),
              3U);
    // With a cache only the new keys are projected.
    const Config cached = parse_config("d512_h8_f32_cache");
    EXPECT_EQ(launch_of(ATTNC_KERNEL_PROJECT_HEADS, "b1_q1_kv640", cached).blocks, 12);
}

TEST(CudaLaunches, OfAttentionAreBlocksOfQueriesThatGoThroughTheKeys) {
    const CudaLaunch attend = launch_of(ATTNC_KERNEL_ATTEND, "b3_q100_kv200");
    EXPECT_EQ(attend.blocks, 3 * 8 * 4);
    EXPECT_EQ(attend.steps, 4);
    EXPECT_EQ(attend.multiply_adds, 3.0 * 8 * 100 * 200 * 128);
    const CudaLaunch probs = launch_of(ATTNC_KERNEL_ATTEND_PROBS, "b3_q100_kv200");
    EXPECT_EQ(probs.blocks, attend.blocks * 4);
    EXPECT_EQ(probs.steps, 1);
    EXPECT_EQ(probs.multiply_adds, attend.multiply_adds / 2);
}

TEST(CudaLaunches, OfACausalCallSeeHalfOfTheKeysOnAverage) {
    const Config causal = parse_config("d512_h8_f32_causal");
    const CudaLaunch all = launch_of(ATTNC_KERNEL_ATTEND, "b1_q2048_kv2048");
    const CudaLaunch half = launch_of(ATTNC_KERNEL_ATTEND, "b1_q2048_kv2048", causal);
    EXPECT_EQ(half.blocks, all.blocks);
    EXPECT_NEAR(half.steps, all.steps / 2, 1);
    EXPECT_GT(half.steps, all.steps / 2);
    EXPECT_EQ(half.most_steps, all.steps);
    EXPECT_EQ(half.multiply_adds, 8.0 * (2048 * 2049 / 2) * 128);
    // One query sees every key, the last of many more queries than keys too.
    EXPECT_EQ(launch_of(ATTNC_KERNEL_ATTEND, "b1_q1_kv640", causal).steps, 10);
    EXPECT_EQ(launch_of(ATTNC_KERNEL_ATTEND, "b1_q64_kv32", causal).multiply_adds, 8.0 * (32 * 33 / 2) * 128);
}

TEST(CudaLaunches, OfDecodingAreSplitsThatAreJoined) {
    const Config grouped = parse_config("d512_h8_kv2_f32");
    const CudaSchedule schedule = default_cuda_schedule(grouped);
    EXPECT_TRUE(decodes(schedule, grouped, parse_sizes("b1_q4_kv1500")));
    EXPECT_FALSE(decodes(schedule, grouped, parse_sizes("b1_q5_kv1500")));
    EXPECT_FALSE(decodes(schedule, grouped, parse_sizes("b1_q4_kv0")));
    const CudaLaunch decode = launch_of(ATTNC_KERNEL_ATTEND_DECODE, "b5_q1_kv1500", grouped);
    EXPECT_EQ(decode.blocks, 5 * 2 * 3);  // splits of 512
    EXPECT_EQ(decode.steps, 8);           // 24 blocks of keys in three splits
    EXPECT_EQ(decode.joins, 3);
    EXPECT_EQ(launch_of(ATTNC_KERNEL_ATTEND_DECODE, "b5_q1_kv512", grouped).joins, 0);
}

TEST(CudaLaunches, OfAlibiAreOfTheMaskedKernel) {
    const Config alibi = parse_config("d512_h8_f32_alibi");
    EXPECT_EQ(attention_kernel(default_cuda_schedule(alibi), alibi, parse_sizes("b1_q64_kv64")),
              ATTNC_KERNEL_ATTEND_MASKED);
    EXPECT_EQ(attention_kernel(default_cuda_schedule(usual()), usual(), parse_sizes("b1_q64_kv64")),
              ATTNC_KERNEL_ATTEND);
}

TEST(CudaLaunches, OfNothingTakeNoTimeThatIsNone) {
    for (const char* sizes : {"b0_q64_kv64", "b1_q0_kv64", "b1_q64_kv0", "b1_q1_kv0"}) {
        for (const int kernel : {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_ATTEND, ATTNC_KERNEL_ATTEND_DECODE,
                                 ATTNC_KERNEL_ATTEND_PROBS}) {
            const double cycles = kernel_cycles(default_cuda_schedule(usual()), usual(), kernel,
                                                parse_sizes(sizes), cuda_device(80));
            EXPECT_GE(cycles, 0) << sizes;
            EXPECT_LT(cycles, 1e6) << sizes;
        }
    }
}

// But for what memory takes.
TEST(CudaTime, IsTheSameUntilEveryMultiprocessorHasABlock) {
    const CudaTime one = time_of(launch_of(ATTNC_KERNEL_ATTEND, "b1_q32_kv4096"));
    const CudaTime thirteen = time_of(launch_of(ATTNC_KERNEL_ATTEND, "b13_q32_kv4096"));  // 104 of 108
    EXPECT_GE(thirteen.cycles, one.cycles);
    EXPECT_LT(thirteen.cycles, 1.05 * one.cycles);
    EXPECT_GT(thirteen.fraction, 12 * one.fraction);
    EXPECT_EQ(one.limit, "idle multiprocessors");
    EXPECT_NE(thirteen.limit, "idle multiprocessors");
    const CudaTime fourteen = time_of(launch_of(ATTNC_KERNEL_ATTEND, "b14_q32_kv4096"));
    EXPECT_GT(fourteen.cycles, 1.2 * thirteen.cycles);
    EXPECT_EQ(fourteen.waves, 1);  // two blocks share a multiprocessor
}

TEST(CudaTime, OfManyBlocksIsInWaves) {
    const CudaLaunch many = launch_of(ATTNC_KERNEL_ATTEND, "b64_q2048_kv2048");
    const CudaTime time = time_of(many);
    const CudaModel model =
        cuda_model(default_cuda_schedule(usual()), usual(), ATTNC_KERNEL_ATTEND, cuda_device(80));
    EXPECT_EQ(time.waves, (many.blocks / 108 + 1 + model.warps / 2 - 1) / (model.warps / 2));
    EXPECT_EQ(time.limit, "instructions");
    // With tails and memory aside the model of a block is what is left.
    EXPECT_LT(time.fraction, model.expected_fraction);
    EXPECT_GT(time.fraction, 0.8 * model.expected_fraction);
}

TEST(CudaTime, OfAFewRowsOfLargeWeightsIsThatOfMemory) {
    const Config large = parse_config("d8192_h64_hd128_f32");
    const CudaSchedule schedule = parse_cuda_schedule(
        "panel:32,project_heads.threads_x:8,project_heads.threads_y:4,project_heads.row_groups:1",
        default_cuda_schedule(large));
    const CudaLaunch few =
        launches_of(schedule, large, ATTNC_KERNEL_PROJECT_HEADS, parse_sizes("b1_q1_kv1")).front();
    EXPECT_EQ(launch_time(few, schedule, large, cuda_device(121)).limit, "memory");
}

TEST(CudaTime, OfACallIsThatOfItsKernels) {
    const CudaSchedule schedule = default_cuda_schedule(usual());
    const Sizes sizes = parse_sizes("b1_q128_kv128");
    double sum = 0;
    for (const int kernel : {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_ATTEND, ATTNC_KERNEL_PROJECT_OUT})
        sum += kernel_cycles(schedule, usual(), kernel, sizes, cuda_device(90));
    EXPECT_DOUBLE_EQ(call_cycles(schedule, usual(), sizes, cuda_device(90)), sum);
    const Config bare = parse_config("d512_h8_f32_noin_noout");
    EXPECT_DOUBLE_EQ(call_cycles(schedule, bare, sizes, cuda_device(90)),
                     kernel_cycles(schedule, usual(), ATTNC_KERNEL_ATTEND, sizes, cuda_device(90)));
}

// ---- The search

CudaSearch search_for(const std::string& config, const std::vector<std::string>& sizes, int architecture) {
    CudaSearch search;
    search.config = parse_config(config);
    for (const std::string& entry : sizes) search.sizes.push_back(parse_sizes(entry));
    search.architecture = architecture;
    search.kernels = scheduled_kernels(search.config);
    return search;
}

CudaSchedule found_by(const CudaSearch& search) {
    return best_cuda_schedule(search, default_cuda_schedule(search.config));
}

TEST(CudaSearch, GivesSmallProblemsMoreBlocks) {
    const CudaSearch search = search_for("d512_h8_f32", {"b1_q128_kv128"}, 90);
    const CudaSchedule start = default_cuda_schedule(usual()), found = found_by(search);
    const auto blocks = [&](const CudaSchedule& schedule, int kernel) {
        return launches_of(schedule, usual(), kernel, search.sizes.front()).front().blocks;
    };
    for (const int kernel : {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_PROJECT_OUT, ATTNC_KERNEL_ATTEND})
        EXPECT_GT(blocks(found, kernel), blocks(start, kernel)) << kernel_name(kernel);
    EXPECT_LT(call_ratio(search, found, start), 0.8);
}

TEST(CudaSearch, FindsOnlyWhatIsValidAndNowhereMuchWorse) {
    for (const char* config : {"d512_h8_f32", "d384_h12_f32", "d512_h4_f32", "d2048_h32_kv4_f32_causal",
                               "d480_h6_hd80_vhd48_f32_alibi", "d512_h1_hd512_vhd496_f32"}) {
        for (const int architecture : {kNoArchitecture, 75, 80, 90, 120}) {
            const std::vector<std::string> all = {"b1_q1_kv512", "b1_q128_kv128", "b32_q50_kv50",
                                                  "b1_q2048_kv2048"};
            const CudaSearch search = search_for(config, all, architecture);
            const CudaSchedule start = default_cuda_schedule(search.config), found = found_by(search);
            EXPECT_EQ(cuda_schedule_fault(found, search.config, {}), "") << config;
            EXPECT_LE(call_ratio(search, found, start), 1) << config << " " << architecture;
            for (const std::string& sizes : all) {
                EXPECT_LE(call_ratio(search_for(config, {sizes}, architecture), found, start), kNowhereWorse)
                    << config << " " << sizes << " " << architecture;
            }
        }
    }
}

TEST(CudaSearch, LeavesAStartThatItFound) {
    for (const int architecture : {80, 90}) {
        const CudaSearch search =
            search_for("d768_h12_f32", {"b1_q197_kv197", "b8_q384_kv384"}, architecture);
        const CudaSchedule found = found_by(search);
        EXPECT_EQ(best_cuda_schedule(search, found), found);
    }
}

TEST(CudaSearch, ChangesNamedKernelsAlone) {
    CudaSearch search = search_for("d512_h8_f32", {"b1_q128_kv128"}, 80);
    search.kernels = {ATTNC_KERNEL_PROJECT_OUT};
    const CudaSchedule start = default_cuda_schedule(usual()), found = found_by(search);
    EXPECT_NE(found, start);
    CudaSchedule same = found;
    same.layout.out_panel = start.layout.out_panel;
    same.params.project_out = start.params.project_out;
    EXPECT_EQ(same, start);
    // Attention's layout is every kernel's.
    search.kernels = {ATTNC_KERNEL_ATTEND};
    EXPECT_EQ(found_by(search).layout, start.layout);
}

TEST(CudaSearch, PassesOverWhatIsRefused) {
    CudaSearch search = search_for("d512_h8_f32", {"b1_q128_kv128"}, 80);
    search.kernels = {ATTNC_KERNEL_PROJECT_HEADS};
    const CudaSchedule start = default_cuda_schedule(usual()), first = found_by(search);
    search.is_refused = [&](const CudaSchedule& schedule, int kernel) {
        return kernel == ATTNC_KERNEL_PROJECT_HEADS &&
               schedule.params.project_heads == first.params.project_heads;
    };
    const CudaSchedule second = found_by(search);
    EXPECT_NE(second.params.project_heads, first.params.project_heads);
    EXPECT_GE(kernel_ratio(search, ATTNC_KERNEL_PROJECT_HEADS, second, start),
              kernel_ratio(search, ATTNC_KERNEL_PROJECT_HEADS, first, start));
    search.is_refused = [](const CudaSchedule&, int) { return true; };
    EXPECT_EQ(found_by(search), start);
}

// A library for steps of decoding has to read a prompt first.
TEST(CudaSearch, JudgesACacheByItsPromptToo) {
    const CudaSearch steps = search_for("d768_h12_f32_causal_cache", {"b1_q1_kv1024"}, 90);
    const CudaSchedule start = default_cuda_schedule(steps.config), found = found_by(steps);
    EXPECT_NE(found, start);
    const CudaSearch prompt = search_for("d768_h12_f32_causal_cache", {"b1_q512_kv512"}, 90);
    EXPECT_LE(call_ratio(prompt, found, start), kNowhereWorse);
    EXPECT_EQ(call_ratio(steps, start, start), 1);
}

TEST(CudaSearch, KeepsDecodingWhereItIs) {
    const CudaSearch search = search_for("d384_h12_f32", {"b1_q16_kv16", "b1_q128_kv128"}, 80);
    const CudaSchedule found = found_by(search);
    EXPECT_TRUE(decodes(found, search.config, search.sizes.front()));
    EXPECT_FALSE(decodes(found, search.config, search.sizes.back()));
}

}  // namespace
}  // namespace attnc
