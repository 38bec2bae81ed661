#include "runtime/rotary.h"

#include <string.h>

#include "runtime/call.h"
#include "runtime/rows.h"

namespace attnc {
namespace {

// Rows of one piece of work.
constexpr int64_t kAngleRows = 64;

int64_t rows_of(const Wave& wave, bool keys) { return keys ? wave.new_rows : wave.q_rows; }
int64_t table_of(const Plan& plan, bool keys) { return keys ? plan.k_angles : plan.q_angles; }

bool run_angles(const Wave& wave, bool keys, Worker& worker, int64_t index, const char** refused) {
    const int64_t total = rows_of(wave, keys), first = index * kAngleRows;
    const int64_t end = total - first < kAngleRows ? total : first + kAngleRows;
    // Of a tensor whose items never follow one another, so that a stretch is of one item.
    Rows rows = {};
    rows.items = wave.items, rows.item_count = wave.item_count,
    rows.kind = !keys                ? RowKind::kQueries
                : wave.request.cache ? RowKind::kAppended
                                     : RowKind::kKeys;
    rows.total = total, rows.batch_stride = -1, rows.row_stride = 1, rows.call_rows = kAngleRows;
    int32_t positions[kAngleRows];
    for (int64_t row = first; row < end;) {
        const Stretch s = stretch_at(rows, row, end);
        for (int64_t i = 0; i < s.count; ++i) {
            positions[row - first + i] = static_cast<int32_t>(
                position_of(wave.request, keys, wave.items[s.item].number, s.item_row + i));
        }
        row += s.count;
    }
    float* to = wave.at<float>(table_of(wave.plan, keys)) + first * 2 * wave.layer.rotary.stride;
    *refused = "rotary_angles";
    return make_angles(wave.layer, positions, end - first, to, worker.task);
}

bool run_query_angles(const Wave& wave, const void*, Worker& worker, int64_t index, const char** refused) {
    return run_angles(wave, false, worker, index, refused);
}
bool run_key_angles(const Wave& wave, const void*, Worker& worker, int64_t index, const char** refused) {
    return run_angles(wave, true, worker, index, refused);
}

}  // namespace

int64_t first_position(const Request& r, int64_t item) {
    if (r.position_offsets.present) return r.position_offsets.at(item);
    return r.cache ? r.cache.held(item) : 0;
}

int64_t position_of(const Request& r, bool keys, int64_t item, int64_t row) {
    const RowNumbers& given = keys ? r.key_positions : r.query_positions;
    if (!given.present) return first_position(r, item) + row;
    return given.at(keys ? key_origin_of(r, item) : query_origin_of(r, item), row);
}

bool keys_share_angles(const Wave& wave) {
    if (!wave.request.same_positions) return false;
    for (int64_t i = 0; i < wave.item_count; ++i) {
        const Item& item = wave.items[i];
        const bool same_rows = wave.request.cache ? item.new_keys == item.q_length
                                                  : item.kv_first == 0 && item.kv_end == item.q_length;
        if (!same_rows) return false;
        if (wave.request.query_positions.present && item.q_origin != item.kv_origin) return false;
    }
    return true;
}

AngleRows angles_of(const Wave& wave, bool keys) {
    if (!wave.layer.rotates()) return {nullptr, 0};
    const bool of_keys = keys && !wave.keys_share_angles;
    return {wave.at<float>(table_of(wave.plan, of_keys)), wave.layer.rotary.stride};
}

bool make_angles(const attnc_layer& layer, const int32_t* positions, int64_t count, float* to,
                 attnc_task& task) {
    const LayerRotary& r = layer.rotary;
    const int64_t row = 2 * r.stride;
    if (r.table != nullptr) {
        for (int64_t i = 0; i < count; ++i)
            memcpy(to + i * row, r.table + positions[i] * row, static_cast<size_t>(row) * sizeof(float));
        return true;
    }
    Buffer<1> rows(positions, kInt32, {{count, 1}});
    Buffer<1> frequencies(r.turns, kUint64, {{r.pairs, 1}});
    Buffer<2> cos(to, kFloat32, {{r.pairs, 1}, {count, row}});
    Buffer<2> sin(to + r.stride, kFloat32, {{r.pairs, 1}, {count, row}});
    KernelCall call;
    call.set(ATTNC_ARGUMENT_POSITIONS, rows);
    call.set(ATTNC_ARGUMENT_FREQUENCIES, frequencies);
    call.set(ATTNC_ARGUMENT_MAGNITUDE, r.magnitude);
    call.set(ATTNC_ARGUMENT_COS_TABLE, cos);
    call.set(ATTNC_ARGUMENT_SIN_TABLE, sin);
    return call.run(layer.kernel(ATTNC_KERNEL_ROTARY_ANGLES), task);
}

WorkList query_angles_work(const Wave& wave) {
    const int64_t rows = wave.layer.rotates() ? wave.q_rows : 0;
    return {(rows + kAngleRows - 1) / kAngleRows, run_query_angles, nullptr};
}

WorkList key_angles_work(const Wave& wave) {
    const int64_t rows = wave.layer.rotates() && !wave.keys_share_angles ? wave.new_rows : 0;
    return {(rows + kAngleRows - 1) / kAngleRows, run_key_angles, nullptr};
}

}  // namespace attnc
