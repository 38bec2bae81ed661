#include "schedules/cuda_launches.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

constexpr int64_t kQuad = 4;
constexpr double kFloat = 4;  // bytes

// What nothing hides: a block's first loads and last stores, for each wave of blocks, and the start of a launch. A guess, to
// be replaced by measurements; so is what a join of splits adds for each of them.
constexpr double kStartCycles = 2000;
constexpr double kJoinCycles = 100;

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
double real(int64_t value) { return static_cast<double>(value); }

// ---- Projections

// One launch: columns of several projections of the same rows.
struct Projection {
    int64_t rows, inner;
    std::vector<int64_t> columns;  // of each, which begin at a panel
};

CudaLaunch project_launch(const Projection& p, const CudaProjectParams& params, int64_t panel, int kernel) {
    const int64_t block_rows = kQuad * params.threads_y * params.row_groups;
    int64_t panels = 0;
    double columns = 0;
    for (const int64_t own : p.columns) panels += divide_up(own, panel), columns += real(own);
    const int64_t steps = divide_up(p.inner, params.depth);
    const double rows = real(p.rows), inner = real(p.inner);
    return {.kernel = kernel,
            .blocks = divide_up(p.rows, block_rows) * panels,
            .steps = real(steps),
            .most_steps = real(steps),
            .multiply_adds = rows * inner * columns,
            .block_bytes = kFloat * real(steps * params.depth * (block_rows + panel)),
            .memory_bytes = kFloat * (rows * inner + inner * columns + rows * columns)};
}

// As the runtime joins them: of the same tokens and sizes.
std::vector<Projection> input_projections(const Config& config, const Sizes& sizes) {
    const int64_t q = config.num_heads * padded_head(config.head_dim);
    const int64_t k = config.num_kv_heads * padded_head(config.head_dim);
    const int64_t v = config.num_kv_heads * padded_head(config.v_head_dim);
    // A call with a cache brings as many new keys as queries.
    const int64_t keys = config.cache ? sizes.seq_q : sizes.seq_kv;
    const int64_t q_rows = sizes.batch * sizes.seq_q, kv_rows = sizes.batch * keys;
    const bool one_kv = config.k_dim == config.v_dim && config.head_dim == config.v_head_dim;
    if (one_kv && config.k_dim == config.d_model && q_rows == kv_rows)
        return {{q_rows, config.d_model, {q, k, v}}};
    std::vector<Projection> projections = {{q_rows, config.d_model, {q}}};
    if (kv_rows == 0) return projections;
    if (one_kv) {
        projections.push_back({kv_rows, config.k_dim, {k, v}});
    } else {
        projections.push_back({kv_rows, config.k_dim, {k}});
        projections.push_back({kv_rows, config.v_dim, {v}});
    }
    return projections;
}

std::vector<CudaLaunch> project_launches(const CudaSchedule& schedule, const Config& config, int kernel,
                                         const Sizes& sizes) {
    if (kernel == ATTNC_KERNEL_PROJECT_OUT) {
        const Projection out = {
            sizes.batch * sizes.seq_q, config.num_heads * padded_head(config.v_head_dim), {config.d_model}};
        return {project_launch(out, schedule.params.project_out, schedule.layout.out_panel, kernel)};
    }
    std::vector<CudaLaunch> launches;
    for (const Projection& projection : input_projections(config, sizes)) {
        launches.push_back(
            project_launch(projection, schedule.params.project_heads, schedule.layout.panel, kernel));
    }
    return launches;
}

// ---- Attention

// Pairs of query and key of an item's head that count.
double pairs_of(const Config& config, const Sizes& sizes) {
    const double queries = real(sizes.seq_q), keys = real(sizes.seq_kv);
    if (!config.causal) return queries * keys;
    const double before = keys - queries;  // keys that every query sees
    return before >= 0 ? queries * before + queries * (queries + 1) / 2 : keys * (keys + 1) / 2;
}

// Blocks of keys that a block of `rows` queries goes through on average: of a causal call those that its queries see, and half
// a tile more of either side.
double mean_steps(const Config& config, const Sizes& sizes, int64_t rows, int64_t tile_kv) {
    const int64_t all = divide_up(sizes.seq_kv, tile_kv);
    if (!config.causal || sizes.seq_q == 0) return real(all);
    const double seen = pairs_of(config, sizes) / real(sizes.seq_q) + real(rows - 1) / 2;
    return std::min((seen + real(tile_kv - 1) / 2) / real(tile_kv), real(all));
}

