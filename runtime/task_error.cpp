#include "runtime/task_error.h"

#include "runtime/kernel_abi.h"

namespace attnc {

int keep_error(void* user_context, int code, std::initializer_list<Piece> pieces) {
    auto* task = static_cast<attnc_task*>(user_context);
    if (task != nullptr && task->error_code == 0) {
        task->error_code = code;
        write_text(task->error_text, sizeof task->error_text, pieces);
    }
    return code;
}

}  // namespace attnc
