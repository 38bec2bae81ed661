#include "runtime/device_library.h"

#include "runtime/text.h"

namespace attnc {
namespace {

// A set of arguments, a bit for each.
struct Arguments {
    uint64_t low, high;
    constexpr Arguments operator|(const Arguments& other) const {
        return {low | other.low, high | other.high};
    }
    constexpr Arguments without(const Arguments& other) const {
        return {low & ~other.low, high & ~other.high};
    }
    constexpr bool has(int64_t id) const { return ((id < 64 ? low >> id : high >> (id - 64)) & 1) != 0; }
};
static_assert(ATTNC_DEVICE_ARGUMENT_COUNT <= 128);

constexpr Arguments bit(int id) {
    return id < 64 ? Arguments{uint64_t{1} << id, 0} : Arguments{0, uint64_t{1} << (id - 64)};
}

template <typename... Ids>
constexpr Arguments bits(Ids... ids) {
    return (bit(ids) | ...);
}

// The arguments that the runtime sets for each kernel.
Arguments arguments_of(int kernel) {
    constexpr Arguments kContext = bit(ATTNC_DEVICE_ARGUMENT_USER_CONTEXT);
    constexpr Arguments kProject = kContext | bits(ATTNC_DEVICE_ARGUMENT_INPUT, ATTNC_DEVICE_ARGUMENT_WEIGHTS,
                                                   ATTNC_DEVICE_ARGUMENT_BIAS_VECTOR,
                                                   ATTNC_DEVICE_ARGUMENT_LENGTHS, ATTNC_DEVICE_ARGUMENT_SEQ);
    constexpr Arguments kScores =
        kContext | bits(ATTNC_DEVICE_ARGUMENT_Q, ATTNC_DEVICE_ARGUMENT_K, ATTNC_DEVICE_ARGUMENT_ITEMS,
                        ATTNC_DEVICE_ARGUMENT_SEQ_Q, ATTNC_DEVICE_ARGUMENT_SEQ_KV,
                        ATTNC_DEVICE_ARGUMENT_QK_SCALE, ATTNC_DEVICE_ARGUMENT_KEY_RUNS);
    constexpr Arguments kResults = bits(ATTNC_DEVICE_ARGUMENT_CONTEXT, ATTNC_DEVICE_ARGUMENT_ROW_STATS);
    constexpr Arguments kAttend = kScores | kResults | bit(ATTNC_DEVICE_ARGUMENT_V);
    constexpr Arguments kMasks = bits(ATTNC_DEVICE_ARGUMENT_KEY_BIAS, ATTNC_DEVICE_ARGUMENT_BIAS,
                                      ATTNC_DEVICE_ARGUMENT_KEEP_MASK, ATTNC_DEVICE_ARGUMENT_DROP_MASK,
                                      ATTNC_DEVICE_ARGUMENT_KEY_BLOCKS, ATTNC_DEVICE_ARGUMENT_MASK_FLAGS,
                                      ATTNC_DEVICE_ARGUMENT_SOFTCAP, ATTNC_DEVICE_ARGUMENT_ALIBI_SLOPES);
    constexpr Arguments kTables = bits(ATTNC_DEVICE_ARGUMENT_COS_TABLE, ATTNC_DEVICE_ARGUMENT_SIN_TABLE);
    constexpr Arguments kPositions =
        kContext | kTables |
        bits(ATTNC_DEVICE_ARGUMENT_POSITIONS, ATTNC_DEVICE_ARGUMENT_POSITION_OFFSETS,
             ATTNC_DEVICE_ARGUMENT_GIVEN, ATTNC_DEVICE_ARGUMENT_FIRST_ROW);
    constexpr Arguments kCopy = kContext | bit(ATTNC_DEVICE_ARGUMENT_INPUT) | bit(ATTNC_DEVICE_ARGUMENT_Y);
    switch (kernel) {
        case ATTNC_DEVICE_KERNEL_FILL_ITEMS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_QUERY_LENGTHS, ATTNC_DEVICE_ARGUMENT_KEY_LENGTHS,
                                   ATTNC_DEVICE_ARGUMENT_CAUSAL_OFFSETS, ATTNC_DEVICE_ARGUMENT_QUERY_STARTS,
                                   ATTNC_DEVICE_ARGUMENT_KEY_STARTS, ATTNC_DEVICE_ARGUMENT_GIVEN,
                                   ATTNC_DEVICE_ARGUMENT_SEQ_Q, ATTNC_DEVICE_ARGUMENT_SEQ_KV,
                                   ATTNC_DEVICE_ARGUMENT_DIAGONAL, ATTNC_DEVICE_ARGUMENT_WINDOW_LEFT,
                                   ATTNC_DEVICE_ARGUMENT_WINDOW_RIGHT, ATTNC_DEVICE_ARGUMENT_ITEMS,
                                   ATTNC_DEVICE_ARGUMENT_QUERY_COUNTS, ATTNC_DEVICE_ARGUMENT_KEY_COUNTS);
        case ATTNC_DEVICE_KERNEL_PROJECT_HEADS:
            return kProject | bit(ATTNC_DEVICE_ARGUMENT_Y);
        case ATTNC_DEVICE_KERNEL_PROJECT_OUT:
            return kProject | bit(ATTNC_DEVICE_ARGUMENT_OUT);
        case ATTNC_DEVICE_KERNEL_ATTEND:
            return kAttend;
        case ATTNC_DEVICE_KERNEL_ATTEND_MASKED:
            return kAttend | kMasks;
        case ATTNC_DEVICE_KERNEL_ATTEND_DECODE:
            return kAttend | kMasks.without(bit(ATTNC_DEVICE_ARGUMENT_KEY_BLOCKS));
        case ATTNC_DEVICE_KERNEL_ATTEND_SUSPECTS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_CONTEXT, ATTNC_DEVICE_ARGUMENT_ITEMS,
                                   ATTNC_DEVICE_ARGUMENT_SEQ_Q, ATTNC_DEVICE_ARGUMENT_SUSPECTS);
        case ATTNC_DEVICE_KERNEL_ATTEND_GUARDED:
            return kAttend | kMasks | bit(ATTNC_DEVICE_ARGUMENT_SUSPECTS);
        case ATTNC_DEVICE_KERNEL_ATTEND_MERGE:
            return kContext | kResults |
                   bits(ATTNC_DEVICE_ARGUMENT_CONTEXTS, ATTNC_DEVICE_ARGUMENT_ROW_STATS_IN,
                        ATTNC_DEVICE_ARGUMENT_SINKS);
        case ATTNC_DEVICE_KERNEL_FILL_EMPTY:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_ROW_STATS_IN, ATTNC_DEVICE_ARGUMENT_V,
                                   ATTNC_DEVICE_ARGUMENT_ITEMS, ATTNC_DEVICE_ARGUMENT_SEQ_Q,
                                   ATTNC_DEVICE_ARGUMENT_EMPTY_ROWS, ATTNC_DEVICE_ARGUMENT_CONTEXT,
                                   ATTNC_DEVICE_ARGUMENT_KEY_RUNS);
        case ATTNC_DEVICE_KERNEL_ATTEND_LSE:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_ROW_STATS_IN, ATTNC_DEVICE_ARGUMENT_ITEMS,
                                   ATTNC_DEVICE_ARGUMENT_LSE);
        case ATTNC_DEVICE_KERNEL_ATTEND_PROBS:
            return kScores | kMasks |
                   bits(ATTNC_DEVICE_ARGUMENT_ROW_STATS_IN, ATTNC_DEVICE_ARGUMENT_EMPTY_ROWS,
                        ATTNC_DEVICE_ARGUMENT_PROBS);
        case ATTNC_DEVICE_KERNEL_ATTEND_SCORES:
            return kScores | kMasks | bit(ATTNC_DEVICE_ARGUMENT_SCORES);
        case ATTNC_DEVICE_KERNEL_AVERAGE_PROBS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_PROBS, ATTNC_DEVICE_ARGUMENT_AVERAGED);
        case ATTNC_DEVICE_KERNEL_SPLIT_HEADS:
            return kCopy | bit(ATTNC_DEVICE_ARGUMENT_LENGTHS);
        case ATTNC_DEVICE_KERNEL_MERGE_HEADS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_CONTEXT, ATTNC_DEVICE_ARGUMENT_LENGTHS,
                                   ATTNC_DEVICE_ARGUMENT_OUT);
        case ATTNC_DEVICE_KERNEL_NORM_HEADS:
            return kCopy | bits(ATTNC_DEVICE_ARGUMENT_NORM_WEIGHT, ATTNC_DEVICE_ARGUMENT_EPSILON);
        case ATTNC_DEVICE_KERNEL_ROTARY_ANGLES:
            return kPositions | bits(ATTNC_DEVICE_ARGUMENT_FREQUENCIES, ATTNC_DEVICE_ARGUMENT_MAGNITUDE);
        case ATTNC_DEVICE_KERNEL_ROTARY_ROWS:
            return kPositions | bits(ATTNC_DEVICE_ARGUMENT_TABLE_COS, ATTNC_DEVICE_ARGUMENT_TABLE_SIN);
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BIAS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_BIAS, ATTNC_DEVICE_ARGUMENT_KEY_BIAS_IN,
                                   ATTNC_DEVICE_ARGUMENT_KEEP_MASK, ATTNC_DEVICE_ARGUMENT_KEY_KEEP_MASK,
                                   ATTNC_DEVICE_ARGUMENT_DROP_MASK, ATTNC_DEVICE_ARGUMENT_KEY_DROP_MASK,
                                   ATTNC_DEVICE_ARGUMENT_GIVEN, ATTNC_DEVICE_ARGUMENT_KEY_BIAS);
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BLOCKS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_BLOCK_KEEP_MASK, ATTNC_DEVICE_ARGUMENT_BLOCK_Q,
                                   ATTNC_DEVICE_ARGUMENT_BLOCK_KV, ATTNC_DEVICE_ARGUMENT_KEY_BLOCKS);
        case ATTNC_DEVICE_KERNEL_FILL_POSITIONS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_STARTS, ATTNC_DEVICE_ARGUMENT_POSITION_OFFSETS,
                                   ATTNC_DEVICE_ARGUMENT_GIVEN, ATTNC_DEVICE_ARGUMENT_SEQ,
                                   ATTNC_DEVICE_ARGUMENT_ROW_POSITIONS);
        case ATTNC_DEVICE_KERNEL_CLEAR_ROWS:
            return kContext |
                   bits(ATTNC_DEVICE_ARGUMENT_ITEMS, ATTNC_DEVICE_ARGUMENT_SEQ_Q, ATTNC_DEVICE_ARGUMENT_OUT);
        case ATTNC_DEVICE_KERNEL_FILL_CACHE:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_CACHE_LENGTHS, ATTNC_DEVICE_ARGUMENT_CACHE_SLOTS,
                                   ATTNC_DEVICE_ARGUMENT_KEY_LENGTHS, ATTNC_DEVICE_ARGUMENT_GIVEN,
                                   ATTNC_DEVICE_ARGUMENT_SEQ, ATTNC_DEVICE_ARGUMENT_MAX_KEYS,
                                   ATTNC_DEVICE_ARGUMENT_SLOTS, ATTNC_DEVICE_ARGUMENT_HELD,
                                   ATTNC_DEVICE_ARGUMENT_COUNTS, ATTNC_DEVICE_ARGUMENT_SLOTS_OUT);
        case ATTNC_DEVICE_KERNEL_FILL_RUNS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_ITEMS, ATTNC_DEVICE_ARGUMENT_COUNTS,
                                   ATTNC_DEVICE_ARGUMENT_CACHE_SLOTS, ATTNC_DEVICE_ARGUMENT_BLOCK_TABLE,
                                   ATTNC_DEVICE_ARGUMENT_GIVEN, ATTNC_DEVICE_ARGUMENT_SLOT_ROWS,
                                   ATTNC_DEVICE_ARGUMENT_CAPACITY, ATTNC_DEVICE_ARGUMENT_PAGE_SIZE,
                                   ATTNC_DEVICE_ARGUMENT_PAGES, ATTNC_DEVICE_ARGUMENT_KEY_RUNS);
        case ATTNC_DEVICE_KERNEL_APPEND_ROWS:
            return kCopy | bits(ATTNC_DEVICE_ARGUMENT_FIRST_ROWS, ATTNC_DEVICE_ARGUMENT_HELD,
                                ATTNC_DEVICE_ARGUMENT_COUNTS, ATTNC_DEVICE_ARGUMENT_KEY_RUNS,
                                ATTNC_DEVICE_ARGUMENT_SEQ);
        case ATTNC_DEVICE_KERNEL_KEEP_LENGTHS:
            return kContext | bits(ATTNC_DEVICE_ARGUMENT_COUNTS, ATTNC_DEVICE_ARGUMENT_CACHE_SLOTS,
                                   ATTNC_DEVICE_ARGUMENT_CAPACITY, ATTNC_DEVICE_ARGUMENT_KEPT);
        default:  // rotate_heads
            return kCopy | kTables;
    }
}

