// Creating and destroying a layer.
#include "runtime/layer.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/arithmetic.h"
#include "runtime/carve.h"
#include "runtime/check.h"
#include "runtime/check_rotary.h"
#include "runtime/device_runtime.h"
#include "runtime/layer_sources.h"
#include "runtime/library.h"
#include "runtime/pack.h"
#include "runtime/text.h"

namespace attnc {
namespace {

constexpr int64_t kMaxSpan = INT32_MAX;  // bytes of a buffer that a kernel may be given

void* allocate_default(void*, size_t bytes, size_t alignment) {
    constexpr size_t kLargePage = size_t{2} << 20;
    void* memory = aligned_alloc(bytes >= kLargePage ? kLargePage : alignment, bytes);
    attnc_memory_advise(memory, bytes);
    return memory;
}
void deallocate_default(void*, void* memory, size_t) { free(memory); }

attnc_status check_window(attnc_error* error, const attnc_layer_options& options) {
    const int window = number_of(options.window);
    if (window < ATTNC_WINDOW_NOT_GIVEN || window > ATTNC_WINDOW_BOTH) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"window is ", window, ", wanted 0 to ", static_cast<int>(ATTNC_WINDOW_BOTH)});
    }
    const struct {
        const char* name;
        int64_t keys;
        int side;
    } sides[] = {{"left", options.window_left, ATTNC_WINDOW_LEFT},
                 {"right", options.window_right, ATTNC_WINDOW_RIGHT}};
    for (const auto& side : sides) {
        if ((window & side.side) == 0) {
            if (side.keys == 0) continue;
            return fail(
                error, ATTNC_BAD_VALUE,
                {"window_", side.name, " is ", side.keys, ", but window does not limit the ", side.name});
        }
        if (side.keys < 0) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"window_", side.name, " is ", side.keys, ", wanted 0 or more"});
        }
    }
    return ATTNC_OK;
}

attnc_status check_softcap(attnc_error* error, const attnc_config& config, float softcap) {
    if (softcap == 0) return ATTNC_OK;
    if ((config.flags & ATTNC_CONFIG_SOFTCAP) == 0) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"softcap is given, but the library was compiled without softcap"});
    }
    if (!is_finite(softcap)) return fail(error, ATTNC_BAD_VALUE, {"softcap is not finite"});
    if (softcap < 0) return fail(error, ATTNC_BAD_VALUE, {"softcap is negative, wanted 0 or more"});
    // Its reciprocal has to be a number as well.
    if (softcap < 0x1p-126F || softcap > 0x1p126F)
        return fail(error, ATTNC_BAD_VALUE, {"softcap is outside 2^-126 to 2^126"});
    return ATTNC_OK;
}

attnc_status check_options(attnc_error* error, const attnc_layer_options& options) {
    if (options.struct_size != sizeof(attnc_layer_options)) {
        return fail(error, ATTNC_BAD_STRUCT_SIZE,
                    {"struct_size of attnc_layer_options is ", options.struct_size, ", wanted ",
                     sizeof(attnc_layer_options)});
    }
    if (options.allocator != nullptr && options.allocator->allocate == nullptr) {
        return fail(error, ATTNC_NULL_ARGUMENT, {"allocator.allocate is null"});
    }
    if (options.allocator != nullptr && options.allocator->deallocate == nullptr) {
        return fail(error, ATTNC_NULL_ARGUMENT, {"allocator.deallocate is null"});
    }
    const int empty_rows = number_of(options.empty_rows);
    if (empty_rows < ATTNC_EMPTY_ROWS_NOT_GIVEN || empty_rows > ATTNC_EMPTY_ROWS_NAN) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"empty_rows is ", empty_rows, ", wanted 0 to ", static_cast<int>(ATTNC_EMPTY_ROWS_NAN)});
    }
    if (!is_finite(options.qk_scale)) return fail(error, ATTNC_BAD_VALUE, {"qk_scale is not finite"});
    return check_window(error, options);
}

