#include "tests/cuda/driver/stand_in.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace attnc::stand_in {
namespace {

// Results of the driver.
enum : int {
    kSuccess = 0,
    kInvalidValue = 1,
    kOutOfMemory = 2,
    kNotInitialized = 3,
    kNoDevice = 100,
    kInvalidDevice = 101,
    kInvalidImage = 200,
    kInvalidContext = 201,
    kInvalidHandle = 400,
    kNotFound = 500,
};

constexpr int kHostMemory = 1;  // of a 2-D copy

// CUDA_MEMCPY2D, whose places in rows and arrays are not used.
struct Copy2D {
    size_t from_x, from_y;
    int from_type;
    const void* from_host;
    uint64_t from_device;
    void* from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_type;
    void* to_host;
    uint64_t to_device;
    void* to_array;
    size_t to_pitch, width, height;
};

struct Context {
    int device = 0;
    int64_t references = 0;  // of a primary one
    bool primary = false;
};

struct FunctionInfo {
    std::string name;
    std::vector<size_t> parameters;  // bytes of each
    struct ModuleInfo* module = nullptr;
    int shared_bytes = 48 << 10;  // that a launch may ask for
};

struct ModuleInfo {
    Context* context = nullptr;
    std::map<std::string, FunctionInfo> functions;
};

struct Stream {
    Context* context;
};

// A launch with parameters of its own.
struct Work {
    std::string function;
    Context* context;
    std::vector<std::vector<unsigned char>> parameters;
};

struct Range {
    uintptr_t begin, end;
    Context* context;
    bool has(uintptr_t address) const { return address >= begin && address < end; }
};

struct World {
    std::vector<DeviceSpec> devices = {{}};
    std::vector<std::unique_ptr<Context>> contexts;
    std::vector<Context*> primaries;
    std::vector<std::unique_ptr<Stream>> streams;
    std::map<void*, std::unique_ptr<ModuleInfo>> modules;
    std::vector<Range> allocated;
    std::vector<Range> freed;  // kept from being used again, the newest of them
    std::vector<Work> pending;
    std::vector<std::string> calls, faults;
    std::vector<Launch> launches;
    bool initialized = false;
    int64_t until_failure = 0;
    int failure = 0;
    bool failed = false;
};

std::recursive_mutex g_mutex;
World& world() {
    static World w;
    return w;
}
std::map<std::string, Code>& codes() {
    static std::map<std::string, Code> c;
    return c;
}
thread_local std::vector<Context*> t_stack;

Context* current() { return t_stack.empty() ? nullptr : t_stack.back(); }

int fault(int result, const std::string& text) {
    world().faults.push_back(text);
    return result;
}

// Every call begins with one: what it is called, and whether it is to fail.
class Call {
public:
    explicit Call(const char* name, bool needs_context = true) : lock_(g_mutex) {
        World& w = world();
        w.calls.emplace_back(name);
        if (w.until_failure > 0 && --w.until_failure == 0) {
            w.failed = true;
            result_ = w.failure;
        } else if (!w.initialized && std::strcmp(name, "cuInit") != 0) {
            result_ = fault(kNotInitialized, std::string(name) + " before cuInit");
        } else if (needs_context && current() == nullptr) {
            result_ = fault(kInvalidContext, std::string(name) + " without a context");
        }
    }
    explicit operator bool() const { return result_ == kSuccess; }
    int result() const { return result_; }

private:
    std::lock_guard<std::recursive_mutex> lock_;
    int result_ = kSuccess;
};

// Work of a context, or for null of all, in the order of its launches.
void do_work(const Context* context) {
    std::vector<Work> rest, now;
    for (Work& work : world().pending)
        (context == nullptr || work.context == context ? now : rest).push_back(std::move(work));
    world().pending = std::move(rest);
    for (Work& work : now) {
        const auto code = codes().find(work.function);
        if (code == codes().end()) continue;
        std::vector<void*> parameters;
        for (auto& bytes : work.parameters) parameters.push_back(bytes.data());
        code->second(parameters.data());
    }
}

bool has_work(const Context* context) {
    for (const Work& work : world().pending) {
        if (work.context == context) return true;
    }
    return false;
}

// Bytes of a parameter from its declaration: ".param .u64 .ptr .align 1 name" or ".param .align 8 .b8 name[96]".
size_t parameter_bytes(const std::string& text) {
    const size_t array = text.find('[');
    if (array != std::string::npos) return std::stoul(text.substr(array + 1));
    for (const char* type : {".u", ".s", ".b", ".f"}) {
        const size_t at = text.find(type);
        const size_t digits = at + 2;
        if (at != std::string::npos && std::isdigit(static_cast<unsigned char>(text[digits])) != 0)
            return std::stoul(text.substr(digits)) / 8;
    }
    return sizeof(uint64_t);
}

std::map<std::string, FunctionInfo> read_functions(const std::string& text) {
    std::map<std::string, FunctionInfo> functions;
    const std::string entry = ".entry ";
    for (size_t at = text.find(entry); at != std::string::npos; at = text.find(entry, at + 1)) {
        const size_t begin = at + entry.size(), open = text.find('(', begin), close = text.find(')', begin);
        if (open == std::string::npos || close == std::string::npos) break;
        FunctionInfo info;
        info.name = text.substr(begin, open - begin);
        while (!info.name.empty() && std::isspace(static_cast<unsigned char>(info.name.back())) != 0)
            info.name.pop_back();
        const std::string list = text.substr(open, close - open);
        const std::string parameter = ".param";
        for (size_t p = list.find(parameter); p != std::string::npos;) {
            const size_t next = list.find(parameter, p + 1);
            info.parameters.push_back(parameter_bytes(list.substr(p, next - p)));
            p = next;
        }
        functions[info.name] = info;
    }
    return functions;
}

// Rules of a launch; empty: none is broken.
std::string broken_rule(const FunctionInfo& f, const unsigned* grid, const unsigned* block, unsigned shared,
                        const Stream* stream) {
    constexpr unsigned kMostX = 0x7fffffff, kMost = 65535, kMostThreads = 1024;
    if (f.module->context != current()) return "its module is of another context";
    if (stream != nullptr && stream->context != current()) return "its stream is of another context";
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1 || grid[0] > kMostX || grid[1] > kMost || grid[2] > kMost)
        return "its grid is out of range";
    const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
    if (threads < 1 || threads > kMostThreads || block[2] > 64) return "its block is out of range";
    if (shared > static_cast<unsigned>(f.shared_bytes)) return "it asks for too much shared memory";
    return "";
}

