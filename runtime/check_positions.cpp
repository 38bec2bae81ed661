// Checks of a call's positions: their tensors, and that every row's position is one that the layer can rotate by.
#include "runtime/check.h"
#include "runtime/check_rotary.h"
#include "runtime/request.h"
#include "runtime/rotary.h"

namespace attnc {
namespace {

struct Range {
    int64_t low, high;
};

bool may_rotate(const attnc_layer& layer) {
    return layer.has(ATTNC_CONFIG_ROTARY | ATTNC_CONFIG_ROTARY_PAIRS);
}

bool is_packed(const Request& r) { return r.query_starts.present || r.key_starts.present; }

Range positions_of(const attnc_layer& layer) {
    if (layer.rotary.table == nullptr) return {-kMaxPosition, kMaxPosition};
    return {0, layer.rotary.table_rows - 1};
}

// Rows of an item that have a position; 0 where its length isn't known yet.
int64_t valid_rows(const Request& r, bool keys, int64_t item) {
    const ItemNumbers& lengths = keys ? r.key_lengths : r.query_lengths;
    if (lengths.present) return lengths.data != nullptr ? lengths.at(item) : 0;
    return keys ? key_rows_of(r, item) : query_rows_of(r, item);
}

attnc_status check_rows(attnc_error* error, const char* name, const Request& r, const Range& range,
                        bool keys) {
    if ((keys ? r.key_positions : r.query_positions).data == nullptr) return ATTNC_OK;
    const bool packed = is_packed(r);
    for (int64_t item = 0; item < r.batch; ++item) {
        const int64_t rows = valid_rows(r, keys, item);
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t position = position_of(r, keys, item, row);
            if (position >= range.low && position <= range.high) continue;
            if (packed) {
                const int64_t index = (keys ? key_origin_of(r, item) : query_origin_of(r, item)) + row;
                return fail(
                    error, ATTNC_BAD_VALUE,
                    {name, "[", index, "] is ", position, ", wanted ", range.low, " to ", range.high});
            }
            return fail(
                error, ATTNC_BAD_VALUE,
                {name, "[", item, ", ", row, "] is ", position, ", wanted ", range.low, " to ", range.high});
        }
    }
    return ATTNC_OK;
}

attnc_status check_counted(attnc_error* error, const char* name, const Request& r, const Range& range,
                           bool keys) {
    if (r.position_offsets.present && r.position_offsets.data == nullptr) return ATTNC_OK;
    for (int64_t item = 0; item < r.batch; ++item) {
        const int64_t rows = valid_rows(r, keys, item);
        const int64_t first = first_position(r, item);
        if (rows == 0 || (first >= range.low && first <= range.high && rows - 1 <= range.high - first))
            continue;
        return fail(error, ATTNC_BAD_VALUE,
                    {name, " of item ", item, " begin at position ", first, " and are ", rows,
                     ", wanted positions from ", range.low, " to ", range.high});
    }
    return ATTNC_OK;
}

// Positions of a side's rows, given for each or counted from the first.
attnc_status check_side(attnc_error* error, const char* name, const char* rows, const attnc_layer& layer,
                        const Request& r, bool keys) {
    if (!layer.reads_numbers()) return ATTNC_OK;
    const Range range = positions_of(layer);
    const bool each = (keys ? r.key_positions : r.query_positions).present;
    return each ? check_rows(error, name, r, range, keys) : check_counted(error, rows, r, range, keys);
}

struct GivenNumbers {
    const char* name;
    const attnc_tensor& tensor;
};
attnc_status refuse_numbers(attnc_error* error, const GivenNumbers* numbers, int count) {
    for (int i = 0; i < count; ++i) {
        if (!given(numbers[i].tensor)) continue;
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {numbers[i].name, " is given, but the library was compiled without rotary"});
    }
    return ATTNC_OK;
}

attnc_status item_numbers(attnc_error* error, const attnc_tensor& t, bool needs_data, Request& r) {
    if (!given(t)) return ATTNC_OK;
    ATTNC_TRY(check_tensor(error, {"position_offsets", ATTNC_I32, ATTNC_I64, false, false, needs_data}, t,
                           {{"batch", r.batch}}));
    r.position_offsets = {t.data, true, t.dtype == ATTNC_I64};
    return ATTNC_OK;
}

// [batch, rows], or of packed tokens [rows].
attnc_status row_numbers(attnc_error* error, const char* name, const attnc_tensor& t, const Request& r,
                         Dim rows, bool needs_data, RowNumbers* numbers) {
    if (!given(t)) return ATTNC_OK;
    const TensorRule rule = {name, ATTNC_I32, ATTNC_I64, false, false, needs_data};
    const bool packed = is_packed(r);
    ATTNC_TRY(packed ? check_tensor(error, rule, t, {rows})
                     : check_tensor(error, rule, t, {{"batch", r.batch}, rows}));
    *numbers = {t.data, packed ? 1 : t.stride[0], true, t.dtype == ATTNC_I64};
    return ATTNC_OK;
}

bool same_memory(const attnc_tensor& a, const attnc_tensor& b) {
    bool same = a.data == b.data && a.rank == b.rank;
    for (int i = 0; same && i < a.rank; ++i)
        same = a.extent[i] == b.extent[i] && (a.extent[i] <= 1 || a.stride[i] == b.stride[i]);
    return same;
}

}  // namespace

attnc_status check_rotated_positions(attnc_error* error, const attnc_layer& layer,
                                     const attnc_rotation& rotation, Request& r) {
    const GivenNumbers numbers[] = {{"position_offsets", rotation.position_offsets},
                                    {"positions", rotation.positions}};
    if (!may_rotate(layer)) return refuse_numbers(error, numbers, 2);
    ATTNC_TRY(item_numbers(error, rotation.position_offsets, true, r));
    ATTNC_TRY(
        row_numbers(error, "positions", rotation.positions, r, {"seq", r.seq_q}, true, &r.query_positions));
    return check_side(error, "positions", "the rows", layer, r, false);
}

attnc_status check_positions(attnc_error* error, const attnc_layer& layer, const attnc_inputs& in,
                             bool needs_data, bool knows_keys, Request& r) {
    const GivenNumbers numbers[] = {{"position_offsets", in.position_offsets},
                                    {"query_positions", in.query_positions},
                                    {"key_positions", in.key_positions}};
    if (!may_rotate(layer)) return refuse_numbers(error, numbers, 3);
    ATTNC_TRY(item_numbers(error, in.position_offsets, needs_data, r));
    const bool packed = is_packed(r);
    const Dim queries = {packed ? "rows of query" : "seq_q", packed ? r.total_q : r.seq_q};
    const Dim keys = {packed ? "rows of key" : "seq_kv", packed ? r.total_kv : r.seq_new};
    ATTNC_TRY(row_numbers(error, "query_positions", in.query_positions, r, queries, needs_data,
                          &r.query_positions));
    ATTNC_TRY(row_numbers(error, "key_positions", in.key_positions, r, keys, needs_data, &r.key_positions));
    const bool self_attention = !given(in.key) || same_memory(in.query, in.key);
    r.same_positions = !r.query_positions.present && !r.key_positions.present;
    if (self_attention && !r.key_positions.present) {
        r.key_positions = r.query_positions;
        r.same_positions = true;
    }
    if (!knows_keys) return ATTNC_OK;
    ATTNC_TRY(check_side(error, "query_positions", "the queries", layer, r, false));
    return check_side(error, "key_positions", "the keys", layer, r, true);
}

}  // namespace attnc
