#include "tests/command/tuned_records.h"

#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/kernel_workers.h"
#include "compiler/library_plan.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {

TuningRecord small_record(int64_t tile_kv) {
    TuningRecord record;
    record.config = parse_config("d32_h2_f32_nomask_noprobs");
    record.sizes = {parse_sizes("b1_q40_kv40")};
    record.target = "x86-64-linux";
    record.machine = {.cpu = "Test CPU", .cpus = 2, .l1d_bytes = 32768, .l2_bytes = 1048576, .l3_bytes = 0};
    record.schedule = default_schedule(record.config, record.target);
    record.schedule.layout.tile_kv = tile_kv;
    record.calls["b1_q40_kv40"] = {.ms = 0.25, .spread = 0.01, .samples = 20, .probe_gflops = 20};
    record.attnc = "0.1.0";
    record.halide = "21.0.0";
    record.llvm = "21.1";
    record.date = "2026-03-01T12:00:00Z";
    record.effort = "measure";
    return record;
}

TuningRecord compiled_record(int64_t tile_kv) {
    TuningRecord record = small_record(tile_kv);
    const TestFolder folder;
    std::vector<KernelJob> jobs;
    for (const int kernel : kernels_of(record.config)) {
        if (!has_kernel(record.schedule, kernel)) continue;
        jobs.push_back(kernel_job(record.config, record.target, record.schedule, kernel));
    }
    const WorkerOptions options = {.attnc = attnc_command(),
                                   .cache = test_kernel_cache(),
                                   .folder = folder.path(),
                                   .emit = {},
                                   .progress = {}};
    const std::vector<CompiledKernel> kernels = compile_kernels(jobs, versions_of(attnc_command()), options);
    for (size_t i = 0; i < jobs.size(); ++i)
        record.kernels[jobs[i].kernel].object_hash = hash128_hex(read_file(kernels[i].object));
    return record;
}

std::string line_of(const TuningRecord& record) { return to_json_line(record) + "\n"; }

}  // namespace attnc::test
