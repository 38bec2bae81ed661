#include "compiler/llvm_tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <stdexcept>

#include "compiler/subprocess.h"

namespace attnc {

LlvmTools find_llvm_tools() {
    LlvmTools tools;
    struct Wanted {
        std::string name;
        std::string* path;
    };
    std::vector<std::string> missing;
    for (const Wanted& wanted :
         {Wanted{"llvm-mc", &tools.mc}, Wanted{"llvm-objcopy", &tools.objcopy}, Wanted{"llvm-ar", &tools.ar},
          Wanted{"llvm-objdump", &tools.objdump}, Wanted{"ld.lld", &tools.lld}}) {
        *wanted.path = find_program(wanted.name + "-19");
        if (wanted.path->empty()) *wanted.path = find_program(wanted.name);
        if (wanted.path->empty()) missing.push_back(wanted.name + "-19");
    }
    if (!missing.empty()) {
        throw std::runtime_error(
            fmt::format("LLVM tools not found on PATH: {} (Debian packages llvm-19 and lld-19)",
                        fmt::join(missing, ", ")));
    }
    return tools;
}

std::string run_tool(const std::vector<std::string>& command) {
    constexpr std::chrono::seconds kTimeLimit{60};  // these take milliseconds
    ProcessResult result = run_process(command, kTimeLimit);
    if (!result.succeeded()) {
        std::string reason = last_line(result.output);
        if (reason.empty()) reason = describe_failure(result, kTimeLimit);
        throw std::runtime_error(
            fmt::format("{} failed: {}", std::filesystem::path(command[0]).filename().string(), reason));
    }
    return result.output;
}

}  // namespace attnc
