#include "compiler/cubins.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <regex>
#include <stdexcept>

#include "compiler/files.h"
#include "compiler/kernel_cache.h"
#include "compiler/parallel_jobs.h"
#include "compiler/subprocess.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kVersionTimeLimit{60};

// From "Cuda compilation tools, release 13.0, V13.0.88": what is behind the V.
std::string version_in(const std::string& output) {
    const std::string mark = ", V";
    const size_t at = output.find(mark);
    if (at == std::string::npos) return last_line(output);
    const size_t begin = at + mark.size();
    return output.substr(begin, output.find_first_of(" \n", begin) - begin);
}

// Returns what it reported, with -v among `options`.
std::string run_ptxas(const Ptxas& ptxas, const fs::path& ptx, int architecture, const fs::path& cubin,
                      std::chrono::seconds time_limit, const std::vector<std::string>& options = {}) {
    std::vector<std::string> command = {ptxas.program.string(), fmt::format("-arch=sm_{}", architecture),
                                        ptx.string(), "-o", cubin.string()};
    command.insert(command.end(), options.begin(), options.end());
    const ProcessResult result = run_process(command, time_limit);
    if (result.succeeded() && fs::exists(cubin)) return result.output;
    std::string reason = last_line(result.output);
    if (reason.empty()) reason = describe_failure(result, time_limit);
    throw std::runtime_error(
        fmt::format("ptxas makes no cubin for sm_{} of {}: {}", architecture, ptx.stem().string(), reason));
}

// The largest number that stands before `words`, or behind them; -1: none does.
int64_t number_beside(const std::string& text, const std::string& before, const std::string& behind) {
    int64_t most = -1;
    const std::regex pattern(before + "([0-9]{1,15})" + behind);
    for (std::sregex_iterator found(text.begin(), text.end(), pattern), end; found != end; ++found)
        most = std::max(most, static_cast<int64_t>(std::stoll((*found)[1])));
    return most;
}

// The text names all that decides what an assembler makes of it.
std::string cache_key(const char* of, const Ptxas& ptxas, int architecture, const fs::path& ptx) {
    return fmt::format("{}\n{}\n{}\n{}", of, ptxas.version, architecture, read_file(ptx));
}

Cubin assemble(const CompiledKernel& kernel, int architecture, const Ptxas& ptxas, const KernelCache* cache,
               const WorkerOptions& options) {
    const fs::path ptx = device_code_file(kernel.object);
    Cubin cubin = {
        .architecture = architecture,
        .file = fs::path(kernel.object).replace_extension(fmt::format(".sm_{}.cubin", architecture))};
    const std::string key = cache_key("cubin", ptxas, architecture, ptx);
    if (cache != nullptr) {
        if (const auto bytes = cache->take_bytes(key)) write_file(cubin.file, *bytes);
    }
    if (!fs::exists(cubin.file)) {
        run_ptxas(ptxas, ptx, architecture, cubin.file, options.time_limit);
        if (cache != nullptr) cache->add_bytes(key, read_file(cubin.file));
    }
    cubin.bytes = static_cast<int64_t>(fs::file_size(cubin.file));
    return cubin;
}

}  // namespace

Ptxas find_ptxas() {
    const std::string program = find_program("ptxas");
    if (program.empty()) {
        throw std::runtime_error(
            "ptxas not found on PATH: cubins are assembled by it (CUDA toolkit); target cuda without an "
            "architecture does without");
    }
    const ProcessResult result = run_process({program, "--version"}, kVersionTimeLimit);
    if (!result.succeeded())
        throw std::runtime_error(fmt::format("{} does not run: {}", program, last_line(result.output)));
    return {program, version_in(result.output)};
}

void assemble_cubins(const std::vector<CompiledKernel*>& kernels, const std::vector<int>& architectures,
                     const Ptxas& ptxas, const CompilerVersions& versions, const WorkerOptions& options) {
    std::unique_ptr<KernelCache> cache;
    if (!options.cache.empty()) cache = std::make_unique<KernelCache>(options.cache, versions);
    for (CompiledKernel* kernel : kernels) kernel->cubins.resize(architectures.size());
    for_each_job(kernels.size() * architectures.size(), options.jobs, options.progress, [&](size_t n) {
        CompiledKernel& kernel = *kernels[n / architectures.size()];
        const size_t which = n % architectures.size();
        kernel.cubins[which] = assemble(kernel, architectures[which], ptxas, cache.get(), options);
    });
}

AssembledKernel assemble_kernel(const CompiledKernel& kernel, int architecture, int64_t shared_bytes,
                                const Ptxas& ptxas, const CompilerVersions& versions,
                                const WorkerOptions& options) {
    const fs::path ptx = device_code_file(kernel.object);
    std::unique_ptr<KernelCache> cache;
    if (!options.cache.empty()) cache = std::make_unique<KernelCache>(options.cache, versions);
    const std::string key = cache_key("report", ptxas, architecture, ptx);
    std::optional<std::string> report;
    if (cache) report = cache->take_bytes(key);
    if (!report) {
        const fs::path cubin = fs::path(kernel.object).replace_extension(".cubin");
        report = run_ptxas(ptxas, ptx, architecture, cubin, options.time_limit, {"-v"});
        if (cache) cache->add_bytes(key, *report);
    }
    AssembledKernel made = parse_assembler_report(*report);
    made.shared_bytes += shared_bytes;
    return made;
}

AssembledKernel parse_assembler_report(const std::string& report) {
    AssembledKernel made = {.registers = number_beside(report, "Used ", " registers"),
                            .spill_bytes = std::max(number_beside(report, "", " bytes spill stores"),
                                                    number_beside(report, "", " bytes spill loads")),
                            .stack_bytes = number_beside(report, "", " bytes stack frame"),
                            .shared_bytes = std::max<int64_t>(number_beside(report, "", " bytes smem"), 0)};
    if (made.registers < 1 || made.spill_bytes < 0 || made.stack_bytes < 0) {
        throw std::runtime_error(
            fmt::format("ptxas -v reports no registers and spills: {}", last_line(report)));
    }
    return made;
}

}  // namespace attnc
