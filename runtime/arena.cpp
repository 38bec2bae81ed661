#include "runtime/arena.h"

namespace attnc {
namespace {

struct Header {
    int64_t below;  // offset of the header of the block below, -1 for the lowest
    int64_t freed;
    char padding[48];
};
constexpr int64_t kHeader = 64;
static_assert(sizeof(Header) == kHeader);

Header& header_at(attnc_task& task, int64_t offset) {
    return *reinterpret_cast<Header*>(task.scratch + offset);
}

}  // namespace

void arena_init(attnc_task& task, unsigned char* scratch, int64_t bytes) {
    task.scratch = scratch;
    task.scratch_bytes = bytes;
    task.scratch_used = 0;
    task.scratch_top = -1;
    task.error_code = 0;
    task.error_text[0] = 0;
}

void* arena_allocate(attnc_task& task, uint64_t bytes) {
    const int64_t room = task.scratch_bytes - task.scratch_used - kHeader;
    if (room < 0 || bytes > static_cast<uint64_t>(room)) return nullptr;
    const int64_t rounded = static_cast<int64_t>((bytes + 63) & ~uint64_t{63});
    if (rounded > room) return nullptr;
    const int64_t offset = task.scratch_used;
    header_at(task, offset) = {task.scratch_top, 0, {}};
    task.scratch_top = offset;
    task.scratch_used = offset + kHeader + rounded;
    return task.scratch + offset + kHeader;
}

void arena_free(attnc_task& task, void* memory) {
    if (memory == nullptr) return;
    const int64_t offset = static_cast<unsigned char*>(memory) - task.scratch - kHeader;
    int64_t block = task.scratch_top;
    while (block > offset) block = header_at(task, block).below;
    if (block != offset || block < 0) return;
    header_at(task, offset).freed = 1;
    while (task.scratch_top >= 0 && header_at(task, task.scratch_top).freed != 0) {
        task.scratch_used = task.scratch_top;
        task.scratch_top = header_at(task, task.scratch_top).below;
    }
}

}  // namespace attnc