// Gives the oldest freed memory back to the system, so that not too much is kept.
void forget_freed() {
    constexpr uintptr_t kMost = 64 << 20;
    std::vector<Range>& freed = world().freed;
    uintptr_t bytes = 0;
    for (const Range& range : freed) bytes += range.end - range.begin;
    while (!freed.empty() && bytes > kMost) {
        bytes -= freed.front().end - freed.front().begin;
        std::free(reinterpret_cast<void*>(freed.front().begin));
        freed.erase(freed.begin());
    }
}

bool is_freed(uintptr_t address) {
    for (const Range& range : world().freed) {
        if (range.has(address)) return true;
    }
    return false;
}

int check_copy(const char* name, uintptr_t address, size_t bytes) {
    for (const Range& range : world().allocated) {
        if (range.has(address) && address + bytes > range.end)
            return fault(kInvalidValue, std::string(name) + " past the end of an allocation");
    }
    return is_freed(address) ? fault(kInvalidValue, std::string(name) + " of freed memory") : kSuccess;
}

}  // namespace

void reset(const std::vector<DeviceSpec>& devices) {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    for (const auto* ranges : {&world().allocated, &world().freed}) {
        for (const Range& range : *ranges) std::free(reinterpret_cast<void*>(range.begin));
    }
    world() = World{};
    world().devices = devices;
    t_stack.clear();
}

