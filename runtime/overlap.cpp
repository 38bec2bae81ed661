// Which memory of a call may not be shared. Tensors count as all bytes from their first to their last
// element.
#include "runtime/cache.h"
#include "runtime/check.h"
#include "runtime/request.h"

namespace attnc {
namespace {

struct Span {
    const char* name;
    uintptr_t begin, end;
};

Span span_of(const char* name, const attnc_tensor& t) {
    if (!given(t) || t.data == nullptr || is_empty(t)) return {name, 0, 0};
    const auto begin = reinterpret_cast<uintptr_t>(t.data);
    return {name, begin, begin + static_cast<uintptr_t>((last_element(t) + 1) * dtype_bytes(t.dtype))};
}

Span cache_span(const attnc_cache* cache) {
    if (cache == nullptr) return {"the cache", 0, 0};
    const attnc_cache::Memory memory = cache->contents();
    const auto begin = reinterpret_cast<uintptr_t>(memory.data);
    return {"the cache", begin, begin + static_cast<uintptr_t>(memory.bytes)};
}

bool overlap(const Span& a, const Span& b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace

attnc_status check_overlaps(attnc_error* error, const attnc_inputs& inputs, const attnc_outputs& outputs,
                            const void* workspace, size_t workspace_bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(workspace);
    const Span scratch = {"the workspace", begin, begin + workspace_bytes};
    const Span written[] = {span_of("out", outputs.out), span_of("probs", outputs.probs),
                            span_of("probs_averaged", outputs.probs_averaged), span_of("lse", outputs.lse),
                            span_of("scores", outputs.scores)};
    const Span read[] = {span_of("query", inputs.query),
                         span_of("key", inputs.key),
                         span_of("value", inputs.value),
                         span_of("keep_mask", inputs.keep_mask),
                         span_of("drop_mask", inputs.drop_mask),
                         span_of("bias", inputs.bias),
                         span_of("key_keep_mask", inputs.key_keep_mask),
                         span_of("key_drop_mask", inputs.key_drop_mask),
                         span_of("key_bias", inputs.key_bias),
                         span_of("block_keep_mask", inputs.block_keep_mask),
                         span_of("key_lengths", inputs.key_lengths),
                         span_of("query_lengths", inputs.query_lengths),
                         span_of("causal_offsets", inputs.causal_offsets),
                         span_of("query_cu_seqlens", inputs.query_cu_seqlens),
                         span_of("key_cu_seqlens", inputs.key_cu_seqlens),
                         span_of("position_offsets", inputs.position_offsets),
                         span_of("query_positions", inputs.query_positions),
                         span_of("key_positions", inputs.key_positions),
                         span_of("cache_slots", inputs.cache_slots),
                         span_of("block_table", inputs.block_table),
                         span_of("cache_lengths", inputs.cache_lengths)};
    const Span cache = cache_span(inputs.cache);
    for (const Span& out : written) {
        if (out.begin == out.end) continue;
        for (const Span& in : read) {
            if (overlap(out, in)) return fail(error, ATTNC_OVERLAP, {out.name, " overlaps ", in.name});
        }
        for (const Span* other = &out + 1; other != written + 5; ++other) {
            if (overlap(out, *other))
                return fail(error, ATTNC_OVERLAP, {out.name, " overlaps ", other->name});
        }
        if (overlap(out, scratch)) return fail(error, ATTNC_OVERLAP, {out.name, " overlaps ", scratch.name});
        if (overlap(out, cache)) return fail(error, ATTNC_OVERLAP, {out.name, " overlaps ", cache.name});
    }
    for (const Span& in : read) {
        if (overlap(in, scratch)) return fail(error, ATTNC_OVERLAP, {in.name, " overlaps ", scratch.name});
        if (overlap(in, cache)) return fail(error, ATTNC_OVERLAP, {in.name, " overlaps ", cache.name});
    }
    if (overlap(cache, scratch)) return fail(error, ATTNC_OVERLAP, {cache.name, " overlaps ", scratch.name});
    return ATTNC_OK;
}

attnc_status check_rotated_overlaps(attnc_error* error, const attnc_rotation& rotation, bool in_place,
                                    const void* workspace, size_t workspace_bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(workspace);
    const Span scratch = {"the workspace", begin, begin + workspace_bytes};
    const Span out = span_of("out", rotation.out);
    const Span read[] = {span_of("x", rotation.x), span_of("positions", rotation.positions),
                         span_of("position_offsets", rotation.position_offsets)};
    for (const Span& in : read) {
        const bool is_out = in_place && &in == read;
        if (!is_out && overlap(out, in)) return fail(error, ATTNC_OVERLAP, {"out overlaps ", in.name});
        if (overlap(in, scratch)) return fail(error, ATTNC_OVERLAP, {in.name, " overlaps ", scratch.name});
    }
    if (overlap(out, scratch)) return fail(error, ATTNC_OVERLAP, {"out overlaps ", scratch.name});
    return ATTNC_OK;
}

}  // namespace attnc
