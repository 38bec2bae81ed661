#include "runtime/masks.h"

#include <cfloat>
#include <initializer_list>

#include "runtime/arithmetic.h"
#include "runtime/attend.h"
#include "runtime/nonfinite.h"

namespace attnc {
namespace {

// What a mask that isn't read points to: a kernel takes no null pointers.
constexpr float kNoBias = 0;
constexpr uint8_t kNoMask = 0;

template <typename T>
const T* element(const MaskView& view, const Item& item, int64_t key) {
    return static_cast<const T*>(view.data) + item.number * view.batch_stride + key * view.key_stride;
}

void drop_keys(const MaskView& mask, const Item& item, bool dropped_where, float* addend) {
    const uint8_t* from = element<uint8_t>(mask, item, item.kv_first);
    const float dropped = minus_infinity();
    for (int64_t j = 0; j < item.kv_used(); ++j) {
        if ((from[j * mask.key_stride] != 0) == dropped_where) addend[j] = dropped;
    }
}

// Two finite biases may sum up to -inf, which would drop the key; it stays at the most negative number then.
void add_bias(const MaskView& bias, const Item& item, float* addend) {
    const float* from = element<float>(bias, item, item.kv_first);
    for (int64_t j = 0; j < item.kv_used(); ++j) {
        const float a = addend[j], b = from[j * bias.key_stride];
        const float sum = a + b;
        const bool overflowed = is_minus_infinity(sum) && !is_minus_infinity(a) && !is_minus_infinity(b);
        addend[j] = overflowed ? -FLT_MAX : sum;
    }
}

bool make_key_addend(const Wave& wave, const void*, Worker&, int64_t index, const char**) {
    const Request& r = wave.request;
    const Item& item = wave.items[index];
    float* addend = wave.at<float>(wave.plan.key_addend) + item.kv_row;
    for (int64_t j = 0; j < item.kv_used(); ++j) addend[j] = 0;
    for (const MaskView* bias : {&r.bias, &r.key_bias}) {
        if (bias->present && bias->per_key) add_bias(*bias, item, addend);
    }
    // Dropping last: a dropped key stays dropped whatever its bias.
    for (const MaskView* keep : {&r.keep_mask, &r.key_keep_mask}) {
        if (keep->present && keep->per_key) drop_keys(*keep, item, false, addend);
    }
    for (const MaskView* drop : {&r.drop_mask, &r.key_drop_mask}) {
        if (drop->present && drop->per_key) drop_keys(*drop, item, true, addend);
    }
    return true;
}

}  // namespace

WorkList key_addend_work(const Wave& wave) {
    return {wave.plan.makes_key_addend ? wave.item_count : 0, make_key_addend, nullptr};
}

MaskSource mask_source(const MaskView& view, const Item& item, int64_t head, int64_t row, int64_t key,
                       int64_t size) {
    const int64_t offset = item.number * view.batch_stride + head * view.head_stride +
                           row * view.query_stride + key * view.key_stride;
    return {static_cast<const unsigned char*>(view.data) + offset * size, view.head_stride, view.query_stride,
            view.key_stride};
}

MaskSource key_addend_source(const Wave& wave, const Item& item, int64_t key) {
    if (const MaskView* view = wave.masks.in_place)
        return {element<float>(*view, item, key), 0, 0, view->key_stride};
    return {wave.at<float>(wave.plan.key_addend) + item.kv_row + key - item.kv_first, 0, 0, 1};
}

MaskArguments::MaskArguments(const MaskSource& key_bias, const MaskSource& bias, const MaskSource& keep,
                             const MaskSource& drop, const Range& range, int32_t flags)
    : key_bias_(key_bias.data, kFloat32, {{range.keys, key_bias.key_stride}}),
      bias_(bias.data, kFloat32, {{range.keys, bias.key_stride}, {range.rows, bias.query_stride}}),
      keep_(keep.data, kUint8, {{range.keys, keep.key_stride}, {range.rows, keep.query_stride}}),
      drop_(drop.data, kUint8, {{range.keys, drop.key_stride}, {range.rows, drop.query_stride}}),
      key_blocks_(range.blocks.data != nullptr ? range.blocks.data : &kNoMask, kUint8,
                  {{divide_up(range.keys, kGranule), range.blocks.data != nullptr ? 1 : 0},
                   {divide_up(range.rows, kGranule), range.blocks.columns}}),
      flags_(flags | (range.blocks.data != nullptr ? ATTNC_MASK_BLOCKS : 0)) {}

// Of a call's mask, or where it isn't used of anything that may be read.
MaskSource MaskArguments::source_of(const MaskView& view, bool used, const Item& item, int64_t head,
                                    const Range& range, int64_t size) {
    if (!used || range.appended) return {size == 1 ? static_cast<const void*>(&kNoMask) : &kNoBias, 0, 0, 0};
    return mask_source(view, item, head, range.row, range.key, size);
}

MaskSource MaskArguments::key_source(const Wave& wave, const Item& item, const Range& range) {
    if (!wave.masks.key_addend || range.appended) return {&kNoBias, 0, 0, 0};
    return key_addend_source(wave, item, range.key);
}

MaskArguments::MaskArguments(const Wave& wave, const Item& item, int64_t head, const Range& range)
    : MaskArguments(key_source(wave, item, range),
                    source_of(wave.request.bias, wave.masks.bias, item, head, range, sizeof(float)),
                    source_of(wave.request.keep_mask, wave.masks.keep, item, head, range, 1),
                    source_of(wave.request.drop_mask, wave.masks.drop, item, head, range, 1), range,
                    flags_of(wave, range.appended)) {
    if (wave.layer.softcap != 0) softcap_ = wave.layer.softcap;
    if (wave.layer.alibi_slopes == nullptr || range.appended) return;
    alibi_slope_ = wave.layer.alibi_slopes[head];
    own_key_ = kernel_own_key(item, range.row, range.key);
}

GroupMaskArguments::GroupMaskArguments(const Wave& wave, const Item& item, int64_t head, int64_t heads,
                                       const MaskArguments::Range& range, const uint8_t* drop)
    : GroupMaskArguments(
          wave, item, head, heads, range, MaskArguments::key_source(wave, item, range),
          MaskArguments::source_of(wave.request.bias, wave.masks.bias, item, head, range, sizeof(float)),
          MaskArguments::source_of(wave.request.keep_mask, wave.masks.keep, item, head, range, 1),
          drop != nullptr
              ? MaskSource{drop, range.rows * range.keys, range.keys, 1}
              : MaskArguments::source_of(wave.request.drop_mask, wave.masks.drop, item, head, range, 1)) {
    if (drop != nullptr) flags_ |= ATTNC_MASK_DROP;
}

GroupMaskArguments::GroupMaskArguments(const Wave& wave, const Item& item, int64_t head, int64_t heads,
                                       const MaskArguments::Range& range, const MaskSource& key_bias,
                                       const MaskSource& bias, const MaskSource& keep, const MaskSource& drop)
    : key_bias_(key_bias.data, kFloat32, {{range.keys, key_bias.key_stride}}),
      bias_(bias.data, kFloat32,
            {{range.keys, bias.key_stride}, {range.rows, bias.query_stride}, {heads, bias.head_stride}}),
      keep_(keep.data, kUint8,
            {{range.keys, keep.key_stride}, {range.rows, keep.query_stride}, {heads, keep.head_stride}}),
      drop_(drop.data, kUint8,
            {{range.keys, drop.key_stride}, {range.rows, drop.query_stride}, {heads, drop.head_stride}}),
      alibi_slopes_(wave.layer.alibi_slopes != nullptr ? wave.layer.alibi_slopes + head : &kNoBias, kFloat32,
                    {{heads, 1}}),
      flags_(MaskArguments::flags_of(wave, false)),
      own_key_(kernel_own_key(item, range.row, range.key)),
      softcap_(wave.layer.softcap != 0 ? wave.layer.softcap : 1) {}

int32_t MaskArguments::flags_of(const Wave& wave, bool appended) {
    const int32_t softcap = wave.layer.softcap != 0 ? ATTNC_MASK_SOFTCAP : 0;
    if (appended) return softcap;
    const MaskUse& use = wave.masks;
    return softcap | (wave.layer.alibi_slopes != nullptr ? ATTNC_MASK_ALIBI : 0) |
           (use.key_addend ? ATTNC_MASK_KEY_BIAS : 0) | (use.bias ? ATTNC_MASK_BIAS : 0) |
           (use.keep ? ATTNC_MASK_KEEP : 0) | (use.drop ? ATTNC_MASK_DROP : 0);
}

}  // namespace attnc
