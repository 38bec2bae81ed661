#include "compiler/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include "compiler/cubins.h"
#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/interrupt.h"
#include "compiler/kernel_workers.h"
#include "compiler/library_plan.h"
#include "compiler/library_writer.h"
#include "compiler/llvm_tools.h"
#include "compiler/manifest.h"
#include "compiler/package_files.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

// A folder that is made for this build goes away again when nothing came into it.
class OutputFolder {
public:
    explicit OutputFolder(const fs::path& path) : path_(path) {
        std::error_code ignored;
        made_ = !fs::exists(path, ignored);
        make_folder(path);
    }
    OutputFolder(const OutputFolder&) = delete;
    OutputFolder& operator=(const OutputFolder&) = delete;
    ~OutputFolder() {
        std::error_code ignored;
        if (made_) fs::remove(path_, ignored);  // fails, as it should, if it isn't empty
    }

private:
    fs::path path_;
    bool made_ = false;
};

// Longest first, so that no worker is left alone with a long kernel at the end.
int cost(const KernelJob& job) {
    constexpr std::array<std::pair<std::string_view, int>, 6> kCosts = {{{"attend_guarded", 4},
                                                                         {"attend_masked", 4},
                                                                         {"attend_probs", 3},
                                                                         {"attend", 3},
                                                                         {"attend_narrow", 3},
                                                                         {"attend_single", 3}}};
    for (const auto& [kernel, value] : kCosts) {
        if (job.kernel == kernel) return value;
    }
    return 1;
}

void assemble_device(PlannedDevice& device, const Ptxas& ptxas, const CompilerVersions& versions,
                     const WorkerOptions& options) {
    std::vector<CompiledKernel*> kernels;
    kernels.reserve(device.kernels.size());
    for (PlannedKernel& kernel : device.kernels) kernels.push_back(&kernel.compiled);
    assemble_cubins(kernels, device.target.architectures, ptxas, versions, options);
}

void compile_plan(LibraryPlan& plan, const BuildRequest& request, const fs::path& folder,
                  const std::optional<Ptxas>& ptxas) {
    std::vector<PlannedKernel*> kernels = kernels_of(plan);
    std::stable_sort(kernels.begin(), kernels.end(), [](const PlannedKernel* a, const PlannedKernel* b) {
        return cost(a->job) > cost(b->job);
    });
    std::vector<KernelJob> jobs;
    jobs.reserve(kernels.size());
    for (const PlannedKernel* kernel : kernels) jobs.push_back(kernel->job);

    const WorkerOptions options = {
        .attnc = request.installation.command,
        .cache = request.kernel_cache,
        .folder = folder,
        .emit = {.assembly = request.emit_assembly, .stmt = request.emit_stmt, .llvm = request.emit_llvm},
        .jobs = request.jobs,
        .progress = request.progress,
    };
    std::vector<CompiledKernel> compiled = compile_kernels(jobs, plan.versions, options);
    for (size_t i = 0; i < kernels.size(); ++i) kernels[i]->compiled = std::move(compiled[i]);
    if (ptxas) assemble_device(*plan.device, *ptxas, plan.versions, options);
}

// What was emitted beside the objects of a target, under the names that it gets in the output folder.
void collect_emitted(const std::vector<PlannedKernel>& kernels, const std::string& prefix,
                     const std::string& target, const fs::path& objects, const fs::path& finished) {
    for (const PlannedKernel& kernel : kernels) {
        for (const char* suffix : {".s", ".stmt", ".ll", ".ptx"}) {
            const fs::path from = objects / (kernel.job.symbol + suffix);
            if (!fs::exists(from)) continue;
            move_file(from, finished / fmt::format("{}.{}.{}{}", prefix, kernel.job.kernel, target, suffix));
        }
    }
}

void collect_emitted(const LibraryPlan& plan, const BuildRequest& request, const fs::path& objects,
                     const fs::path& finished) {
    for (const PlannedTarget& target : plan.targets)
        collect_emitted(target.kernels, plan.name, target.name, objects, finished);
    if (!plan.device) return;
    if (!request.emit_assembly) {  // PTX is there in any case
        for (const PlannedKernel& kernel : plan.device->kernels)
            fs::remove(device_code_file(kernel.compiled.object));
    }
    collect_emitted(plan.device->kernels, plan.name, plan.device->target.name, objects, finished);
}

void write_files(const LibraryPlan& plan, const BuildRequest& request, const fs::path& work,
                 const fs::path& finished) {
    const Installation& installation = request.installation;
    const std::string manifest = manifest_json(plan);
    write_archive(plan, manifest, finished / fmt::format("lib{}.a", plan.name), work,
                  installation.runtime_archive);
    write_file(finished / (plan.name + ".h"), header_text(plan));
    write_file(finished / (plan.name + ".json"), manifest);
    write_file(finished / (plan.name + "Config.cmake"), cmake_config_text(plan));
    write_file(finished / (plan.name + ".pc"), pkg_config_text(plan));
    duplicate_file(installation.runtime_archive, finished / "libattnc_runtime.a");
    for (const std::string& header : runtime_headers()) {
        duplicate_file(installation.include_folder / header, finished / header);
    }
    collect_emitted(plan, request, work, finished);
}

std::vector<fs::path> move_files(const fs::path& finished, const fs::path& output) {
    std::vector<fs::path> names;
    for (const auto& entry : fs::directory_iterator(finished)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    for (const fs::path& name : names) {
        if (fs::is_directory(output / name)) {  // the one reason for which a move may fail half-way
            throw std::runtime_error(
                fmt::format("cannot write {}: it is a folder", (output / name).string()));
        }
    }
    for (fs::path& name : names) {
        move_file(finished / name, output / name);
        name = output / name;
    }
    return names;
}

}  // namespace

BuildResult build_library(const BuildRequest& request) {
    LibraryPlan plan = plan_library(request);
    find_llvm_tools();  // so that what is missing is said before anything is compiled
    std::optional<Ptxas> ptxas;
    if (plan.device && !plan.device->target.architectures.empty()) ptxas = find_ptxas();
    if (ptxas) plan.ptxas = ptxas->version;
    const OutputFolder output(request.output);
    const TemporaryFolder temporary(request.output);
    const fs::path work = temporary.path() / "work";
    const fs::path finished = temporary.path() / "finished";
    make_folder(work);
    make_folder(finished);

    compile_plan(plan, request, work, ptxas);
    write_files(plan, request, work, finished);
    check_interrupt();

    BuildResult result;
    result.name = plan.name;
    result.archive = request.output / fmt::format("lib{}.a", plan.name);
    result.header = request.output / (plan.name + ".h");
    result.manifest = request.output / (plan.name + ".json");
    result.files = move_files(finished, request.output);
    for (const PlannedKernel* kernel : kernels_of(plan))
        ++(kernel->compiled.cached ? result.kernels_cached : result.kernels_compiled);
    return result;
}

std::string default_library_name(const Config& config) {
    std::string name = "attnc_" + to_string(complete(config));
    if (name.size() <= kLongestLibraryName) return name;
    const std::string hash = hash64_hex(name);
    name.resize(kLongestLibraryName - hash.size());
    name.resize(name.rfind('_') + 1);  // whole words
    return name + hash;
}

}  // namespace attnc
