#include "runtime/item.h"

#include "runtime/arithmetic.h"

namespace attnc {
namespace {

// a + b, or what of int64_t is nearest.
int64_t saturated_sum(int64_t a, int64_t b) {
    int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b < 0 ? INT64_MIN : INT64_MAX;
}

int32_t within_limits(int64_t key) {
    if (key > kNoLastKey) return kNoLastKey;
    return key < kNoFirstKey ? kNoFirstKey : static_cast<int32_t>(key);
}

// Query i's own key is i + diagonal. Where a call names no diagonal, windows and ALiBi count from the bottom-right one.
int64_t diagonal(const Request& r, const Item& item) {
    switch (r.causal) {
        case ATTNC_CAUSAL_TOP_LEFT:
            return 0;
        case ATTNC_CAUSAL_OFFSET:
            return r.causal_offsets.at(item.number);
        default:
            return int64_t{item.kv_length} - item.q_length;
    }
}

// The item's interval of keys, from its lengths, the diagonal and the layer's window.
void set_interval(const attnc_layer& layer, const Request& r, Item& item) {
    const int64_t own = diagonal(r, item);
    item.own_key = within_limits(own);
    item.first_key = kNoFirstKey;
    item.last_key = kNoLastKey;
    if ((layer.window & ATTNC_WINDOW_LEFT) != 0)
        item.first_key = within_limits(saturated_sum(own, -layer.window_left));
    if (r.causal != ATTNC_CAUSAL_NONE) {
        item.last_key = within_limits(saturated_sum(own, 1));
    } else if ((layer.window & ATTNC_WINDOW_RIGHT) != 0) {
        item.last_key = within_limits(saturated_sum(saturated_sum(own, layer.window_right), 1));
    }
}

}  // namespace

Item make_item(const attnc_layer& layer, const Request& r, int64_t number) {
    const bool needs_all_keys = layer.empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES ||
                                r.scores_stage == ATTNC_SCORES_SCALED ||
                                r.scores_stage == ATTNC_SCORES_SOFTCAPPED;
    const int64_t tile = layer.layout.tile_kv;
    Item item = {};
    item.number = number;
    item.q_origin = query_origin_of(r, number);
    item.kv_origin = key_origin_of(r, number);
    item.q_length =
        static_cast<int32_t>(r.query_lengths.present ? r.query_lengths.at(number) : query_rows_of(r, number));
    item.kv_length = static_cast<int32_t>(all_keys_of(r, number));
    if (r.cache.appends) item.new_keys = static_cast<int32_t>(new_keys_of(r, number));
    set_interval(layer, r, item);
    if (item.q_length == 0) return item;
    const KeyInterval seen = visible_keys(item, 0, item.q_length);
    item.kv_first = needs_all_keys ? 0 : static_cast<int32_t>(seen.first / tile * tile);
    item.kv_end = needs_all_keys ? item.kv_length : static_cast<int32_t>(seen.end);
    return item;
}

KeyInterval visible_keys(const Item& item, int64_t row, int64_t last) {
    const int64_t end = most(least(last - 1 + item.last_key, item.kv_length), 0);
    const int64_t first = most(row + item.first_key, 0);
    return first < end ? KeyInterval{first, end} : KeyInterval{0, 0};
}

}  // namespace attnc
