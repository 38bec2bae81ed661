#include "schedules/cuda_params.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "runtime/kernel_abi.h"
#include "schedules/cuda_model.h"
#include "tests/unit/config_error.h"

namespace attnc {
namespace {

constexpr const char* kTarget = "x86-64-linux-cuda-cuda_capability_70";

const Config& usual() {
    static const Config config = parse_config("d512_h8_f32");
    return config;
}

Config with_heads(int64_t head_dim, int64_t v_head_dim) {
    Config config;
    config.d_model = 480;
    config.num_heads = 2;
    config.head_dim = head_dim;
    config.v_head_dim = v_head_dim;
    return complete(config);
}

// Of the usual heads, in a schedule where `text` has replaced something.
std::string fault_of(const std::string& text, const char* target = kTarget) {
    const std::string base =
        "threads_x:16,tile_kv:64,split_kv:512,attend.threads_y:8,attend.depth:64,attend.value_keys:64,"
        "attend.unroll:16,attend_masked.threads_y:8,attend_masked.depth:64,attend_masked.value_keys:64,"
        "attend_probs.threads_y:8,attend_probs.depth:64,attend_probs.value_keys:64,attend_decode.threads_y:4,"
        "attend_decode.depth:64,attend_decode.value_keys:64";
    const CudaSchedule schedule =
        parse_cuda_schedule(text, parse_cuda_schedule(base, default_cuda_schedule(usual())));
    return error_of([&] { check_cuda_schedule(schedule, usual(), target); });
}

TEST(CudaDefaultSchedule, IsValidForAllHeadsOfOneSize) {
    for (int64_t head_dim = 16; head_dim <= 512; head_dim += 16) {
        const Config config = with_heads(head_dim, head_dim);
        const CudaSchedule schedule = default_cuda_schedule(config);
        EXPECT_EQ(error_of([&] { check_cuda_schedule(schedule, config, kTarget); }), "no error") << head_dim;
    }
}

TEST(CudaDefaultSchedule, OfCommonHeadsNeedsNoMoreThanTheOldestDeviceHas) {
    for (const int64_t head_dim : {32, 48, 64, 80, 96, 112, 128}) {
        const Config config = with_heads(head_dim, head_dim);
        const CudaResources taken =
            cuda_resources(default_cuda_schedule(config), config, ATTNC_KERNEL_ATTEND);
        EXPECT_LE(taken.shared_bytes, cuda_device(75).block_shared_bytes) << head_dim;
    }
}

TEST(CudaDefaultSchedule, IsValidForHeadsOfDifferentSizes) {
    for (int64_t head_dim = 16; head_dim <= 512; head_dim += 16) {
        for (const int64_t v_head_dim : {16, 48, 80, 208, 272, 496, 512}) {
            const Config config = with_heads(head_dim, v_head_dim);
            EXPECT_EQ(error_of([&] { check_cuda_schedule(default_cuda_schedule(config), config, kTarget); }),
                      "no error")
                << head_dim << " and " << v_head_dim;
        }
    }
}

TEST(CudaScheduleText, ReadsWhatItWrites) {
    CudaSchedule schedule = default_cuda_schedule(usual());
    schedule.layout.panel = 64;
    schedule.params.project_out.unroll = 8;
    schedule.params.attend_decode.register_state = 0;
    EXPECT_EQ(parse_cuda_schedule(to_string(schedule), CudaSchedule{}), schedule);
    EXPECT_EQ(to_string(CudaSchedule{}).substr(0, 70),
              "panel:128,out_panel:128,threads_x:16,tile_kv:64,split_kv:512,project_h");
    EXPECT_EQ(error_of([] { parse_cuda_schedule("attend.rows:3", CudaSchedule{}); }),
              "schedule field 'attend.rows' is unknown");
}

TEST(CudaRules, GiveTheirReasons) {
    EXPECT_EQ(fault_of(""), "no error");
    EXPECT_EQ(fault_of("threads_x:24"), "tile_kv 64 is not a multiple of 4 * threads_x, 96");
    EXPECT_EQ(fault_of("tile_kv:96"), "tile_kv 96 is not a multiple of 4 * threads_x, 64");
    EXPECT_EQ(fault_of("tile_kv:320"), "tile_kv / (4 * threads_x) 5 is outside 1..4");
    EXPECT_EQ(fault_of("split_kv:96"), "split_kv 96 is not a multiple of tile_kv, 64");
    EXPECT_EQ(fault_of("panel:96"), "panel 96 is not a multiple of 4 * project_heads.threads_x, 64");
    EXPECT_EQ(fault_of("out_panel:192"), "out_panel / (4 * project_out.threads_x) 3 is outside 1..2");
    EXPECT_EQ(fault_of("project_heads.depth:8"), "project_heads.depth 8 is not a multiple of threads_x, 16");
    EXPECT_EQ(fault_of("project_heads.unroll:12"), "project_heads.depth 32 is not a multiple of unroll, 12");
    EXPECT_EQ(fault_of("project_out.row_groups:3"), "project_out.row_groups 3 is outside 1..2");
    EXPECT_EQ(fault_of("attend.threads_y:32,attend.depth:64"),
              "attend: a block has 512 threads, 32..256 are wanted");
    EXPECT_EQ(fault_of("attend.threads_y:6"), "attend.depth 64 is not a multiple of threads_y, 6");
    EXPECT_EQ(fault_of("attend.depth:24"), "the padded head_dim 64 is not a multiple of attend.depth, 24");
    EXPECT_EQ(fault_of("attend.value_keys:24"), "tile_kv 64 is not a multiple of attend.value_keys, 24");
    EXPECT_EQ(fault_of("attend.unroll:6"), "attend.unroll 6 is not a multiple of a step, 4");
    EXPECT_EQ(fault_of("attend_probs.register_state:2"), "attend_probs.register_state 2 is outside 0..1");
    EXPECT_EQ(fault_of("", "x86-64-linux-avx2"), "target 'x86-64-linux-avx2' is not one of CUDA");
}

TEST(CudaRules, CountSharedMemoryAndRegisters) {
    const std::string wide = "tile_kv:256,split_kv:512,attend.value_keys:256,attend.threads_y:16";
    EXPECT_EQ(fault_of(wide, "x86-64-linux-cuda-cuda_capability_80"), "no error");
    EXPECT_EQ(fault_of(wide), "attend: a block takes 151552 bytes of shared memory, 101376 are there");
    EXPECT_EQ(
        fault_of("project_heads.threads_x:32,project_heads.threads_y:16,project_heads.depth:32,panel:256"),
        "no error");
}

// The figures that docs/performance.md prints.
TEST(CudaModel, OfTheUsualLayer) {
    const CudaSchedule schedule = default_cuda_schedule(usual());
    const CudaModel project = cuda_model(schedule, usual(), ATTNC_KERNEL_PROJECT_HEADS, cuda_device(80));
    EXPECT_EQ(project.multiply_adds, 64 * 32);
    EXPECT_EQ(project.warps, 16);
    EXPECT_GT(project.multiply_adds / project.instructions, 0.85);
    const CudaModel attend = cuda_model(schedule, usual(), ATTNC_KERNEL_ATTEND, cuda_device(80));
    EXPECT_GT(attend.multiply_adds / attend.instructions, 0.68);
    EXPECT_LT(attend.expected_fraction, attend.multiply_adds / attend.instructions);
}

// sm_80 has half the lanes of sm_90 for as many schedulers, whose other instructions go between its multiply-adds.
TEST(CudaModel, OfHalfAsManyLanesIsNearerToTheirPeak) {
    const CudaSchedule schedule = default_cuda_schedule(usual());
    const CudaModel half = cuda_model(schedule, usual(), ATTNC_KERNEL_ATTEND, cuda_device(80));
    const CudaModel whole = cuda_model(schedule, usual(), ATTNC_KERNEL_ATTEND, cuda_device(90));
    EXPECT_EQ(half.instructions, whole.instructions);
    EXPECT_EQ(half.warps, whole.warps);
    EXPECT_GT(half.expected_fraction, whole.expected_fraction);
    EXPECT_DOUBLE_EQ(issue_cycles(whole, cuda_device(90)), whole.instructions);
    EXPECT_LT(issue_cycles(half, cuda_device(80)), half.multiply_adds + half.instructions);
    EXPECT_GT(issue_cycles(half, cuda_device(80)), 2 * half.multiply_adds);
}

TEST(CudaSchedule, OfAKernelKeepsWhatItsCodeIsMadeBy) {
    CudaSchedule schedule =
        parse_cuda_schedule("panel:64,out_panel:64,split_kv:1024,attend.threads_y:4,attend_decode.depth:16",
                            default_cuda_schedule(usual()));
    const auto own = [&](int kernel) { return of_kernel(schedule, usual(), kernel); };
    EXPECT_EQ(own(ATTNC_KERNEL_PROJECT_HEADS).layout.panel, 64);
    EXPECT_EQ(own(ATTNC_KERNEL_PROJECT_HEADS).layout.out_panel, 128);
    EXPECT_EQ(own(ATTNC_KERNEL_PROJECT_OUT).layout.out_panel, 64);
    EXPECT_EQ(own(ATTNC_KERNEL_ATTEND).params.attend.threads_y, 4);
    EXPECT_EQ(own(ATTNC_KERNEL_ATTEND).layout.panel, 128);
    EXPECT_EQ(own(ATTNC_KERNEL_ATTEND_DECODE).layout.split_kv, 1024);
    EXPECT_EQ(own(ATTNC_KERNEL_ATTEND_DECODE).params.attend_decode.depth, 16);
    const CudaSchedule before = own(ATTNC_KERNEL_ATTEND);
    schedule.layout.split_kv = 2048;
    schedule.params.attend_decode.depth = 32;
    schedule.params.project_heads.unroll = 8;
    EXPECT_EQ(own(ATTNC_KERNEL_ATTEND), before);
    for (const int kernel : {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_ATTEND, ATTNC_KERNEL_ATTEND_MASKED,
                             ATTNC_KERNEL_ATTEND_DECODE, ATTNC_KERNEL_ATTEND_PROBS}) {
        EXPECT_EQ(error_of([&] { check_cuda_schedule(own(kernel), usual(), kTarget); }), "no error");
    }
}

TEST(CudaTarget, NamesAnArchitecture) {
    EXPECT_EQ(cuda_target(80), "cuda-sm_80");
    EXPECT_EQ(cuda_target(kNoArchitecture), "cuda");
    for (const int architecture : cuda_architectures())
        EXPECT_EQ(cuda_target_architecture(cuda_target(architecture)), architecture);
    for (const char* name :
         {"", "cuda-", "cuda-sm_", "cuda-sm_81", "cuda-sm_080", "cuda-sm_80 ", "opencl", "x86-64-linux"})
        EXPECT_EQ(cuda_target_architecture(name), std::nullopt) << name;
}

TEST(CudaCapability, IsTheTargets) {
    EXPECT_EQ(cuda_capability("x86-64-linux-cuda"), 70);
    EXPECT_EQ(cuda_capability("x86-64-linux-cuda-cuda_capability_86-no_runtime"), 86);
}

}  // namespace
}  // namespace attnc
