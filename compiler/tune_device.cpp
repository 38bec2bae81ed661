#include "compiler/tune_device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "compiler/command.h"
#include "compiler/cubins.h"
#include "compiler/database_file.h"
#include "compiler/files.h"
#include "compiler/interrupt.h"
#include "compiler/library_plan.h"
#include "compiler/machine.h"
#include "compiler/parallel_jobs.h"
#include "compiler/record_check.h"
#include "compiler/subprocess.h"
#include "compiler/targets.h"
#include "compiler/tune_efforts.h"
#include "compiler/tuning_sources.h"
#include "runtime/kernel_abi.h"
#include "schedules/cuda_search.h"
#include "stages/device_kernels.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

// In the order in which they are given.
std::vector<int> chosen_architectures(const std::string& targets) {
    std::vector<std::string> names;
    std::istringstream parts(targets);
    for (std::string name; std::getline(parts, name, ',');) names.push_back(name);
    const ChosenTargets chosen = choose_targets(names);
    if (!chosen.cpus.empty() || !chosen.device->is_cuda())
        throw UsageError("tune takes one instruction set, or devices: cuda-sm_80,cuda-sm_90");
    std::vector<int> architectures;
    architectures.reserve(names.size());
    for (const std::string& name : names) architectures.push_back(cuda_target_architecture(name).value());
    return architectures;
}

std::vector<int> of_cubins(int architecture) {
    return architecture == kNoArchitecture ? std::vector<int>{} : std::vector{architecture};
}

std::vector<int> chosen_kernels(const std::vector<std::string>& names, const Config& config) {
    std::vector<int> all = scheduled_kernels(config);
    if (names.empty()) return all;
    std::vector<std::string> known;
    known.reserve(all.size());
    for (const int kernel : all) known.emplace_back(kernel_name(kernel));
    std::vector<int> chosen;
    for (const std::string& name : names) {
        const auto found = std::find(known.begin(), known.end(), name);
        if (found == known.end()) {
            throw UsageError(fmt::format("no kernel {} to tune for a device: it is one of {}",
                                         in_quotes(name), fmt::join(known, ", ")));
        }
        chosen.push_back(all[static_cast<size_t>(found - known.begin())]);
    }
    return chosen;
}

FoundCudaSchedule look_up_layer(const TunedLayer& layer, int architecture, const fs::path& database) {
    std::vector<std::string> named;
    if (fs::exists(database)) named.push_back(database.string());
    return look_up_device({layer.config, of_cubins(architecture), layer.sizes},
                          tuning_sources(named, fs::current_path(), own_installation()));
}

struct Start {
    CudaSchedule schedule;
    std::string origin;
};
// Not what a build would take: the model tells schedules apart without having run them, and what it finds shouldn't depend on
// what it found for other layers before.
Start start_of(const TunedLayer& layer, int architecture, const DeviceTuneRequest& request) {
    const std::string& text = request.options.schedule;
    const CudaSchedule schedule = parse_cuda_schedule(text, default_cuda_schedule(layer.config));
    if (text.empty()) return {schedule, "built-in default"};
    const std::string fault = cuda_schedule_fault(schedule, layer.config, of_cubins(architecture));
    if (!fault.empty()) throw ConfigError(fault);
    return {schedule, fmt::format("built-in default, then {}", text)};
}

// What became of one of a library's kernels.
struct KernelCode {
    int kernel = 0;  // ATTNC_DEVICE_KERNEL_*
    std::string hash;
    std::optional<AssembledKernel> assembled;
    std::string fault;  // why its schedule is of no use; empty: it is
};

std::string spill_fault(const std::string& kernel, const AssembledKernel& made) {
    if (made.spill_bytes <= kMostSpillBytes) return "";
    return fmt::format("{}: ptxas spills {} bytes, {} are allowed", kernel, made.spill_bytes,
                       kMostSpillBytes);
}

constexpr int kTries = 2;  // of a shape of a thread's work: the others would mostly be as bad

// The search of one layer on one architecture.
class DeviceTuner {
public:
    DeviceTuner(const DeviceTuneRequest& request, const TunedLayer& layer, int architecture,
                const std::optional<Ptxas>& ptxas, const CompilerVersions& versions)
        : request_(request),
          layer_(layer),
          architecture_(architecture),
          ptxas_(ptxas),
          versions_(versions),
          folder_(system_temporary_folder()),
          start_(start_of(layer, architecture, request)) {
        search_.config = layer.config;
        search_.sizes = layer.sizes;
        search_.architecture = architecture;
        search_.kernels = chosen_kernels(request.options.kernels, layer.config);
        search_.is_refused = [this](const CudaSchedule& schedule, int kernel) {
            const auto shape = faults_.find(shape_of(schedule, kernel));
            return refused_.contains(text_of(schedule, kernel)) ||
                   (shape != faults_.end() && shape->second >= kTries);
        };
    }

