// Memory that is asked for while something else is computed.
#pragma once

#include <Halide.h>

namespace attnc {

inline constexpr int kLineBytes = 64;

// Of an input's first element, as uint64.
inline Halide::Expr address_of(const Halide::ImageParam& input) {
    using namespace Halide;
    using Internal::Call;
    const Parameter parameter = input.parameter();
    Expr buffer =
        Internal::Variable::make(type_of<halide_buffer_t*>(), parameter.name() + ".buffer", parameter);
    return reinterpret<uint64_t>(Call::make(Handle(), Call::buffer_get_host, {buffer}, Call::Extern));
}

// 0, to be added to an index in the loop in which the line at `address` is asked for. Where there is no memory nothing
// happens. The function is that of Halide's own directive, which asks for whole regions at once; that lines come into L2
// is the doing of compiler/assembly.
inline Halide::Expr prefetch(const Halide::Expr& address) {
    using namespace Halide;
    using Internal::Call;
    return Call::make(Int(32), "_halide_prefetch", {reinterpret(Handle(), address)}, Call::Extern);
}

// Rows that a later call will read or write, each `bytes` behind the one before.
struct MemoryRows {
    Halide::Expr address, bytes;
};

// Between rows of floats, `stride` apart.
inline Halide::Expr bytes_between(const Halide::Expr& stride) {
    return Halide::cast<int64_t>(stride) * static_cast<int>(sizeof(float));
}

inline MemoryRows rows_of(const Halide::ImageParam& rows) {
    return {address_of(rows), bytes_between(rows.dim(1).stride())};
}

// Rows that are `bytes` apart. Address 0: none; what lies at `instead`, and is there already, is asked for then.
inline MemoryRows rows_at(const Halide::Expr& address, const Halide::Expr& bytes,
                          const Halide::Expr& instead) {
    using namespace Halide;
    return {select(address == 0, instead, address), select(address == 0, cast<int64_t>(0), bytes)};
}

}  // namespace attnc
