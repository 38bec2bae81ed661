#include "bench/libraries.h"

#include <cstdlib>
#include <stdexcept>

#include "compiler/build.h"
#include "compiler/machine.h"
#include "compiler/targets.h"
#include "compiler/tuning_sources.h"
#include "runtime/cpu.h"
#include "schedules/cpu_params.h"

namespace attnc::bench {

namespace {

std::string key_of(const Config& config, const std::string& target) {
    return to_string(complete(config)) + " " + target;
}

std::filesystem::path kernel_cache() {
    const char* named = std::getenv("ATTNC_KERNEL_CACHE");
    std::filesystem::path folder = named != nullptr && *named != 0 ? named : ATTNC_BENCH_KERNELS;
    make_folder(folder);
    return folder;
}

}  // namespace

Libraries::Libraries() : folder_(system_temporary_folder()) {}

std::filesystem::path Libraries::archive(const Config& config, const std::string& target) {
    const std::string key = key_of(config, target);
    const auto found = archives_.find(key);
    if (found != archives_.end()) return found->second;
    BuildRequest request;
    request.config = config;
    request.name = "bench_library_" + std::to_string(archives_.size());
    request.targets = {target};
    request.output = folder_.path() / request.name;
    request.kernel_cache = kernel_cache();
    request.installation = installation_of(ATTNC_BENCH_COMMAND);
    request.tuning = {.looked_up = true,
                      .sources = tuning_sources({}, std::filesystem::current_path(), request.installation),
                      .machine = this_machine(),
                      .sizes = grid_sizes(complete(config), request.installation)};
    return archives_[key] = build_library(request).archive;
}

const attnc_library* Libraries::get(const Config& config, const std::string& target) {
    const std::string key = key_of(config, target);
    auto found = loaded_.find(key);
    if (found == loaded_.end()) {
        found =
            loaded_.emplace(key, LoadedLibrary(archive(config, target), installation_of(ATTNC_BENCH_COMMAND)))
                .first;
    }
    return found->second.library();
}

bool runs_here(const std::string& target) { return (cpu_features(target) & ~detect_cpu_features()) == 0; }

std::string best_target() {
    for (const char* target : kCpuTargets) {
        if (runs_here(target)) return target;
    }
    throw std::runtime_error("this machine can run none of attnc's targets");
}

}  // namespace attnc::bench
