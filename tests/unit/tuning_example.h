// A tuning record to change and compare.
#pragma once

#include <string>

#include "schedules/tuning_record.h"

namespace attnc::test {

inline TuningRecord example_record() {
    constexpr const char* kHash = "0123456789abcdef0123456789abcdef";
    TuningRecord record;
    record.config = parse_config("d512_h8_f32");
    record.sizes = {parse_sizes("b1_q128_kv128"), parse_sizes("b32_q50_kv50")};
    record.target = "x86-64-linux-avx2-fma-f16c";
    record.machine = {
        .cpu = "Some CPU @ 2 GHz", .cpus = 4, .l1d_bytes = 49152, .l2_bytes = 2097152, .l3_bytes = 0};
    record.threads = 2;
    record.schedule = default_schedule(record.config, record.target);
    record.kernels["attend"] = {.seconds = 1.25e-4, .spread = 0.01, .samples = 30, .object_hash = kHash};
    record.kernels["attend_merge"] = {.object_hash = kHash};
    record.calls["b1_q128_kv128"] = {.ms = 1.5, .spread = 0, .samples = 9, .probe_gflops = 178.5};
    record.attnc = "0.1.0";
    record.halide = "21.0.0";
    record.llvm = "21.1";
    record.date = "2026-03-01T12:00:00Z";
    record.effort = "quick";
    return record;
}

// Of a device: estimated, with what an assembler made of two kernels.
inline TuningRecord device_record(const std::string& target = "cuda-sm_80") {
    TuningRecord record = example_record();
    record.target = target;
    record.machine = {
        .cpu = "NVIDIA A100", .cpus = 108, .l1d_bytes = 167936, .l2_bytes = 41943040, .l3_bytes = 0};
    record.threads = 1;
    record.schedule = {};
    record.cuda_schedule = default_cuda_schedule(record.config);
    const std::string hash = record.kernels.at("attend").object_hash;
    record.kernels.clear();
    record.kernels["attend"] = {
        .object_hash = hash,
        .assembled =
            AssembledKernel{.registers = 168, .spill_bytes = 0, .stack_bytes = 0, .shared_bytes = 25600}};
    record.kernels["attend_guarded"] = {.object_hash = hash};
    record.calls.clear();
    record.effort = "estimate";
    return record;
}

// All of its sizes timed, at this many milliseconds.
inline TuningRecord measured_record(double ms) {
    TuningRecord record = example_record();
    for (const Sizes& sizes : record.sizes) {
        record.calls[to_string(sizes)] = {.ms = ms, .spread = 0.01, .samples = 9, .probe_gflops = 100};
    }
    return record;
}

}  // namespace attnc::test
