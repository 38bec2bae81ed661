// Checks of forward's arguments, and the Request that comes of them.
#include "runtime/call_checker.h"
#include "runtime/key_blocks.h"

namespace attnc {

attnc_status Checker::mask(const char* name, const attnc_tensor& t, attnc_dtype dtype, MaskView* view) {
    if (!given(t)) return ATTNC_OK;
    if (!layer.has(ATTNC_CONFIG_MASKS)) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {name, " is given, but the library was compiled without masks"});
    }
    const int64_t heads = layer.config.num_heads;
    ATTNC_TRY(check_tensor(error, {name, dtype, dtype, true, false, needs_data}, t,
                           {{"batch", r.batch, true},
                            {"num_heads", heads, true},
                            {"seq_q", r.seq_q, true},
                            {"seq_kv", key_extent(), true}}));
    const auto stride = [&](int i) { return t.extent[i] == 1 ? 0 : t.stride[i]; };
    *view = {t.data, stride(0), stride(1), stride(2), stride(3), true, stride(1) == 0 && stride(2) == 0};
    // One block of keys of one query is the least that a kernel takes.
    constexpr int64_t kMaxSpan = INT32_MAX;  // bytes
    const int64_t keys = r.seq_kv < layer.layout.tile_kv ? r.seq_kv : layer.layout.tile_kv;
    const int64_t most = keys > 0 ? kMaxSpan / (keys * dtype_bytes(dtype)) : INT64_MAX;
    if (view->key_stride > most) {
        return fail(error, ATTNC_TOO_LARGE,
                    {name, " has stride ", view->key_stride, " in dimension 3, at most ", most});
    }
    return ATTNC_OK;
}

attnc_status Checker::key_form(const char* name, const attnc_tensor& t, attnc_dtype dtype, MaskView* view) {
    if (!given(t)) return ATTNC_OK;
    if (!layer.has(ATTNC_CONFIG_MASKS)) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {name, " is given, but the library was compiled without masks"});
    }
    ATTNC_TRY(check_tensor(error, {name, dtype, dtype, false, false, needs_data}, t,
                           {{"batch", r.batch}, {"seq_kv", key_extent()}}));
    *view = {t.data, t.stride[0], 0, 0, 1, true, true};
    return ATTNC_OK;
}

attnc_status Checker::masks() {
    ATTNC_TRY(mask("keep_mask", in.keep_mask, ATTNC_U8, &r.keep_mask));
    ATTNC_TRY(mask("drop_mask", in.drop_mask, ATTNC_U8, &r.drop_mask));
    ATTNC_TRY(mask("bias", in.bias, ATTNC_F32, &r.bias));
    ATTNC_TRY(key_form("key_keep_mask", in.key_keep_mask, ATTNC_U8, &r.key_keep_mask));
    ATTNC_TRY(key_form("key_drop_mask", in.key_drop_mask, ATTNC_U8, &r.key_drop_mask));
    ATTNC_TRY(key_form("key_bias", in.key_bias, ATTNC_F32, &r.key_bias));
    return block_mask();
}

attnc_status Checker::block_mask() {
    const attnc_tensor& t = in.block_keep_mask;
    const struct {
        const char* name;
        int64_t size;
    } sides[] = {{"block_q", in.block_q}, {"block_kv", in.block_kv}};
    if (!given(t)) {
        for (const auto& side : sides) {
            if (side.size == 0) continue;
            return fail(error, ATTNC_BAD_VALUE,
                        {side.name, " is ", side.size, ", but block_keep_mask is not given"});
        }
        return ATTNC_OK;
    }
    if (!layer.has(ATTNC_CONFIG_MASKS)) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"block_keep_mask is given, but the library was compiled without masks"});
    }
    for (const auto& side : sides) {
        if (side.size > 0 && side.size % kGranule == 0) continue;
        return fail(error, ATTNC_BAD_VALUE,
                    {side.name, " is ", side.size, ", wanted a multiple of ", kGranule, " above 0"});
    }
    const auto blocks = [](int64_t seq, int64_t size) { return seq / size + (seq % size != 0 ? 1 : 0); };
    const int64_t keys = key_extent();
    ATTNC_TRY(check_tensor(error, {"block_keep_mask", ATTNC_U8, ATTNC_U8, true, false, needs_data}, t,
                           {{"batch", r.batch, true},
                            {"num_heads", layer.config.num_heads, true},
                            {"seq_q / block_q", blocks(r.seq_q, in.block_q)},
                            {"seq_kv / block_kv", keys == kAny ? kAny : blocks(keys, in.block_kv)}}));
    const auto stride = [&](int i) { return t.extent[i] == 1 ? 0 : t.stride[i]; };
    r.block_keep_mask = {
        {t.data, stride(0), stride(1), stride(2), stride(3), true, false}, in.block_q, in.block_kv};
    return ATTNC_OK;
}

