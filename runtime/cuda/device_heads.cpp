#include "runtime/cuda/device_heads.h"

namespace attnc::cuda {
namespace {

// Calls launch(item, items) for all items at once where a buffer can have them `batch_stride` apart.
template <typename Launch>
attnc_status for_items(const TokenRows& t, int64_t batch_stride, const Launch& launch) {
    if (fits(t.items, batch_stride, kFloat)) return launch(int64_t{0}, t.items);
    for (int64_t item = 0; item < t.items; ++item) ATTNC_TRY(launch(item, int64_t{1}));
    return ATTNC_OK;
}

}  // namespace

attnc_status split_heads(const DeviceWave& w, const TokenRows& t, const TokenView& view, const Heads& h,
                         float* to) {
    const float* from = view.data + w.first * view.batch_stride;
    return for_items(t, view.batch_stride, [&](int64_t item, int64_t items) {
        Buffer<4> x(on_device(from + item * view.batch_stride), kFloat32,
                    {{h.features, 1},
                     {t.seq, view.row_stride},
                     {h.heads, view.head_stride},
                     {items, view.batch_stride}});
        Buffer<1> lengths(on_device(t.counts + item), kInt32, {{items, 1}});
        Buffer<3> y(on_device(to + item * t.seq * h.width), kFloat32,
                    {{h.width, 1}, {items * t.seq, h.width}, {h.heads, t.rows() * h.width}});
        DeviceCall call;
        call.set(ATTNC_DEVICE_ARGUMENT_INPUT, x);
        call.set(ATTNC_DEVICE_ARGUMENT_LENGTHS, lengths);
        call.set(ATTNC_DEVICE_ARGUMENT_Y, y);
        return w.run(ATTNC_DEVICE_KERNEL_SPLIT_HEADS, call);
    });
}

attnc_status merge_heads(const DeviceWave& w, const TokenRows& t, const MergedHeads& from,
                         const OutView& out) {
    const Heads& h = from.heads;
    return for_items(t, out.batch_stride, [&](int64_t item, int64_t items) {
        Buffer<3> context(on_device(from.data + item * t.seq * from.row_stride), kFloat32,
                          {{h.width, 1}, {h.heads, from.head_stride}, {items * t.seq, from.row_stride}});
        Buffer<1> lengths(on_device(t.counts + item), kInt32, {{items, 1}});
        Buffer<4> to(on_device(out.data + (w.first + item) * out.batch_stride), kFloat32,
                     {{h.features, 1},
                      {t.seq, out.row_stride},
                      {h.heads, out.head_stride},
                      {items, out.batch_stride}});
        DeviceCall call;
        call.set(ATTNC_DEVICE_ARGUMENT_CONTEXT, context);
        call.set(ATTNC_DEVICE_ARGUMENT_LENGTHS, lengths);
        call.set(ATTNC_DEVICE_ARGUMENT_OUT, to);
        return w.run(ATTNC_DEVICE_KERNEL_MERGE_HEADS, call);
    });
}

attnc_status norm_planes(const DeviceWave& w, const HeadPlanes& planes, const float* norm) {
    Buffer<3> x = planes.buffer(), y = planes.buffer();
    Buffer<1> weight(on_device(norm), kFloat32, {{planes.width, 1}});
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_INPUT, x);
    call.set(ATTNC_DEVICE_ARGUMENT_NORM_WEIGHT, weight);
    call.set(ATTNC_DEVICE_ARGUMENT_EPSILON, w.layer.norm_epsilon);
    call.set(ATTNC_DEVICE_ARGUMENT_Y, y);
    return w.run(ATTNC_DEVICE_KERNEL_NORM_HEADS, call);
}

attnc_status make_angles(const DeviceWave& w, const TokenRows& t, const RowNumbers& positions,
                         int64_t first_row, const Angles& angles) {
    const LayerRotary& rotary = w.layer.rotary;
    const ItemNumbers& offsets = w.request.position_offsets;
    const auto first = static_cast<int32_t>(first_row);
    const int64_t width = positions.wide ? 8 : 4, step = width / 4;
    const void* numbers = positions.present ? static_cast<const unsigned char*>(positions.data) +
                                                  w.first * positions.batch_stride * width
                                            : w.layer.anything();
    Buffer<2> rows(on_device(numbers), kInt32,
                   {{t.seq, positions.present ? step : 0},
                    {t.items, positions.present ? positions.batch_stride * step : 0}});
    // In a cache rows go on where the item's keys ended.
    const bool behind = w.plan.cached && !offsets.present;
    const DeviceWave::Numbers from =
        behind ? DeviceWave::Numbers{w.cached(w.plan.held), 1} : w.numbers(offsets);
    Buffer<1> item_offsets(on_device(from.data), kInt32, {{t.items, from.stride}});
    const bool counted = (offsets.present || behind) && !positions.present;
    const int32_t given =
        (positions.present ? ATTNC_GIVEN_POSITIONS : 0) | (counted ? ATTNC_GIVEN_POSITION_OFFSETS : 0);
    Buffer<2> cosines = angles.cosines(), sines = angles.sines();
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_POSITIONS, rows);
    call.set(ATTNC_DEVICE_ARGUMENT_POSITION_OFFSETS, item_offsets);
    call.set(ATTNC_DEVICE_ARGUMENT_GIVEN, given);
    call.set(ATTNC_DEVICE_ARGUMENT_FIRST_ROW, first);
    call.set(ATTNC_DEVICE_ARGUMENT_COS_TABLE, cosines);
    call.set(ATTNC_DEVICE_ARGUMENT_SIN_TABLE, sines);
    if (rotary.table != nullptr) {
        const Dimension entries[] = {{rotary.pairs, 1}, {rotary.table_rows, 2 * rotary.stride}};
        Buffer<2> table_cos(on_device(rotary.table), kFloat32, {entries[0], entries[1]});
        Buffer<2> table_sin(on_device(rotary.table + rotary.stride), kFloat32, {entries[0], entries[1]});
        call.set(ATTNC_DEVICE_ARGUMENT_TABLE_COS, table_cos);
        call.set(ATTNC_DEVICE_ARGUMENT_TABLE_SIN, table_sin);
        return w.run(ATTNC_DEVICE_KERNEL_ROTARY_ROWS, call);
    }
    Buffer<1> frequencies(on_device(rotary.turns), kUint64, {{rotary.pairs, 1}});
    call.set(ATTNC_DEVICE_ARGUMENT_FREQUENCIES, frequencies);
    call.set(ATTNC_DEVICE_ARGUMENT_MAGNITUDE, rotary.magnitude);
    return w.run(ATTNC_DEVICE_KERNEL_ROTARY_ANGLES, call);
}

attnc_status rotate_planes(const DeviceWave& w, const HeadPlanes& planes, const Angles& angles) {
    Buffer<2> cosines = angles.cosines(), sines = angles.sines();
    Buffer<3> x = planes.buffer(), y = planes.buffer();
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_COS_TABLE, cosines);
    call.set(ATTNC_DEVICE_ARGUMENT_SIN_TABLE, sines);
    call.set(ATTNC_DEVICE_ARGUMENT_INPUT, x);
    call.set(ATTNC_DEVICE_ARGUMENT_Y, y);
    return w.run(ATTNC_DEVICE_KERNEL_ROTATE_HEADS, call);
}

}  // namespace attnc::cuda
