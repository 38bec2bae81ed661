#include "tests/cuda/cuda_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include "compiler/subprocess.h"

namespace attnc::test {

namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds kTimeLimit(120);

// The wheels of NVIDIA's tools put them into site-packages/nvidia/<toolkit>/bin.
std::string find_tool(const std::string& name) {
    if (std::string found = find_program(name); !found.empty()) return found;
    if (const fs::path usual = fs::path("/usr/local/cuda/bin") / name; fs::exists(usual))
        return usual.string();
    std::error_code missing;
    for (const auto& python : fs::directory_iterator(ATTNC_VENV "/lib", missing)) {
        for (const auto& toolkit : fs::directory_iterator(python.path() / "site-packages/nvidia", missing)) {
            if (const fs::path tool = toolkit.path() / "bin" / name; fs::exists(tool)) return tool.string();
        }
    }
    return "";
}

int64_t number_before(const std::string& text, const std::string& words) {
    std::smatch found;
    if (!std::regex_search(text, found, std::regex("(\\d+) " + words))) return -1;
    return std::stoll(found[1]);
}

struct Instruction {
    std::string name, rest;
};

struct Program {
    std::vector<Instruction> instructions;
    std::map<std::string, size_t> labels;
};

Program parse(const std::string& sass) {
    Program program;
    std::istringstream text(sass);
    const std::regex label(R"(^\s*(\.L_\w+):)"),
        instruction(R"(^\s*/\*[0-9a-f]+\*/\s+(@!?U?P\d+\s+)?([A-Z0-9_.]+)(.*))");
    std::smatch found;
    for (std::string line; std::getline(text, line);) {
        if (std::regex_search(line, found, label)) {
            program.labels[found[1]] = program.instructions.size();
        } else if (std::regex_search(line, found, instruction)) {
            program.instructions.push_back({found[2], found[3]});
        }
    }
    return program;
}

// Puts a loop into the one that it lies in.
void insert(std::vector<SassLoop>& loops, const SassLoop& loop) {
    for (SassLoop& outer : loops) {
        if (outer.first <= loop.first && loop.last <= outer.last) return insert(outer.inner, loop);
    }
    loops.push_back(loop);
}

void count(SassLoop& loop, const Program& program) {
    for (SassLoop& inner : loop.inner) count(inner, program);
    for (size_t at = loop.first; at <= loop.last; ++at) {
        const bool inside = std::any_of(loop.inner.begin(), loop.inner.end(), [&](const SassLoop& inner) {
            return inner.first <= at && at <= inner.last;
        });
        if (inside) continue;
        ++loop.instructions;
        loop.multiply_adds += program.instructions[at].name.starts_with("FFMA") ? 1 : 0;
    }
}

}  // namespace

std::string ptxas() { return find_tool("ptxas"); }
std::string nvdisasm() { return find_tool("nvdisasm"); }

CudaKernel::CudaKernel(const std::string& generator, const std::string& config, const std::string& schedule) {
    std::vector<std::string> command = {
        "generate",
        "-g",
        generator,
        "-f",
        "kernel",
        "-e",
        "stmt,device_code,object",
        "-o",
        folder_.path().string(),
        "target=x86-64-linux-cuda-cuda_capability_70-no_runtime-user_context-no_bounds_query",
        "config=" + config};
    if (!schedule.empty()) command.push_back("schedule=" + schedule);
    const CommandResult result = run_attnc(command);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(result.output, "");
}

std::string CudaKernel::ptx() const { return contents(folder_ / "kernel.device_code"); }

std::vector<Launch> CudaKernel::launches() const {
    const std::string stmt = contents(folder_ / "kernel.stmt");
    // halide_cuda_run(context, state, "name", blocks x, y, z, threads x, y, z, shared bytes, ...); sizes of blocks hold commas
    // in parentheses only.
    const std::regex launch(
        R"re(halide_cuda_run\([^"]*"[^"]*",.*?, (\d+), (\d+), 1, (?:0 \+ \((\d+)\*4\)|(0)), \(void)re");
    std::vector<Launch> found;
    for (std::sregex_iterator at(stmt.begin(), stmt.end(), launch), end; at != end; ++at) {
        Launch made = {.threads_x = std::stoll((*at)[1]), .threads_y = std::stoll((*at)[2])};
        made.shared_bytes = (*at)[3].matched ? std::stoll((*at)[3]) * 4 : 0;
        found.push_back(made);
    }
    return found;
}

std::vector<std::string> CudaKernel::undefined_names() const {
    const ProcessResult result = run_process(
        {find_program("nm"), "--undefined-only", "--format=posix", folder_ / "kernel.o"}, kTimeLimit);
    EXPECT_TRUE(result.succeeded()) << result.output;
    std::vector<std::string> names;
    std::istringstream text(result.output);
    for (std::string line; std::getline(text, line);) names.push_back(line.substr(0, line.find(' ')));
    return names;
}

Assembled CudaKernel::assemble(int architecture, int64_t registers) const {
    const ProcessResult result = run_process({ptxas(), "-arch=sm_" + std::to_string(architecture), "-v",
                                              "-maxrregcount=" + std::to_string(registers),
                                              folder_ / "kernel.device_code", "-o", folder_ / "kernel.cubin"},
                                             kTimeLimit);
    EXPECT_TRUE(result.succeeded()) << result.output;
    std::smatch used;
    const std::string& output = result.output;
    Assembled made = {.registers = std::regex_search(output, used, std::regex(R"(Used (\d+) registers)"))
                                       ? std::stoll(used[1])
                                       : -1,
                      .stack_bytes = number_before(output, "bytes stack frame"),
                      .spill_bytes = std::max(number_before(output, "bytes spill stores"),
                                              number_before(output, "bytes spill loads"))};
    EXPECT_TRUE(made.registers > 0 && made.stack_bytes >= 0 && made.spill_bytes >= 0) << output;
    return made;
}

std::string CudaKernel::sass() const {
    const ProcessResult result = run_process({nvdisasm(), "-c", folder_ / "kernel.cubin"}, kTimeLimit);
    EXPECT_TRUE(result.succeeded()) << result.output;
    return result.output;
}

std::vector<SassLoop> sass_loops(const std::string& sass) {
    const Program program = parse(sass);
    std::vector<SassLoop> all, loops;
    for (size_t at = 0; at < program.instructions.size(); ++at) {
        if (!program.instructions[at].name.starts_with("BRA")) continue;
        std::smatch found;
        if (!std::regex_search(program.instructions[at].rest, found, std::regex(R"(\.L_\w+)"))) continue;
        const auto label = program.labels.find(found[0]);
        if (label == program.labels.end() || label->second >= at) continue;  // a jump to itself is the end
        all.push_back({.first = label->second, .last = at});
    }
    std::sort(all.begin(), all.end(),
              [](const SassLoop& a, const SassLoop& b) { return a.last - a.first > b.last - b.first; });
    for (const SassLoop& loop : all) insert(loops, loop);
    std::sort(loops.begin(), loops.end(),
              [](const SassLoop& a, const SassLoop& b) { return a.first < b.first; });
    for (SassLoop& loop : loops) count(loop, program);
    return loops;
}

}  // namespace attnc::test
