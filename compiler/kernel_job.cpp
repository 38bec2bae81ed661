#include "compiler/kernel_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "runtime/kernel_abi.h"

namespace attnc {

using Json = nlohmann::ordered_json;

namespace {

#define ATTNC_X(id, name) #name,
constexpr std::array<std::string_view, ATTNC_ARGUMENT_COUNT> kArgumentNames = {ATTNC_ARGUMENTS(ATTNC_X)};
constexpr std::array<std::string_view, ATTNC_DEVICE_ARGUMENT_COUNT> kDeviceArgumentNames = {
    ATTNC_DEVICE_ARGUMENTS(ATTNC_X)};
#undef ATTNC_X

template <typename Names>
int position(const Names& names, std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

template <typename Read>
auto read_json(const std::string& text, Read read) {
    try {
        return read(Json::parse(text));
    } catch (const Json::exception& error) {
        throw std::runtime_error(fmt::format("damaged answer of a worker: {}", error.what()));
    }
}

}  // namespace

std::string to_json(const KernelInfo& info) {
    return Json{{"arguments", info.arguments},
                {"scratch_bytes", info.scratch_bytes},
                {"stack_bytes", info.stack_bytes},
                {"code_bytes", info.code_bytes},
                {"device_code_bytes", info.device_code_bytes}}
        .dump();
}

KernelInfo parse_kernel_info(const std::string& json) {
    return read_json(json, [](const Json& read) {
        KernelInfo info;
        read.at("arguments").get_to(info.arguments);
        read.at("scratch_bytes").get_to(info.scratch_bytes);
        read.at("stack_bytes").get_to(info.stack_bytes);
        read.at("code_bytes").get_to(info.code_bytes);
        read.at("device_code_bytes").get_to(info.device_code_bytes);
        return info;
    });
}

std::string to_json(const CompilerVersions& versions) {
    return Json{{"halide", versions.halide}, {"llvm", versions.llvm}, {"identity", versions.identity}}.dump();
}

CompilerVersions parse_compiler_versions(const std::string& json) {
    return read_json(json, [](const Json& read) {
        return CompilerVersions{read.at("halide"), read.at("llvm"), read.at("identity")};
    });
}

bool is_device_target(std::string_view target) {
    return target.find("-cuda") != std::string_view::npos || target.find("-opencl") != std::string_view::npos;
}

std::filesystem::path device_code_file(std::filesystem::path object) {
    return object.replace_extension(".ptx");
}

std::vector<std::string> worker_command(const std::filesystem::path& attnc, const KernelJob& job,
                                        const std::filesystem::path& prefix, const Emit& emit) {
    std::vector<std::string> command = {attnc.string(), "compile-kernel", "--kernel",   job.kernel,
                                        "--config",     job.config,       "--schedule", job.schedule,
                                        "--target",     job.target,       "--symbol",   job.symbol};
    if (job.registers > 0) {
        command.emplace_back("--registers");
        command.push_back(std::to_string(job.registers));
    }
    if (job.checked) command.emplace_back("--checked");
    if (emit.assembly) command.emplace_back("--assembly");
    if (emit.stmt) command.emplace_back("--stmt");
    if (emit.llvm) command.emplace_back("--llvm");
    command.emplace_back("-o");
    command.push_back(prefix.string());
    return command;
}

bool is_allowed_undefined(std::string_view name, bool device) {
    constexpr std::array<std::string_view, 6> kExact = {"halide_malloc", "halide_free", "memcpy",
                                                        "memmove",       "memset",      "memcmp"};
    // halide_copy_to_device finds its buffers there, and does nothing.
    const bool of_device = name.starts_with("halide_cuda_") || name.starts_with("halide_opencl_") ||
                           name == "halide_copy_to_device";
    return name.starts_with("halide_error") || position(kExact, name) >= 0 || (device && of_device);
}

int argument_by_name(std::string_view name) { return position(kArgumentNames, name); }

int device_argument_by_name(std::string_view name) { return position(kDeviceArgumentNames, name); }

}  // namespace attnc
