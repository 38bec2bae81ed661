// Which kernels of a library take which rows of a call, as the runtime decides it: asked from the runtime's own code.
#pragma once

#include <string>
#include <vector>

#include "schedules/cpu_params.h"
#include "stages/config.h"

namespace attnc {

struct KernelForm {
    std::string kernel;  // "attend_narrow"
    std::string takes;   // "17 to 48 queries of an item"
};

// The forms that differ in sizes alone, of calls without masks.
std::vector<KernelForm> kernel_forms(const Config& config, const CpuSchedule& schedule);

// The forms of attention that a call of these sizes may run, whatever the number of threads; without masks, and with the
// diagonal that the configuration names.
std::vector<std::string> attention_at(const Config& config, const CpuSchedule& schedule, const Sizes& sizes);

}  // namespace attnc