// What follows from configuration and options, on any target.
attnc_layer describe(const attnc_library& library, const attnc_layer_options& options) {
    constexpr attnc_allocator kDefault = {nullptr, allocate_default, deallocate_default};
    attnc_layer layer = {};
    layer.allocator = options.allocator != nullptr ? *options.allocator : kDefault;
    layer.library = &library;
    layer.config = library.config;
    const attnc_config& c = layer.config;
    const double scale =
        options.qk_scale != 0 ? options.qk_scale : 1 / __builtin_sqrt(static_cast<double>(c.head_dim));
    layer.qk_scale = static_cast<float>(scale);
    layer.softcap = options.softcap;
    layer.window = options.window;
    layer.window_left = options.window_left, layer.window_right = options.window_right;
    layer.qk_width = padded_features(c.head_dim);
    layer.v_width = padded_features(c.v_head_dim);
    layer.appended = (layer.has(ATTNC_CONFIG_BIAS_KV) ? 1 : 0) + (layer.has(ATTNC_CONFIG_ZERO_ATTN) ? 1 : 0);
    return layer;
}

// And from the layout of a CPU's target.
void describe_target(attnc_layer& layer, const attnc_target_entry& target) {
    layer.target = &target;
    layer.layout = target.layout;
    const attnc_config& c = layer.config;
    for (const attnc_kernel_entry& kernel : target.kernels) {
        if (kernel.run != nullptr && kernel.scratch_bytes > layer.scratch_bytes) {
            layer.scratch_bytes = kernel.scratch_bytes;
        }
    }
    if (layer.has(ATTNC_CONFIG_IN_PROJ)) {
        layer.q_heads = head_panels(c.num_heads, layer.qk_width, layer.layout.panel);
        layer.k_heads = head_panels(c.num_kv_heads, layer.qk_width, layer.layout.panel);
        layer.v_heads = head_panels(c.num_kv_heads, layer.v_width, layer.layout.panel);
    } else {
        layer.q_heads = head_panels(c.num_heads, layer.qk_width, layer.qk_width);
        layer.k_heads = head_panels(c.num_kv_heads, layer.qk_width, layer.qk_width);
        layer.v_heads = head_panels(c.num_kv_heads, layer.v_width, layer.v_width);
    }
    // A kernel may be given the rows of all heads of one panel, or of a head wider than that.
    int64_t widest = layer.qk_width > layer.v_width ? layer.qk_width : layer.v_width;
    if (layer.layout.panel > widest) widest = layer.layout.panel;
    layer.max_rows = kMaxSpan / (widest * static_cast<int64_t>(sizeof(float)));
}

// Where each packed part lies in the layer's allocation.
struct Parts {
    struct Weights {
        int64_t panels, bias;
    } wq, wk, wv, wo;
    int64_t appended_k, appended_v, sinks, alibi_slopes;
    int64_t q_norm, k_norm, turns, table;
};

Parts::Weights take(Carver& carver, PackedWeights& packed, int64_t inner, int64_t panel, int64_t count) {
    packed.inner = inner, packed.panel = panel, packed.count = count;
    return {carver.take(sizeof(float), {count, inner, panel}), carver.take(sizeof(float), {count, panel})};
}

Parts take_parts(Carver& carver, attnc_layer& layer, const LayerWeights& weights) {
    const attnc_config& c = layer.config;
    const attnc_layout& l = layer.layout;
    Parts parts = {};
    if (layer.has(ATTNC_CONFIG_IN_PROJ)) {
        parts.wq = take(carver, layer.wq, c.d_model, l.panel, layer.q_heads.panels());
        parts.wk = take(carver, layer.wk, c.k_dim, l.panel, layer.k_heads.panels());
        parts.wv = take(carver, layer.wv, c.v_dim, l.panel, layer.v_heads.panels());
    }
    if (layer.has(ATTNC_CONFIG_OUT_PROJ)) {
        parts.wo = take(carver, layer.wo, c.num_heads * layer.v_width, l.out_panel,
                        (c.d_model + l.out_panel - 1) / l.out_panel);
    }
    parts.appended_k = carver.take(sizeof(float), {c.num_kv_heads, layer.appended, layer.qk_width});
    parts.appended_v = carver.take(sizeof(float), {c.num_kv_heads, layer.appended, layer.v_width});
    if (weights.sink != nullptr) parts.sinks = carver.take(sizeof(float), {c.num_heads});
    if (weights.alibi_slopes != nullptr) parts.alibi_slopes = carver.take(sizeof(float), {c.num_heads});
    parts.q_norm = carver.take(sizeof(float), {layer.qk_width});
    parts.k_norm = carver.take(sizeof(float), {layer.qk_width});
    parts.turns = carver.take(sizeof(uint64_t), {layer.rotary.pairs});
    parts.table = carver.take(sizeof(float), {layer.rotary.table_rows, 2, layer.rotary.stride});
    return parts;
}

