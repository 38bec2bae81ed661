#include "runtime/text.h"

namespace attnc {

size_t write_text(char* to, size_t capacity, std::initializer_list<Piece> pieces) {
    size_t used = 0;
    bool cut = false;
    auto put = [&](char c) {
        if (used + 1 < capacity) {
            to[used++] = c;
        } else {
            cut = true;
        }
    };
    for (const Piece& piece : pieces) {
        if (piece.string() != nullptr) {
            for (const char* c = piece.string(); *c != 0; ++c) put(*c);
            continue;
        }
        char digits[20];
        int count = 0;
        uint64_t rest = piece.magnitude();
        do {
            digits[count++] = static_cast<char>('0' + rest % 10);
            rest /= 10;
        } while (rest != 0);
        if (piece.negative()) put('-');
        while (count > 0) put(digits[--count]);
    }
    if (cut && capacity > 3) {
        for (size_t i = 1; i <= 3; ++i) to[capacity - 1 - i] = '.';
    }
    if (capacity > 0) to[used] = 0;
    return used;
}

attnc_status fail(attnc_error* error, attnc_status status, std::initializer_list<Piece> pieces) {
    if (error != nullptr) {
        error->code = status;
        write_text(error->text, sizeof error->text, pieces);
    }
    return status;
}

}  // namespace attnc
