#include "tests/harness/libraries.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <utility>

#include "compiler/build.h"
#include "compiler/load_library.h"
#include "runtime/kernel_abi.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

// This process's own folder for archives, gone when it ends; the kernel cache stays.
class Workshop {
public:
    Workshop()
        : kernel_cache_(std::filesystem::path(ATTNC_TEST_WORK) / "kernels"),
          folder_(std::filesystem::path(ATTNC_TEST_WORK) / ("run-" + std::to_string(getpid()))),
          installation_(installation_of(ATTNC_TEST_COMMAND)) {
        std::filesystem::create_directories(kernel_cache_);
        remove_folders_of_dead_processes();
        std::filesystem::create_directories(folder_);
    }
    ~Workshop() {
        std::error_code ignored;  // a leftover folder harms nobody
        std::filesystem::remove_all(folder_, ignored);
    }
    Workshop(const Workshop&) = delete;
    Workshop& operator=(const Workshop&) = delete;

    // A test program that crashed could not remove its own.
    static void remove_folders_of_dead_processes() {
        for (const auto& entry : std::filesystem::directory_iterator(ATTNC_TEST_WORK)) {
            const std::string name = entry.path().filename().string();
            if (!name.starts_with("run-")) continue;
            const int pid = std::atoi(name.c_str() + 4);
            std::error_code ignored;
            if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
                std::filesystem::remove_all(entry.path(), ignored);
        }
    }

    LoadedLibrary build(const Config& config, const std::string& schedule, const std::string& only_target) {
        BuildRequest request;
        request.config = config;
        request.name = "test_library_" + std::to_string(++built_);
        request.targets = runnable_targets();
        if (!only_target.empty()) request.targets = {only_target};
        request.schedule = schedule;
        request.output = folder_ / request.name;
        request.kernel_cache = kernel_cache_;
        request.installation = installation_;
        const BuildResult result = build_library(request);
        LoadedLibrary library(result.archive, installation_);
        std::filesystem::remove_all(request.output);
        return library;
    }

private:
    std::filesystem::path kernel_cache_, folder_;
    Installation installation_;
    int built_ = 0;
};

}  // namespace

const attnc_library* library_of(const Config& config, const std::string& schedule,
                                const std::string& only_target) {
    static Workshop workshop;
    static std::map<std::string, LoadedLibrary> libraries;
    const std::string key = to_string(complete(config)) + " " + schedule + " " + only_target;
    auto found = libraries.find(key);
    if (found == libraries.end())
        found = libraries.emplace(key, workshop.build(config, schedule, only_target)).first;
    return found->second.library();
}

KeyBlocks key_blocks_of(const attnc_library* library, const std::string& target) {
    for (int64_t n = 0; n < library->target_count; ++n) {
        if (target == library->targets[n].name) {
            const attnc_layout& layout = library->targets[n].layout;
            return {layout.tile_kv, layout.split_kv};
        }
    }
    throw std::invalid_argument("no target " + target + " in " + library->name);
}

}  // namespace attnc::test
