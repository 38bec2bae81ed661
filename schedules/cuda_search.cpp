#include "schedules/cuda_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "runtime/kernel_abi.h"
#include "schedules/divisors.h"

namespace attnc {

namespace {

constexpr int64_t kQuad = 4;
constexpr int64_t kFewRows = 16;  // attend_decode is for so many rows at most
constexpr int64_t kUnroll = 16;
constexpr int64_t kMostShared = 128;  // features or keys in shared memory at a time

using Cycles = std::vector<double>;  // at each of some sizes

// Geometric mean of what one takes of the other's.
double mean_ratio(const Cycles& cycles, const Cycles& than) {
    double sum = 0;
    for (size_t i = 0; i < cycles.size(); ++i) sum += std::log(cycles[i] / than[i]);
    return std::exp(sum / static_cast<double>(cycles.size()));
}

bool nowhere_worse(const Cycles& cycles, const Cycles& than) {
    return std::equal(cycles.begin(), cycles.end(), than.begin(),
                      [](double own, double other) { return own <= kNowhereWorse * other; });
}

// A schedule with its share of another one's time.
struct Choice {
    CudaSchedule schedule;
    double ratio = 1;
};

// A step of decoding, and a prompt or a whole sequence.
constexpr Sizes kStep = {.batch = 1, .seq_q = 1, .seq_kv = 512},
                kPrompt = {.batch = 1, .seq_q = 512, .seq_kv = 512};

// A layer with a cache is given a prompt before its steps.
std::vector<Sizes> judged_sizes(const CudaSearch& search) {
    std::vector<Sizes> sizes = search.sizes;
    const bool steps =
        std::all_of(sizes.begin(), sizes.end(), [](const Sizes& s) { return s.seq_q <= kFewRows; });
    if (search.config.cache && steps) sizes.push_back(kPrompt);
    return sizes;
}

class Searcher {
public:
    Searcher(const CudaSearch& search, const CudaSchedule& start)
        : search_(search),
          sizes_(judged_sizes(search)),
          best_(start),
          device_(cuda_device(search.architecture)) {
        common_ = cuda_device(kNoArchitecture);
        common_.block_shared_bytes = std::min(common_.block_shared_bytes, device_.block_shared_bytes);
        for (const Sizes& sizes : sizes_) {
            if (group_rows(sizes) <= kFewRows) fewest_rows_ = std::max(fewest_rows_, group_rows(sizes));
        }
    }

    CudaSchedule run() {
        for (const int kernel : {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_PROJECT_OUT})
            if (is_wanted(kernel)) choose_projection(kernel);
        choose_attention();
        return best_;
    }

private:
    bool is_wanted(int kernel) const {
        return std::find(search_.kernels.begin(), search_.kernels.end(), kernel) != search_.kernels.end();
    }
    bool is_valid(const CudaSchedule& schedule, int kernel) const {
        return cuda_kernel_fault(schedule, search_.config, kernel, common_).empty() &&
               !(search_.is_refused && search_.is_refused(schedule, kernel));
    }
    Cycles of_kernel_at(const CudaSchedule& schedule, int kernel, const std::vector<Sizes>& sizes) const {
        Cycles cycles;
        for (const Sizes& entry : sizes)
            cycles.push_back(kernel_cycles(schedule, search_.config, kernel, entry, device_));
        return cycles;
    }

    void choose_projection(int kernel) {
        const bool out = kernel == ATTNC_KERNEL_PROJECT_OUT;
        const Cycles of_start = of_kernel_at(best_, kernel, sizes_);
        Choice chosen = {best_};
        for (const int64_t threads_x : {4, 8, 16, 32}) {
            for (const int64_t threads_y : {4, 8, 16, 32}) {
                for (const int64_t row_groups : {1, 2}) {
                    for (const int64_t column_groups : {1, 2}) {
                        for (const int64_t depth : divisors(32, std::max(threads_x, threads_y), 4, 32)) {
                            CudaSchedule schedule = best_;
                            CudaProjectParams& params =
                                out ? schedule.params.project_out : schedule.params.project_heads;
                            (out ? schedule.layout.out_panel : schedule.layout.panel) =
                                kQuad * threads_x * column_groups;
                            params.threads_x = threads_x, params.threads_y = threads_y;
                            params.row_groups = row_groups;
                            params.depth = depth;
                            params.unroll = std::min(params.unroll, depth);
                            keep_better(schedule, kernel, of_start, chosen);
                        }
                    }
                }
            }
        }
        if (chosen.ratio < kClearlyBetter) best_ = chosen.schedule;
    }
    void keep_better(const CudaSchedule& schedule, int kernel, const Cycles& than, Choice& chosen) const {
        if (!is_valid(schedule, kernel)) return;
        const Cycles cycles = of_kernel_at(schedule, kernel, sizes_);
        const double ratio = mean_ratio(cycles, than);
        if (ratio < chosen.ratio && nowhere_worse(cycles, than)) chosen = {schedule, ratio};
    }