std::vector<std::string> calls() {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    return world().calls;
}
std::vector<Launch> launches() {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    return world().launches;
}
void forget_calls() {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    world().calls.clear();
    world().launches.clear();
}
void fail_call(int64_t n, int result) {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    world().until_failure = n, world().failure = result, world().failed = false;
}
bool has_failed() {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    return world().failed;
}
Live live() {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    Live l = {static_cast<int64_t>(world().allocated.size()), static_cast<int64_t>(world().modules.size()),
              0};
    for (const auto& context : world().contexts) l.primary_contexts += context->references;
    return l;
}
std::vector<std::string> faults() {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    return world().faults;
}
void set_code(const std::string& function, Code code) {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    codes()[function] = code;
}
void* make_context(int device) {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    world().initialized = true;
    world().contexts.push_back(std::make_unique<Context>());
    world().contexts.back()->device = device;
    return world().contexts.back().get();
}
std::vector<void*> context_stack() { return {t_stack.begin(), t_stack.end()}; }
void push_context(void* context) { t_stack.push_back(static_cast<Context*>(context)); }
void* pop_context() {
    Context* top = t_stack.back();
    t_stack.pop_back();
    return top;
}
void* make_stream(void* context) {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    world().streams.push_back(std::make_unique<Stream>(Stream{static_cast<Context*>(context)}));
    return world().streams.back().get();
}
void synchronize() {
    const std::lock_guard<std::recursive_mutex> lock(g_mutex);
    do_work(nullptr);
}

}  // namespace attnc::stand_in

using namespace attnc::stand_in;

