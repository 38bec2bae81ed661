// Parameters of the CUDA kernels' schedules: how each kernel runs. Plain structs; each field says its unit, its range and
// its reason. Validity rules, resources by formula and the text form live beside them. No Halide.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/cuda_devices.h"
#include "schedules/schedule_text.h"
#include "stages/config.h"

namespace attnc {

// Numbers that decide memory between kernels, or bits: which keys and features a thread holds decides in which order
// weights are summed. One per library and target.
struct CudaLayout {
    int64_t panel =
        128;  // columns of a packed panel of wq, wk, wv: a multiple of 4 * threads_x of project_heads
    int64_t out_panel = 128;  // columns of a packed panel of wo: the same for project_out
    int64_t threads_x =
        16;  // attention's threads along keys and features, 4..32: best where 4 * threads_x divides both heads
    int64_t tile_kv =
        64;  // keys of a block of attention: a multiple of 4 * threads_x, at most four times that
    int64_t split_kv = 512;  // keys of a split of attend_decode, at absolute multiples; a multiple of tile_kv
    bool operator==(const CudaLayout&) const = default;
};

// project_heads and project_out: a block of threads makes 4 * threads_y * row_groups rows of a panel.
struct CudaProjectParams {
    int64_t threads_x = 16;  // along columns, 4..32; threads_x * threads_y is 32..512
    int64_t threads_y = 8;   // along rows, 4..32
    // Fours of rows of a thread, 1..2; it holds 4 * row_groups by panel / threads_x sums.
    int64_t row_groups = 2;
    // Inner features in shared memory at a time, 4..32: a multiple of threads_x and threads_y, which copy them.
    int64_t depth = 32;
    // Multiply-adds of a sum without a jump: a multiple of 4 that divides depth.
    int64_t unroll = 32;
    // 1: sums stay in registers; 0: in shared memory, without a race in Halide's eyes.
    int64_t register_state = 1;
    bool operator==(const CudaProjectParams&) const = default;
};

// attend and its masked, decoding and pairwise forms: a block of threads makes 4 * threads_y rows.
struct CudaAttendParams {
    int64_t threads_y = 8;  // along rows, 2..32; threads_x * threads_y is 32..256
    // Features of K in shared memory at a time: a multiple of 4 and of threads_y, which copy them, that divides the padded
    // head.
    int64_t depth = 64;
    // Keys of V in shared memory at a time: the same, and divides tile_kv.
    int64_t value_keys = 64;
    // Multiply-adds of a sum without a jump: a multiple of 4 that divides depth and value_keys.
    int64_t unroll = 16;
    int64_t register_state = 1;  // as above
    bool operator==(const CudaAttendParams&) const = default;
};

struct CudaParams {
    CudaProjectParams project_heads;
    CudaProjectParams project_out = {.depth = 16,
                                     .unroll = 16};  // addresses of single stores leave room for no more
    CudaAttendParams attend;
    CudaAttendParams attend_masked;
    CudaAttendParams attend_probs;  // and of attend_scores
    CudaAttendParams attend_decode;
    bool operator==(const CudaParams&) const = default;
};

// By kernel, ATTNC_KERNEL_*: which of them are projections, and whose parameters it has.
bool is_projection(int kernel);
CudaProjectParams& project_params(CudaParams& params, int kernel);
CudaAttendParams& attend_params(CudaParams& params, int kernel);

struct CudaSchedule {
    CudaLayout layout;
    CudaParams params;
    bool operator==(const CudaSchedule&) const = default;
};
// "panel:128,out_panel:128,...,project_heads.threads_x:16,...": every field, in the structs' order.
std::string to_string(const CudaSchedule& schedule);
// Starts from `base` and overrides the fields that `text` names; throws ConfigError as parse_schedule does.
CudaSchedule parse_cuda_schedule(std::string_view text, const CudaSchedule& base);

// The fields by name, in the order of the text, with where they lie in `schedule`: "panel", "attend.depth".
ScheduleFields fields_of(CudaSchedule& schedule);

// Valid for every device, except for heads too wide for the shared memory or the registers of some; by the model of
// cuda_model.h the fastest of those that are valid.
CudaSchedule default_cuda_schedule(const Config& config);

// Throws ConfigError with the reason when a rule is broken. `target` is Halide's, with its cuda_capability.
void check_cuda_schedule(const CudaSchedule& schedule, const Config& config, std::string_view target);

// The same for a library with code for these architectures, beside the PTX that any device may be given: the reason, or
// nothing.
std::string cuda_schedule_fault(const CudaSchedule& schedule, const Config& config,
                                const std::vector<int>& architectures);

// What a kernel may spill at most, by an assembler's own account.
inline constexpr int64_t kMostSpillBytes = 16;

// The rules of one kernel (ATTNC_KERNEL_*, one that has parameters) with its part of the layout.
std::string cuda_kernel_fault(const CudaSchedule& schedule, const Config& config, int kernel,
                              const CudaDevice& device);

// The schedule with what the kernel's code doesn't depend on set to the same as in any other: kernels that are equal
// have equal texts.
CudaSchedule of_kernel(const CudaSchedule& schedule, const Config& config, int kernel);

}  // namespace attnc
