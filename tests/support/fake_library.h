// A library whose kernels are plain C++: scalar loops that follow the contracts of runtime/kernel_abi.h and
// check every argument against them. With it the runtime is tested without generated code.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/kernel_abi.h"
#include "stages/config.h"
#include "tests/support/fake_device.h"

namespace attnc::test {

// What the fake kernels saw since the last reset, over all libraries and threads.
struct FakeCounts {
    std::atomic<int64_t> calls[ATTNC_KERNEL_COUNT];
    std::atomic<int64_t> rows_projected;  // rows times panels of project_heads
    std::atomic<int64_t> rows_angled;     // rows of rotary_angles
    // Rows times keys of attend, attend_masked and attend_guarded, without the granules that key_blocks drops.
    std::atomic<int64_t> pairs_attended;
    // Calls of attend and its forms whose q, k, v and context are where the call before said that they would be, all four of
    // them, and those for which it named other places. Of calls on one thread.
    std::atomic<int64_t> foretold, mistold;
    std::atomic<int64_t> asked_ahead;  // calls of attend_decode that are to ask for keys ahead
    std::atomic<int64_t> in_flight;    // calls that run now
    std::atomic<int64_t> most_in_flight;
    std::atomic<int64_t> wrong_control_words;  // calls without flush to zero, or with an unmasked exception
    void reset();
};
FakeCounts& fake_counts();

// The next call of this kernel refuses: through a hook, with a sentence, or by its code alone.
enum class FakeFailure { kNone, kHook, kCodeOnly };
void fail_next_call(int kernel, FakeFailure how);

struct FakeLayout {
    int64_t panel = 0;  // 0: the padded head
    int64_t out_panel = 32;
    int64_t tile_kv = 16;
    int64_t tile_q = 8;
    int64_t tile_q_narrow = 0, tile_q_single = 0;  // as in a real table: 0, the kernel isn't there
    int64_t tile_rows = 1, tail_rows = 0;          // of project_heads and of project_out
    int64_t split_kv = 16;
    bool device = false;  // with code for a device too
    FakeDeviceLayout device_layout;
};

// The table and all it points to. Kernels that the configuration doesn't call are left out, as in a real
// library.
class FakeLibrary {
public:
    explicit FakeLibrary(const Config& config, const FakeLayout& layout = {});
    FakeLibrary(const FakeLibrary&) = delete;
    FakeLibrary& operator=(const FakeLibrary&) = delete;

    const attnc_library* get() const { return &library_; }
    // For tests of bad tables.
    attnc_library& table() { return library_; }
    attnc_target_entry& target(size_t index) { return targets_[index]; }
    attnc_device_entry& device() { return device_->entry(); }

private:
    std::string problem_;
    std::vector<attnc_target_entry> targets_;
    std::unique_ptr<FakeDevice> device_;
    attnc_library library_{};
};

}  // namespace attnc::test
