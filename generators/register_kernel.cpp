#include "generators/register_kernel.h"

#include <map>
#include <string>
#include <utility>

#include "stages/config.h"

namespace attnc {

namespace {

using Halide::Internal::GeneratorFactory;

// By name and kind. Filled before main.
std::map<std::pair<std::string, TargetKind>, GeneratorFactory>& factories() {
    static std::map<std::pair<std::string, TargetKind>, GeneratorFactory> all;
    return all;
}

bool has(const std::string& name, TargetKind kind) { return factories().contains({name, kind}); }

}  // namespace

KernelRegistration::KernelRegistration(const char* name, TargetKind kind, GeneratorFactory factory) {
    const std::string key = name;
    const bool is_new = !has(key, TargetKind::kCpu) && !has(key, TargetKind::kGpu);
    factories()[{key, kind}] = std::move(factory);
    if (!is_new) return;
    const Halide::Internal::RegisterGenerator registered(
        name, [key](const Halide::GeneratorContext& context) {
            const bool gpu = context.target().has_gpu_feature();
            const TargetKind wanted = gpu ? TargetKind::kGpu : TargetKind::kCpu;
            if (!has(key, wanted)) {
                throw ConfigError("kernel '" + key + "' has no code for " + (gpu ? "a GPU" : "a CPU"));
            }
            return factories().at({key, wanted})(context);
        });
}

}  // namespace attnc