const char* argument_name(int64_t argument) {
#define ATTNC_X(id, name) #name,
    static constexpr const char* kNames[] = {ATTNC_DEVICE_ARGUMENTS(ATTNC_X)};
#undef ATTNC_X
    return kNames[argument];
}

attnc_status bad_table(attnc_error* error, std::initializer_list<Piece> pieces) {
    return fail(error, ATTNC_BAD_LIBRARY, pieces);
}

attnc_status check_layout(attnc_error* error, const attnc_device_entry& entry) {
    constexpr int64_t kMost = 1 << 20;
    const attnc_device_layout& l = entry.layout;
    const struct {
        const char* name;
        int64_t value, multiple;
    } numbers[] = {{"panel", l.panel, 4},     {"out_panel", l.out_panel, 4},
                   {"depth", l.depth, 1},     {"out_depth", l.out_depth, 1},
                   {"tile_kv", l.tile_kv, 1}, {"split_kv", l.split_kv, 1},
                   {"tile_q", l.tile_q, 1},   {"decode_rows", l.decode_rows, 1}};
    for (const auto& number : numbers) {
        if (number.value >= 1 && number.value <= kMost && number.value % number.multiple == 0) continue;
        return bad_table(error, {"the library's ", number.name, " for target ", entry.name, " is ",
                                 number.value, ", wanted a multiple of ", number.multiple, " up to ", kMost});
    }
    return ATTNC_OK;
}