attnc_status check_panel_sizes(attnc_error* error, const attnc_layer& layer) {
    for (const PackedWeights* packed : {&layer.wq, &layer.wk, &layer.wv, &layer.wo}) {
        int64_t bytes = 0;
        if (__builtin_mul_overflow(packed->inner, packed->panel * static_cast<int64_t>(sizeof(float)),
                                   &bytes) ||
            bytes > kMaxSpan) {
            return fail(error, ATTNC_TOO_LARGE,
                        {"a panel of weights has ", packed->inner, " rows of ", packed->panel,
                         " columns, at most 2 GiB"});
        }
    }
    return ATTNC_OK;
}

// Sizes of the rotary embedding; its numbers not yet.
LayerRotary describe_rotary(const RotarySource& source) {
    constexpr int64_t kMultiple = ATTNC_HEAD_ALIGN / 2;
    LayerRotary rotary = {};
    rotary.pairs = source.pairs;
    rotary.stride = (source.pairs + kMultiple - 1) / kMultiple * kMultiple;
    rotary.magnitude = source.rotary.magnitude;
    rotary.table_rows = source.cos.rank != 0 ? source.cos.extent[0] : 0;
    return rotary;
}

void pack_head_steps(attnc_layer& layer, const Parts& parts, const HeadSources& sources,
                     unsigned char* memory) {
    const int64_t features = layer.config.head_dim;
    if (sources.q_norm != nullptr) {
        auto* q_norm = reinterpret_cast<float*>(memory + parts.q_norm);
        auto* k_norm = reinterpret_cast<float*>(memory + parts.k_norm);
        pack_norm(sources.q_norm, features, layer.qk_width, q_norm);
        pack_norm(sources.k_norm, features, layer.qk_width, k_norm);
        layer.q_norm = q_norm, layer.k_norm = k_norm;
        layer.norm_epsilon = static_cast<float>(sources.epsilon * static_cast<double>(features));
    }
    if (sources.rotary.cos.rank != 0) {
        auto* table = reinterpret_cast<float*>(memory + parts.table);
        pack_angles(sources.rotary, layer.rotary.stride, table);
        layer.rotary.table = table;
    } else if (layer.rotates()) {
        auto* turns = reinterpret_cast<uint64_t*>(memory + parts.turns);
        pack_turns(sources.rotary, turns);
        layer.rotary.turns = turns;
    }
}

void pack_all(attnc_layer& layer, const Parts& parts, const LayerWeights& weights, unsigned char* memory) {
    const attnc_config& c = layer.config;
    const auto at = [&](int64_t offset) { return reinterpret_cast<float*>(memory + offset); };
    const auto place = [&](PackedWeights& packed, const Parts::Weights& part) {
        packed.panels = at(part.panels), packed.bias = at(part.bias);
    };
    if (layer.has(ATTNC_CONFIG_IN_PROJ)) {
        const int64_t panel = layer.layout.panel;
        place(layer.wq, parts.wq), place(layer.wk, parts.wk), place(layer.wv, parts.wv);
        pack_heads(weights.wq, weights.bq, c.head_dim, layer.q_heads, panel, at(parts.wq.panels),
                   at(parts.wq.bias));
        pack_heads(weights.wk, weights.bk, c.head_dim, layer.k_heads, panel, at(parts.wk.panels),
                   at(parts.wk.bias));
        pack_heads(weights.wv, weights.bv, c.v_head_dim, layer.v_heads, panel, at(parts.wv.panels),
                   at(parts.wv.bias));
    }
    if (layer.has(ATTNC_CONFIG_OUT_PROJ)) {
        place(layer.wo, parts.wo);
        pack_out(weights.wo, weights.bo, c.v_head_dim, layer.v_width, layer.layout.out_panel,
                 at(parts.wo.panels), at(parts.wo.bias));
    }
    layer.appended_k = at(parts.appended_k), layer.appended_v = at(parts.appended_v);
    pack_appended(weights.bias_k, c.num_kv_heads, c.head_dim, layer.qk_width, layer.appended,
                  at(parts.appended_k));
    pack_appended(weights.bias_v, c.num_kv_heads, c.v_head_dim, layer.v_width, layer.appended,
                  at(parts.appended_v));
    if (weights.sink != nullptr) {
        layer.sinks = at(parts.sinks);
        memcpy(at(parts.sinks), weights.sink, static_cast<size_t>(c.num_heads) * sizeof(float));
    }
    if (weights.alibi_slopes != nullptr) {
        layer.alibi_slopes = at(parts.alibi_slopes);
        memcpy(at(parts.alibi_slopes), weights.alibi_slopes,
               static_cast<size_t>(c.num_heads) * sizeof(float));
    }
}

}  // namespace

