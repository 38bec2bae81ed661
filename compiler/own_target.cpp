#include "compiler/own_target.h"

#include <fmt/format.h>

#include <stdexcept>

#include "compiler/targets.h"
#include "runtime/cpu.h"
#include "schedules/cpu_params.h"

namespace attnc {

std::string own_target(const std::string& asked) {
    const int64_t here = detect_cpu_features();
    if (!asked.empty()) {
        if (int64_t lacking = cpu_features(asked) & ~here; lacking != 0) {
            throw std::runtime_error(fmt::format("this machine cannot run {}: it lacks {}", asked,
                                                 feature_names(lacking).front()));
        }
        return asked;
    }
    for (const char* target : kCpuTargets) {
        if ((cpu_features(target) & ~here) == 0) return target;
    }
    throw std::runtime_error("this machine can run none of attnc's targets");
}

}  // namespace attnc