    // The best parameters of an attention kernel in the layout of `schedule`, for the sizes; none: there are no valid ones. Its
    // ratio is to the start's.
    std::optional<Choice> choose_attend(const CudaSchedule& schedule, int kernel,
                                        const std::vector<Sizes>& sizes) const {
        const Cycles of_start = of_kernel_at(best_, kernel, sizes);
        const int64_t head = padded_head(search_.config.head_dim);
        CudaParams start = best_.params;
        const int64_t register_state = attend_params(start, kernel).register_state;
        const bool decode = kernel == ATTNC_KERNEL_ATTEND_DECODE;
        std::optional<Choice> chosen;
        for (const int64_t threads_y : {2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32}) {
            const int64_t rows = kQuad * threads_y;
            if (decode && (rows > kFewRows || rows < fewest_rows_)) continue;
            for (const int64_t depth : divisors(head, kQuad, 8, kMostShared)) {
                for (const int64_t keys : divisors(schedule.layout.tile_kv, kQuad, 4, kMostShared)) {
                    CudaSchedule tried = schedule;
                    attend_params(tried.params, kernel) = {.threads_y = threads_y,
                                                           .depth = depth,
                                                           .value_keys = keys,
                                                           .unroll = std::gcd(kUnroll, std::gcd(depth, keys)),
                                                           .register_state = register_state};
                    if (!is_valid(tried, kernel)) continue;
                    const Cycles cycles = of_kernel_at(tried, kernel, sizes);
                    const double ratio = mean_ratio(cycles, of_start);
                    if (chosen && ratio >= chosen->ratio) continue;
                    if (!nowhere_worse(cycles, of_start)) continue;
                    chosen = Choice{tried, ratio};
                }
            }
        }
        return chosen;
    }

    // Rows that share a head of K and V.
    int64_t group_rows(const Sizes& sizes) const {
        return sizes.seq_q * (search_.config.num_heads / search_.config.num_kv_heads);
    }
    // The sizes at which calls run attend_decode, or the others; where there are none, those that stand for them.
    std::vector<Sizes> sizes_of(bool few) const {
        std::vector<Sizes> sizes;
        for (const Sizes& entry : sizes_) {
            if ((group_rows(entry) <= kFewRows) == few) sizes.push_back(entry);
        }
        if (sizes.empty()) sizes = {few ? kStep : kPrompt};
        return sizes;
    }
    // Whether a call of the sizes, with masks or probabilities where the kernel is for them, runs it.
    bool runs(int kernel) const {
        const bool few = kernel == ATTNC_KERNEL_ATTEND_DECODE;
        return std::any_of(sizes_.begin(), sizes_.end(),
                           [&](const Sizes& sizes) { return (group_rows(sizes) <= kFewRows) == few; });
    }

    // Layouts of attention: threads along keys and features as the heads divide, and blocks of keys.
    std::vector<CudaLayout> layouts() const {
        const int64_t heads =
            std::gcd(padded_head(search_.config.head_dim), padded_head(search_.config.v_head_dim));
        std::vector<int64_t> threads = divisors(heads / kQuad, 1, 4, 32);
        if (threads.empty()) threads = {8, 16, 32};
        std::vector<CudaLayout> found;
        for (const int64_t threads_x : threads) {
            for (const int64_t key_groups : {1, 2, 4}) {
                CudaLayout layout = best_.layout;
                layout.threads_x = threads_x;
                layout.tile_kv = kQuad * threads_x * key_groups;
                std::vector<int64_t> splits;
                for (const int64_t keys : {128, 256, 512, 1024, 2048})
                    splits.push_back(std::max<int64_t>(1, keys / layout.tile_kv) * layout.tile_kv);
                splits.erase(std::unique(splits.begin(), splits.end()), splits.end());
                // Nothing but attend_decode reads it.
                if (!runs(ATTNC_KERNEL_ATTEND_DECODE))
                    splits = {std::max<int64_t>(1, 512 / layout.tile_kv) * layout.tile_kv};
                for (const int64_t split_kv : splits) {
                    layout.split_kv = split_kv;
                    found.push_back(layout);
                }
            }
        }
        return found;
    }

    // What calls without masks take for attention.
    Cycles of_attention(const CudaSchedule& schedule) const {
        Cycles cycles;
        for (const Sizes& entry : sizes_) {
            const int kernel = attention_kernel(schedule, search_.config, entry);
            cycles.push_back(kernel_cycles(schedule, search_.config, kernel, entry, device_));
        }
        return cycles;
    }

