#include "compiler/tune_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/interrupt.h"
#include "compiler/kernel_workers.h"
#include "compiler/library_plan.h"
#include "compiler/library_writer.h"
#include "compiler/subprocess.h"
#include "compiler/tune_first.h"
#include "compiler/tune_parts.h"
#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

constexpr const char* kRunner = "attnc-runner";
constexpr std::chrono::seconds kLinkTimeLimit{600};

// attend_guarded follows attend_masked, as it does in the search.
CpuSchedule with_followers(CpuSchedule schedule, const CpuSchedule& start) {
    if (start.params.attend_guarded == start.params.attend_masked)
        schedule.params.attend_guarded = schedule.params.attend_masked;
    return schedule;
}

// The last line but the compiler's own, which says that the linker failed.
std::string link_reason(const ProcessResult& result) {
    const std::string said = result.output.substr(0, result.output.find("collect2:"));
    const std::string reason = last_line(said);
    return reason.empty() ? describe_failure(result, kLinkTimeLimit) : reason;
}

class Exporter {
public:
    Exporter(const ExportRequest& request, const fs::path& work)
        : request_(request), work_(work), versions_(versions_of(request.installation.command)) {
        run_ = {.attnc = request.version,
                .versions = versions_,
                .target = request.target,
                .effort = request.effort.name,
                .threads = request.threads,
                .time_limit = request.time_limit,
                .wanted = request.kernels,
                .layers = {}};
    }

    void add(const ExportLayer& layer);
    void link(const fs::path& runner) const;

private:
    bool is_wanted(const TunedPart& part) const;
    void add_candidates(const ExportLayer& layer, const TunedPart& part, ExportedLayer& exported);
    void add_kernels(const Config& config, const CpuSchedule& schedule, ExportedLayer& exported);
    WorkerOptions workers() const;
    std::string source() const;

    const ExportRequest& request_;
    fs::path work_;
    CompilerVersions versions_;
    ExportedRun run_;
    struct Library {
        std::string symbol;
        fs::path archive;
    };
    std::vector<Library> libraries_;
};

WorkerOptions Exporter::workers() const {
    return {.attnc = request_.installation.command,
            .cache = request_.cache,
            .folder = work_,
            .emit = {},
            .progress = {}};
}

bool Exporter::is_wanted(const TunedPart& part) const {
    const std::vector<std::string>& names = request_.kernels;
    return part.not_tuned.empty() &&
           (names.empty() || std::find(names.begin(), names.end(), part.part.name) != names.end());
}

// A library of those of the schedule's kernels that no library of the layer has yet.
void Exporter::add_kernels(const Config& config, const CpuSchedule& schedule, ExportedLayer& exported) {
    const std::string text = to_string(schedule);
    LibraryPlan plan;
    plan.config = config;
    plan.problem = to_string(config);
    plan.name = "exported";
    plan.hash = hash64(plan.problem + "\n" + text);
    plan.symbol = fmt::format("attnc_lib_exported_{:016x}", plan.hash);
    plan.versions = versions_;
    plan.targets.push_back(plan_target(config, request_.target, {}, text));
    std::vector<PlannedKernel>& kernels = plan.targets.front().kernels;
    std::erase_if(kernels, [&](const PlannedKernel& kernel) {
        const auto known = exported.kernels.find(kernel.job.kernel);
        return known != exported.kernels.end() && known->second.contains(kernel.job.schedule);
    });
    if (kernels.empty()) return;
    std::vector<KernelJob> jobs;
    jobs.reserve(kernels.size());
    for (const PlannedKernel& kernel : kernels) jobs.push_back(kernel.job);
    const std::vector<CompiledKernel> compiled = compile_kernels(jobs, versions_, workers());
    for (size_t i = 0; i < kernels.size(); ++i) kernels[i].compiled = compiled[i];
    const fs::path archive = work_ / fmt::format("{}.a", plan.symbol);
    write_archive(plan, "{}", archive, work_, request_.installation.runtime_archive);
    for (const PlannedKernel& kernel : kernels) {
        exported.kernels[kernel.job.kernel][kernel.job.schedule] = {
            std::ssize(libraries_), hash128_hex(read_file(kernel.compiled.object))};
    }
    libraries_.push_back({plan.symbol, archive});
}

