#include "compiler/device_code.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>
#include <vector>

namespace attnc {

namespace {

constexpr std::string_view kBufferSuffix = "_gpu_source_kernels";

// What a driver takes as a module, and stands in for a twin's.
constexpr const char* kNoFunctions = ".version 6.0\n.target sm_70\n.address_size 64\n";

bool holds_device_code(const Halide::Buffer<void>& buffer) { return buffer.name().ends_with(kBufferSuffix); }

std::string text_of(const Halide::Buffer<void>& buffer) {
    std::string text(static_cast<const char*>(buffer.data()), buffer.size_in_bytes());
    while (text.ends_with('\0')) text.pop_back();
    return text;
}

// The same module with one byte where its device code was.
Halide::Module without_device_code(const Halide::Module& module) {
    Halide::Module host(module.name(), module.target());
    host.set_any_strict_float(module.any_strict_float());
    for (const Halide::Internal::LoweredFunc& function : module.functions()) host.append(function);
    for (const Halide::Buffer<void>& buffer : module.buffers()) {
        if (!holds_device_code(buffer)) {
            host.append(buffer);
            continue;
        }
        Halide::Buffer<uint8_t> byte(std::vector<int>{1}, buffer.name());
        byte.fill(0);
        host.append(byte);
    }
    return host;
}

// Every kernel of the PTX is held to so many registers, so that a block fits a multiprocessor whoever assembles it. The
// directive lies between a kernel's parameters and its body.
std::string limit_registers(std::string ptx, int64_t registers) {
    constexpr std::string_view kEntry = ".entry ", kBody = "\n{";
    const std::string directive = fmt::format("\n.maxnreg {}", registers);
    for (size_t at = ptx.find(kEntry); at != std::string::npos; at = ptx.find(kEntry, at)) {
        at = ptx.find(kBody, at);
        if (at == std::string::npos) throw std::runtime_error("its PTX has a kernel without a body");
        ptx.insert(at, directive);
    }
    return ptx;
}

}  // namespace

std::string take_device_code(Halide::Module& module, const KernelJob& job) {
    std::string code;
    for (const Halide::Buffer<void>& buffer : module.buffers()) {
        if (!holds_device_code(buffer)) continue;
        if (!code.empty()) throw std::runtime_error("has code for two kinds of devices");
        code = text_of(buffer);
    }
    if (code.empty()) throw std::runtime_error("launches nothing on a device");
    if (!module.target().has_feature(Halide::Target::CUDA)) return kNoFunctions;
    module = without_device_code(module);
    return job.registers > 0 ? limit_registers(std::move(code), job.registers) : code;
}

}  // namespace attnc