    // All of attention's kernels in one layout; none: some of them has no valid parameters there.
    std::optional<CudaSchedule> choose_all(const CudaLayout& layout) const {
        CudaSchedule schedule = best_;
        schedule.layout = layout;
        for (const int kernel : {ATTNC_KERNEL_ATTEND, ATTNC_KERNEL_ATTEND_DECODE, ATTNC_KERNEL_ATTEND_MASKED,
                                 ATTNC_KERNEL_ATTEND_PROBS}) {
            const auto chosen =
                choose_attend(schedule, kernel, sizes_of(kernel == ATTNC_KERNEL_ATTEND_DECODE));
            if (!chosen) return std::nullopt;
            schedule = chosen->schedule;
        }
        return schedule;
    }

    void choose_attention() {
        constexpr std::array kKernels = {ATTNC_KERNEL_ATTEND, ATTNC_KERNEL_ATTEND_MASKED,
                                         ATTNC_KERNEL_ATTEND_DECODE, ATTNC_KERNEL_ATTEND_PROBS};
        const std::vector<int> there = scheduled_kernels(search_.config);
        const bool all = std::all_of(there.begin(), there.end(), [&](int kernel) {
            const bool is_attention = std::find(kKernels.begin(), kKernels.end(), kernel) != kKernels.end();
            return !is_attention || is_wanted(kernel);
        });
        if (all && choose_layout()) return;
        for (const int kernel : kKernels) {
            if (is_wanted(kernel)) choose_alone(kernel);
        }
    }

    // False: the start's stays.
    bool choose_layout() {
        const Cycles of_start = of_attention(best_);
        Choice chosen = {best_};
        for (const CudaLayout& layout : layouts()) {
            const auto schedule = choose_all(layout);
            if (!schedule) continue;
            const Cycles cycles = of_attention(*schedule);
            const double ratio = mean_ratio(cycles, of_start);
            if (ratio < chosen.ratio && nowhere_worse(cycles, of_start)) chosen = {*schedule, ratio};
        }
        if (chosen.ratio >= kClearlyBetter) return false;
        best_ = chosen.schedule;
        return true;
    }

    // One kernel in the layout that there is. One that no call of the sizes runs stays as it is.
    void choose_alone(int kernel) {
        if (!runs(kernel)) return;
        const std::vector<Sizes> sizes = sizes_of(kernel == ATTNC_KERNEL_ATTEND_DECODE);
        const auto chosen = choose_attend(best_, kernel, sizes);
        if (chosen && chosen->ratio < kClearlyBetter) best_ = chosen->schedule;
    }

    const CudaSearch& search_;
    std::vector<Sizes> sizes_;
    CudaSchedule best_;
    CudaDevice device_;
    CudaDevice common_;        // the limits of the device, and of every other that may get the PTX
    int64_t fewest_rows_ = 1;  // that attend_decode has to take
};

}  // namespace

std::vector<int> scheduled_kernels(const Config& config) {
    std::vector<int> kernels;
    const auto add = [&](int kernel, bool wanted) {
        if (wanted) kernels.push_back(kernel);
    };
    add(ATTNC_KERNEL_PROJECT_HEADS, config.in_proj);
    add(ATTNC_KERNEL_PROJECT_OUT, config.out_proj);
    add(ATTNC_KERNEL_ATTEND, true);
    add(ATTNC_KERNEL_ATTEND_MASKED, true);  // of attend_guarded too, which every library has
    add(ATTNC_KERNEL_ATTEND_DECODE, true);
    add(ATTNC_KERNEL_ATTEND_PROBS, config.probs || config.scores);
    return kernels;
}

CudaSchedule best_cuda_schedule(const CudaSearch& search, const CudaSchedule& start) {
    return Searcher(search, start).run();
}

double call_ratio(const CudaSearch& search, const CudaSchedule& schedule, const CudaSchedule& than) {
    const CudaDevice device = cuda_device(search.architecture);
    Cycles own, other;
    for (const Sizes& sizes : search.sizes) {
        own.push_back(call_cycles(schedule, search.config, sizes, device));
        other.push_back(call_cycles(than, search.config, sizes, device));
    }
    return mean_ratio(own, other);
}

double kernel_ratio(const CudaSearch& search, int kernel, const CudaSchedule& schedule,
                    const CudaSchedule& than) {
    const CudaDevice device = cuda_device(search.architecture);
    Cycles own, other;
    for (const Sizes& sizes : search.sizes) {
        own.push_back(kernel_cycles(schedule, search.config, kernel, sizes, device));
        other.push_back(kernel_cycles(than, search.config, kernel, sizes, device));
    }
    return mean_ratio(own, other);
}

}  // namespace attnc
