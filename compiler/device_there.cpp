#include "compiler/device_there.h"

#include "runtime/device_runtime.h"

extern "C" const attnc_device_runtime attnc_abi1_cuda;  // the runtime's own, which libraries name

namespace attnc {

bool device_is_there() { return attnc_abi1_cuda.is_there(); }

}  // namespace attnc