    void run() {
        const CudaDevice device = cuda_device(architecture_);
        say(fmt::format("{} on {} ({}), estimate", name_of(layer_), cuda_target(architecture_), device.name));
        say(fmt::format("  start: {}", start_.origin));
        CudaSchedule schedule = best_cuda_schedule(search_, start_.schedule);
        std::vector<KernelCode> code = compile(schedule);
        while (drop_faulty(schedule, code)) {
            schedule = best_cuda_schedule(search_, start_.schedule);
            code = compile(schedule);
        }
        for (const int kernel : search_.kernels) say_kernel(schedule, kernel);
        add_records(request_.database, {record_of(schedule, code)});
        say(fmt::format(
            "  estimated, nothing timed: a call takes {:.3f} of the start's time by the model; kept in {}",
            call_ratio(search_, schedule, start_.schedule), request_.database.string()));
    }

private:
    void say(const std::string& line) const { request_.say(line); }

    // All that decides a kernel's code and time.
    std::string text_of(const CudaSchedule& schedule, int kernel) const {
        return fmt::format("{} {}", kernel_name(kernel),
                           to_string(of_kernel(schedule, layer_.config, kernel)));
    }

    static std::string shape_text(const CudaSchedule& schedule, int kernel) {
        if (is_projection(kernel)) return "as many sums for each thread";
        return fmt::format("threads_x:{},tile_kv:{}", schedule.layout.threads_x, schedule.layout.tile_kv);
    }

    // What a thread holds, which decides its registers; the rest moves them little.
    static std::string shape_of(const CudaSchedule& schedule, int kernel) {
        CudaParams params = schedule.params;
        if (!is_projection(kernel)) {
            return fmt::format("{} {} {}", kernel_name(kernel), schedule.layout.threads_x,
                               schedule.layout.tile_kv);
        }
        const CudaProjectParams& own = project_params(params, kernel);
        const int64_t panel =
            kernel == ATTNC_KERNEL_PROJECT_OUT ? schedule.layout.out_panel : schedule.layout.panel;
        return fmt::format("{} {} {}", kernel_name(kernel), own.row_groups, panel / own.threads_x);
    }

    std::vector<KernelCode> compile(const CudaSchedule& schedule) {
        std::vector<KernelCode> code;
        for (const int kernel : device_kernels_of(layer_.config)) {
            if (scheduled_as(kernel) >= 0) code.push_back({.kernel = kernel});
        }
        const std::string halide = choose_targets({kCudaTarget}).device->halide;
        for_each_job(code.size(), 0, {}, [&](size_t i) {
            const KernelJob job = device_job(layer_.config, halide, schedule, code[i].kernel);
            try {
                obtain(job, schedule, code[i]);
            } catch (const Interrupted&) {
                throw;
            } catch (const std::runtime_error& error) {
                code[i].fault = error.what();
            }
        });
        return code;
    }

    void obtain(const KernelJob& job, const CudaSchedule& schedule, KernelCode& code) {
        const WorkerOptions options = {
            .attnc = request_.installation.command,
            .cache = request_.cache.empty() ? folder_.path() / "kernels" : request_.cache,
            .folder = folder_.path(),
            .emit = {},
            .jobs = 1,
            .progress = {}};
        const CompiledKernel compiled = compile_kernels({job}, versions_, options).front();
        code.hash = code_hash(compiled);
        if (!ptxas_ || architecture_ == kNoArchitecture) return;
        const int64_t shared =
            cuda_resources(schedule, layer_.config, scheduled_as(code.kernel)).shared_bytes;
        code.assembled = assemble_kernel(compiled, architecture_, shared, *ptxas_, versions_, options);
        code.fault = spill_fault(job.kernel, *code.assembled);
    }

    // Whether there are kernels whose parameters are not to be tried again. The start's are in use whatever they are.
    bool drop_faulty(const CudaSchedule& schedule, const std::vector<KernelCode>& code) {
        bool dropped = false;
        for (const KernelCode& entry : code) {
            const int kernel = scheduled_as(entry.kernel);
            const std::string text = text_of(schedule, kernel);
            if (entry.fault.empty()) continue;
            if (text == text_of(start_.schedule, kernel)) {
                if (entry.hash.empty()) throw std::runtime_error(entry.fault);
                continue;
            }
            dropped = true;
            if (!refused_.insert(text).second) continue;  // with another kernel of the same parameters
            say(fmt::format("  dropped: {}", entry.fault));
            if (++faults_[shape_of(schedule, kernel)] == kTries)
                say(fmt::format("  given up: {} with {}", kernel_name(kernel), shape_text(schedule, kernel)));
        }
        return dropped;
    }

