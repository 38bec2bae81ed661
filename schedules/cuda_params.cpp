#include "schedules/cuda_params.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "runtime/kernel_abi.h"
#include "schedules/cuda_model.h"
#include "schedules/divisors.h"
#include "schedules/schedule_text.h"

namespace attnc {

namespace {

constexpr int64_t kQuad = 4;  // rows and columns of a thread come by fours
constexpr int64_t kMaxTileKv = 512;
constexpr int64_t kUnroll = 16;
constexpr int64_t kThreadRegisters = 255;

constexpr std::array kProjectKernels = {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_PROJECT_OUT};
constexpr std::array kAttendKernels = {ATTNC_KERNEL_ATTEND, ATTNC_KERNEL_ATTEND_MASKED,
                                       ATTNC_KERNEL_ATTEND_PROBS, ATTNC_KERNEL_ATTEND_DECODE};
constexpr std::array kScheduledKernels = {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_PROJECT_OUT,
                                          ATTNC_KERNEL_ATTEND,        ATTNC_KERNEL_ATTEND_MASKED,
                                          ATTNC_KERNEL_ATTEND_PROBS,  ATTNC_KERNEL_ATTEND_DECODE};

std::string number(int64_t value) { return std::to_string(value); }

// ---- Rules: empty, or the reason why not
// -------------------------------------------------------------------------

std::string range_fault(const std::string& name, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return "";
    return name + " " + number(value) + " is outside " + number(low) + ".." + number(high);
}

// `value` as a multiple of `of`.
std::string multiple_fault(const std::string& name, int64_t value, const std::string& of_name, int64_t of) {
    if (value % of == 0) return "";
    return name + " " + number(value) + " is not a multiple of " + of_name + ", " + number(of);
}

std::string first_of(std::initializer_list<std::string> faults) {
    for (const std::string& fault : faults) {
        if (!fault.empty()) return fault;
    }
    return "";
}

std::string thread_fault(const std::string& kernel, int64_t threads, int64_t most) {
    if (threads >= 32 && threads <= most) return "";
    return kernel + ": a block has " + number(threads) + " threads, 32.." + number(most) + " are wanted";
}

std::string resource_fault(const std::string& kernel, const CudaResources& taken, const CudaDevice& device) {
    if (taken.shared_bytes > device.block_shared_bytes) {
        return kernel + ": a block takes " + number(taken.shared_bytes) + " bytes of shared memory, " +
               number(device.block_shared_bytes) + " are there";
    }
    if (taken.registers > kThreadRegisters) {
        return kernel + ": a thread takes " + number(taken.registers) + " registers, " +
               number(kThreadRegisters) + " are there";
    }
    if (taken.registers * taken.threads > device.registers) {
        return kernel + ": a block takes " + number(taken.registers * taken.threads) + " registers, " +
               number(device.registers) + " are there";
    }
    return "";
}

std::string state_fault(const std::string& kernel, int64_t register_state) {
    return range_fault(kernel + ".register_state", register_state, 0, 1);
}

std::string project_fault(const std::string& kernel, const CudaProjectParams& params,
                          const std::string& panel_name, int64_t panel) {
    std::string fault = first_of({
        range_fault(kernel + ".threads_x", params.threads_x, 4, 32),
        range_fault(kernel + ".threads_y", params.threads_y, 4, 32),
        range_fault(kernel + ".row_groups", params.row_groups, 1, 2),
        range_fault(kernel + ".depth", params.depth, 4, 32),
        range_fault(kernel + ".unroll", params.unroll, 4, 32),
        state_fault(kernel, params.register_state),
        range_fault(panel_name, panel, 1, 256),
    });
    if (!fault.empty()) return fault;
    return first_of({
        thread_fault(kernel, params.threads_x * params.threads_y, 512),
        multiple_fault(panel_name, panel, "4 * " + kernel + ".threads_x", kQuad * params.threads_x),
        range_fault(panel_name + " / (4 * " + kernel + ".threads_x)", panel / (kQuad * params.threads_x), 1,
                    2),
        multiple_fault(kernel + ".depth", params.depth, "threads_x", params.threads_x),
        multiple_fault(kernel + ".depth", params.depth, "threads_y", params.threads_y),
        multiple_fault(kernel + ".unroll", params.unroll, "a step", kQuad),
        multiple_fault(kernel + ".depth", params.depth, "unroll", params.unroll),
    });
}

std::string layout_fault(const CudaLayout& layout) {
    std::string fault = first_of({range_fault("threads_x", layout.threads_x, 4, 32),
                                  range_fault("tile_kv", layout.tile_kv, 16, kMaxTileKv),
                                  range_fault("split_kv", layout.split_kv, 16, ATTNC_MAX_SPLIT_KV)});
    if (!fault.empty()) return fault;
    const int64_t quads = kQuad * layout.threads_x;
    return first_of({multiple_fault("tile_kv", layout.tile_kv, "4 * threads_x", quads),
                     range_fault("tile_kv / (4 * threads_x)", layout.tile_kv / quads, 1, 4),
                     multiple_fault("split_kv", layout.split_kv, "tile_kv", layout.tile_kv)});
}

std::string attend_fault(const std::string& kernel, const CudaAttendParams& params, const CudaLayout& layout,
                         int64_t head) {
    const std::string depth = kernel + ".depth", value_keys = kernel + ".value_keys",
                      unroll = kernel + ".unroll";
    std::string fault = first_of(
        {range_fault(kernel + ".threads_y", params.threads_y, 2, 32),
         range_fault(depth, params.depth, 4, 512), range_fault(value_keys, params.value_keys, 4, kMaxTileKv),
         range_fault(unroll, params.unroll, 4, 64), state_fault(kernel, params.register_state)});
    if (!fault.empty()) return fault;
    return first_of({thread_fault(kernel, layout.threads_x * params.threads_y, 256),
                     multiple_fault(depth, params.depth, "a step", kQuad),
                     multiple_fault(depth, params.depth, "threads_y", params.threads_y),
                     multiple_fault("the padded head_dim", head, depth, params.depth),
                     multiple_fault(value_keys, params.value_keys, "a step", kQuad),
                     multiple_fault(value_keys, params.value_keys, "threads_y", params.threads_y),
                     multiple_fault("tile_kv", layout.tile_kv, value_keys, params.value_keys),
                     multiple_fault(unroll, params.unroll, "a step", kQuad),
                     multiple_fault(depth, params.depth, unroll, params.unroll),
                     multiple_fault(value_keys, params.value_keys, unroll, params.unroll)});
}

// But for the device's limits.
std::string kernel_fault(const CudaSchedule& given, const Config& config, int kernel) {
    CudaSchedule schedule = given;
    if (!is_projection(kernel)) {
        return attend_fault(kernel_name(kernel), attend_params(schedule.params, kernel), schedule.layout,
                            padded_head(config.head_dim));
    }
    const bool out = kernel == ATTNC_KERNEL_PROJECT_OUT;
    return project_fault(kernel_name(kernel), project_params(schedule.params, kernel),
                         out ? "out_panel" : "panel",
                         out ? schedule.layout.out_panel : schedule.layout.panel);
}

std::string schedule_fault(const CudaSchedule& schedule, const Config& config, const CudaDevice& device) {
    std::string fault = layout_fault(schedule.layout);
    for (const int kernel : kScheduledKernels) {
        if (!fault.empty()) return fault;
        fault = kernel_fault(schedule, config, kernel);
    }
    for (const int kernel : kScheduledKernels) {
        if (!fault.empty()) return fault;
        fault = resource_fault(kernel_name(kernel), cuda_resources(schedule, config, kernel), device);
    }
    return fault;
}

// ---- Defaults
// ----------------------------------------------------------------------------------------------------

// The estimate is for sm_80 and sm_90, which have as many registers, where a scheduler issues either a multiply-add or
// another instruction; the limits are those of all devices.
CudaDevice common_device() {
    CudaDevice device = cuda_device(80);
    device.lanes = cuda_device(90).lanes;
    device.block_shared_bytes = cuda_device(kNoArchitecture).block_shared_bytes;
    return device;
}

// Of tiles of so many rows or keys, what a sequence of 512 uses: the last one is half empty.
double used_part(int64_t tile) {
    constexpr double kSequence = 512;
    return kSequence / (kSequence + static_cast<double>(tile) / 2);
}

// Of the features that threads go through, those that are there.
double filled_part(const CudaLayout& layout, int64_t head, int64_t v_head) {
    const int64_t quads = kQuad * layout.threads_x, filled_up = (v_head + quads - 1) / quads * quads;
    return static_cast<double>(head + v_head) / static_cast<double>(head + filled_up);
}

// The fastest parameters of a kernel by the model, with their expected fraction of the peak; none: no valid ones.
struct Choice {
    CudaAttendParams params;
    double fraction;
};
std::optional<Choice> best_params(CudaSchedule& schedule, const Config& config, int kernel,
                                  const CudaDevice& device, int64_t most_rows, int64_t least_threads) {
    const int64_t head = padded_head(config.head_dim);
    CudaAttendParams& params = attend_params(schedule.params, kernel);
    std::optional<Choice> best;
    for (const int64_t threads_y : {2, 4, 5, 6, 8, 10, 12, 13, 14, 16}) {
        if (kQuad * threads_y > most_rows || schedule.layout.threads_x * threads_y < least_threads) continue;
        for (const int64_t depth : divisors(head, kQuad, 8, 128)) {
            for (const int64_t value_keys : divisors(schedule.layout.tile_kv, kQuad, 4, 128)) {
                const int64_t unroll = std::gcd(kUnroll, std::gcd(depth, value_keys));
                params = {.threads_y = threads_y, .depth = depth, .value_keys = value_keys, .unroll = unroll};
                if (!attend_fault("", params, schedule.layout, head).empty()) continue;
                if (!resource_fault("", cuda_resources(schedule, config, kernel), device).empty()) continue;
                const double fraction = cuda_model(schedule, config, kernel, device).expected_fraction *
                                        used_part(kQuad * threads_y) * used_part(schedule.layout.tile_kv) *
                                        filled_part(schedule.layout, head, padded_head(config.v_head_dim));
                if (!best.has_value() || fraction > best->fraction) best = Choice{params, fraction};
            }
        }
    }
    return best;
}

// The fastest schedule of attend with one of so many threads along keys and features.
struct BestSchedule {
    CudaSchedule schedule;
    double fraction = 0;  // 0: there is no valid one
};
BestSchedule best_schedule(const Config& config, const CudaDevice& device,
                           const std::vector<int64_t>& threads) {
    constexpr int64_t kManyRows = 64, kTwoWarps = 64;
    BestSchedule best;
    for (const int64_t threads_x : threads) {
        for (const int64_t key_groups : {1, 2, 4}) {
            CudaSchedule schedule;
            schedule.layout.threads_x = threads_x;
            schedule.layout.tile_kv = kQuad * threads_x * key_groups;
            const auto choice =
                best_params(schedule, config, ATTNC_KERNEL_ATTEND, device, kManyRows, kTwoWarps);
            if (!choice.has_value() || choice->fraction <= best.fraction) continue;
            schedule.params.attend = choice->params;
            best = {schedule, choice->fraction};
        }
    }
    return best;
}

}  // namespace

bool is_projection(int kernel) {
    return kernel == ATTNC_KERNEL_PROJECT_HEADS || kernel == ATTNC_KERNEL_PROJECT_OUT;
}

CudaProjectParams& project_params(CudaParams& params, int kernel) {
    return kernel == ATTNC_KERNEL_PROJECT_OUT ? params.project_out : params.project_heads;
}

CudaAttendParams& attend_params(CudaParams& params, int kernel) {
    if (kernel == ATTNC_KERNEL_ATTEND_MASKED || kernel == ATTNC_KERNEL_ATTEND_GUARDED)
        return params.attend_masked;
    if (kernel == ATTNC_KERNEL_ATTEND_PROBS || kernel == ATTNC_KERNEL_ATTEND_SCORES)
        return params.attend_probs;
    return kernel == ATTNC_KERNEL_ATTEND_DECODE ? params.attend_decode : params.attend;
}

ScheduleFields fields_of(CudaSchedule& schedule) {
    CudaLayout& layout = schedule.layout;
    ScheduleFields fields = {{"panel", &layout.panel},
                             {"out_panel", &layout.out_panel},
                             {"threads_x", &layout.threads_x},
                             {"tile_kv", &layout.tile_kv},
                             {"split_kv", &layout.split_kv}};
    for (const int kernel : kProjectKernels) {
        CudaProjectParams& params = project_params(schedule.params, kernel);
        const std::string name = kernel_name(kernel);
        fields.emplace_back(name + ".threads_x", &params.threads_x);
        fields.emplace_back(name + ".threads_y", &params.threads_y);
        fields.emplace_back(name + ".row_groups", &params.row_groups);
        fields.emplace_back(name + ".depth", &params.depth);
        fields.emplace_back(name + ".unroll", &params.unroll);
        fields.emplace_back(name + ".register_state", &params.register_state);
    }
    for (const int kernel : kAttendKernels) {
        CudaAttendParams& params = attend_params(schedule.params, kernel);
        const std::string name = kernel_name(kernel);
        fields.emplace_back(name + ".threads_y", &params.threads_y);
        fields.emplace_back(name + ".depth", &params.depth);
        fields.emplace_back(name + ".value_keys", &params.value_keys);
        fields.emplace_back(name + ".unroll", &params.unroll);
        fields.emplace_back(name + ".register_state", &params.register_state);
    }
    return fields;
}

std::string to_string(const CudaSchedule& schedule) {
    CudaSchedule copy = schedule;
    return schedule_text(fields_of(copy));
}

CudaSchedule parse_cuda_schedule(std::string_view text, const CudaSchedule& base) {
    CudaSchedule schedule = base;
    read_schedule_text(text, fields_of(schedule));
    return schedule;
}

CudaSchedule default_cuda_schedule(const Config& config) {
    constexpr int64_t kFewRows = 16, kWarp = 32;
    const int64_t head = padded_head(config.head_dim), v_head = padded_head(config.v_head_dim);
    const CudaDevice device = common_device();
    BestSchedule chosen = best_schedule(config, device, divisors(std::gcd(head, v_head) / kQuad, 1, 4, 32));
    // Heads without a common divisor of use: with any threads, some of which have nothing at the end of a row. There is
    // a valid schedule then whatever the heads are.
    if (chosen.fraction == 0) chosen = best_schedule(config, device, {8, 16, 32});
    CudaSchedule& best = chosen.schedule;
    best.layout.split_kv = std::max<int64_t>(1, 512 / best.layout.tile_kv) * best.layout.tile_kv;
    CudaParams& params = best.params;
    params.attend_masked = params.attend_probs = params.attend_decode = params.attend;
    if (const auto few = best_params(best, config, ATTNC_KERNEL_ATTEND_DECODE, device, kFewRows, kWarp)) {
        params.attend_decode = few->params;
    } else {
        params.attend_decode = params.attend;
    }
    return best;
}

void check_cuda_schedule(const CudaSchedule& schedule, const Config& config, std::string_view target) {
    const std::string fault = schedule_fault(schedule, config, cuda_device(cuda_capability(target)));
    if (!fault.empty()) throw ConfigError(fault);
}

std::string cuda_schedule_fault(const CudaSchedule& schedule, const Config& config,
                                const std::vector<int>& architectures) {
    std::string fault = schedule_fault(schedule, config, cuda_device(kNoArchitecture));
    for (const int architecture : architectures) {
        if (!fault.empty()) return fault;
        fault = schedule_fault(schedule, config, cuda_device(architecture));
        if (!fault.empty()) fault += " on sm_" + number(architecture);
    }
    return fault;
}

std::string cuda_kernel_fault(const CudaSchedule& schedule, const Config& config, int kernel,
                              const CudaDevice& device) {
    std::string fault = is_projection(kernel) ? "" : layout_fault(schedule.layout);
    if (fault.empty()) fault = kernel_fault(schedule, config, kernel);
    if (!fault.empty()) return fault;
    return resource_fault(kernel_name(kernel), cuda_resources(schedule, config, kernel), device);
}

CudaSchedule of_kernel(const CudaSchedule& schedule, const Config& config, int kernel) {
    CudaSchedule own = schedule, same = default_cuda_schedule(config);
    if (is_projection(kernel)) {
        const bool out = kernel == ATTNC_KERNEL_PROJECT_OUT;
        (out ? same.layout.out_panel : same.layout.panel) = out ? own.layout.out_panel : own.layout.panel;
        project_params(same.params, kernel) = project_params(own.params, kernel);
        return same;
    }
    same.layout.threads_x = own.layout.threads_x, same.layout.tile_kv = own.layout.tile_kv;
    same.layout.split_kv = kernel == ATTNC_KERNEL_ATTEND_DECODE ? own.layout.split_kv : own.layout.tile_kv;
    // The others are as valid as this one.
    for (const int other : kAttendKernels)
        attend_params(same.params, other) = attend_params(own.params, kernel);
    return same;
}

}  // namespace attnc
