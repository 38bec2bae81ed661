// Which schedule a layer gets: from the records that there are, in a fixed order of where they come from, or the
// built-in default. Each step says what came of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/tuning_record.h"

namespace attnc {

// Where records come from, in the order in which they are asked.
enum class RecordOrigin {
    kOption,   // a file named by --db
    kProject,  // attnc.tuning.jsonl of the project
    kShipped,  // files that come with attnc
};

struct RecordSource {
    RecordOrigin origin = RecordOrigin::kOption;
    std::string file;  // its name without folders; what is said of it must not depend on where it lies
    std::vector<TuningRecord> records;
};

struct LookupRequest {
    Config config;  // complete
    std::string target;
    std::vector<Sizes> sizes;  // that the library is for; empty: any
    Machine machine;           // that it is for
};

// One line of `attnc explain`.
struct LookupStep {
    std::string asked;    // "project attnc.tuning.jsonl"
    std::string outcome;  // "no record of d512_h8_f32"
    bool taken = false;
};

// Where a schedule is from.
struct FoundRecord {
    std::optional<TuningRecord> record;           // none: the default
    RecordOrigin origin = RecordOrigin::kOption;  // of the record
    std::string file;                             // of the record
    std::vector<LookupStep> steps;                // the last one is taken
};
struct FoundSchedule : FoundRecord {
    CpuSchedule schedule;
};
struct FoundCudaSchedule : FoundRecord {
    CudaSchedule schedule;
};

// Asked in this order, each step only where the ones before it have nothing that is valid:
//   1. each file of --db, in the order given: records of this configuration and target
//   2. the project's file: the same
//   3. shipped records of this machine, of this configuration and target
//   4. whatever is nearest on this target: any source, machine, and configuration with heads of these widths
//   5. the default
// Within a step the nearest is taken: machine, sizes and configuration count together. Records whose
// schedule check_schedule refuses here are passed over.
FoundSchedule look_up(const LookupRequest& request, const std::vector<RecordSource>& sources);

// A library for a device has one schedule for all architectures that it has code for.
struct DeviceLookupRequest {
    Config config;                   // complete
    std::vector<int> architectures;  // of its cubins, in ascending order; empty: PTX alone
    std::vector<Sizes> sizes;        // that the library is for; empty: any
};
// The same steps. An architecture stands for the machine, whichever device of it a record is of. Within a step records of the
// newest architecture come first, of no architecture last, and the others are passed over; a record is valid that
// cuda_schedule_fault accepts for all the architectures.
FoundCudaSchedule look_up_device(const DeviceLookupRequest& request,
                                 const std::vector<RecordSource>& sources);

// 0 for the same machine, else how far caches are apart, and names.
bool is_same_machine(const Machine& a,
                     const Machine& b);  // model, L1 and L2; the rest is as a virtual machine has it
double machine_distance(const Machine& a, const Machine& b);

// 0 where `tuned` has exactly the sizes that are wanted. Counts doublings: of queries, keys, and less so of the batch.
double sizes_distance(const std::vector<Sizes>& wanted, const std::vector<Sizes>& tuned);

// 0 for the same configuration; nothing for one whose heads have other widths, since schedules are chosen by them.
std::optional<double> config_distance(const Config& a, const Config& b);

// "d512_h8_f32 at b1_q128_kv128 on Some CPU, 1 thread, quick, 2026-03-01": what a person wants to know of a record. A
// device has no threads there.
std::string describe_record(const TuningRecord& record);
// "b1_q128_kv128 b32_q50_kv50"
std::string describe_sizes(const std::vector<Sizes>& sizes);

}  // namespace attnc