attnc_status Checker::item_numbers(const char* name, const attnc_tensor& t, ItemNumbers* numbers) {
    ATTNC_TRY(
        check_tensor(error, {name, ATTNC_I32, ATTNC_I64, false, false, needs_data}, t, {{"batch", r.batch}}));
    *numbers = {t.data, true, t.dtype == ATTNC_I64};
    return ATTNC_OK;
}

attnc_status Checker::lengths(const char* name, const attnc_tensor& t,
                              int64_t (*rows_of)(const Request&, int64_t), ItemNumbers* numbers) {
    if (!given(t)) return ATTNC_OK;
    ATTNC_TRY(item_numbers(name, t, numbers));
    if (t.data == nullptr || !layer.reads_numbers()) return ATTNC_OK;
    for (int64_t b = 0; b < r.batch; ++b) {
        const int64_t length = numbers->at(b), most = rows_of(r, b);
        if (length < 0 || length > most) {
            return fail(error, ATTNC_BAD_VALUE, {name, "[", b, "] is ", length, ", wanted 0 to ", most});
        }
    }
    return ATTNC_OK;
}

attnc_status Checker::diagonal() {
    const int causal = number_of(in.causal);
    if (causal < ATTNC_CAUSAL_NOT_GIVEN || causal > ATTNC_CAUSAL_OFFSET) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"causal is ", causal, ", wanted 0 to ", static_cast<int>(ATTNC_CAUSAL_OFFSET)});
    }
    r.causal = in.causal;
    if (r.causal == ATTNC_CAUSAL_NOT_GIVEN) {
        r.causal = layer.has(ATTNC_CONFIG_CAUSAL) ? ATTNC_CAUSAL_BOTTOM_RIGHT : ATTNC_CAUSAL_NONE;
    }
    if (r.causal != ATTNC_CAUSAL_OFFSET) {
        if (!given(in.causal_offsets)) return ATTNC_OK;
        return fail(error, ATTNC_UNEXPECTED_TENSOR,
                    {"causal_offsets is given, but causal does not ask for offsets"});
    }
    if (!given(in.causal_offsets)) return fail(error, ATTNC_MISSING_TENSOR, {"causal_offsets is missing"});
    return item_numbers("causal_offsets", in.causal_offsets, &r.causal_offsets);
}

attnc_status Checker::out_tensor() {
    const attnc_config& c = layer.config;
    const attnc_tensor& t = out.out;
    const TensorRule rule = {"out", ATTNC_F32, ATTNC_F32, false, true, needs_data};
    if (!given(t)) return fail(error, ATTNC_MISSING_TENSOR, {"out is missing"});
    auto* data = static_cast<float*>(t.data);
    if (r.query_starts.present) return packed_out(rule, t);
    const Dim batch = {"batch", r.batch}, seq = {"seq_q", r.seq_q};
    if (layer.has(ATTNC_CONFIG_OUT_PROJ)) {
        ATTNC_TRY(check_tensor(error, rule, t, {batch, seq, {"d_model", c.d_model}}));
        r.out = {data, t.stride[0], 0, t.stride[1]};
        return ATTNC_OK;
    }
    const Dim merged = {"num_heads * v_head_dim", c.num_heads * c.v_head_dim};
    const Dim heads = {"num_heads", c.num_heads}, features = {"v_head_dim", c.v_head_dim};
    ATTNC_TRY(check_rank(error, "out", t, {batch, seq, merged}, {batch, heads, seq, features}));
    if (t.rank == 4) {
        ATTNC_TRY(check_tensor(error, rule, t, {batch, heads, seq, features}));
        r.out = {data, t.stride[0], t.stride[1], t.stride[2]};
    } else {
        ATTNC_TRY(check_tensor(error, rule, t, {batch, seq, merged}));
        r.out = {data, t.stride[0], c.v_head_dim, t.stride[1]};
    }
    return ATTNC_OK;
}

