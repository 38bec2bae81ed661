#include "compiler/record_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/targets.h"
#include "stages/device_kernels.h"

namespace attnc {

namespace {

CheckedRecord invalid(const std::string& reason) { return {RecordState::kInvalid, reason}; }

CheckedRecord judge(size_t compared, const std::vector<std::string>& different, const TuningRecord& record) {
    if (!different.empty()) {
        return {RecordState::kUnverified,
                fmt::format("{} with other code of {}", is_of_device(record) ? "estimated" : "measured",
                            fmt::join(different, ", "))};
    }
    if (compared == 0) return {RecordState::kUnverified, "it has no hash of a kernel to compare"};
    return {};
}

// Whether both layers' kernels of this name are compiled from the same.
bool is_same_kernel(const PlannedKernel& kernel, const TuningRecord& record, const Config& config) {
    if (is_of_device(record))
        return device_kernel_config(config, kernel.kernel) ==
               device_kernel_config(record.config, kernel.kernel);
    return kernel_config(config, kernel.kernel) == kernel_config(record.config, kernel.kernel);
}

// Whether the record says what this kernel's object was.
bool is_compared(const PlannedKernel& kernel, const TuningRecord& record, const Config& config) {
    return record.kernels.contains(kernel.job.kernel) && is_same_kernel(kernel, record, config);
}

CheckedRecord compare(const std::vector<PlannedKernel>& kernels, const TuningRecord& record,
                      const Config& config) {
    size_t compared = 0;
    std::vector<std::string> different;
    for (const PlannedKernel& kernel : kernels) {
        if (!is_compared(kernel, record, config)) continue;
        ++compared;
        if (code_hash(kernel.compiled) != record.kernels.at(kernel.job.kernel).object_hash)
            different.push_back(kernel.job.kernel);
    }
    return judge(compared, different, record);
}

void compile_compared(std::vector<PlannedKernel>& kernels, const TuningRecord& record, const Config& config,
                      const CompilerVersions& versions, const WorkerOptions& options) {
    std::vector<PlannedKernel*> compared;
    std::vector<KernelJob> jobs;
    for (PlannedKernel& kernel : kernels) {
        if (!is_compared(kernel, record, config)) continue;
        compared.push_back(&kernel);
        jobs.push_back(kernel.job);
    }
    const std::vector<CompiledKernel> compiled = compile_kernels(jobs, versions, options);
    for (size_t i = 0; i < compared.size(); ++i) compared[i]->compiled = compiled[i];
}

// A layer's own kernels, as its record's schedule has them.
bool has_own_kernel(const TuningRecord& record, const std::string& name) {
    if (is_of_device(record)) {
        const std::vector<int> kernels = device_kernels_of(record.config);
        return std::find(kernels.begin(), kernels.end(), device_kernel_by_name(name)) != kernels.end();
    }
    const std::vector<int> kernels = kernels_of(record.config);
    const int kernel = kernel_by_name(name);
    return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end() &&
           has_kernel(record.schedule, kernel);
}

// Of a record's own architecture and of PTX.
std::string device_fault(const TuningRecord& record) {
    std::vector<int> architectures;
    const int own = cuda_target_architecture(record.target).value_or(kNoArchitecture);
    if (own != kNoArchitecture) architectures.push_back(own);
    return cuda_schedule_fault(*record.cuda_schedule, record.config, architectures);
}

KernelJob own_job(const TuningRecord& record, const std::string& name) {
    if (!is_of_device(record))
        return kernel_job(record.config, record.target, record.schedule, kernel_by_name(name));
    const std::string halide = choose_targets({kCudaTarget}).device->halide;
    return device_job(record.config, halide, *record.cuda_schedule, device_kernel_by_name(name));
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
        if (is_of_device(record)) {
            if (std::string fault = device_fault(record); !fault.empty()) return fault;
        } else {
            cpu_features(record.target);
            check_schedule(record.schedule, record.config, record.target);
        }
    } catch (const ConfigError& error) {
        return error.what();
    }
    for (const auto& [name, result] : record.kernels) {
        if (!has_own_kernel(record, name)) return fmt::format("its layer has no kernel {}", name);
    }
    return "";
}

CheckedRecord check_record(const TuningRecord& record, const CompilerVersions& versions,
                           const WorkerOptions& options) {
    if (const std::string reason = refusal_of(record); !reason.empty()) return invalid(reason);
    std::vector<KernelJob> jobs;
    jobs.reserve(record.kernels.size());
    for (const auto& [name, result] : record.kernels) {
        jobs.push_back(own_job(record, name));
    }
    std::vector<CompiledKernel> compiled;
    try {
        compiled = compile_kernels(jobs, versions, options);
    } catch (const std::runtime_error& error) {
        return invalid(error.what());
    }
    std::vector<std::string> different;
    for (size_t i = 0; i < jobs.size(); ++i) {
        if (code_hash(compiled[i]) != record.kernels.at(jobs[i].kernel).object_hash)
            different.push_back(jobs[i].kernel);
    }
    return judge(jobs.size(), different, record);
}

CheckedRecord compare_objects(const PlannedTarget& target, const Config& config) {
    return compare(target.kernels, *target.found.record, config);
}

CheckedRecord compare_objects(const PlannedDevice& device, const Config& config) {
    return compare(device.kernels, *device.found.record, config);
}

CheckedRecord compile_and_compare(PlannedTarget& target, const Config& config,
                                  const CompilerVersions& versions, const WorkerOptions& options) {
    compile_compared(target.kernels, *target.found.record, config, versions, options);
    return compare_objects(target, config);
}

CheckedRecord compile_and_compare(PlannedDevice& device, const Config& config,
                                  const CompilerVersions& versions, const WorkerOptions& options) {
    compile_compared(device.kernels, *device.found.record, config, versions, options);
    return compare_objects(device, config);
}

std::string code_hash(const CompiledKernel& kernel) {
    std::string code = read_file(kernel.object);
    if (kernel.info.device_code_bytes > 0) code += read_file(device_code_file(kernel.object));
    return hash128_hex(code);
}

}  // namespace attnc