attnc_status check_images(attnc_error* error, const attnc_device_entry& entry, int kernel) {
    const attnc_device_kernel& k = entry.kernels[kernel];
    bool whole = k.image_count >= 1 && k.images != nullptr;
    for (int64_t i = 0; whole && i < k.image_count; ++i)
        whole = k.images[i].data != nullptr && k.images[i].bytes > 0 && k.images[i].architecture >= 0;
    if (whole && k.images[k.image_count - 1].architecture == 0) return ATTNC_OK;
    return bad_table(error, {"the library's code of kernel ", name_of_device_kernel(kernel), " for target ",
                             entry.name, " is not there or does not end in PTX"});
}

attnc_status check_kernel(attnc_error* error, const attnc_device_entry& entry, int kernel) {
    const attnc_device_kernel& k = entry.kernels[kernel];
    const char* name = name_of_device_kernel(kernel);
    if (k.run == nullptr || k.arguments == nullptr)
        return bad_table(error, {"the library has no kernel ", name, " for target ", entry.name});
    if (k.argument_count < 1 || k.argument_count > ATTNC_DEVICE_ARGUMENT_COUNT) {
        return bad_table(error,
                         {"the library's entry of kernel ", name, " for target ", entry.name, " is corrupt"});
    }
    const Arguments known = arguments_of(kernel);
    for (int64_t i = 0; i < k.argument_count; ++i) {
        const int64_t argument = k.arguments[i];
        if (argument < 0 || argument >= ATTNC_DEVICE_ARGUMENT_COUNT) {
            return bad_table(error, {"the library's kernel ", name, " for target ", entry.name,
                                     " takes argument ", argument, ", which this runtime does not know"});
        }
        if (!known.has(argument)) {
            return bad_table(error,
                             {"the library's kernel ", name, " for target ", entry.name, " takes argument ",
                              argument_name(argument), ", which this runtime does not give it"});
        }
    }
    return check_images(error, entry, kernel);
}

}  // namespace