attnc_status Checker::probs() {
    const attnc_tensor& each = out.probs;
    const attnc_tensor& averaged = out.probs_averaged;
    if (!layer.has(ATTNC_CONFIG_PROBS)) {
        for (const attnc_tensor* t : {&each, &averaged}) {
            if (!given(*t)) continue;
            return fail(error, ATTNC_NOT_SUPPORTED,
                        {t == &each ? "probs" : "probs_averaged",
                         " is asked for, but the library was compiled without probs"});
        }
        return ATTNC_OK;
    }
    const Dim batch = {"batch", r.batch}, heads = {"num_heads", layer.config.num_heads},
              seq_q = {"seq_q", r.seq_q};
    const Dim columns = {layer.appended > 0 ? "seq_kv + appended keys" : "seq_kv",
                         key_extent(layer.appended)};
    if (given(each)) {
        ATTNC_TRY(check_tensor(error, {"probs", ATTNC_F32, ATTNC_F32, false, true, needs_data}, each,
                               {batch, heads, seq_q, columns}));
        r.probs = {static_cast<float*>(each.data), each.stride[0], each.stride[1], each.stride[2]};
        r.wants_probs = true;
    }
    if (given(averaged)) {
        ATTNC_TRY(check_tensor(error, {"probs_averaged", ATTNC_F32, ATTNC_F32, false, true, needs_data},
                               averaged, {batch, seq_q, columns}));
        r.probs_averaged = {static_cast<float*>(averaged.data), averaged.stride[0], 0, averaged.stride[1]};
        r.wants_averaged = true;
    }
    return ATTNC_OK;
}

attnc_status Checker::scores() {
    const int stage = number_of(out.scores_stage);
    if (stage < ATTNC_SCORES_NOT_GIVEN || stage > ATTNC_SCORES_BIASED) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"scores_stage is ", stage, ", wanted 0 to ", static_cast<int>(ATTNC_SCORES_BIASED)});
    }
    if (!given(out.scores)) {
        if (stage == ATTNC_SCORES_NOT_GIVEN) return ATTNC_OK;
        return fail(error, ATTNC_MISSING_TENSOR, {"scores_stage is ", stage, ", but scores is missing"});
    }
    if (!layer.has(ATTNC_CONFIG_SCORES)) {
        return fail(error, ATTNC_NOT_SUPPORTED,
                    {"scores is asked for, but the library was compiled without scores"});
    }
    if (stage == ATTNC_SCORES_NOT_GIVEN)
        return fail(error, ATTNC_BAD_VALUE, {"scores_stage is not given, but scores is"});
    ATTNC_TRY(check_tensor(error, {"scores", ATTNC_F32, ATTNC_F32, false, true, needs_data}, out.scores,
                           {{"batch", r.batch},
                            {"num_heads", layer.config.num_heads},
                            {"seq_q", r.seq_q},
                            {"seq_kv", key_extent()}}));
    r.scores = {static_cast<float*>(out.scores.data), out.scores.stride[0], out.scores.stride[1],
                out.scores.stride[2]};
    r.scores_stage = out.scores_stage;
    return ATTNC_OK;
}

attnc_status Checker::outputs() {
    ATTNC_TRY(out_tensor());
    ATTNC_TRY(probs());
    ATTNC_TRY(scores());
    if (!given(out.lse)) return ATTNC_OK;
    const Dim heads = {"num_heads", layer.config.num_heads};
    ATTNC_TRY(check_tensor(error, {"lse", ATTNC_F32, ATTNC_F32, false, true, needs_data}, out.lse,
                           {{"batch", r.batch}, heads, {"seq_q", r.seq_q}}));
    r.lse = {static_cast<float*>(out.lse.data), out.lse.stride[0], out.lse.stride[1], 1};
    r.wants_lse = true;
    return ATTNC_OK;
}

namespace {

attnc_status check_struct(attnc_error* error, const char* name, const char* type, const size_t* struct_size,
                          size_t wanted) {
    if (struct_size == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {name, " is null"});
    if (*struct_size != wanted) {
        return fail(error, ATTNC_BAD_STRUCT_SIZE,
                    {"struct_size of ", type, " is ", *struct_size, ", wanted ", wanted});
    }
    return ATTNC_OK;
}

// What a call has and a memory has no use for.
attnc_status check_memory_inputs(attnc_error* error, const attnc_inputs& in) {
    const struct {
        const char* name;
        const attnc_tensor& tensor;
    } unused[] = {{"query", in.query},
                  {"keep_mask", in.keep_mask},
                  {"drop_mask", in.drop_mask},
                  {"bias", in.bias},
                  {"key_keep_mask", in.key_keep_mask},
                  {"key_drop_mask", in.key_drop_mask},
                  {"key_bias", in.key_bias},
                  {"query_lengths", in.query_lengths},
                  {"causal_offsets", in.causal_offsets},
                  {"block_keep_mask", in.block_keep_mask},
                  {"query_cu_seqlens", in.query_cu_seqlens},
                  {"query_positions", in.query_positions}};
    for (const auto& field : unused) {
        if (!given(field.tensor)) continue;
        return fail(error, ATTNC_UNEXPECTED_TENSOR, {field.name, " is given, but a memory has no queries"});
    }
    const struct {
        const char* name;
        int value;
    } numbers[] = {{"causal", number_of(in.causal)}, {"cache_use", number_of(in.cache_use)}};
    for (const auto& field : numbers) {
        if (field.value == 0) continue;
        return fail(error, ATTNC_BAD_VALUE,
                    {field.name, " is ", field.value, ", but a memory has no queries, wanted 0"});
    }
    return ATTNC_OK;
}

}  // namespace

