// Sentences for errors, without snprintf: a list of pieces written into a fixed array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "runtime/attnc.h"

namespace attnc {

// A string or a number of a sentence.
class Piece {
public:
    Piece(const char* string) : string_(string) {}
    Piece(int value) : value_(value) {}
    Piece(long value) : value_(value) {}
    Piece(long long value) : value_(value) {}
    Piece(unsigned value) : value_(value) {}
    Piece(unsigned long value) : magnitude_(value), is_unsigned_(true) {}

    const char* string() const { return string_; }  // null for a number
    bool negative() const { return value_ < 0; }
    uint64_t magnitude() const {
        if (is_unsigned_) return magnitude_;
        return value_ < 0 ? 0 - static_cast<uint64_t>(value_) : static_cast<uint64_t>(value_);
    }

private:
    const char* string_ = nullptr;
    int64_t value_ = 0;
    uint64_t magnitude_ = 0;
    bool is_unsigned_ = false;
};

// Writes the pieces one after another, zero-terminated, and returns the bytes before the zero; a sentence
// that doesn't fit `capacity` bytes ends in "...".
size_t write_text(char* to, size_t capacity, std::initializer_list<Piece> pieces);

// Fills `error`, which may be null, and returns `status`.
attnc_status fail(attnc_error* error, attnc_status status, std::initializer_list<Piece> pieces);

}  // namespace attnc

// Leaves the function with a status that isn't ATTNC_OK.
#define ATTNC_TRY(expression)                                                                 \
    do {                                                                                      \
        if (const attnc_status attnc_try_status = (expression); attnc_try_status != ATTNC_OK) \
            return attnc_try_status;                                                          \
    } while (false)
