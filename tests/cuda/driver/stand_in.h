// A stand-in for CUDA's driver: a shared library with its name that records calls and enforces its rules. Memory of a device
// is memory of the host. Launched work is done where a program waits for it, in order, by functions that tests name; until
// then it is pending, so that what is freed too early is seen. A program links it, or loads it by its path with RTLD_GLOBAL
// before the first layer on a device is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace attnc::stand_in {

struct Launch {
    std::string function;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    void* stream;
    void* context;
};

struct DeviceSpec {
    int major = 8, minor = 0;
    int shared_bytes = 163 << 10;  // the most of a block of threads that asks for it
};

// As if the process had just begun, with these devices. Contexts of the calling thread's stack are forgotten.
void reset(const std::vector<DeviceSpec>& devices = {{}});

// Names of all calls since the last reset or forget, but for cuGetErrorName; and the launches among them.
std::vector<std::string> calls();
std::vector<Launch> launches();
void forget_calls();

// The n-th call from now on, from 1 on, returns this result and does nothing; 0: none does.
void fail_call(int64_t n, int result);
bool has_failed();  // since fail_call

// What nobody has given back yet.
struct Live {
    int64_t allocations, modules, primary_contexts;
    bool operator==(const Live&) const = default;
};
Live live();

// Sentences on broken rules: memory freed while work is pending, work on freed memory, no context, too large a grid.
std::vector<std::string> faults();

// The work of a function of the device, given the parameters of a launch.
using Code = void (*)(void** parameters);
void set_code(const std::string& function, Code code);

void* make_context(int device);      // current on no thread
std::vector<void*> context_stack();  // of the calling thread, innermost last
void push_context(void* context);
void* pop_context();
void* make_stream(void* context);
void synchronize();  // does all pending work of all contexts; not a call

}  // namespace attnc::stand_in
