// The error of a task: what generated code's hooks leave for the runtime to find.
#pragma once

#include <initializer_list>

#include "runtime/text.h"

namespace attnc {

// Leaves a code and a sentence in the attnc_task behind `user_context`, unless there is an error already: the first one wins.
// Null is allowed. Returns the code, as hooks do.
int keep_error(void* user_context, int code, std::initializer_list<Piece> pieces);

}  // namespace attnc
