// Libraries that the benchmarks run, built when they are first asked for.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "compiler/files.h"
#include "compiler/load_library.h"
#include "stages/config.h"

namespace attnc::bench {

// Kernels stay in the build folder, or where ATTNC_KERNEL_CACHE says, for the next run.
class Libraries {
public:
    Libraries();

    // The library of "d512_h8_f32" for one target, by the tuning record that `attnc build` takes, if any, loaded; lives as long
    // as this object.
    const attnc_library* get(const Config& config, const std::string& target);

    // Its archive, not loaded.
    std::filesystem::path archive(const Config& config, const std::string& target);

private:
    TemporaryFolder folder_;
    std::map<std::string, std::filesystem::path> archives_;
    std::map<std::string, LoadedLibrary> loaded_;
};

// The best target that this CPU runs. Throws std::runtime_error where it runs none.
std::string best_target();
// Whether this CPU runs it.
bool runs_here(const std::string& target);

}  // namespace attnc::bench