void Exporter::add_candidates(const ExportLayer& layer, const TunedPart& part, ExportedLayer& exported) {
    const SearchSpace space(layer.config, request_.target, part.part, layer.start, part.sizes);
    // Of the machine's caches nothing is known.
    const std::vector<SearchPoint> points = choose_first({.part = part,
                                                          .space = space,
                                                          .config = layer.config,
                                                          .target = request_.target,
                                                          .caches = {},
                                                          .count = request_.effort.first,
                                                          .analysed = request_.effort.analysed,
                                                          .seed = request_.seed,
                                                          .versions = versions_,
                                                          .journal = nullptr,
                                                          .workers = workers(),
                                                          .ended = [] { return false; }});
    std::vector<std::string>& candidates = exported.candidates[part.part.name];
    size_t failed = 0;
    for (const SearchPoint& point : points) {
        const CpuSchedule schedule = with_followers(space.schedule(point), layer.start);
        try {
            add_kernels(layer.config, schedule, exported);
            candidates.push_back(to_string(schedule));
        } catch (const Interrupted&) {
            throw;
        } catch (const std::exception& error) {
            request_.say(fmt::format("    {}: {}", space.text(point), error.what()));
            ++failed;
        }
    }
    request_.say(fmt::format("  {}: {} candidates{}", part.part.name, candidates.size(),
                             failed > 0 ? fmt::format(", {} can't be compiled", failed) : ""));
}

void Exporter::add(const ExportLayer& layer) {
    ExportedLayer exported = {.config = to_string(layer.config),
                              .sizes = {},
                              .start = to_string(layer.start),
                              .origin = layer.origin,
                              .kernels = {},
                              .candidates = {}};
    for (const Sizes& sizes : layer.sizes) exported.sizes.push_back(to_string(sizes));
    request_.say(fmt::format("{} at {} for {}, {}", exported.config, describe_sizes(layer.sizes),
                             request_.target, request_.effort.name));
    request_.say(fmt::format("  start: {}", layer.origin));
    add_kernels(layer.config, layer.start, exported);
    add_kernels(layer.config, default_schedule(layer.config, request_.target), exported);
    for (const TunedPart& part : tuned_parts(layer.config, request_.target, layer.sizes, layer.start)) {
        if (is_wanted(part)) add_candidates(layer, part, exported);
    }
    run_.layers.push_back(std::move(exported));
}

// The description as numbers: a literal may not be as long.
std::string Exporter::source() const {
    std::string names, declarations;
    for (const Library& library : libraries_) {
        declarations += fmt::format("extern const char {}[];\n", library.symbol);
        names += fmt::format("    {},\n", library.symbol);
    }
    std::string bytes;
    for (const char c : to_json(run_))
        bytes += fmt::format("{},{}", static_cast<int>(c), bytes.size() % 120 > 115 ? "\n" : "");
    return fmt::format(
        "#include <stdint.h>\n{}"
        "static const char description[] = {{{}0}};\n"
        "static const void* const libraries[] = {{\n{}}};\n"
        "struct exported {{ const char* description; const void* const* libraries; int64_t count; }};\n"
        "extern const struct exported attnc_exported;\n"
        "const struct exported attnc_exported = {{description, libraries, {}}};\n",
        declarations, bytes, names, libraries_.size());
}

// Static where there is a C library for that: then it needs nothing where it runs but a kernel.
void Exporter::link(const fs::path& runner) const {
    const std::string cc = find_program("cc");
    if (cc.empty()) throw std::runtime_error("cc not found on PATH: a runner needs a C compiler to link it");
    const fs::path code = work_ / "exported.c", linked = work_ / kRunner;
    write_file(code, source());
    const auto command = [&](const char* kind) {
        std::vector<std::string> words = {
            cc, kind, "-O1", "-o", linked.string(), request_.installation.runner.string(), code.string()};
        for (const Library& library : libraries_) words.push_back(library.archive.string());
        for (const std::string& word : {request_.installation.runtime_archive.string(), std::string("-lm"),
                                        std::string("-pthread"), std::string("-Wl,--gc-sections,-s")})
            words.push_back(word);
        return words;
    };
    ProcessResult result = run_process(command("-static"), kLinkTimeLimit);
    if (!result.succeeded()) {
        const std::string reason = link_reason(result);
        result = run_process(command("-no-pie"), kLinkTimeLimit);
        if (result.succeeded())
            request_.say(fmt::format("  not static ({}): it needs the C library of this system", reason));
    }
    if (!result.succeeded())
        throw std::runtime_error(fmt::format("cannot link the runner: {}", link_reason(result)));
    duplicate_file(linked, runner);
    fs::permissions(runner, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec |
                                fs::perms::others_read | fs::perms::others_exec);
}

}  // namespace

fs::path export_runner(const ExportRequest& request) {
    std::error_code error;
    if (!fs::exists(request.installation.runner, error))
        throw std::runtime_error(
            fmt::format("attnc is not complete: {} not found", request.installation.runner.string()));
    make_folder(request.folder);
    const TemporaryFolder work(request.folder);
    Exporter exporter(request, work.path());
    for (const ExportLayer& layer : request.layers) exporter.add(layer);
    fs::path runner = request.folder / kRunner;
    exporter.link(runner);
    return runner;
}

}  // namespace attnc
