// What a kept result says about where and when it was measured.
#pragma once

#include <string>

namespace attnc {

std::string cpu_model();  // as the kernel names it; "unknown"
std::string utc_now();    // "2026-03-01T12:00:00Z"

}  // namespace attnc
