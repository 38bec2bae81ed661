// What the process does that times a candidate: loads it beside the incumbent, holds its results against the incumbent's
// and against float64, and times both in turn. Request and answer travel as JSON files, since a candidate may crash.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"

namespace attnc {

// What of a call is timed.
enum class TunedWork {
    kProjectInputs,
    kProjectOutput,
    kAttend,
    kAttendMasked,  // with a mask of pairs
    kAttendProbs,   // with the probabilities of each head
    kCall,          // all of it; a step of decoding where the problem is one
};

struct MeasureRequest {
    std::string candidate, incumbent;  // BuiltSchedule::library
    std::string target;
    int threads = 1;
    std::vector<int> cpus;  // that the process may use; empty: any
    std::vector<Problem> problems;
    TunedWork work = TunedWork::kCall;
    bool same_bits = true;   // results equal the incumbent's in each bit; false: within what float32 allows
    int verified_calls = 0;  // random calls of the candidate that are held against float64
    double seconds = 0.2;    // for each problem; 0: nothing is timed
    int64_t fewest_rounds = 9;
    double give_up_above =
        0;  // a candidate that surely takes that many times as long is timed no longer; 0: never
};
std::string to_json(const MeasureRequest& request);
MeasureRequest parse_measure_request(const std::string& json);  // throws std::runtime_error

struct MeasureAnswer {
    std::string fault;  // why the candidate is none; empty: measured
    struct Times {
        std::vector<double> candidate, incumbent;  // seconds of a call, side by side
        double probe = 0;                          // operations a second
        double operations = 0;                     // of a call
    };
    std::vector<Times> problems;  // in the request's order
};
std::string to_json(const MeasureAnswer& answer);
MeasureAnswer parse_measure_answer(const std::string& json);

// In this process, of libraries that are loaded. What is wrong with the candidate is in the answer; throws for anything else.
MeasureAnswer measure(const MeasureRequest& request, const attnc_library* candidate,
                      const attnc_library* incumbent);

// Whether a call of the problem is a step with a cache that holds keys already.
bool is_cached_step(const Problem& problem);

}  // namespace attnc