attnc_status check_executor(attnc_error* error, const attnc_run* run, Request& r) {
    r.concurrency = 1;
    if (run == nullptr) return ATTNC_OK;
    ATTNC_TRY(check_struct(error, "run", "attnc_run", &run->struct_size, sizeof(attnc_run)));
    r.executor = run->executor;
    if (r.executor == nullptr) return ATTNC_OK;
    if (r.executor->parallel_for == nullptr) {
        return fail(error, ATTNC_NULL_ARGUMENT, {"executor.parallel_for is null"});
    }
    if (r.executor->concurrency < 1) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"executor.concurrency is ", r.executor->concurrency, ", wanted 1 or more"});
    }
    r.concurrency = r.executor->concurrency;
    return ATTNC_OK;
}

attnc_status check_call(attnc_error* error, const attnc_layer& layer, const attnc_inputs* inputs,
                        const attnc_outputs* outputs, const attnc_run* run, DataNeed need, Request* request) {
    *request = {};
    ATTNC_TRY(check_struct(error, "inputs", "attnc_inputs",
                           inputs != nullptr ? &inputs->struct_size : nullptr, sizeof(attnc_inputs)));
    ATTNC_TRY(check_struct(error, "outputs", "attnc_outputs",
                           outputs != nullptr ? &outputs->struct_size : nullptr, sizeof(attnc_outputs)));
    Checker checker = {error, layer, *inputs, *outputs, need == DataNeed::kAll, *request};
    ATTNC_TRY(checker.tokens());
    if (!checker.reads_cache())
        ATTNC_TRY(checker.lengths("key_lengths", inputs->key_lengths, key_rows_of, &request->key_lengths));
    request->seq_kv = request->seq_new;
    ATTNC_TRY(check_cache_use(error, layer, *inputs, need, request, &checker.knows_keys));
    ATTNC_TRY(checker.masks());
    ATTNC_TRY(
        checker.lengths("query_lengths", inputs->query_lengths, query_rows_of, &request->query_lengths));
    ATTNC_TRY(checker.diagonal());
    ATTNC_TRY(check_positions(error, layer, *inputs, checker.needs_data, checker.knows_keys, *request));
    ATTNC_TRY(checker.outputs());
    if (checker.knows_keys && need == DataNeed::kAll) ATTNC_TRY(check_ring_rows(error, layer, *request));
    return check_executor(error, run, *request);
}

attnc_status check_memory(attnc_error* error, const attnc_layer& layer, const attnc_inputs* inputs,
                          attnc_cache* cache, const attnc_run* run, DataNeed need, Request* request) {
    *request = {};
    ATTNC_TRY(check_struct(error, "inputs", "attnc_inputs",
                           inputs != nullptr ? &inputs->struct_size : nullptr, sizeof(attnc_inputs)));
    ATTNC_TRY(check_cache_of_layer(error, layer, cache));
    if (inputs->cache != nullptr && inputs->cache != cache)
        return fail(error, ATTNC_BAD_VALUE, {"inputs.cache is another cache"});
    ATTNC_TRY(check_memory_inputs(error, *inputs));
    attnc_inputs all = *inputs;
    all.cache = cache;
    const attnc_outputs none = ATTNC_OUTPUTS_INIT;
    request->causal = ATTNC_CAUSAL_NONE;
    Checker checker = {error, layer, all, none, need == DataNeed::kAll, *request};
    ATTNC_TRY(checker.memory_tokens());
    ATTNC_TRY(checker.lengths("key_lengths", all.key_lengths, key_rows_of, &request->key_lengths));
    ATTNC_TRY(check_cache_use(error, layer, all, need, request, &checker.knows_keys));
    ATTNC_TRY(check_positions(error, layer, all, checker.needs_data, checker.knows_keys, *request));
    return check_executor(error, run, *request);
}

}  // namespace attnc
