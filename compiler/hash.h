// Hashes for names and keys (FNV-1a): the same everywhere, and no protection against an adversary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attnc {

uint64_t hash64(std::string_view text);
std::string hash64_hex(std::string_view text);   // 16 digits
std::string hash128_hex(std::string_view text);  // 32 digits, for keys that must not collide

}  // namespace attnc
