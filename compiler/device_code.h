// The device's part of a compiled kernel: Halide embeds it into the host's object, a library has it in its table.
#pragma once

#include <Halide.h>

#include <string>

#include "compiler/kernel_job.h"

namespace attnc {

// The PTX of a module for CUDA, with job.registers as its limit, and the module without it: its host code then names a buffer
// of one byte, and the runtime's launcher doesn't look at it. A twin's
// source in OpenCL stays in the module; its PTX has no functions.
// Throws std::runtime_error where there is no such code.
std::string take_device_code(Halide::Module& module, const KernelJob& job);

}  // namespace attnc
