// Kernels for a device in plain C++: host code that checks every buffer against runtime/device_abi.h and launches through the
// runtime's hooks, as generated code does, and functions that do the work of a launch. With them and a stand-in for the driver
// the runtime's side of a device is tested without generated code.
#pragma once

#include <string>
#include <vector>

#include "runtime/kernel_abi.h"
#include "stages/config.h"

namespace attnc::test {

struct FakeDeviceLayout {
    int64_t panel = 32, out_panel = 32, depth = 8, decode_rows = 2;
};
// Keys of a block and of a split.
inline constexpr int64_t kFakeDeviceTile = 16;
inline constexpr int64_t kFakeDeviceSplit = 32;

// A library's entry for a device, with all that it points to. Its images are PTX with the functions' names and parameters, and
// a cubin of architecture 80.
class FakeDevice {
public:
    FakeDevice(const Config& config, const FakeDeviceLayout& layout);
    FakeDevice(const FakeDevice&) = delete;
    FakeDevice& operator=(const FakeDevice&) = delete;
    attnc_device_entry& entry() { return entry_; }

private:
    std::vector<std::string> code_;
    std::vector<attnc_device_image> images_;
    attnc_device_entry entry_{};
};

// The functions of all kernels: what a launch of each does, given its parameters.
struct FakeDeviceFunction {
    std::string name;
    void (*code)(void** parameters);
};
std::vector<FakeDeviceFunction> fake_device_functions();

// What launched functions count as they run, since the last reset.
struct FakeDeviceCounts {
    int64_t rows_projected = 0;    // that are computed, times panels
    int64_t heads_done_again = 0;  // heads of items that attend_guarded found suspect
};
FakeDeviceCounts& fake_device_counts();

}  // namespace attnc::test
