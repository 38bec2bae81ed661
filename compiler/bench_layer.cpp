#include "compiler/bench_layer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "compiler/fma_probe.h"
#include "compiler/layer_data.h"

namespace attnc {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

struct Pool {
    attnc_pool* pool = nullptr;
    explicit Pool(int threads) {
        attnc_error error;
        check_status(attnc_pool_create(threads, &pool, &error), error, "attnc_pool_create");
    }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    ~Pool() { attnc_pool_destroy(pool); }
    const attnc_executor* executor() const { return attnc_pool_executor(pool); }
};

// Sets of tokens and outputs that are used in turn, so that a small problem doesn't find its own in the cache.
int64_t rotation(const Problem& problem) {
    constexpr int64_t kMostSets = 16;
    const int64_t cache = std::max<int64_t>(::sysconf(_SC_LEVEL2_CACHE_SIZE), int64_t{1} << 21);
    const LayerTokens tokens(problem, 0);
    const auto elements = static_cast<int64_t>(tokens.query.size() + tokens.key.size() + tokens.value.size());
    const int64_t bytes = (elements + out_elements(problem)) * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>(2 * cache / std::max<int64_t>(bytes, 1), 1, kMostSets);
}

// A layer with the memory for its calls.
class TimedPart {
public:
    TimedPart(const BenchPart& part, const BenchOptions& options, const attnc_executor* executor)
        : problem_(part.problem), operations_(call_operations(part.problem)) {
        const LayerWeights weights(problem_.config, part.used, 1);
        attnc_layer_options layer_options = ATTNC_LAYER_OPTIONS_INIT;
        layer_options.target = options.target.c_str();
        if (part.used.rotary != Rotary::kNone) layer_options.rotary.base = 10000;
        attnc_error error;
        check_status(attnc_layer_create(part.library, &weights.view, &layer_options, &layer_, &error), error,
                     "attnc_layer_create");
        const int64_t sets = rotation(problem_);
        for (int64_t set = 0; set < sets; ++set) {
            tokens_.emplace_back(problem_, 100 * static_cast<uint64_t>(set));
            outs_.emplace_back(static_cast<size_t>(out_elements(problem_)));
        }
        run_.executor = executor;
        attnc_inputs inputs = inputs_of(0);
        attnc_outputs outputs = outputs_of(0);
        size_t bytes = 0;
        check_status(attnc_layer_workspace(layer_, &inputs, &outputs, &run_, &bytes, &error), error,
                     "attnc_layer_workspace");
        workspace_ = std::make_unique<AlignedBytes>(bytes);
        run_.workspace = workspace_->data();
        run_.workspace_bytes = bytes;
    }
    TimedPart(const TimedPart&) = delete;
    TimedPart& operator=(const TimedPart&) = delete;
    ~TimedPart() { attnc_layer_destroy(layer_); }

    void call() {
        const size_t set = next_++ % tokens_.size();
        attnc_inputs inputs = inputs_of(set);
        attnc_outputs outputs = outputs_of(set);
        attnc_error error;
        check_status(attnc_layer_forward(layer_, &inputs, &outputs, &run_, &error), error,
                     "attnc_layer_forward");
    }

    // Calls enough to be timed; returns the seconds of one.
    double time_calls() {
        const Clock::time_point begin = Clock::now();
        for (int64_t i = 0; i < repeats_; ++i) call();
        return seconds_since(begin) / static_cast<double>(repeats_);
    }

    // Runs until caches and branch predictors know it, and decides how many calls are timed at once.
    void warm_up() {
        constexpr double kShortest = 1e-3;
        const double once = time_calls();
        repeats_ = static_cast<int64_t>(std::clamp(kShortest / std::max(once, 1e-7), 1.0, 1e4));
        for (int i = 0; i < 3; ++i) time_calls();
    }

    double operations() const { return operations_; }
    int64_t repeats() const { return repeats_; }
    std::vector<double> times, ratios;

private:
    // Self-attention gives one set of tokens, whose projections can then share a pass over them.
    attnc_inputs inputs_of(size_t set) const {
        attnc_inputs inputs = ATTNC_INPUTS_INIT;
        const Config& config = problem_.config;
        const bool self = config.in_proj && problem_.sizes.seq_q == problem_.sizes.seq_kv &&
                          config.k_dim == config.d_model && config.v_dim == config.d_model;
        inputs.query = tokens_[set].query_view;
        inputs.key = self ? inputs.query : tokens_[set].key_view;
        inputs.value = self ? inputs.query : tokens_[set].value_view;
        return inputs;
    }
    attnc_outputs outputs_of(size_t set) {
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = out_view(problem_, outs_[set].data());
        return outputs;
    }

