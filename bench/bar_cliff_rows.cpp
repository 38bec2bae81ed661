// Rows of the bar against cliffs: no length may cost much more for its work than its neighbours.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "bench/bar_row.h"
#include "bench/plain_read.h"

namespace attnc::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLongest = 300;
constexpr int64_t kNeighbours = 16;
constexpr double kShortestCall = 20e-6;

double seconds_of(const std::function<void()>& call, int64_t repeats) {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < repeats; ++i) call();
    return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(repeats);
}

// Calls of one layer with the first tokens of its longest call.
class CutCalls {
public:
    explicit CutCalls(const LayerCall& layer) : layer_(layer) {}
    void call(int64_t seq) {
        attnc_inputs inputs = layer_.inputs();
        attnc_outputs outputs = layer_.outputs();
        const int dimension = inputs.query.rank - 2;
        for (attnc_tensor* tensor : {&inputs.query, &inputs.key, &inputs.value, &outputs.out})
            tensor->extent[dimension] = seq;
        attnc_error error;
        check_status(attnc_layer_forward(layer_.layer(), &inputs, &outputs, &layer_.run(), &error), error,
                     "attnc_layer_forward");
    }

private:
    const LayerCall& layer_;
};

// Best seconds of a call of each length, 0 first.
std::vector<double> best_times(const LayerCall& layer, double seconds) {
    CutCalls calls(layer);
    std::vector<double> best(kLongest + 1, std::numeric_limits<double>::infinity());
    const Clock::time_point begin = Clock::now();
    constexpr int kFewestRounds = 5;
    for (int round = 0;
         round < kFewestRounds || std::chrono::duration<double>(Clock::now() - begin).count() < seconds;
         ++round) {
        for (int64_t seq = 1; seq <= kLongest; ++seq) {
            const auto call = [&] { calls.call(seq); };
            const double once = seconds_of(call, 1);
            const auto repeats = static_cast<int64_t>(std::clamp(3e-4 / once, 1.0, 100.0));
            double& time = best[static_cast<size_t>(seq)];
            time = std::min(time, seconds_of(call, repeats));
        }
    }
    return best;
}

// Operations that a core does while it reads a byte of weights: their unit of work.
double operations_per_byte(const TimingPool& pool) {
    constexpr size_t kBytes = size_t{64} << 20;
    const AlignedBytes memory(kBytes);
    const std::span<float> numbers(static_cast<float*>(memory.data()), kBytes / sizeof(float));
    std::fill(numbers.begin(), numbers.end(), 0.0F);
    volatile float sum = 0;
    double best = std::numeric_limits<double>::infinity(), probe = 0;
    for (int round = 0; round < 5; ++round) {
        best = std::min(best, seconds_of([&] { sum = read_plainly(numbers); }, 1));
        probe = std::max(probe, pool.run(FmaProbe()));
    }
    return probe * best / static_cast<double>(kBytes);
}

Figure cliffs(const BarContext& context, const char* text) {
    const OneCore core;
    const Problem problem = parse_problem(text);
    const Config& config = problem.config;
    const LayerCall layer(context.setup(problem));
    const double weights = config.in_proj ? 4.0 * static_cast<double>(config.d_model * config.d_model) : 0;
    const double reading = weights * sizeof(float) * (config.in_proj ? operations_per_byte(context.one) : 0);
    const std::vector<double> times = best_times(layer, context.seconds);
    std::vector<double> costs(times.size());
    for (int64_t seq = 1; seq <= kLongest; ++seq) {
        const double work = call_operations({config, {problem.sizes.batch, seq, seq}}).all() + reading;
        costs[static_cast<size_t>(seq)] = times[static_cast<size_t>(seq)] / work;
    }
    Figure worst;
    for (int64_t seq = 1; seq <= kLongest; ++seq) {
        if (times[static_cast<size_t>(seq)] < kShortestCall) continue;
        const int64_t first = std::clamp<int64_t>(seq - kNeighbours / 2, 1, kLongest - kNeighbours);
        std::vector<double> neighbours;
        for (int64_t other = first; other <= first + kNeighbours; ++other) {
            if (other != seq) neighbours.push_back(costs[static_cast<size_t>(other)]);
        }
        const double ratio = costs[static_cast<size_t>(seq)] / median(neighbours);
        if (ratio <= worst.measured) continue;
        worst = {ratio, fmt::format("at seq {}, {:.1f} us", seq, times[static_cast<size_t>(seq)] * 1e6)};
    }
    return worst;
}

}  // namespace

void add_cliff_rows(const BarContext& context, Rows& rows) {
    for (const char* text : {"d512_h8_f32:b1_q300", "d512_h8_f32_noin_noout:b1_q300"}) {
        rows.push_back({fmt::format("no cliffs seq 1 to 300 {}", text), "of its neighbours", true, 1.5,
                        [&context, text] { return cliffs(context, text); }});
    }
}

}  // namespace attnc::bench
