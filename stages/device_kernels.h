// The kernels of a library for a device: which a configuration needs, their names, and what each is compiled from. The
// same for a device as kernels_of and its neighbours in config.h are for CPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stages/config.h"

namespace attnc {

// Kernels (ATTNC_DEVICE_KERNEL_*) that a library of this configuration holds for a device, in the table's order.
std::vector<int> device_kernels_of(const Config& config);
const char* device_kernel_name(int kernel);        // "attend"
int device_kernel_by_name(std::string_view name);  // throws ConfigError for an unknown name

// What the kernel's code depends on, as parse_kernel_config reads it.
std::string device_kernel_config(const Config& config, int kernel);

// Symbol of a kernel inside a library before names become local: "attnc_device_attend". CPUs' have the target behind.
std::string device_kernel_symbol(int kernel);

}  // namespace attnc
