#include "compiler/cubins.h"

#include <fmt/format.h>

#include <memory>
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

void run_ptxas(const Ptxas& ptxas, const fs::path& ptx, int architecture, const fs::path& cubin,
               std::chrono::seconds time_limit) {
    const ProcessResult result =
        run_process({ptxas.program.string(), fmt::format("-arch=sm_{}", architecture), ptx.string(), "-o",
                     cubin.string()},
                    time_limit);
    if (result.succeeded() && fs::exists(cubin)) return;
    std::string reason = last_line(result.output);
    if (reason.empty()) reason = describe_failure(result, time_limit);
    throw std::runtime_error(
        fmt::format("ptxas makes no cubin for sm_{} of {}: {}", architecture, ptx.stem().string(), reason));
}

Cubin assemble(const CompiledKernel& kernel, int architecture, const Ptxas& ptxas, const KernelCache* cache,
               const WorkerOptions& options) {
    const fs::path ptx = device_code_file(kernel.object);
    Cubin cubin = {
        .architecture = architecture,
        .file = fs::path(kernel.object).replace_extension(fmt::format(".sm_{}.cubin", architecture))};
    // The text names all that decides the cubin but the assembler.
    const std::string key = fmt::format("cubin\n{}\n{}\n{}", ptxas.version, architecture, read_file(ptx));
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

}  // namespace attnc