extern "C" {

int cuInit(unsigned flags) {
    const Call call("cuInit", false);
    if (!call) return call.result();
    if (flags != 0) return fault(kInvalidValue, "cuInit with flags");
    if (world().devices.empty()) return kNoDevice;
    world().initialized = true;
    return kSuccess;
}

int cuDeviceGetCount(int* count) {
    const Call call("cuDeviceGetCount", false);
    if (!call) return call.result();
    *count = static_cast<int>(world().devices.size());
    return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
    const Call call("cuDeviceGet", false);
    if (!call) return call.result();
    if (ordinal < 0 || ordinal >= static_cast<int>(world().devices.size())) return kInvalidDevice;
    *device = ordinal;
    return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
    const Call call("cuDeviceGetAttribute", false);
    if (!call) return call.result();
    if (device < 0 || device >= static_cast<int>(world().devices.size())) return kInvalidDevice;
    const DeviceSpec& spec = world().devices[static_cast<size_t>(device)];
    switch (attribute) {
        case 75:
            *value = spec.major;
            return kSuccess;
        case 76:
            *value = spec.minor;
            return kSuccess;
        case 97:
            *value = spec.shared_bytes;
            return kSuccess;
        default:
            return fault(kInvalidValue, "an attribute of devices that the stand-in doesn't know");
    }
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
    const Call call("cuDevicePrimaryCtxRetain", false);
    if (!call) return call.result();
    World& w = world();
    w.primaries.resize(w.devices.size(), nullptr);
    Context*& primary = w.primaries.at(static_cast<size_t>(device));
    if (primary == nullptr) {
        primary = static_cast<Context*>(make_context(device));
        primary->primary = true;
    }
    ++primary->references;
    *context = primary;
    return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    const Call call("cuDevicePrimaryCtxRelease_v2", false);
    if (!call) return call.result();
    Context* primary = world().primaries.at(static_cast<size_t>(device));
    if (primary == nullptr || primary->references == 0)
        return fault(kInvalidContext, "a primary context is released that nobody retains");
    --primary->references;
    return kSuccess;
}

int cuCtxGetCurrent(void** context) {
    const Call call("cuCtxGetCurrent", false);
    if (!call) return call.result();
    *context = current();
    return kSuccess;
}

int cuCtxPushCurrent_v2(void* context) {
    const Call call("cuCtxPushCurrent_v2", false);
    if (!call) return call.result();
    t_stack.push_back(static_cast<Context*>(context));
    return kSuccess;
}

// Pops even where it is to fail: the driver reports errors of earlier work by any call.
int cuCtxPopCurrent_v2(void** context) {
    const Call call("cuCtxPopCurrent_v2", false);
    if (t_stack.empty()) return fault(kInvalidContext, "a context is popped that isn't there");
    *context = t_stack.back();
    t_stack.pop_back();
    return call.result();
}

int cuCtxGetDevice(int* device) {
    const Call call("cuCtxGetDevice");
    if (!call) return call.result();
    *device = current()->device;
    return kSuccess;
}

int cuCtxSynchronize() {
    const Call call("cuCtxSynchronize");
    if (!call) return call.result();
    do_work(current());
    return kSuccess;
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    const Call call("cuMemAlloc_v2");
    if (!call) return call.result();
    if (bytes == 0) return fault(kInvalidValue, "an allocation of no bytes");
    constexpr size_t kAlignment = 256;
    void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (memory == nullptr) return kOutOfMemory;
    std::memset(memory, 0xff, bytes);  // NaN: nobody counts on zeros
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    const Range range = {begin, begin + bytes, current()};
    world().allocated.push_back(range);
    *address = begin;
    return kSuccess;
}

int cuMemFree_v2(uint64_t address) {
    const Call call("cuMemFree_v2");
    if (!call) return call.result();
    auto& allocated = world().allocated;
    for (size_t i = 0; i < allocated.size(); ++i) {
        if (allocated[i].begin != address) continue;
        if (has_work(allocated[i].context))
            world().faults.emplace_back("memory is freed while work is pending");
        world().freed.push_back(allocated[i]);
        allocated.erase(allocated.begin() + static_cast<std::ptrdiff_t>(i));
        forget_freed();
        return kSuccess;
    }
    return fault(kInvalidValue, "memory is freed that isn't allocated");
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
    const Call call("cuMemcpyHtoDAsync_v2");
    if (!call) return call.result();
    if (const int result = check_copy("a copy", to, bytes); result != kSuccess) return result;
    do_work(current());
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return kSuccess;
}

int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
    const Call call("cuMemcpyDtoHAsync_v2");
    if (!call) return call.result();
    if (const int result = check_copy("a copy", from, bytes); result != kSuccess) return result;
    do_work(current());
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return kSuccess;
}

// The only form of a 2-D copy that there is: the others are free to refuse pitches within the device.
int cuMemcpy2DUnaligned_v2(const Copy2D* copy) {
    const Call call("cuMemcpy2DUnaligned_v2");
    if (!call) return call.result();
    constexpr size_t kMostPitch = 0x7fffffff;
    if (copy->width > copy->from_pitch || copy->width > copy->to_pitch || copy->from_pitch > kMostPitch ||
        copy->to_pitch > kMostPitch || copy->width == 0 || copy->height == 0) {
        return fault(kInvalidValue, "a 2-D copy whose rows overlap, are too far apart or are none");
    }
    const bool from_here = copy->from_type == kHostMemory, to_here = copy->to_type == kHostMemory;
    const auto from = from_here ? reinterpret_cast<uintptr_t>(copy->from_host) : uintptr_t{copy->from_device};
    const auto to = to_here ? reinterpret_cast<uintptr_t>(copy->to_host) : uintptr_t{copy->to_device};
    for (size_t row = 0; row < copy->height; ++row) {
        const uintptr_t row_from = from + row * copy->from_pitch, row_to = to + row * copy->to_pitch;
        for (const auto& [address, here] : {std::pair{row_from, from_here}, std::pair{row_to, to_here}}) {
            if (here) continue;
            if (const int result = check_copy("a 2-D copy", address, copy->width); result != kSuccess)
                return result;
        }
        if (row == 0) do_work(current());
        std::memmove(reinterpret_cast<void*>(row_to), reinterpret_cast<const void*>(row_from), copy->width);
    }
    return kSuccess;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void*) {
    const Call call("cuMemsetD8Async");
    if (!call) return call.result();
    if (const int result = check_copy("a memset", to, bytes); result != kSuccess) return result;
    do_work(current());
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return kSuccess;
}

