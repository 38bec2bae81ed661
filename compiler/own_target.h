// The instruction set that commands run libraries on.
#pragma once

#include <string>

namespace attnc {

// The one that was asked for, or the best that this machine runs. Throws where it can't run here.
std::string own_target(const std::string& asked);

}  // namespace attnc