int64_t padded_features(int64_t features) {
    return (features + ATTNC_HEAD_ALIGN - 1) / ATTNC_HEAD_ALIGN * ATTNC_HEAD_ALIGN;
}

HeadPanels head_panels(int64_t heads, int64_t width, int64_t panel) {
    HeadPanels result = {};
    result.width = width;
    result.columns = panel < width ? panel : width;
    result.heads_per_panel = panel > width ? panel / width : 1;
    result.panels_per_head = panel < width ? width / panel : 1;
    result.groups = (heads + result.heads_per_panel - 1) / result.heads_per_panel;
    return result;
}

}  // namespace attnc

using namespace attnc;

extern "C" attnc_status attnc_layer_create(const attnc_library* library, const attnc_weights* weights,
                                           const attnc_layer_options* options, attnc_layer** layer,
                                           attnc_error* error) {
    if (layer == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"layer is null"});
    *layer = nullptr;
    attnc_layer_options settings = ATTNC_LAYER_OPTIONS_INIT;
    if (options != nullptr) settings = *options;
    ChosenTarget target;
    LayerWeights checked;
    ATTNC_TRY(check_library(error, library));
    ATTNC_TRY(check_options(error, settings));
    ATTNC_TRY(check_softcap(error, library->config, settings.softcap));
    ATTNC_TRY(choose_target(error, library, settings.target, &target));
    attnc_layer built = describe(*library, settings);
    ATTNC_TRY(check_weights(error, library->config, weights, &checked));
    HeadSources head_steps;
    ATTNC_TRY(check_head_steps(error, library->config, *weights, settings, &head_steps));
    built.rotary = describe_rotary(head_steps.rotary);
    const bool may_be_empty = built.appended == 0 && checked.sink == nullptr;
    built.empty_rows = may_be_empty && settings.empty_rows != ATTNC_EMPTY_ROWS_NOT_GIVEN
                           ? settings.empty_rows
                           : ATTNC_EMPTY_ROWS_ZERO;
    if (target.device != nullptr) {
        built.device = target.device;
        return target.device->runtime->create(error, *target.device, {built, checked, head_steps}, layer);
    }
    describe_target(built, *target.cpu);

    Carver carver;
    carver.take(sizeof(attnc_layer), {1});
    const Parts parts = take_parts(carver, built, checked);
    if (carver.overflow()) return fail(error, ATTNC_TOO_LARGE, {"the size of the packed weights overflows"});
    ATTNC_TRY(check_panel_sizes(error, built));

    built.bytes = static_cast<size_t>(carver.bytes());
    void* memory = built.allocator.allocate(built.allocator.context, built.bytes, kAlignment);
    if (memory == nullptr) {
        return fail(error, ATTNC_OUT_OF_MEMORY, {"no memory for a layer of ", built.bytes, " bytes"});
    }
    if (reinterpret_cast<uintptr_t>(memory) % kAlignment != 0) {
        built.allocator.deallocate(built.allocator.context, memory, built.bytes);
        return fail(error, ATTNC_BAD_VALUE,
                    {"allocator.allocate returned memory that is not aligned to ", kAlignment, " bytes"});
    }
    pack_all(built, parts, checked, static_cast<unsigned char*>(memory));
    pack_head_steps(built, parts, head_steps, static_cast<unsigned char*>(memory));
    auto* result = static_cast<attnc_layer*>(memory);
    *result = built;
    *layer = result;
    return ATTNC_OK;
}

extern "C" void attnc_layer_destroy(attnc_layer* layer) {
    if (layer == nullptr) return;
    if (layer->device != nullptr) {
        layer->device->runtime->destroy(layer);
        return;
    }
    const attnc_allocator allocator = layer->allocator;
    allocator.deallocate(allocator.context, layer, layer->bytes);
}

extern "C" const char* attnc_layer_target(const attnc_layer* layer) {
    return layer->device != nullptr ? layer->device->name : layer->target->name;
}