    Problem problem_;
    double operations_;
    attnc_layer* layer_ = nullptr;
    std::vector<LayerTokens> tokens_;
    std::vector<std::vector<float>> outs_;
    std::unique_ptr<AlignedBytes> workspace_;
    attnc_run run_ = ATTNC_RUN_INIT;
    size_t next_ = 0;
    int64_t repeats_ = 1;
};

int probe_task(void* pieces, int64_t /*index*/) {
    fma_probe_run(*static_cast<const int64_t*>(pieces));
    return 0;
}

// Operations a second of all threads together.
double probe(const attnc_executor& executor, int threads) {
    int64_t pieces = threads == 1 ? 10 : 100;  // starting threads takes time too
    const Clock::time_point begin = Clock::now();
    executor.parallel_for(executor.context, threads, probe_task, &pieces);
    const double seconds = seconds_since(begin);
    return threads * static_cast<double>(pieces) * fma_probe_operations() / seconds;
}

BenchResult summarise(const BenchPart& part, const TimedPart& timed, double probe_best) {
    BenchResult result;
    result.part = part.name;
    result.operations = timed.operations();
    result.calls = static_cast<int64_t>(timed.times.size()) * timed.repeats();
    const double best = *std::min_element(timed.times.begin(), timed.times.end());
    result.ms_best = best * 1e3;
    result.ms_median = median(timed.times) * 1e3;
    result.times = timed.times;
    result.probe_best = probe_best;
    result.fraction_best = timed.operations() / best / probe_best;
    result.fraction_median = median(timed.ratios);
    return result;
}

// Pairs of a query and a key that it sees; the last query sees every key when causal.
double visible_pairs(const Problem& problem) {
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    const double all = static_cast<double>(seq_q) * static_cast<double>(seq_kv);
    if (!problem.config.causal) return all;
    double pairs = 0;
    for (int64_t i = 0; i < seq_q; ++i) {
        pairs += static_cast<double>(std::clamp<int64_t>(i + 1 + seq_kv - seq_q, 0, seq_kv));
    }
    return pairs;
}

}  // namespace

double call_operations(const Problem& problem) {
    const Config& config = problem.config;
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    const auto product = [](auto... factors) { return (static_cast<double>(factors) * ...); };
    double multiply_adds =
        product(config.num_heads, config.head_dim + config.v_head_dim, visible_pairs(problem));
    if (config.in_proj) {
        multiply_adds += product(seq_q, config.d_model, config.num_heads * config.head_dim) +
                         product(seq_kv, config.k_dim, config.num_kv_heads * config.head_dim) +
                         product(seq_kv, config.v_dim, config.num_kv_heads * config.v_head_dim);
    }
    if (config.out_proj) {
        multiply_adds += product(seq_q, config.num_heads * config.v_head_dim, config.d_model);
    }
    return 2 * static_cast<double>(batch) * multiply_adds;
}

double median_ratio(const BenchResult& a, const BenchResult& b) {
    std::vector<double> ratios;
    for (size_t round = 0; round < std::min(a.times.size(), b.times.size()); ++round)
        ratios.push_back(a.times[round] / b.times[round]);
    return median(ratios);
}

std::vector<BenchResult> bench_layers(const std::vector<BenchPart>& parts, const BenchOptions& options) {
    constexpr size_t kFewestRounds = 7;
    const Pool pool(options.threads);
    const attnc_executor& executor = *pool.executor();
    std::vector<std::unique_ptr<TimedPart>> timed;
    timed.reserve(parts.size());
    for (const BenchPart& part : parts)
        timed.push_back(std::make_unique<TimedPart>(part, options, &executor));
    for (auto& part : timed) part->warm_up();
    double probe_best = probe(executor, options.threads);

    const Clock::time_point begin = Clock::now();
    for (size_t round = 0; round < kFewestRounds || seconds_since(begin) < options.seconds; ++round) {
        for (auto& part : timed) {
            const double before = probe(executor, options.threads);
            const double time = part->time_calls();
            const double after = probe(executor, options.threads);
            probe_best = std::max({probe_best, before, after});
            part->times.push_back(time);
            part->ratios.push_back(part->operations() / time / ((before + after) / 2));
        }
    }
    std::vector<BenchResult> results;
    results.reserve(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) results.push_back(summarise(parts[i], *timed[i], probe_best));
    return results;
}

}  // namespace attnc
