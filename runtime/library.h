// What the runtime asks of a library's table before it trusts it, and the choice of a target.
#pragma once

#include "runtime/attnc.h"
#include "runtime/kernel_abi.h"

namespace attnc {

// ABI version, configuration, and for each target, of CPUs and of a device: layout, and that every kernel the
// configuration calls is there and takes no argument that the runtime doesn't give it.
attnc_status check_library(attnc_error* error, const attnc_library* library);

// A target of a library: one of these is null.
struct ChosenTarget {
    const attnc_target_entry* cpu = nullptr;
    const attnc_device_entry* device = nullptr;
};

// The target named, or for null the first that this CPU and operating system can run; of a library without one for a CPU its
// device.
attnc_status choose_target(attnc_error* error, const attnc_library* library, const char* name,
                           ChosenTarget* chosen);

const char* name_of_kernel(int kernel);  // "attend"

}  // namespace attnc
