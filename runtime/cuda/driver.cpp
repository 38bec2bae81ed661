#include "runtime/cuda/driver.h"

#include <dlfcn.h>

#include "runtime/text.h"

namespace attnc::cuda {

attnc_status load_driver(attnc_error* error, Driver* driver) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        return fail(error, ATTNC_NO_DEVICE, {"there is no CUDA driver: libcuda.so.1 is not found"});
    const struct {
        const char* name;
        void* function;  // where its address goes
    } functions[] = {
#define ATTNC_X(name, parameters) {"cu" #name, &driver->name},
        ATTNC_CUDA_FUNCTIONS(ATTNC_X)
#undef ATTNC_X
    };
    for (const auto& f : functions) {
        void* address = dlsym(library, f.name);
        if (address == nullptr)
            return fail(error, ATTNC_NO_DEVICE, {"the CUDA driver is too old: it has no ", f.name});
        __builtin_memcpy(f.function, static_cast<const void*>(&address), sizeof address);
    }
    return ATTNC_OK;
}

attnc_status check_result(attnc_error* error, const Driver& driver, Result result, const char* function,
                          const char* what) {
    if (result == kSuccess) return ATTNC_OK;
    const char* name = nullptr;
    if (driver.GetErrorName(result, &name) != kSuccess || name == nullptr) name = "an error without a name";
    const attnc_status status = result == kOutOfMemory ? ATTNC_OUT_OF_MEMORY
                                : result == kNoDevice  ? ATTNC_NO_DEVICE
                                                       : ATTNC_DEVICE_FAILED;
    return fail(error, status,
                {function, what != nullptr ? " of " : "", what != nullptr ? what : "", " failed: ", name,
                 " (", result, ")"});
}

attnc_status allocate_memory(attnc_error* error, const Driver& driver, const char* what, size_t bytes,
                             Address* address) {
    const Result result = driver.MemAlloc_v2(address, bytes);
    if (result == kOutOfMemory)
        return fail(error, ATTNC_OUT_OF_MEMORY, {"no memory on the device for ", what, bytes, " bytes"});
    return check_result(error, driver, result, "cuMemAlloc_v2");
}

}  // namespace attnc::cuda
