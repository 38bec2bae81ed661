#include "compiler/hash.h"

#include <fmt/format.h>

namespace attnc {

namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr Uint128 wide(uint64_t high, uint64_t low) { return (Uint128{high} << 64) | low; }

}  // namespace

uint64_t hash64(std::string_view text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3;
    }
    return hash;
}

std::string hash64_hex(std::string_view text) { return fmt::format("{:016x}", hash64(text)); }

std::string hash128_hex(std::string_view text) {
    Uint128 hash = wide(0x6c62272e07bb0142, 0x62b821756295c58d);
    for (char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= wide(0x0000000001000000, 0x000000000000013b);
    }
    return fmt::format("{:016x}{:016x}", static_cast<uint64_t>(hash >> 64), static_cast<uint64_t>(hash));
}

}  // namespace attnc
