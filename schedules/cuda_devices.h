// What is known of CUDA devices: the architectures that there is code for, their names as targets of records and of
// `--target`, the limits of a block of threads, and one device of each, by which schedules are estimated. No Halide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

// Compute capabilities that cubins can be for, in ascending order: 80 is sm_80.
const std::vector<int>& cuda_architectures();

// Of code that is made for no architecture: PTX, which a driver assembles.
inline constexpr int kNoArchitecture = 0;

// "cuda-sm_80"; "cuda" for kNoArchitecture.
std::string cuda_target(int architecture);
// The other way; nothing for a name that is none of these.
std::optional<int> cuda_target_architecture(std::string_view target);

struct CudaDevice {
    // Limits of a block on an architecture, and what a multiprocessor has for all blocks on it.
    int64_t block_shared_bytes;  // of one block, opted in
    int64_t shared_bytes, registers, threads, blocks;

    // Of one device of the architecture.
    std::string_view name;
    int64_t multiprocessors;
    int64_t lanes;  // f32 multiply-adds of a multiprocessor in a cycle
    double l2_bytes,
        memory_bytes;  // in a cycle: what a multiprocessor reads of L2, and all of them of memory
    int64_t l2_size;   // in bytes
};
// By compute capability. For code that is not made for one (70 or kNoArchitecture) the limits are what all from 80 on
// have: sm_75 has 64 KiB of shared memory, which heads of common sizes don't need.
CudaDevice cuda_device(int capability);

// The capability that a Halide target names, 70 if none. Throws ConfigError for a target that isn't one of CUDA.
int cuda_capability(std::string_view target);

}  // namespace attnc
