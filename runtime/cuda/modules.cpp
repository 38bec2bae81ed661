#include "runtime/cuda/modules.h"

#include <string.h>

#include "runtime/text.h"

namespace attnc::cuda {
namespace {

constexpr int64_t kLeastArchitecture = 70;    // of the PTX that libraries have
constexpr int kAlwaysSharedBytes = 48 << 10;  // of a block on every device, without asking

// The newest cubin that the device runs, or the PTX: a cubin runs on its own compute capability and on those with the same major
// number and a higher minor one.
const attnc_device_image& choose_image(const attnc_device_kernel& kernel, int64_t architecture) {
    const attnc_device_image* chosen = &kernel.images[kernel.image_count - 1];
    for (int64_t i = 0; i + 1 < kernel.image_count; ++i) {
        const attnc_device_image& cubin = kernel.images[i];
        const bool runs = cubin.architecture / 10 == architecture / 10 && cubin.architecture <= architecture;
        if (runs && cubin.architecture > chosen->architecture) chosen = &cubin;
    }
    return *chosen;
}

bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
}

// Names of the functions that can be launched, from the PTX: ".visible .entry NAME(". False: there are too many.
bool read_names(const attnc_device_image& ptx, KernelModule* module) {
    constexpr char kEntry[] = ".entry ";
    constexpr auto kLength = static_cast<int64_t>(sizeof kEntry) - 1;
    const auto* text = static_cast<const char*>(ptx.data);
    for (int64_t i = 0; i + kLength < ptx.bytes; ++i) {
        if (memcmp(text + i, kEntry, static_cast<size_t>(kLength)) != 0) continue;
        if (module->count == kMostFunctions) return false;
        i += kLength;
        const int64_t begin = i;
        while (i < ptx.bytes && is_name(text[i])) ++i;
        module->functions[module->count++] = {text + begin, i - begin, nullptr};
    }
    return true;
}

constexpr int64_t kMostName = 200;

attnc_status look_up(attnc_error* error, const Driver& driver, const DeviceLimits& limits, const char* kernel,
                     Module module, DeviceFunction* function) {
    char name[kMostName + 1] = {};
    memcpy(name, function->name, static_cast<size_t>(function->name_length));
    ATTNC_TRY(check_result(error, driver, driver.ModuleGetFunction(&function->function, module, name),
                           "cuModuleGetFunction", kernel));
    if (limits.shared_bytes <= kAlwaysSharedBytes) return ATTNC_OK;
    return check_result(error, driver,
                        driver.FuncSetAttribute(function->function, kMaxDynamicSharedBytes,
                                                static_cast<int>(limits.shared_bytes)),
                        "cuFuncSetAttribute", kernel);
}

}  // namespace

attnc_status read_limits(attnc_error* error, const Driver& driver, Device device, DeviceLimits* limits) {
    int major = 0, minor = 0, shared = 0;
    ATTNC_CUDA_TRY(error, driver, DeviceGetAttribute, (&major, kComputeCapabilityMajor, device));
    ATTNC_CUDA_TRY(error, driver, DeviceGetAttribute, (&minor, kComputeCapabilityMinor, device));
    ATTNC_CUDA_TRY(error, driver, DeviceGetAttribute, (&shared, kSharedBytesOptIn, device));
    *limits = {int64_t{major} * 10 + minor, shared};
    if (limits->architecture >= kLeastArchitecture) return ATTNC_OK;
    return fail(error, ATTNC_NO_DEVICE,
                {"device ", device, " has compute capability ", major, ".", minor, ", wanted 7.0 or more"});
}

attnc_status load_module(attnc_error* error, const Driver& driver, const DeviceLimits& limits,
                         const attnc_device_kernel& kernel, const char* name, KernelModule* module) {
    *module = {};
    bool whole = read_names(kernel.images[kernel.image_count - 1], module);
    for (int i = 0; i < module->count; ++i) whole = whole && module->functions[i].name_length <= kMostName;
    if (!whole) return fail(error, ATTNC_BAD_LIBRARY, {"the library's code of kernel ", name, " is corrupt"});
    const attnc_device_image& image = choose_image(kernel, limits.architecture);
    ATTNC_TRY(check_result(error, driver,
                           driver.ModuleLoadDataEx(&module->module, image.data, 0, nullptr, nullptr),
                           "cuModuleLoadDataEx", name));
    for (int i = 0; i < module->count; ++i)
        ATTNC_TRY(look_up(error, driver, limits, name, module->module, &module->functions[i]));
    return ATTNC_OK;
}

const DeviceFunction* find_function(const KernelModule& module, const char* name) {
    int64_t length = 0;
    while (name[length] != 0) ++length;
    for (int i = 0; i < module.count; ++i) {
        const DeviceFunction& f = module.functions[i];
        if (f.name_length == length && memcmp(f.name, name, static_cast<size_t>(length)) == 0) return &f;
    }
    return nullptr;
}

}  // namespace attnc::cuda