CudaLaunch attend_launch(const CudaSchedule& schedule, const Config& config, int kernel, const Sizes& sizes) {
    CudaParams all = schedule.params;
    const CudaAttendParams params = attend_params(all, kernel);
    const int64_t head = padded_head(config.head_dim), v_head = padded_head(config.v_head_dim);
    const int64_t tile_kv = schedule.layout.tile_kv, rows = kQuad * params.threads_y;
    const bool pairwise = kernel == ATTNC_KERNEL_ATTEND_PROBS || kernel == ATTNC_KERNEL_ATTEND_SCORES;
    const bool by_groups = kernel == ATTNC_KERNEL_ATTEND_DECODE;
    const int64_t group = config.num_heads / config.num_kv_heads;
    const double heads = real(sizes.batch * config.num_heads),
                 kv_heads = real(sizes.batch * config.num_kv_heads);
    const double step_bytes = kFloat * real(tile_kv * (head + (pairwise ? 0 : v_head)));
    const double q_bytes = kFloat * real(rows * head);

    CudaLaunch launch = {.kernel = kernel};
    if (by_groups) {
        const int64_t splits = divide_up(sizes.seq_kv, schedule.layout.split_kv);
        launch.blocks = sizes.batch * config.num_kv_heads * splits * divide_up(sizes.seq_q * group, rows);
        launch.steps = real(divide_up(sizes.seq_kv, tile_kv)) / real(std::max<int64_t>(splits, 1));
        launch.most_steps = real(divide_up(std::min(sizes.seq_kv, schedule.layout.split_kv), tile_kv));
        launch.joins = splits > 1 ? real(splits) : 0;
    } else {
        const int64_t blocks_of_keys = divide_up(sizes.seq_kv, tile_kv);
        launch.blocks =
            sizes.batch * config.num_heads * divide_up(sizes.seq_q, rows) * (pairwise ? blocks_of_keys : 1);
        launch.steps = mean_steps(config, sizes, rows, tile_kv);
        launch.most_steps = pairwise ? 1 : real(blocks_of_keys);
        // A block of keys each; those that a causal call drops are soon done.
        if (pairwise) launch.steps /= real(std::max<int64_t>(blocks_of_keys, 1));
    }
    const double pairs = heads * pairs_of(config, sizes);
    launch.multiply_adds = pairs * real(head + (pairwise ? 0 : v_head));
    launch.block_bytes = q_bytes + launch.steps * step_bytes;
    const double tokens = real(sizes.seq_q), keys = real(sizes.seq_kv);
    launch.memory_bytes = kFloat * (heads * tokens * real(head) + kv_heads * keys * real(head));
    launch.memory_bytes += pairwise ? kFloat * heads * tokens * keys
                                    : kFloat * real(v_head) * (heads * tokens + kv_heads * keys);
    return launch;
}

}  // namespace

std::vector<CudaLaunch> launches_of(const CudaSchedule& schedule, const Config& config, int kernel,
                                    const Sizes& sizes) {
    if (is_projection(kernel)) return project_launches(schedule, config, kernel, sizes);
    return {attend_launch(schedule, config, kernel, sizes)};
}

bool decodes(const CudaSchedule& schedule, const Config& config, const Sizes& sizes) {
    const int64_t group = config.num_heads / config.num_kv_heads;
    return sizes.seq_kv > 0 && sizes.seq_q * group <= kQuad * schedule.params.attend_decode.threads_y;
}

int attention_kernel(const CudaSchedule& schedule, const Config& config, const Sizes& sizes) {
    if (decodes(schedule, config, sizes)) return ATTNC_KERNEL_ATTEND_DECODE;
    return config.alibi ? ATTNC_KERNEL_ATTEND_MASKED : ATTNC_KERNEL_ATTEND;
}

CudaTime launch_time(const CudaLaunch& launch, const CudaSchedule& schedule, const Config& config,
                     const CudaDevice& device) {
    constexpr int64_t kWarp = 32;
    const CudaModel model = cuda_model(schedule, config, launch.kernel, device);
    const int64_t threads = cuda_resources(schedule, config, launch.kernel).threads;
    const int64_t warps = divide_up(threads, kWarp);
    const int64_t resident = std::max<int64_t>(1, model.warps / warps);
    const int64_t most = divide_up(launch.blocks, device.multiprocessors);  // blocks of one multiprocessor
    const int64_t waves = divide_up(most, resident);

    // One step of a block takes all schedulers of a multiprocessor; what its warps wait for is hidden by those of other
    // blocks of the wave.
    const double step = issue_cycles(model, device) * real(warps) / kSchedulers;
    const double waiting = kHalfHiddenWarps / real(warps);
    const double issue = std::max(step * launch.steps * (real(most) + real(waves) * waiting),
                                  step * launch.most_steps * (1 + waiting));
    const double of_l2 = launch.block_bytes * real(most) / device.l2_bytes;
    const double of_memory = launch.memory_bytes / device.memory_bytes;
    const double start = kStartCycles * real(waves);
    const double join = launch.joins > 0 ? kStartCycles + kJoinCycles * launch.joins : 0;
    // What takes most is hindered by the others the more, the nearer they come to it.
    const double running = std::hypot(issue, of_l2, of_memory),
                 most_of_it = std::max({issue, of_l2, of_memory});

    CudaTime time = {.cycles = running + start + join, .waves = waves, .fraction = 0, .limit = ""};
    const double peak = time.cycles * real(device.multiprocessors * device.lanes);
    time.fraction = launch.multiply_adds / peak;
    if (start + join > running) {
        time.limit = "start";
    } else if (most_of_it == of_memory) {
        time.limit = "memory";
    } else if (most_of_it == of_l2) {
        time.limit = "L2";
    } else if (real(launch.blocks) < 0.8 * real(most * device.multiprocessors)) {
        time.limit = "idle multiprocessors";
    } else {
        time.limit = real(waves) * waiting > 0.5 * real(most) ? "few warps" : "instructions";
    }
    return time;
}

double kernel_cycles(const CudaSchedule& schedule, const Config& config, int kernel, const Sizes& sizes,
                     const CudaDevice& device) {
    double cycles = 0;
    for (const CudaLaunch& launch : launches_of(schedule, config, kernel, sizes))
        cycles += launch_time(launch, schedule, config, device).cycles;
    return cycles;
}

double call_cycles(const CudaSchedule& schedule, const Config& config, const Sizes& sizes,
                   const CudaDevice& device) {
    double cycles = kernel_cycles(schedule, config, attention_kernel(schedule, config, sizes), sizes, device);
    if (config.in_proj) cycles += kernel_cycles(schedule, config, ATTNC_KERNEL_PROJECT_HEADS, sizes, device);
    if (config.out_proj) cycles += kernel_cycles(schedule, config, ATTNC_KERNEL_PROJECT_OUT, sizes, device);
    return cycles;
}

}  // namespace attnc
