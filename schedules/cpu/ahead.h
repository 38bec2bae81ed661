// Whether a kernel asks for memory ahead (stages/prefetch.h).
#pragma once

namespace attnc {

// Asking takes some five scalar instructions in each step of an inner loop. With so many vectors of multiply-adds in a step,
// two a cycle, a core of four instructions a cycle has room for them; tiles of AVX2, of 12, have none.
constexpr int kRoomyVectors = 20;

inline bool has_room_to_ask(int vectors) { return vectors >= kRoomyVectors; }

}  // namespace attnc
