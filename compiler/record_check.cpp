#include "compiler/record_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/targets.h"

namespace attnc {

namespace {

CheckedRecord invalid(const std::string& reason) { return {RecordState::kInvalid, reason}; }

CheckedRecord judge(size_t compared, const std::vector<std::string>& different) {
    if (!different.empty()) {
        return {RecordState::kUnverified,
                fmt::format("measured with other code of {}", fmt::join(different, ", "))};
    }
    if (compared == 0) return {RecordState::kUnverified, "it has no hash of a kernel to compare"};
    return {};
}

// Whether the record says what this kernel's object was.
bool is_compared(const PlannedKernel& kernel, const TuningRecord& record, const Config& config) {
    return record.kernels.contains(kernel.job.kernel) &&
           kernel_config(config, kernel.kernel) == kernel_config(record.config, kernel.kernel);
}

}  // namespace

const char* state_name(RecordState state) {
    switch (state) {
        case RecordState::kOk:
            return "ok";
        case RecordState::kUnverified:
            return "unverified";
        case RecordState::kInvalid:
            return "invalid";
    }
    return "";
}

std::string refusal_of(const TuningRecord& record) {
    try {
        cpu_features(record.target);
        check_schedule(record.schedule, record.config, record.target);
    } catch (const ConfigError& error) {
        return error.what();
    }
    const std::vector<int> kernels = kernels_of(record.config);
    for (const auto& [name, result] : record.kernels) {
        const int kernel = kernel_by_name(name);
        if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end() ||
            !has_kernel(record.schedule, kernel)) {
            return fmt::format("its layer has no kernel {}", name);
        }
    }
    return "";
}

CheckedRecord check_record(const TuningRecord& record, const CompilerVersions& versions,
                           const WorkerOptions& options) {
    if (const std::string reason = refusal_of(record); !reason.empty()) return invalid(reason);
    std::vector<KernelJob> jobs;
    for (const auto& [name, result] : record.kernels) {
        jobs.push_back(kernel_job(record.config, record.target, record.schedule, kernel_by_name(name)));
    }
    std::vector<CompiledKernel> compiled;
    try {
        compiled = compile_kernels(jobs, versions, options);
    } catch (const std::runtime_error& error) {
        return invalid(error.what());
    }
    std::vector<std::string> different;
    for (size_t i = 0; i < jobs.size(); ++i) {
        const std::string hash = hash128_hex(read_file(compiled[i].object));
        if (hash != record.kernels.at(jobs[i].kernel).object_hash) different.push_back(jobs[i].kernel);
    }
    return judge(jobs.size(), different);
}

CheckedRecord compare_objects(const PlannedTarget& target, const Config& config) {
    const TuningRecord& record = *target.found.record;
    size_t compared = 0;
    std::vector<std::string> different;
    for (const PlannedKernel& kernel : target.kernels) {
        if (!is_compared(kernel, record, config)) continue;
        ++compared;
        const std::string hash = hash128_hex(read_file(kernel.compiled.object));
        if (hash != record.kernels.at(kernel.job.kernel).object_hash) different.push_back(kernel.job.kernel);
    }
    return judge(compared, different);
}

CheckedRecord compile_and_compare(PlannedTarget& target, const Config& config,
                                  const CompilerVersions& versions, const WorkerOptions& options) {
    std::vector<PlannedKernel*> kernels;
    std::vector<KernelJob> jobs;
    for (PlannedKernel& kernel : target.kernels) {
        if (!is_compared(kernel, *target.found.record, config)) continue;
        kernels.push_back(&kernel);
        jobs.push_back(kernel.job);
    }
    const std::vector<CompiledKernel> compiled = compile_kernels(jobs, versions, options);
    for (size_t i = 0; i < kernels.size(); ++i) kernels[i]->compiled = compiled[i];
    return compare_objects(target, config);
}

}  // namespace attnc
