// Tables of a wave's items, made on the device.
#include "runtime/arithmetic.h"
#include "runtime/cuda/device_wave.h"

namespace attnc::cuda {
namespace {

constexpr int64_t kMostWindow = 1 << 30;  // keys; more would be no limit

struct Filling {
    int32_t given, seq_q, seq_kv;
    int32_t diagonal = ATTNC_DIAGONAL_NONE, window_left = -1, window_right = -1;
    const int32_t* key_counts = nullptr;  // made on the device, instead of the call's key_lengths
};

int32_t given_by(const Request& r) {
    int32_t given = 0;
    if (r.query_lengths.present) given |= ATTNC_GIVEN_QUERY_LENGTHS;
    if (r.key_lengths.present) given |= ATTNC_GIVEN_KEY_LENGTHS;
    if (r.causal_offsets.present) given |= ATTNC_GIVEN_CAUSAL_OFFSETS;
    if (r.query_starts.present) given |= ATTNC_GIVEN_QUERY_STARTS;
    if (r.key_starts.present) given |= ATTNC_GIVEN_KEY_STARTS;
    return given;
}

int32_t diagonal_of(attnc_causal causal) {
    switch (causal) {
        case ATTNC_CAUSAL_TOP_LEFT:
            return ATTNC_DIAGONAL_TOP_LEFT;
        case ATTNC_CAUSAL_BOTTOM_RIGHT:
            return ATTNC_DIAGONAL_BOTTOM_RIGHT;
        case ATTNC_CAUSAL_OFFSET:
            return ATTNC_DIAGONAL_OFFSETS;
        default:
            return ATTNC_DIAGONAL_NONE;
    }
}

attnc_status fill(const DeviceWave& w, const ItemTable& table, int64_t items, const Filling& filling) {
    const Request& r = w.request;
    const auto view = [&](const ItemNumbers& numbers, int64_t count) {
        const DeviceWave::Numbers n = w.numbers(numbers);
        return Buffer<1>(on_device(n.data), kInt32, {{count, n.stride}});
    };
    Buffer<1> query_lengths = view(r.query_lengths, items);
    Buffer<1> key_lengths = filling.key_counts != nullptr
                                ? Buffer<1>(on_device(filling.key_counts), kInt32, {{items, 1}})
                                : view(r.key_lengths, items);
    Buffer<1> causal_offsets = view(r.causal_offsets, items);
    Buffer<1> query_starts = view(r.query_starts, items + 1), key_starts = view(r.key_starts, items + 1);
    Buffer<2> out(on_device(w.at<int32_t>(table.items)), kInt32,
                  {{ATTNC_ITEM_COLUMNS, 1}, {items, ATTNC_ITEM_COLUMNS}});
    Buffer<1> query_counts(on_device(w.at<int32_t>(table.query_counts)), kInt32, {{items, 1}});
    Buffer<1> key_counts(on_device(w.at<int32_t>(table.key_counts)), kInt32, {{items, 1}});
    DeviceCall call;
    call.set(ATTNC_DEVICE_ARGUMENT_QUERY_LENGTHS, query_lengths);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_LENGTHS, key_lengths);
    call.set(ATTNC_DEVICE_ARGUMENT_CAUSAL_OFFSETS, causal_offsets);
    call.set(ATTNC_DEVICE_ARGUMENT_QUERY_STARTS, query_starts);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_STARTS, key_starts);
    call.set(ATTNC_DEVICE_ARGUMENT_GIVEN, filling.given);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ_Q, filling.seq_q);
    call.set(ATTNC_DEVICE_ARGUMENT_SEQ_KV, filling.seq_kv);
    call.set(ATTNC_DEVICE_ARGUMENT_DIAGONAL, filling.diagonal);
    call.set(ATTNC_DEVICE_ARGUMENT_WINDOW_LEFT, filling.window_left);
    call.set(ATTNC_DEVICE_ARGUMENT_WINDOW_RIGHT, filling.window_right);
    call.set(ATTNC_DEVICE_ARGUMENT_ITEMS, out);
    call.set(ATTNC_DEVICE_ARGUMENT_QUERY_COUNTS, query_counts);
    call.set(ATTNC_DEVICE_ARGUMENT_KEY_COUNTS, key_counts);
    return w.run(ATTNC_DEVICE_KERNEL_FILL_ITEMS, call);
}

