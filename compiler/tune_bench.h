// What a tuning session has done for it: candidates made ready, and measured. By workers and shared objects where schedules
// are compiled (tune_here), by what is linked into it in an exported runner (exported_bench).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/kernel_job.h"
#include "compiler/tune_measure.h"
#include "compiler/tune_parts.h"
#include "schedules/search_space.h"
#include "tuner/run_search.h"

namespace attnc {

struct BuiltSchedule {
    std::string fault;    // why there is none: what the compiler said; empty: built
    std::string library;  // what `measure` finds it by
    std::map<std::string, std::string> object_hashes;  // by kernel
};

struct TuneBench {
    // Waits for it. Throws Interrupted, and std::runtime_error for what is not the schedule's fault.
    std::function<BuiltSchedule(const CpuSchedule&)> built;
    // The same, on every core: while nothing is measured.
    std::function<BuiltSchedule(const CpuSchedule&)> built_alone;
    // Schedules that are wanted next, in this order; those of an earlier call that were not begun are forgotten.
    std::function<void(const std::vector<CpuSchedule>&)> prepare;
    // In a process of its own: a crash there is the candidate's own affair.
    std::function<MeasureAnswer(const MeasureRequest&)> measure;
    // Candidates that a part's search begins with, the most promising first.
    std::function<std::vector<SearchPoint>(const TunedPart&, const SearchSpace&, Deadline&)> first;
    // Whether a candidate can be built at all.
    std::function<bool(const CpuSchedule&)> has;
    CompilerVersions versions;
};

// CPUs that this process may use, ascending.
std::vector<int> usable_cpus();

}  // namespace attnc
