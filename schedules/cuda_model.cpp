#include "schedules/cuda_model.h"

#include <algorithm>

#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

constexpr int64_t kQuad = 4;
constexpr int64_t kFloat = 4;  // bytes

// Registers beside accumulators and operands: addresses, loop counters, bounds, and values on their way to shared memory.
constexpr int64_t kProjectTemporaries = 48;
constexpr int64_t kAttendTemporaries = 72;
// Of attend_decode with sums in shared memory, whose few threads have long chains of loads: with more of them ptxas starts more
// loads at a time and spills.
constexpr int64_t kDecodeTemporaries = 40;
constexpr int64_t kChainTemporaries = 16;  // with sums in shared memory: operands of a chain of four
constexpr int64_t kChain = 4;

bool is_pairwise(int kernel) {
    return kernel == ATTNC_KERNEL_ATTEND_PROBS || kernel == ATTNC_KERNEL_ATTEND_SCORES;
}

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

struct Project {
    CudaProjectParams params;
    int64_t threads, rows, columns, column_groups;
};

Project project_of(const CudaSchedule& schedule, int kernel) {
    CudaParams all = schedule.params;
    const CudaProjectParams params = project_params(all, kernel);
    const bool out = kernel == ATTNC_KERNEL_PROJECT_OUT;
    const int64_t panel = out ? schedule.layout.out_panel : schedule.layout.panel;
    return {.params = params,
            .threads = params.threads_x * params.threads_y,
            .rows = kQuad * params.threads_y * params.row_groups,
            .columns = panel,
            .column_groups = panel / (kQuad * params.threads_x)};
}

struct Attend {
    CudaAttendParams params;
    int64_t x, y, threads;
    int64_t rows, keys, key_groups, value_groups;
    int64_t head;
    int64_t q_features, v_features;  // filled up so that all threads have as many
    bool pairs, decodes;
};

Attend attend_of(const CudaSchedule& schedule, const Config& config, int kernel) {
    CudaParams all = schedule.params;
    const CudaAttendParams params = attend_params(all, kernel);
    const int64_t x = schedule.layout.threads_x, quads = kQuad * x;
    const int64_t head = padded_head(config.head_dim), v_head = padded_head(config.v_head_dim);
    return {.params = params,
            .x = x,
            .y = params.threads_y,
            .threads = x * params.threads_y,
            .rows = kQuad * params.threads_y,
            .keys = schedule.layout.tile_kv,
            .key_groups = schedule.layout.tile_kv / quads,
            .value_groups = round_up(v_head, quads) / quads,
            .head = head,
            .q_features = round_up(head, quads),
            .v_features = round_up(v_head, quads),
            .pairs = is_pairwise(kernel),
            .decodes = kernel == ATTNC_KERNEL_ATTEND_DECODE};
}

// Registers of a thread are given out by eights.
int64_t registers_for(int64_t values) { return round_up(values, 8); }

CudaResources project_resources(const Project& p) {
    const int64_t sums = kQuad * kQuad * p.params.row_groups * p.column_groups;
    const int64_t operands = kQuad * (p.params.row_groups + p.column_groups);
    const int64_t tiles = p.params.depth * (p.rows + p.columns);
    const bool in_registers = p.params.register_state != 0;
    const int64_t state = in_registers ? 0 : p.rows * p.columns, chain = in_registers ? 0 : kChainTemporaries;
    return {.threads = p.threads,
            .registers = registers_for(sums + operands + kProjectTemporaries + chain),
            .shared_bytes = kFloat * (tiles + state)};
}

// Halide shares memory among values of disjoint lives; here are the groups that come out.
int64_t attend_shared_floats(const Attend& a) {
    const int64_t queries = a.rows * a.q_features, keys = a.keys * a.params.depth;
    const int64_t scores = a.threads * kQuad * kQuad * a.key_groups;
    const bool in_registers = a.params.register_state != 0;
    if (a.pairs) return queries + keys + (in_registers ? 0 : scores);
    // Rows of weights are one four longer than there are, for the sake of banks.
    const int64_t weights = a.keys * kQuad * (a.y + 1), values = a.params.value_keys * a.v_features;
    if (in_registers) return queries + std::max(keys, weights) + values;
    const int64_t rows = a.threads * kQuad;  // a number for each row of each thread
    const int64_t state = rows * (kQuad * a.value_groups + 2);
    const int64_t products = a.threads * kQuad * kQuad * a.value_groups;
    return queries + state + scores + std::max(keys, scores) + rows + weights + products + values;
}

int64_t attend_registers(const Attend& a) {
    const int64_t tile = kQuad * kQuad, groups = std::max(a.key_groups, a.value_groups);
    const int64_t operands = kQuad * (1 + groups);
    // With all sums in shared memory, those of a chain at a time: of scores or of products.
    if (a.params.register_state == 0) {
        return tile * (a.pairs ? a.key_groups : groups) + kChain * operands +
               (a.decodes ? kDecodeTemporaries : kAttendTemporaries);
    }
    const int64_t state = a.pairs ? 0 : tile * a.value_groups + 2 * kQuad;
    const int64_t made = a.pairs ? 0 : tile * groups;
    return state + tile * a.key_groups + made + operands + kAttendTemporaries;
}