int cuStreamSynchronize(void*) {
    const Call call("cuStreamSynchronize");
    if (!call) return call.result();
    do_work(current());
    return kSuccess;
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
    const Call call("cuModuleLoadDataEx");
    if (!call) return call.result();
    auto info = std::make_unique<ModuleInfo>();
    info->context = current();
    const std::string text = static_cast<const char*>(image);
    if (text.find(".version") == std::string::npos) return fault(kInvalidImage, "an image is not PTX");
    info->functions = read_functions(text);
    for (auto& [name, function] : info->functions) function.module = info.get();
    *module = info.get();
    void* key = info.get();
    world().modules[key] = std::move(info);
    return kSuccess;
}

int cuModuleUnload(void* module) {
    const Call call("cuModuleUnload");
    if (!call) return call.result();
    const auto found = world().modules.find(module);
    if (found == world().modules.end())
        return fault(kInvalidHandle, "a module is unloaded that isn't loaded");
    if (has_work(found->second->context))
        world().faults.emplace_back("code is unloaded while work is pending");
    world().modules.erase(found);
    return kSuccess;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
    const Call call("cuModuleGetFunction");
    if (!call) return call.result();
    auto& functions = world().modules.at(module)->functions;
    const auto found = functions.find(name);
    if (found == functions.end()) return kNotFound;
    *function = &found->second;
    return kSuccess;
}

int cuFuncSetAttribute(void* function, int attribute, int value) {
    const Call call("cuFuncSetAttribute");
    if (!call) return call.result();
    if (attribute != 8)
        return fault(kInvalidValue, "an attribute of functions that the stand-in doesn't know");
    if (value > world().devices.at(static_cast<size_t>(current()->device)).shared_bytes)
        return fault(kInvalidValue, "more shared memory is asked for than there is");
    static_cast<FunctionInfo*>(function)->shared_bytes = value;
    return kSuccess;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                   void** extra) {
    const Call call("cuLaunchKernel");
    if (!call) return call.result();
    const auto& info = *static_cast<const FunctionInfo*>(function);
    const Launch launch = {
        info.name, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, current()};
    const std::string broken =
        broken_rule(info, launch.grid, launch.block, shared_bytes, static_cast<const Stream*>(stream));
    if (!broken.empty()) return fault(kInvalidValue, info.name + ": " + broken);
    if (extra != nullptr) return fault(kInvalidValue, info.name + ": extra is not null");
    Work work = {info.name, current(), {}};
    for (size_t i = 0; i < info.parameters.size(); ++i) {
        const auto* bytes = static_cast<const unsigned char*>(parameters[i]);
        work.parameters.emplace_back(bytes, bytes + info.parameters[i]);
        uint64_t address = 0;
        if (info.parameters[i] != sizeof address) continue;
        std::memcpy(&address, bytes, sizeof address);
        if (is_freed(address)) world().faults.push_back(info.name + " is launched on freed memory");
    }
    world().pending.push_back(std::move(work));
    world().launches.push_back(launch);
    return kSuccess;
}

int cuGetErrorName(int result, const char** name) {
    const std::pair<int, const char*> names[] = {
        {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},     {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
        {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"}, {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
        {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},   {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
        {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"}, {kNotFound, "CUDA_ERROR_NOT_FOUND"},
        {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},   {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
    for (const auto& [number, text] : names) {
        if (number != result) continue;
        *name = text;
        return kSuccess;
    }
    return kInvalidValue;
}

}  // extern "C"
