// Rows of the bar: how fast attnc has to be, each with the way in which it is measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/libraries.h"
#include "compiler/layer_call.h"
#include "compiler/timing.h"

namespace attnc::bench {

struct Figure {
    double measured = 0;
    std::string note;
};

struct BarRow {
    std::string name;  // "attention head_dim 64 seq 512"
    std::string unit;  // "of the probe"
    bool at_most;      // false: at least
    double bar;
    std::function<Figure()> measure;

    bool holds(double measured) const { return at_most ? measured <= bar : measured >= bar; }
};

// What rows are measured with.
struct BarContext {
    Libraries& libraries;
    std::string target;
    double seconds;          // of a measurement
    const TimingPool& two;   // two threads, anywhere
    const TimingPool& one;   // the calling thread
    std::string executable;  // of this program

    LayerCallSetup setup(const Problem& problem) const { return setup(problem, target, one); }
    LayerCallSetup setup(const Problem& problem, const std::string& on, const TimingPool& pool) const {
        return {problem, problem.config, libraries.get(problem.config, on), on, pool.executor(), {}};
    }
    std::vector<TimedResult> time(const std::vector<TimedWork>& works) const {
        return time_in_turn(works, one, {.seconds = seconds});
    }
};

using Rows = std::vector<BarRow>;
void add_stage_rows(const BarContext& context, Rows& rows);    // fractions of the probe; causal
void add_call_rows(const BarContext& context, Rows& rows);     // probabilities, masks, lengths
void add_decode_rows(const BarContext& context, Rows& rows);   // few queries, of a plain read
void add_thread_rows(const BarContext& context, Rows& rows);   // two threads over one
void add_cliff_rows(const BarContext& context, Rows& rows);    // neighbouring lengths
void add_process_rows(const BarContext& context, Rows& rows);  // memory, cold start

// The calling thread stays on one core as long as this lives.
class OneCore {
public:
    OneCore();
    OneCore(const OneCore&) = delete;
    OneCore& operator=(const OneCore&) = delete;
    ~OneCore();

private:
    struct Cores;
    Cores* before_;
};

}  // namespace attnc::bench
