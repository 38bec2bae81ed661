// The layer's context on the calling thread, for the time of a call.
#pragma once

#include "runtime/cuda/driver.h"
#include "runtime/text.h"

namespace attnc::cuda {

// Runs body() -> attnc_status with `context` current. The thread's stack of contexts is afterwards as it was, after a failure
// too.
template <typename Body>
attnc_status in_context(attnc_error* error, const Driver& driver, Context context, const Body& body) {
    ATTNC_CUDA_TRY(error, driver, CtxPushCurrent_v2, (context));
    const attnc_status status = body();
    Context popped = nullptr;
    const Result result = driver.CtxPopCurrent_v2(&popped);
    return status != ATTNC_OK ? status : check_result(error, driver, result, "cuCtxPopCurrent_v2");
}

}  // namespace attnc::cuda
