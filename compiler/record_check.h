// Whether a tuning record still stands for the code that was measured: its kernels are compiled, and their objects
// compared with its hashes.
#pragma once

#include <string>
#include <vector>

#include "compiler/kernel_workers.h"
#include "compiler/library_plan.h"
#include "schedules/tuning_record.h"

namespace attnc {

enum class RecordState {
    kOk,          // every kernel is the one that was measured
    kUnverified,  // valid, but some are not, or it names none
    kInvalid,     // its schedule is refused
};
struct CheckedRecord {
    RecordState state = RecordState::kOk;
    std::string reason;  // of what isn't ok
};
const char* state_name(RecordState state);  // "unverified"

// Why its schedule can't be used here even for its own layer; empty if it can.
std::string refusal_of(const TuningRecord& record);

// By compiling in workers. Throws Interrupted, or std::runtime_error if no kernel can be compiled at all.
CheckedRecord check_record(const TuningRecord& record, const CompilerVersions& versions,
                           const WorkerOptions& options);

// Of a planned target's record, for a layer of `config`, by the kernels that are compiled already. A record of another
// configuration is compared in the kernels that both have.
CheckedRecord compare_objects(const PlannedTarget& target, const Config& config);
CheckedRecord compare_objects(const PlannedDevice& device, const Config& config);

// The same where nothing is compiled yet: compiles what is compared.
CheckedRecord compile_and_compare(PlannedTarget& target, const Config& config,
                                  const CompilerVersions& versions, const WorkerOptions& options);
CheckedRecord compile_and_compare(PlannedDevice& device, const Config& config,
                                  const CompilerVersions& versions, const WorkerOptions& options);

// The hash that a record has of a compiled kernel: of its object, for a device with the PTX behind it.
std::string code_hash(const CompiledKernel& kernel);

}  // namespace attnc
