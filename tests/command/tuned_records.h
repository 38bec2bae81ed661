// Tuning records of a small layer, with the objects that this build's workers make.
#pragma once

#include <string>

#include "schedules/tuning_record.h"

namespace attnc::test {

// Of d32_h2_f32_nomask_noprobs on x86-64-linux, on a machine that nobody has, in blocks of `tile_kv` keys.
TuningRecord small_record(int64_t tile_kv);

// The same with hashes of its kernels' objects, as a tuner would write it.
TuningRecord compiled_record(int64_t tile_kv);

std::string line_of(const TuningRecord& record);

}  // namespace attnc::test
