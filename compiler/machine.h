// What a kept result says about where and when it was measured.
#pragma once

#include <string>

#include "schedules/tuning_record.h"

namespace attnc {

std::string cpu_model();  // as the kernel names it; "unknown"
Machine this_machine();   // whatever cores this process may use
std::string utc_now();    // "2026-03-01T12:00:00Z"

}  // namespace attnc
