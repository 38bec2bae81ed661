// What each kernel of a fake device takes, and what buffers it wants for that.
#include "tests/support/fake_device_parts.h"

namespace attnc::test {
namespace {

#define FLOATS(id, name, ...) \
    { ATTNC_DEVICE_ARGUMENT_##id, #name, Kind::kFloats, __VA_ARGS__ }
#define BYTES(id, name, ...) \
    { ATTNC_DEVICE_ARGUMENT_##id, #name, Kind::kBytes, __VA_ARGS__ }
#define INTS(id, name, ...) \
    { ATTNC_DEVICE_ARGUMENT_##id, #name, Kind::kInts, __VA_ARGS__ }
#define SCALAR(id, name, kind) \
    { ATTNC_DEVICE_ARGUMENT_##id, #name, Kind::kind }

std::vector<Rule> operator+(std::vector<Rule> a, const std::vector<Rule>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::vector<Rule> rules_of(int kernel) {
    const std::vector<Rule> project = {FLOATS(INPUT, x, 2), FLOATS(WEIGHTS, weights, 3, Form::kFeatures),
                                       FLOATS(BIAS_VECTOR, bias_vector, 2, Form::kFeatures),
                                       INTS(LENGTHS, lengths, 1), SCALAR(SEQ, seq, kInt)};
    const std::vector<Rule> scores = {FLOATS(Q, q, 3, Form::kFeatures),
                                      FLOATS(K, k, 3, Form::kFeatures),
                                      INTS(ITEMS, items, 2),
                                      SCALAR(SEQ_Q, seq_q, kInt),
                                      SCALAR(SEQ_KV, seq_kv, kInt),
                                      SCALAR(QK_SCALE, qk_scale, kFloat)};
    const std::vector<Rule> masks = {FLOATS(KEY_BIAS, key_bias, 2, Form::kFree),
                                     FLOATS(BIAS, bias, 4, Form::kFree),
                                     BYTES(KEEP_MASK, keep_mask, 4, Form::kFree),
                                     BYTES(DROP_MASK, drop_mask, 4, Form::kFree),
                                     SCALAR(MASK_FLAGS, mask_flags, kInt),
                                     SCALAR(SOFTCAP, softcap, kFloat),
                                     FLOATS(ALIBI_SLOPES, alibi_slopes, 1, Form::kFree)};
    const std::vector<Rule> blocks = {BYTES(KEY_BLOCKS, key_blocks, 4, Form::kFree)};
    const std::vector<Rule> results = {FLOATS(V, v, 3, Form::kFeatures),
                                       FLOATS(CONTEXT, context, 3, Form::kFeatures),
                                       FLOATS(ROW_STATS, row_stats, 3)};
    const std::vector<Rule> runs = {INTS(KEY_RUNS, key_runs, 2)};
    const std::vector<Rule> tables = {FLOATS(COS_TABLE, cos_table, 2), FLOATS(SIN_TABLE, sin_table, 2)};
    const std::vector<Rule> positions = {INTS(POSITIONS, positions, 2, Form::kFree),
                                         INTS(POSITION_OFFSETS, position_offsets, 1, Form::kFree),
                                         SCALAR(GIVEN, given, kInt), SCALAR(FIRST_ROW, first_row, kInt)};
    switch (kernel) {
        case ATTNC_DEVICE_KERNEL_FILL_ITEMS:
            return {INTS(QUERY_LENGTHS, query_lengths, 1, Form::kFree),
                    INTS(KEY_LENGTHS, key_lengths, 1, Form::kFree),
                    INTS(CAUSAL_OFFSETS, causal_offsets, 1, Form::kFree),
                    INTS(QUERY_STARTS, query_starts, 1, Form::kFree),
                    INTS(KEY_STARTS, key_starts, 1, Form::kFree),
                    SCALAR(GIVEN, given, kInt),
                    SCALAR(SEQ_Q, seq_q, kInt),
                    SCALAR(SEQ_KV, seq_kv, kInt),
                    SCALAR(DIAGONAL, diagonal, kInt),
                    SCALAR(WINDOW_LEFT, window_left, kInt),
                    SCALAR(WINDOW_RIGHT, window_right, kInt),
                    INTS(ITEMS, items, 2),
                    INTS(QUERY_COUNTS, query_counts, 1),
                    INTS(KEY_COUNTS, key_counts, 1)};
        case ATTNC_DEVICE_KERNEL_PROJECT_HEADS:
            return project + std::vector<Rule>{FLOATS(Y, y, 3, Form::kFeatures)};
        case ATTNC_DEVICE_KERNEL_PROJECT_OUT:
            return project + std::vector<Rule>{FLOATS(OUT, out, 2)};
        case ATTNC_DEVICE_KERNEL_ATTEND:
            return scores + results + runs;
        case ATTNC_DEVICE_KERNEL_ATTEND_MASKED:
            return scores + masks + blocks + results + runs;
        case ATTNC_DEVICE_KERNEL_ATTEND_SUSPECTS:
            return {FLOATS(CONTEXT, context, 3, Form::kFeatures), INTS(ITEMS, items, 2),
                    SCALAR(SEQ_Q, seq_q, kInt), INTS(SUSPECTS, suspects, 2)};
        case ATTNC_DEVICE_KERNEL_ATTEND_GUARDED:
            return scores + masks + blocks + results + std::vector<Rule>{INTS(SUSPECTS, suspects, 2)} + runs;
        case ATTNC_DEVICE_KERNEL_ATTEND_DECODE:
            return scores + masks +
                   std::vector<Rule>{FLOATS(V, v, 3, Form::kFeatures),
                                     FLOATS(CONTEXT, context, 4, Form::kFeatures),
                                     FLOATS(ROW_STATS, row_stats, 4)} +
                   runs;
        case ATTNC_DEVICE_KERNEL_ATTEND_MERGE:
            return {FLOATS(CONTEXTS, contexts, 4, Form::kFeatures), FLOATS(ROW_STATS_IN, row_stats_in, 4),
                    FLOATS(SINKS, sinks, 1), FLOATS(CONTEXT, context, 3, Form::kFeatures),
                    FLOATS(ROW_STATS, row_stats, 3)};
        case ATTNC_DEVICE_KERNEL_FILL_EMPTY:
            return {FLOATS(ROW_STATS_IN, row_stats_in, 3),
                    FLOATS(V, v, 3, Form::kFeatures),
                    INTS(ITEMS, items, 2),
                    SCALAR(SEQ_Q, seq_q, kInt),
                    SCALAR(EMPTY_ROWS, empty_rows, kInt),
                    FLOATS(CONTEXT, context, 3, Form::kFeatures),
                    INTS(KEY_RUNS, key_runs, 2)};
        case ATTNC_DEVICE_KERNEL_ATTEND_LSE:
            return {FLOATS(ROW_STATS_IN, row_stats_in, 3), INTS(ITEMS, items, 2), FLOATS(LSE, lse, 3)};
        case ATTNC_DEVICE_KERNEL_ATTEND_PROBS:
            return scores + masks + blocks +
                   std::vector<Rule>{FLOATS(ROW_STATS_IN, row_stats_in, 3),
                                     SCALAR(EMPTY_ROWS, empty_rows, kInt), FLOATS(PROBS, probs, 4)} +
                   runs;
        case ATTNC_DEVICE_KERNEL_ATTEND_SCORES:
            return scores + masks + blocks + std::vector<Rule>{FLOATS(SCORES, scores, 4)} + runs;
        case ATTNC_DEVICE_KERNEL_AVERAGE_PROBS:
            return {FLOATS(PROBS, probs, 4), FLOATS(AVERAGED, averaged, 3)};
        case ATTNC_DEVICE_KERNEL_SPLIT_HEADS:
            return {FLOATS(INPUT, x, 4), INTS(LENGTHS, lengths, 1), FLOATS(Y, y, 3, Form::kFeatures)};
        case ATTNC_DEVICE_KERNEL_MERGE_HEADS:
            return {FLOATS(CONTEXT, context, 3, Form::kFeatures), INTS(LENGTHS, lengths, 1),
                    FLOATS(OUT, out, 4)};
        case ATTNC_DEVICE_KERNEL_NORM_HEADS:
            return {FLOATS(INPUT, x, 3, Form::kFeatures), FLOATS(NORM_WEIGHT, norm_weight, 1),
                    SCALAR(EPSILON, epsilon, kFloat), FLOATS(Y, y, 3, Form::kFeatures)};
        case ATTNC_DEVICE_KERNEL_ROTARY_ANGLES:
            return positions + tables +
                   std::vector<Rule>{{ATTNC_DEVICE_ARGUMENT_FREQUENCIES, "frequencies", Kind::kWides, 1},
                                     SCALAR(MAGNITUDE, magnitude, kDouble)};
        case ATTNC_DEVICE_KERNEL_ROTARY_ROWS:
            return positions + tables +
                   std::vector<Rule>{FLOATS(TABLE_COS, table_cos, 2), FLOATS(TABLE_SIN, table_sin, 2)};
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BIAS:
            return {FLOATS(BIAS, bias, 2, Form::kFree),
                    FLOATS(KEY_BIAS_IN, key_bias_in, 2, Form::kFree),
                    BYTES(KEEP_MASK, keep_mask, 2, Form::kFree),
                    BYTES(KEY_KEEP_MASK, key_keep_mask, 2, Form::kFree),
                    BYTES(DROP_MASK, drop_mask, 2, Form::kFree),
                    BYTES(KEY_DROP_MASK, key_drop_mask, 2, Form::kFree),
                    SCALAR(GIVEN, given, kInt),
                    FLOATS(KEY_BIAS, key_bias, 2)};
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BLOCKS:
            return {BYTES(BLOCK_KEEP_MASK, block_keep_mask, 4, Form::kFree), SCALAR(BLOCK_Q, block_q, kInt),
                    SCALAR(BLOCK_KV, block_kv, kInt), BYTES(KEY_BLOCKS, key_blocks, 4)};
        case ATTNC_DEVICE_KERNEL_FILL_POSITIONS:
            return {INTS(STARTS, starts, 1, Form::kFree),
                    INTS(POSITION_OFFSETS, position_offsets, 1, Form::kFree), SCALAR(GIVEN, given, kInt),
                    SCALAR(SEQ, seq, kInt), INTS(ROW_POSITIONS, row_positions, 1)};
        case ATTNC_DEVICE_KERNEL_CLEAR_ROWS:
            return {INTS(ITEMS, items, 2), SCALAR(SEQ_Q, seq_q, kInt), FLOATS(OUT, out, 2)};
        case ATTNC_DEVICE_KERNEL_FILL_CACHE:
            return {INTS(CACHE_LENGTHS, cache_lengths, 1, Form::kFree),
                    INTS(CACHE_SLOTS, cache_slots, 1, Form::kFree),
                    INTS(KEY_LENGTHS, key_lengths, 1, Form::kFree),
                    SCALAR(GIVEN, given, kInt),
                    SCALAR(SEQ, seq, kInt),
                    SCALAR(MAX_KEYS, max_keys, kInt),
                    SCALAR(SLOTS, slots, kInt),
                    INTS(HELD, held, 1),
                    INTS(COUNTS, counts, 1),
                    INTS(SLOTS_OUT, slots_out, 1)};
        case ATTNC_DEVICE_KERNEL_FILL_RUNS:
            return {INTS(ITEMS, items, 2),
                    INTS(COUNTS, counts, 1),
                    INTS(CACHE_SLOTS, cache_slots, 1),
                    INTS(BLOCK_TABLE, block_table, 2, Form::kFree),
                    SCALAR(GIVEN, given, kInt),
                    SCALAR(SLOT_ROWS, slot_rows, kInt),
                    SCALAR(CAPACITY, capacity, kInt),
                    SCALAR(PAGE_SIZE, page_size, kInt),
                    SCALAR(PAGES, pages, kInt),
                    INTS(KEY_RUNS, key_runs, 2)};
        case ATTNC_DEVICE_KERNEL_APPEND_ROWS:
            return {FLOATS(INPUT, x, 3, Form::kFeatures),
                    INTS(FIRST_ROWS, first_rows, 1, Form::kFree),
                    INTS(HELD, held, 1),
                    INTS(COUNTS, counts, 1),
                    INTS(KEY_RUNS, key_runs, 2),
                    SCALAR(SEQ, seq, kInt),
                    FLOATS(Y, y, 3, Form::kFeatures)};
        case ATTNC_DEVICE_KERNEL_KEEP_LENGTHS:
            return {INTS(COUNTS, counts, 1), INTS(CACHE_SLOTS, cache_slots, 1),
                    SCALAR(CAPACITY, capacity, kInt), INTS(KEPT, kept, 1)};
        default:  // rotate_heads
            return tables +
                   std::vector<Rule>{FLOATS(INPUT, x, 3, Form::kFeatures), FLOATS(Y, y, 3, Form::kFeatures)};
    }
}

}  // namespace

const std::vector<Rule>& rules(int kernel) {
    static const std::vector<std::vector<Rule>> all = [] {
        std::vector<std::vector<Rule>> made;
        made.reserve(ATTNC_DEVICE_KERNEL_COUNT);
        for (int k = 0; k < ATTNC_DEVICE_KERNEL_COUNT; ++k) made.push_back(rules_of(k));
        return made;
    }();
    return all[static_cast<size_t>(kernel)];
}

HalideType type_of(Kind kind) {
    switch (kind) {
        case Kind::kBytes:
            return kUint8;
        case Kind::kInts:
            return kInt32;
        case Kind::kWides:
            return kUint64;
        default:
            return kFloat32;
    }
}

}  // namespace attnc::test