// The items as the call has them, and the forms of them that it needs besides.
attnc_status fill_queries(const DeviceWave& w) {
    const Request& r = w.request;
    const DeviceLayer& layer = w.layer;
    const auto window = [&](int side, int64_t keys) {
        return (layer.window & side) != 0 ? static_cast<int32_t>(least(keys, kMostWindow)) : -1;
    };
    const auto seq_q = static_cast<int32_t>(r.seq_q), seq_kv = static_cast<int32_t>(r.seq_kv);
    Filling call = {given_by(r), seq_q, seq_kv, diagonal_of(r.causal)};
    if (w.plan.cached) {
        call.given = (call.given & ~ATTNC_GIVEN_KEY_STARTS) | ATTNC_GIVEN_KEY_LENGTHS;
        call.key_counts = w.cached(w.plan.counts);
    }
    call.window_left = window(ATTNC_WINDOW_LEFT, layer.window_left);
    if (r.causal == ATTNC_CAUSAL_NONE) call.window_right = window(ATTNC_WINDOW_RIGHT, layer.window_right);
    ATTNC_TRY(fill(w, w.plan.call, w.items, call));
    if (w.plan.opens) {
        Filling open = {call.given & ~ATTNC_GIVEN_CAUSAL_OFFSETS, seq_q, seq_kv};
        open.key_counts = call.key_counts;
        ATTNC_TRY(fill(w, w.plan.open, w.items, open));
    }
    if (layer.appended == 0) return ATTNC_OK;
    constexpr int32_t kQueries = ATTNC_GIVEN_QUERY_LENGTHS | ATTNC_GIVEN_QUERY_STARTS;
    return fill(w, w.plan.appended, w.items, {call.given & kQueries, seq_q, 1});
}

}  // namespace

DeviceWave begin_wave(attnc_error* error, const DeviceLayer& layer, const Request& r, const DevicePlan& plan,
                      void* workspace, Stream stream, int64_t first) {
    auto* bytes = static_cast<unsigned char*>(workspace);
    const int64_t items = least(r.batch - first, plan.wave_items);
    const ItemTable& table = plan.packed ? plan.all : plan.call;
    // Without a table of their own, as many new keys count as queries.
    const int64_t new_counts = plan.packed         ? plan.all.key_counts
                               : plan.counts_apart ? plan.fresh.key_counts
                               : plan.cached       ? table.query_counts
                                                   : table.key_counts;
    const auto rows = [&](int64_t seq, int64_t total, int64_t counts) {
        const auto* at = reinterpret_cast<const int32_t*>(bytes + counts);
        return plan.packed ? TokenRows{1, total, at} : TokenRows{items, seq, at};
    };
    return {.layer = layer,
            .request = r,
            .plan = plan,
            .stream = stream,
            .workspace = bytes,
            .error = error,
            .first = first,
            .items = items,
            .queries = rows(r.seq_q, r.total_q, table.query_counts),
            .keys = rows(r.seq_new, r.total_kv, new_counts),
            .q = nullptr,
            .k = nullptr,
            .v = nullptr};
}

attnc_status fill_whole_items(const DeviceWave& w, int64_t rows) {
    return fill(w, w.plan.call, w.items, {0, static_cast<int32_t>(rows), 0});
}

attnc_status fill_tables(const DeviceWave& w) {
    const DevicePlan& plan = w.plan;
    const auto seq_q = static_cast<int32_t>(w.request.seq_q),
               seq_new = static_cast<int32_t>(w.request.seq_new);
    if (plan.packed) ATTNC_TRY(fill(w, plan.all, 1, {0, seq_q, seq_new}));
    if (plan.attends) ATTNC_TRY(fill_queries(w));
    if (plan.counts_apart && !plan.packed) ATTNC_TRY(fill_new_keys(w));
    return fill_key_runs(w);
}

attnc_status fill_new_keys(const DeviceWave& w) {
    constexpr int32_t kKeys = ATTNC_GIVEN_KEY_LENGTHS | ATTNC_GIVEN_KEY_STARTS;
    return fill(w, w.plan.fresh, w.items,
                {given_by(w.request) & kKeys, 1, static_cast<int32_t>(w.request.seq_new)});
}

}  // namespace attnc::cuda
