// A tuning record: the whole schedule that was found for a layer at some sizes, for one instruction set and machine, or
// one architecture of devices, and what was measured then. One line of JSON. What is measured is for choosing between records and for people; what
// a library is compiled from is the schedule alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/cpu_params.h"
#include "schedules/cuda_params.h"
#include "stages/config.h"

namespace attnc {

// What of a machine decides which schedule is good. Of a device: its name, multiprocessors, and bytes of shared memory of
// each and of L2.
struct Machine {
    std::string cpu = "unknown";                        // model, as the operating system names it
    int64_t cpus = 1;                                   // logical ones
    int64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // caches of data that a core sees; 0: unknown
    bool operator==(const Machine&) const = default;
};

// What an assembler made of a device's kernel.
struct AssembledKernel {
    int64_t registers = 0;     // of a thread
    int64_t spill_bytes = 0;   // stored or loaded, whichever are more
    int64_t stack_bytes = 0;   // of a thread
    int64_t shared_bytes = 0;  // of a block
    bool operator==(const AssembledKernel&) const = default;
};

// One kernel of the library that was measured.
struct KernelResult {
    double seconds = 0;       // median of the calls that its candidates were judged by
    double spread = 0;        // of those samples, relative to the median: 0.01 is one percent
    int64_t samples = 0;      // 0: compiled, but not timed alone; then there are no seconds either
    std::string object_hash;  // hash128_hex of the object file, for a device with the PTX behind it
    std::optional<AssembledKernel> assembled;  // for a device's architecture, where there was an assembler
    bool operator==(const KernelResult&) const = default;
};

// The whole layer at one of the sizes.
struct CallResult {
    double ms = 0;            // median
    double spread = 0;        // relative to the median
    int64_t samples = 0;      // at least 1
    double probe_gflops = 0;  // multiply-adds in registers, on the same threads between the calls
    bool operator==(const CallResult&) const = default;
};

// Why a schedule was settled on.
inline constexpr const char* kEfforts[] = {"estimate", "quick", "measure", "patient"};

struct TuningRecord {
    Config config;             // complete
    std::vector<Sizes> sizes;  // that it was tuned for, at least one; in ascending order, each once
    std::string target;        // of a CPU by Halide's name; of devices cuda_target's
    Machine machine;
    int64_t threads = 1;  // that calls ran on
    CpuSchedule schedule;
    std::optional<CudaSchedule> cuda_schedule;    // of a device: then `schedule` says nothing
    std::map<std::string, KernelResult> kernels;  // by kernel_name, for a device by device_kernel_name
    std::map<std::string, CallResult> calls;      // by to_string(Sizes), of `sizes`
    std::string attnc, halide, llvm;              // versions
    std::string date;                             // "2026-03-01T12:00:00Z"
    std::string effort;                           // one of kEfforts
    bool operator==(const TuningRecord&) const = default;
};

// A line that is no record: what() says why, without file and line.
struct RecordError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline bool is_of_device(const TuningRecord& record) { return record.cuda_schedule.has_value(); }

// Ascending, each once: the order of TuningRecord::sizes.
void sort_sizes(std::vector<Sizes>& sizes);

// What decides, of two records, whether both may stay in a database: configuration, target, machine, threads and
// sizes. Also the order of records in a file. Fields end in line feeds, which none of them has.
std::string record_key(const TuningRecord& record);

// Without the line feed. Measured numbers are kept to 5 digits, so that parse_record undoes it but for those. Throws
// RecordError for a record that parse_record would refuse.
std::string to_json_line(const TuningRecord& record);

// Takes lines from anywhere. A record is complete and of this format or it is refused; whether its schedule is valid
// here is check_schedule's or cuda_schedule_fault's to say, since rules change from version to version. Throws RecordError.
TuningRecord parse_record(std::string_view line);

}  // namespace attnc
