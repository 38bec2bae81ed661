// The bench of an exported runner: candidates are put together from the kernels that are linked into it.
#pragma once

#include "compiler/exported_run.h"
#include "compiler/tune_bench.h"

namespace attnc {

// Everything it is given outlives the bench. Throws std::runtime_error where the linked tables don't fit the description.
TuneBench exported_bench(const ExportedRun& run, const ExportedLayer& layer, const ExportedData& data);

}  // namespace attnc