const char* name_of_device_kernel(int kernel) {
#define ATTNC_X(id, name) #name,
    static constexpr const char* kNames[] = {ATTNC_DEVICE_KERNELS(ATTNC_X)};
#undef ATTNC_X
    return kNames[kernel];
}

bool device_calls(int64_t flags, int kernel) {
    const auto has = [flags](int64_t any) { return (flags & any) != 0; };
    // attnc_layer_rotate takes heads from tokens and gives them back.
    constexpr int64_t kChangesHeads = ATTNC_CONFIG_QK_NORM | ATTNC_CONFIG_ROTARY | ATTNC_CONFIG_ROTARY_PAIRS;
    switch (kernel) {
        case ATTNC_DEVICE_KERNEL_PROJECT_HEADS:
            return has(ATTNC_CONFIG_IN_PROJ);
        case ATTNC_DEVICE_KERNEL_SPLIT_HEADS:
            return !has(ATTNC_CONFIG_IN_PROJ) || has(kChangesHeads);
        case ATTNC_DEVICE_KERNEL_PROJECT_OUT:
        case ATTNC_DEVICE_KERNEL_CLEAR_ROWS:
            return has(ATTNC_CONFIG_OUT_PROJ);
        case ATTNC_DEVICE_KERNEL_MERGE_HEADS:
            return !has(ATTNC_CONFIG_OUT_PROJ) || has(kChangesHeads);
        case ATTNC_DEVICE_KERNEL_ATTEND_MASKED:
            return has(ATTNC_CONFIG_MASKS | ATTNC_CONFIG_ALIBI | ATTNC_CONFIG_SOFTCAP);
        case ATTNC_DEVICE_KERNEL_FILL_EMPTY:  // with a key for every row no row is empty
            return !has(ATTNC_CONFIG_BIAS_KV | ATTNC_CONFIG_ZERO_ATTN);
        case ATTNC_DEVICE_KERNEL_ATTEND_PROBS:
        case ATTNC_DEVICE_KERNEL_AVERAGE_PROBS:
            return has(ATTNC_CONFIG_PROBS);
        case ATTNC_DEVICE_KERNEL_ATTEND_SCORES:
            return has(ATTNC_CONFIG_SCORES);
        case ATTNC_DEVICE_KERNEL_NORM_HEADS:
            return has(ATTNC_CONFIG_QK_NORM);
        case ATTNC_DEVICE_KERNEL_ROTARY_ANGLES:
        case ATTNC_DEVICE_KERNEL_ROTARY_ROWS:
        case ATTNC_DEVICE_KERNEL_ROTATE_HEADS:
        case ATTNC_DEVICE_KERNEL_FILL_POSITIONS:
            return has(ATTNC_CONFIG_ROTARY | ATTNC_CONFIG_ROTARY_PAIRS);
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BIAS:
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BLOCKS:
            return has(ATTNC_CONFIG_MASKS);
        case ATTNC_DEVICE_KERNEL_FILL_CACHE:
        case ATTNC_DEVICE_KERNEL_FILL_RUNS:
        case ATTNC_DEVICE_KERNEL_APPEND_ROWS:
        case ATTNC_DEVICE_KERNEL_KEEP_LENGTHS:
            return has(ATTNC_CONFIG_CACHE);
        default:
            return true;
    }
}

attnc_status check_device_entry(attnc_error* error, const attnc_device_entry& entry,
                                const attnc_config& config) {
    if (entry.name == nullptr) return bad_table(error, {"the library's device has no name"});
    if (entry.runtime == nullptr)
        return bad_table(error, {"the library's target ", entry.name, " names no runtime"});
    ATTNC_TRY(check_layout(error, entry));
    for (int kernel = 0; kernel < ATTNC_DEVICE_KERNEL_COUNT; ++kernel) {
        if (device_calls(config.flags, kernel)) ATTNC_TRY(check_kernel(error, entry, kernel));
    }
    return ATTNC_OK;
}

}  // namespace attnc
