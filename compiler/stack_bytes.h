// Stack memory of compiled code, read from its instructions.
#pragma once

#include <cstdint>
#include <filesystem>

namespace attnc {

// Most bytes of stack that a call into the object takes: the frames of all its functions together, since none calls
// itself. Throws std::runtime_error if a frame's size isn't a constant.
int64_t stack_bytes(const std::filesystem::path& object);

}  // namespace attnc
