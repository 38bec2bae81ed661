#include "tests/harness/libraries.h"

#include <dlfcn.h>
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

bool kernels_check = false;

// This process's own folder for archives, gone when it ends; the kernel cache stays.
class Workshop {
public:
    Workshop()
        : kernel_cache_(ATTNC_TEST_KERNELS),
          folder_(std::filesystem::path(ATTNC_TEST_WORK) / ("run-" + std::to_string(getpid()))),
          installation_(installation_of(ATTNC_TEST_COMMAND)) {
        std::filesystem::create_directories(kernel_cache_);
        std::filesystem::create_directories(folder_);
        remove_folders_of_dead_processes();
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

    LoadedLibrary build(BuildRequest request) {
        request.name = "test_library_" + std::to_string(++built_);
        request.output = folder_ / request.name;
        request.kernel_cache = kernel_cache_;
        request.checked = kernels_check;
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

// Once in this process.
const attnc_library* library_of(const BuildRequest& request) {
    static Workshop workshop;
    static std::map<std::string, LoadedLibrary> libraries;
    std::string key =
        to_string(complete(request.config)) + " " + request.schedule + " " + request.cuda_schedule;
    for (const std::string& target : request.targets) key += " " + target;
    auto found = libraries.find(key);
    if (found == libraries.end()) found = libraries.emplace(key, workshop.build(request)).first;
    return found->second.library();
}

// Valid for heads of any size. A block of threads makes 32 rows, a block of attention has 32 keys.
constexpr const char* kTwinSchedule =
    "panel:32,out_panel:32,threads_x:4,tile_kv:32,split_kv:64,"
    "project_heads.threads_x:8,project_heads.threads_y:4,project_heads.row_groups:1,project_heads.depth:8,"
    "project_heads.unroll:4,"
    "project_out.threads_x:8,project_out.threads_y:4,project_out.row_groups:1,project_out.depth:8,"
    "project_out.unroll:4,"
    "attend.threads_y:8,attend.depth:16,attend.value_keys:16,attend.unroll:4,"
    "attend_masked.threads_y:8,attend_masked.depth:16,attend_masked.value_keys:16,attend_masked.unroll:4,"
    "attend_probs.threads_y:8,attend_probs.depth:16,attend_probs.value_keys:16,attend_probs.unroll:4,"
    "attend_decode.threads_y:8,attend_decode.depth:16,attend_decode.value_keys:16,attend_decode.unroll:4";

// The stand-in for the driver under the driver's own name, and what twins launch by. Empty: both are there.
std::string load_twin_parts() {
    ::setenv("HL_OCL_DEVICE_TYPE", "cpu",
             1);  // PoCL's device is a CPU, and Halide's runtime would take a GPU first
    void* const open_cl = ::dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (open_cl == nullptr) return "libOpenCL.so.1 is missing: apt-get install pocl-opencl-icd";
    using GetPlatforms = int (*)(unsigned, void**, unsigned*);
    const auto get_platforms = reinterpret_cast<GetPlatforms>(::dlsym(open_cl, "clGetPlatformIDs"));
    unsigned count = 0;
    if (get_platforms == nullptr || get_platforms(0, nullptr, &count) != 0 || count == 0)
        return "OpenCL has no platform: apt-get install pocl-opencl-icd";
    for (const char* part : {ATTNC_TEST_DRIVER, ATTNC_TEST_OPENCL_LAUNCHER}) {
        if (::dlopen(part, RTLD_NOW | RTLD_GLOBAL) == nullptr) throw std::runtime_error(::dlerror());
    }
    return "";
}

}  // namespace

void check_kernel_arguments() { kernels_check = true; }

const attnc_library* library_of(const Config& config, const std::string& schedule,
                                const std::string& only_target) {
    BuildRequest request;
    request.config = config;
    request.targets = runnable_targets();
    if (!only_target.empty()) request.targets = {only_target};
    request.schedule = schedule;
    return library_of(request);
}

const attnc_library* twin_library_of(const Config& config, const std::string& cuda_schedule) {
    if (!missing_twins().empty()) throw std::runtime_error(missing_twins());
    BuildRequest request;
    request.config = config;
    request.targets = {"opencl"};
    request.cuda_schedule = kTwinSchedule;
    if (!cuda_schedule.empty()) request.cuda_schedule += "," + cuda_schedule;
    return library_of(request);
}

const std::string& missing_twins() {
    static const std::string reason = load_twin_parts();
    return reason;
}

KeyBlocks key_blocks_of(const attnc_library* library, const std::string& target) {
    if (target == kDevice && library->device != nullptr)
        return {library->device->layout.tile_kv, library->device->layout.split_kv};
    for (int64_t n = 0; n < library->target_count; ++n) {
        if (target == library->targets[n].name) {
            const attnc_layout& layout = library->targets[n].layout;
            return {layout.tile_kv, layout.split_kv};
        }
    }
    throw std::invalid_argument("no target " + target + " in " + library->name);
}

}  // namespace attnc::test
