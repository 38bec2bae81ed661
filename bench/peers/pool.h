// The threads that attnc's layer, the naive one and the probe share.
#pragma once

#include <cstdio>
#include <exception>

#include "bench/peers/helper.h"
#include "runtime/attnc.h"

struct BenchPool {
    attnc_pool* pool = nullptr;
    int64_t threads = 1;

    const attnc_executor& executor() const { return *attnc_pool_executor(pool); }
};

namespace attnc {

// Runs `work`, which may throw: true, or false and a line in `error`.
template <typename Work>
bool without_exceptions(char* error, const Work& work) {
    try {
        work();
        return true;
    } catch (const std::exception& failure) {
        std::snprintf(error, kBenchErrorBytes, "%s", failure.what());
        return false;
    }
}

}  // namespace attnc