    void say_kernel(const CudaSchedule& schedule, int kernel) const {
        if (text_of(schedule, kernel) == text_of(start_.schedule, kernel)) {
            say(fmt::format("  {:<14} the start's", kernel_name(kernel)));
            return;
        }
        CudaSchedule own = of_kernel(schedule, layer_.config, kernel),
                     other = of_kernel(start_.schedule, layer_.config, kernel);
        const ScheduleFields to = fields_of(own), from = fields_of(other);
        const std::string prefix = std::string(kernel_name(kernel)) + ".";
        std::string changes;
        for (size_t i = 0; i < to.size(); ++i) {
            const bool is_own = to[i].first.starts_with(prefix) || to[i].first.find('.') == std::string::npos;
            if (is_own && *to[i].second != *from[i].second)
                changes += fmt::format("{}{}:{}", changes.empty() ? "" : ",", to[i].first, *to[i].second);
        }
        say(fmt::format("  {:<14} {:.3f} of the start's time by the model: {}", kernel_name(kernel),
                        kernel_ratio(search_, kernel, schedule, start_.schedule), changes));
    }

    TuningRecord record_of(const CudaSchedule& schedule, const std::vector<KernelCode>& code) const {
        const CudaDevice device = cuda_device(architecture_);
        TuningRecord record;
        record.config = layer_.config;
        record.sizes = layer_.sizes;
        record.target = cuda_target(architecture_);
        record.machine = {.cpu = std::string(device.name),
                          .cpus = device.multiprocessors,
                          .l1d_bytes = device.shared_bytes,
                          .l2_bytes = device.l2_size,
                          .l3_bytes = 0};
        record.cuda_schedule = schedule;
        for (const KernelCode& entry : code) {
            KernelResult& result = record.kernels[device_kernel_name(entry.kernel)];
            result.object_hash = entry.hash;
            result.assembled = entry.assembled;
        }
        record.attnc = request_.version;
        record.halide = versions_.halide;
        record.llvm = versions_.llvm;
        record.date = utc_now();
        record.effort = request_.options.effort;
        return record;
    }

    const DeviceTuneRequest& request_;
    const TunedLayer& layer_;
    int architecture_;
    const std::optional<Ptxas>& ptxas_;
    const CompilerVersions& versions_;
    TemporaryFolder folder_;
    Start start_;
    CudaSearch search_;
    std::set<std::string> refused_;      // of kernels, by text_of
    std::map<std::string, int> faults_;  // dropped ones, by shape_of
};

}  // namespace

bool names_devices(const std::string& targets) {
    return ("," + targets).find("," + std::string(kCudaTarget)) != std::string::npos;
}

void tune_devices(const DeviceTuneRequest& request) {
    const std::vector<int> architectures = chosen_architectures(request.options.target);
    if (effort_by_name(request.options.effort).measures) {
        throw UsageError(
            fmt::format("effort {} measures, and no device is there for {}: --effort estimate does without",
                        request.options.effort, request.options.target));
    }
    for (const TunedLayer& layer : request.layers) chosen_kernels(request.options.kernels, layer.config);
    // Anything wrong with the file is said before the first kernel is compiled.
    add_records(request.database, {});
    std::optional<Ptxas> ptxas;
    if (!find_program("ptxas").empty()) ptxas = find_ptxas();
    if (!ptxas) request.say("ptxas is not on PATH: registers and spills are the model's alone");
    const CompilerVersions versions = versions_of(request.installation.command);
    for (const TunedLayer& layer : request.layers) {
        for (const int architecture : architectures)
            DeviceTuner(request, layer, architecture, ptxas, versions).run();
    }
}

void show_device_lookups(const DeviceTuneRequest& request) {
    for (const TunedLayer& layer : request.layers) {
        for (const int architecture : chosen_architectures(request.options.target)) {
            const FoundCudaSchedule found = look_up_layer(layer, architecture, request.database);
            request.say(fmt::format("{} on {}", name_of(layer), cuda_target(architecture)));
            for (const LookupStep& step : found.steps)
                request.say(fmt::format("  {} {}: {}", step.taken ? "->" : "  ", step.asked, step.outcome));
            request.say(fmt::format("  {}", to_string(found.schedule)));
            if (!found.record) {
                throw std::runtime_error(
                    fmt::format("no record of {} for {}, and --lookup-only searches none",
                                to_string(layer.config), cuda_target(architecture)));
            }
        }
    }
}

}  // namespace attnc
