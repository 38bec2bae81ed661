// What the runtime asks of a library's entry for a device before it trusts it.
#pragma once

#include "runtime/attnc.h"
#include "runtime/kernel_abi.h"

namespace attnc {

// Layout, and that every kernel the configuration calls is there, has code, and takes no argument that the runtime doesn't
// give it.
attnc_status check_device_entry(attnc_error* error, const attnc_device_entry& entry,
                                const attnc_config& config);

// Whether forward of this configuration can call the kernel.
bool device_calls(int64_t flags, int kernel);

const char* name_of_device_kernel(int kernel);  // "attend"

}  // namespace attnc
