#include "compiler/inner_loop_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "compiler/files.h"
#include "compiler/llvm_tools.h"
#include "compiler/subprocess.h"

namespace attnc {

namespace {

constexpr int kIterations = 100;

// "<L7>" of "<L7>:", or of "\tjne\t <L7>"; "" if there is none.
std::string label_in(const std::string& line) {
    const size_t begin = line.find("<L"), end = line.find('>', begin == std::string::npos ? 0 : begin);
    if (begin == std::string::npos || end == std::string::npos) return "";
    return line.substr(begin, end + 1 - begin);
}

bool is_multiply_add(const std::string& line) {
    return line.find("vfmadd") != std::string::npos || line.find("\tmulps") != std::string::npos ||
           line.find("\tvmulps") != std::string::npos;
}

// The core that llvm-mca knows best of those with the instruction set.
const char* modelled_core(const std::string& target) {
    if (target.find("avx512") != std::string::npos) return "skylake-avx512";
    return target.find("avx") != std::string::npos ? "haswell" : "x86-64";
}

double cycles_of(const CodeLoop& loop, const std::string& mca, const std::string& target,
                 const std::filesystem::path& file) {
    write_file(file, loop.instructions);
    const std::string report =
        run_tool({mca, "-mtriple=x86_64", fmt::format("-mcpu={}", modelled_core(target)),
                  fmt::format("-iterations={}", kIterations), file.string()});
    const std::string wanted = "Total Cycles:";
    const size_t at = report.find(wanted);
    const double cycles =
        at == std::string::npos ? 0 : std::strtod(report.c_str() + at + wanted.size(), nullptr);
    if (cycles <= 0) throw std::runtime_error("llvm-mca gave no cycles");
    return cycles / kIterations / static_cast<double>(loop.multiply_adds);
}

}  // namespace

std::vector<CodeLoop> code_loops(const std::string& disassembly) {
    std::vector<CodeLoop> loops;
    std::istringstream text(disassembly);
    std::string label;
    CodeLoop since_label;
    for (std::string line; std::getline(text, line);) {
        if (line.starts_with("<L")) {
            label = label_in(line);
            since_label = {};
        } else if (const std::string target = label_in(line); !target.empty()) {
            if (target == label && since_label.multiply_adds > 0) loops.push_back(since_label);
        } else if (line.find('\t') != std::string::npos) {
            since_label.instructions += line + "\n";
            since_label.multiply_adds += is_multiply_add(line) ? 1 : 0;
        }
    }
    std::stable_sort(loops.begin(), loops.end(),
                     [](const CodeLoop& a, const CodeLoop& b) { return a.multiply_adds > b.multiply_adds; });
    return loops;
}

std::optional<double> inner_loop_cycles(const std::filesystem::path& object, const std::string& target,
                                        size_t loops, const std::filesystem::path& folder) {
    std::string mca = find_program("llvm-mca-19");
    if (mca.empty()) mca = find_program("llvm-mca");
    if (mca.empty()) return {};
    const std::string disassembly = run_tool({find_llvm_tools().objdump, "-d", "--no-show-raw-insn",
                                              "--no-leading-addr", "--symbolize-operands", object.string()});
    std::vector<CodeLoop> found = code_loops(disassembly);
    if (found.empty()) return {};
    found.resize(std::min(found.size(), loops));
    double sum = 0;
    for (const CodeLoop& loop : found) sum += cycles_of(loop, mca, target, folder / "loop.s");
    return sum / static_cast<double>(found.size());
}

}  // namespace attnc
