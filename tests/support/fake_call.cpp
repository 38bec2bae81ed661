#include "tests/support/fake_call.h"

#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "tests/support/fake_library.h"

extern "C" {
void* attnc_abi1_malloc(void* user_context, size_t bytes);
void attnc_abi1_free(void* user_context, void* memory);
int attnc_abi1_error_out_of_memory(void* user_context);
int attnc_abi1_error_host_is_null(void* user_context, const char* func);
int attnc_abi1_error_constraint_violated(void* user_context, const char* var, int val,
                                         const char* constrained_var, int constrained_val);
int attnc_abi1_error_bad_type(void* user_context, const char* func, uint32_t given, uint32_t wanted);
int attnc_abi1_error_buffer_allocation_too_large(void* user_context, const char* buffer, uint64_t size,
                                                 uint64_t most);
}

namespace attnc::test::fake {
namespace {

constexpr int64_t kScratch = 1000;  // that every kernel takes, twice

std::vector<int64_t> order_of(std::vector<int64_t> arguments) {
    arguments.push_back(ATTNC_ARGUMENT_USER_CONTEXT);
    std::reverse(arguments.begin(), arguments.end());
    return arguments;
}

}  // namespace

Call::Call(int kernel, void** argv) : context_(*static_cast<void**>(argv[0])) {
    const std::vector<int64_t>& order = arguments_of(kernel);
    for (size_t i = 0; i < order.size(); ++i) slots_[order[i]] = argv[i];
    FakeCounts& counts = fake_counts();
    ++counts.calls[kernel];
    const int64_t now = ++counts.in_flight;
    int64_t most = counts.most_in_flight;
    while (now > most && !counts.most_in_flight.compare_exchange_weak(most, now)) {
    }
    constexpr uint32_t kDenormalsAreZero = 0x8040, kMaskAll = 0x1f80;
    const uint32_t word = _mm_getcsr();
    if ((word & kDenormalsAreZero) != kDenormalsAreZero || (word & kMaskAll) != kMaskAll) {
        ++counts.wrong_control_words;
    }
}

Call::~Call() { --fake_counts().in_flight; }

void Call::use_scratch() {
    void* first = attnc_abi1_malloc(context_, kScratch);
    void* second = attnc_abi1_malloc(context_, kScratch);
    if (first == nullptr || second == nullptr) keep(attnc_abi1_error_out_of_memory(context_));
    if (first != nullptr) std::fill_n(static_cast<unsigned char*>(first), kScratch, 0xee);
    if (second != nullptr) std::fill_n(static_cast<unsigned char*>(second), kScratch, 0xee);
    attnc_abi1_free(context_, first);
    attnc_abi1_free(context_, second);
}

View Call::buffer(int argument, const char* name, int rank, HalideType type, bool dense_inner) {
    View view;
    view.buffer_ = static_cast<const HalideBuffer*>(slots_[argument]);
    const HalideBuffer& b = *view.buffer_;
    if (b.host == nullptr) keep(attnc_abi1_error_host_is_null(context_, name));
    if (std::bit_cast<uint32_t>(b.type) != std::bit_cast<uint32_t>(type)) {
        keep(attnc_abi1_error_bad_type(context_, name, std::bit_cast<uint32_t>(b.type),
                                       std::bit_cast<uint32_t>(type)));
    }
    want(name, b.dimensions, "rank", rank);
    int64_t last = 0;
    for (int i = 0; i < std::min(rank, b.dimensions); ++i) {
        want(name, b.dim[i].min, "min", 0);
        if (b.dim[i].extent < 1) want(name, b.dim[i].extent, "an extent of at least 1", 1);
        if (b.dim[i].stride < 0) want(name, b.dim[i].stride, "a stride of at least 0", 0);
        last += (b.dim[i].extent - 1) * int64_t{b.dim[i].stride};
        const int64_t span = int64_t{b.dim[i].extent} * b.dim[i].stride * (type.bits / 8);
        if (b.dim[i].extent > 1 && span > INT32_MAX) {
            keep(attnc_abi1_error_buffer_allocation_too_large(context_, name, static_cast<uint64_t>(span),
                                                              INT32_MAX));
        }
    }
    if ((last + 1) * (type.bits / 8) > INT32_MAX) {
        keep(attnc_abi1_error_buffer_allocation_too_large(context_, name, static_cast<uint64_t>(last),
                                                          INT32_MAX));
    }
    if (dense_inner && b.dimensions > 0 && b.dim[0].extent > 1) want(name, b.dim[0].stride, "stride", 1);
    return view;
}

void Call::want(const char* name, int64_t got, const char* what, int64_t wanted) {
    if (got != wanted) {
        keep(attnc_abi1_error_constraint_violated(context_, name, static_cast<int>(got), what,
                                                  static_cast<int>(wanted)));
    }
}

const std::vector<int64_t>& arguments_of(int kernel) {
    static const auto* orders = [] {
        auto* all = new std::vector<std::vector<int64_t>>(ATTNC_KERNEL_COUNT);
        const std::vector<int64_t> project = {ATTNC_ARGUMENT_INPUT, ATTNC_ARGUMENT_WEIGHTS,
                                              ATTNC_ARGUMENT_BIAS_VECTOR};
        const std::vector<int64_t> scores = {ATTNC_ARGUMENT_Q, ATTNC_ARGUMENT_K, ATTNC_ARGUMENT_QK_SCALE,
                                             ATTNC_ARGUMENT_FIRST_KEY, ATTNC_ARGUMENT_LAST_KEY};
        const std::vector<int64_t> masks = {
            ATTNC_ARGUMENT_KEY_BIAS,    ATTNC_ARGUMENT_BIAS,       ATTNC_ARGUMENT_KEEP_MASK,
            ATTNC_ARGUMENT_DROP_MASK,   ATTNC_ARGUMENT_MASK_FLAGS, ATTNC_ARGUMENT_SOFTCAP,
            ATTNC_ARGUMENT_ALIBI_SLOPE, ATTNC_ARGUMENT_OWN_KEY,    ATTNC_ARGUMENT_KEY_BLOCKS};
        const std::vector<int64_t> attend = {ATTNC_ARGUMENT_V, ATTNC_ARGUMENT_CONTEXT,
                                             ATTNC_ARGUMENT_ROW_STATS};
        const std::vector<int64_t> ahead = {ATTNC_ARGUMENT_AHEAD_Q,       ATTNC_ARGUMENT_AHEAD_K,
                                            ATTNC_ARGUMENT_AHEAD_K_BYTES, ATTNC_ARGUMENT_AHEAD_V,
                                            ATTNC_ARGUMENT_AHEAD_V_BYTES, ATTNC_ARGUMENT_AHEAD_CONTEXT};
        const auto set = [&](int id, std::initializer_list<std::vector<int64_t>> parts) {
            std::vector<int64_t> joined;
            for (const auto& part : parts) joined.insert(joined.end(), part.begin(), part.end());
            (*all)[static_cast<size_t>(id)] = order_of(joined);
        };
        set(ATTNC_KERNEL_PROJECT_HEADS, {project, {ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_PROJECT_OUT, {project, {ATTNC_ARGUMENT_OUT}});
        set(ATTNC_KERNEL_PROJECT_HEADS_TAIL, {project, {ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_PROJECT_OUT_TAIL, {project, {ATTNC_ARGUMENT_OUT}});
        set(ATTNC_KERNEL_ATTEND, {scores, attend, ahead});
        set(ATTNC_KERNEL_ATTEND_NARROW, {scores, attend, ahead});
        set(ATTNC_KERNEL_ATTEND_SINGLE, {scores, attend, ahead});
        set(ATTNC_KERNEL_ATTEND_MASKED, {scores, attend, ahead, masks});
        set(ATTNC_KERNEL_ATTEND_GUARDED, {scores, attend, ahead, masks});
        set(ATTNC_KERNEL_ATTEND_MERGE,
            {{ATTNC_ARGUMENT_CONTEXT_A, ATTNC_ARGUMENT_ROW_STATS_A, ATTNC_ARGUMENT_CONTEXT_B,
              ATTNC_ARGUMENT_ROW_STATS_B, ATTNC_ARGUMENT_CONTEXT, ATTNC_ARGUMENT_ROW_STATS}});
        set(ATTNC_KERNEL_ATTEND_LSE, {{ATTNC_ARGUMENT_ROW_STATS_IN, ATTNC_ARGUMENT_LSE}});
        set(ATTNC_KERNEL_ATTEND_PROBS, {scores, masks, {ATTNC_ARGUMENT_ROW_STATS_IN, ATTNC_ARGUMENT_PROBS}});
        set(ATTNC_KERNEL_ATTEND_SCORES, {scores, masks, {ATTNC_ARGUMENT_SCORES}});
        set(ATTNC_KERNEL_SPLIT_HEADS, {{ATTNC_ARGUMENT_INPUT, ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_MERGE_HEADS, {{ATTNC_ARGUMENT_INPUT, ATTNC_ARGUMENT_Y}});
        std::vector<int64_t> group_masks = masks;
        std::replace(group_masks.begin(), group_masks.end(), int64_t{ATTNC_ARGUMENT_ALIBI_SLOPE},
                     int64_t{ATTNC_ARGUMENT_ALIBI_SLOPES});
        set(ATTNC_KERNEL_ATTEND_DECODE,
            {scores,
             attend,
             group_masks,
             {ATTNC_ARGUMENT_KEY_ROWS, ATTNC_ARGUMENT_KEYS, ATTNC_ARGUMENT_ASK_AHEAD}});
        const std::vector<int64_t> tables = {ATTNC_ARGUMENT_COS_TABLE, ATTNC_ARGUMENT_SIN_TABLE};
        set(ATTNC_KERNEL_NORM_HEADS,
            {{ATTNC_ARGUMENT_INPUT, ATTNC_ARGUMENT_NORM_WEIGHT, ATTNC_ARGUMENT_EPSILON, ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_ROTATE_HEADS, {tables, {ATTNC_ARGUMENT_Y}});
        set(ATTNC_KERNEL_ROTARY_ANGLES,
            {tables, {ATTNC_ARGUMENT_POSITIONS, ATTNC_ARGUMENT_FREQUENCIES, ATTNC_ARGUMENT_MAGNITUDE}});
        return all;
    }();
    return (*orders)[static_cast<size_t>(kernel)];
}

}  // namespace attnc::test::fake