CudaResources attend_resources(const Attend& a) {
    return {.threads = a.threads,
            .registers = registers_for(attend_registers(a)),
            .shared_bytes = kFloat * attend_shared_floats(a)};
}

// Multiply-adds and all instructions of a thread for `depth` inner features.
CudaModel project_counts(const Project& p) {
    const auto depth = static_cast<double>(p.params.depth);
    const auto sums = static_cast<double>(kQuad * kQuad * p.params.row_groups * p.column_groups);
    const auto operands = static_cast<double>(p.params.row_groups + p.column_groups);
    // Rows arrive by single floats, each with a test for the last one, weights by fours; both are stored by fours. The loop
    // itself moves sums between registers.
    const double row_floats = static_cast<double>(p.rows) * depth / static_cast<double>(p.threads);
    const double weight_floats = static_cast<double>(p.columns) * depth / static_cast<double>(p.threads);
    const double copies = row_floats * 3.25 + weight_floats / 2;
    const double spilled = p.params.register_state != 0 ? 0 : depth / 4 * sums / 4 * 2;
    constexpr double kLoop = 100;
    const double multiply_adds = sums * depth;
    return {.multiply_adds = multiply_adds,
            .instructions = multiply_adds + operands * depth + copies + spilled + kLoop,
            .warps = 0,
            .expected_fraction = 0};
}

// The same for a block of keys.
CudaModel attend_counts(const Attend& a) {
    const auto number = [](int64_t value) { return static_cast<double>(value); };
    const double tile = kQuad * kQuad;
    const double scores = tile * number(a.key_groups);
    double multiply_adds = scores * number(a.head);
    double others = number(a.head * (1 + a.key_groups));
    const double key_floats = number(a.keys * a.head) / number(a.threads);
    others += key_floats / 2;
    // Largest, difference, product, power, sum, and a share of the test for visibility.
    // A step through shared memory has two barriers, at which a warp waits for others.
    constexpr double kOfScore = 7, kOfRow = 24, kLoop = 220, kOfStep = 30;
    others += scores * kOfScore + kLoop + kOfStep * number(a.head / a.params.depth);
    if (!a.pairs) {
        multiply_adds += tile * number(a.value_groups * a.keys);
        const double value_floats = number(a.keys * a.v_features) / number(a.threads);
        others += number(a.keys * (1 + a.value_groups)) + value_floats / 2;
        others += kOfStep * number(a.keys / a.params.value_keys);
        others += kQuad * (number(a.x) * 1.25 + kOfRow) + tile * number(a.value_groups) * 2;
        if (a.params.register_state == 0) {
            others += 2 * number(a.key_groups * a.head + a.value_groups * a.keys);
        }
    }
    return {.multiply_adds = multiply_adds,
            .instructions = multiply_adds + others,
            .warps = 0,
            .expected_fraction = 0};
}

}  // namespace

CudaResources cuda_resources(const CudaSchedule& schedule, const Config& config, int kernel) {
    return is_projection(kernel) ? project_resources(project_of(schedule, kernel))
                                 : attend_resources(attend_of(schedule, config, kernel));
}

double multiply_add_cycles(const CudaDevice& device) {
    constexpr double kSchedulerLanes = 32;
    return kSchedulerLanes * kSchedulers / static_cast<double>(device.lanes);
}

double issue_cycles(const CudaModel& model, const CudaDevice& device) {
    const double taken = multiply_add_cycles(device);
    return model.instructions / taken + model.multiply_adds * (taken - 1 / taken);
}

CudaModel cuda_model(const CudaSchedule& schedule, const Config& config, int kernel,
                     const CudaDevice& device) {
    CudaModel model = is_projection(kernel) ? project_counts(project_of(schedule, kernel))
                                            : attend_counts(attend_of(schedule, config, kernel));
    const CudaResources taken = cuda_resources(schedule, config, kernel);
    constexpr int64_t kWarp = 32, kSystemBytes = 1024;  // shared memory that the system takes of each block
    const int64_t warps = (taken.threads + kWarp - 1) / kWarp;
    const int64_t blocks = std::min({device.registers / (taken.registers * warps * kWarp),
                                     device.shared_bytes / (taken.shared_bytes + kSystemBytes),
                                     device.threads / (warps * kWarp), device.blocks});
    model.warps = blocks * warps;
    // One warp leaves its scheduler waiting for its loads and barriers, many hide them for each other.
    const auto resident = static_cast<double>(model.warps);
    // Lanes of a block's last warp may have no thread.
    const double filled = static_cast<double>(taken.threads) / static_cast<double>(warps * kWarp);
    const double multiply_adds = model.multiply_adds * multiply_add_cycles(device);
    model.expected_fraction =
        filled * multiply_adds / issue_cycles(model, device) * resident / (resident + kHalfHiddenWarps);
    return model;
}

}  // namespace attnc
