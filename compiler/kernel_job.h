// One kernel for one target: what a worker process is asked for, and what it answers. Shared by the worker and those
// who start it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

struct KernelJob {
    std::string kernel;     // name of a generator: "attend"
    std::string config;     // its parameter of that name: "hd64_vhd64"
    std::string schedule;   // what the kernel depends on of the target's schedule text
    std::string target;     // "x86-64-linux-avx2-fma-f16c"
    std::string symbol;     // of the function; <symbol>_argv is what a library calls
    int64_t registers = 0;  // that a thread of a device may take; 0: any
    bool checked = false;   // a CPU's: each call checks its buffers, which the runtime makes
};

struct Emit {
    bool assembly = false;
    bool stmt = false;
    bool llvm = false;
    bool any() const { return assembly || stmt || llvm; }
};

struct KernelInfo {
    // Names from ATTNC_ARGUMENTS, for a device from ATTNC_DEVICE_ARGUMENTS, in argv's order.
    std::vector<std::string> arguments;
    int64_t scratch_bytes = 0;  // heap that one call takes at most
    int64_t stack_bytes = 0;    // stack that one call takes at most
    int64_t code_bytes = 0;
    int64_t device_code_bytes = 0;  // of a kernel for a device
};
std::string to_json(const KernelInfo& info);            // one line
KernelInfo parse_kernel_info(const std::string& json);  // throws std::runtime_error

// Most stack that a kernel may take: threads of any host have more than that.
constexpr int64_t kMaxStackBytes = 64 * 1024;

// Whether a kernel for Halide's target runs on a device: CUDA, or OpenCL in tests.
bool is_device_target(std::string_view target);

// What lies beside the object of a kernel for a device: its PTX.
std::filesystem::path device_code_file(std::filesystem::path object);

// Files that a worker writes: <prefix>.o and <prefix>.json, for a device .ptx; .s, .stmt and .ll where asked for.
std::vector<std::string> worker_command(const std::filesystem::path& attnc, const KernelJob& job,
                                        const std::filesystem::path& prefix, const Emit& emit);

// Names that a kernel's object may leave undefined: the hooks that the runtime implements, and memory functions that
// LLVM calls by itself. One for a device launches, and neither allocates nor copies.
bool is_allowed_undefined(std::string_view name, bool device);

// Position in ATTNC_ARGUMENTS, or -1.
int argument_by_name(std::string_view name);
int device_argument_by_name(std::string_view name);  // in ATTNC_DEVICE_ARGUMENTS

// What the worker's code is made with.
struct CompilerVersions {
    std::string halide;    // "21.0.0"
    std::string llvm;      // "21.1"
    std::string identity;  // differs when the same job may give other bytes
};
std::string to_json(const CompilerVersions& versions);
CompilerVersions parse_compiler_versions(const std::string& json);

}  // namespace attnc
