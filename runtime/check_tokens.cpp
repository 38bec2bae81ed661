// Checks of a call's tokens: query, key, value and where the items begin in packed ones.
#include "runtime/call_checker.h"

namespace attnc {

attnc_status Checker::token_tensor(const TokenRule& rule, const attnc_tensor& t, TokenView* view,
                                   int64_t* batch, int64_t* seq) {
    if (r.query_starts.present || r.key_starts.present) return packed_tensor(rule, t, view, seq);
    const TensorRule tensor = {rule.name, ATTNC_F32, ATTNC_F32, false, false, needs_data};
    const Dim items = {"batch", *batch}, rows = {"seq", *seq};
    if (rule.may_be_split) {
        ATTNC_TRY(check_rank(error, rule.name, t, {items, rows, rule.merged},
                             {items, rule.heads, rows, rule.features}));
    }
    const bool split = rule.may_be_split && t.rank == 4;
    if (split) {
        ATTNC_TRY(check_tensor(error, tensor, t, {items, rule.heads, rows, rule.features}));
        *view = {static_cast<const float*>(t.data), t.stride[0], t.stride[1], t.stride[2]};
    } else {
        ATTNC_TRY(check_tensor(error, tensor, t, {items, rows, rule.merged}));
        *view = {static_cast<const float*>(t.data), t.stride[0], rule.may_be_split ? rule.features.extent : 0,
                 t.stride[1]};
    }
    *batch = t.extent[0];
    *seq = t.extent[split ? 2 : 1];
    return ATTNC_OK;
}

attnc_status Checker::packed_tensor(const TokenRule& rule, const attnc_tensor& t, TokenView* view,
                                    int64_t* rows) {
    const TensorRule tensor = {rule.name, ATTNC_F32, ATTNC_F32, false, false, needs_data};
    const Dim all = {"rows", *rows};
    if (rule.may_be_split) {
        ATTNC_TRY(check_rank(error, rule.name, t, {all, rule.merged}, {rule.heads, all, rule.features}));
    }
    const bool split = rule.may_be_split && t.rank == 3;
    if (split) {
        ATTNC_TRY(check_tensor(error, tensor, t, {rule.heads, all, rule.features}));
        *view = {static_cast<const float*>(t.data), t.stride[1], t.stride[0], t.stride[1]};
    } else {
        ATTNC_TRY(check_tensor(error, tensor, t, {all, rule.merged}));
        *view = {static_cast<const float*>(t.data), t.stride[0], rule.may_be_split ? rule.features.extent : 0,
                 t.stride[0]};
    }
    *rows = t.extent[split ? 1 : 0];
    return ATTNC_OK;
}

// First rows of packed items, within `rows`, and the longest item: on a device that may have all rows.
attnc_status Checker::starts(const char* name, int64_t rows, ItemNumbers* numbers, int64_t* longest) {
    if (!layer.reads_numbers()) {
        *longest = rows;
        return ATTNC_OK;
    }
    int64_t least = 0;
    *longest = 0;
    for (int64_t i = 0; i <= r.batch; ++i) {
        const int64_t start = numbers->at(i);
        if (start < least || start > rows) {
            return fail(error, ATTNC_BAD_VALUE,
                        {name, "[", i, "] is ", start, ", wanted ", least, " to ", rows});
        }
        if (i > 0 && start - least > *longest) *longest = start - least;
        least = start;
    }
    return ATTNC_OK;
}

// Whether the tokens are packed; the numbers are looked at once the rows are known.
attnc_status Checker::packing() {
    if (!given(in.query_cu_seqlens)) {
        if (!given(in.key_cu_seqlens)) return ATTNC_OK;
        return fail(error, ATTNC_UNEXPECTED_TENSOR,
                    {"key_cu_seqlens is given, but query_cu_seqlens is missing"});
    }
    if (given(in.key) && !given(in.key_cu_seqlens))
        return fail(error, ATTNC_MISSING_TENSOR, {"key_cu_seqlens is missing"});
    if (!given(in.key) && given(in.key_cu_seqlens))
        return fail(error, ATTNC_UNEXPECTED_TENSOR, {"key_cu_seqlens is given, but key is missing"});
    ATTNC_TRY(cu_seqlens("query_cu_seqlens", in.query_cu_seqlens, kAny, &r.query_starts));
    ATTNC_TRY(packed_batch("query_cu_seqlens", in.query_cu_seqlens));
    if (!given(in.key)) return ATTNC_OK;
    return cu_seqlens("key_cu_seqlens", in.key_cu_seqlens, r.batch + 1, &r.key_starts);
}

attnc_status Checker::cu_seqlens(const char* name, const attnc_tensor& t, int64_t wanted,
                                 ItemNumbers* numbers) {
    const bool reads = needs_data || layer.reads_numbers();
    ATTNC_TRY(
        check_tensor(error, {name, ATTNC_I32, ATTNC_I64, false, false, reads}, t, {{"batch + 1", wanted}}));
    *numbers = {t.data, true, t.dtype == ATTNC_I64};
    return ATTNC_OK;
}

attnc_status Checker::packed_batch(const char* name, const attnc_tensor& t) {
    r.batch = t.extent[0] - 1;
    if (r.batch >= 0) return ATTNC_OK;
    return fail(error, ATTNC_BAD_EXTENT, {name, " has no element, wanted batch + 1"});
}

attnc_status Checker::stand_in(const char* name, const char* by, int64_t got, int64_t wanted) {
    if (got == wanted) return ATTNC_OK;
    return fail(
        error, ATTNC_MISSING_TENSOR,
        {name, " is missing, and ", by, " cannot stand for it: it has ", got, " features, wanted ", wanted});
}

// The features that the layer's tokens have.
struct Checker::TokenRules {
    TokenRule query, key, value;
    explicit TokenRules(const attnc_layer& layer) {
        const attnc_config& c = layer.config;
        const bool may_be_split = !layer.has(ATTNC_CONFIG_IN_PROJ);
        const Dim heads = {"num_heads", c.num_heads}, kv_heads = {"num_kv_heads", c.num_kv_heads};
        const Dim qk_features = {"head_dim", c.head_dim}, v_features = {"v_head_dim", c.v_head_dim};
        Dim q_merged = {"d_model", c.d_model}, k_merged = {"k_dim", c.k_dim}, v_merged = {"v_dim", c.v_dim};
        if (may_be_split) {
            q_merged = {"num_heads * head_dim", c.num_heads * c.head_dim};
            k_merged = {"num_kv_heads * head_dim", c.num_kv_heads * c.head_dim};
            v_merged = {"num_kv_heads * v_head_dim", c.num_kv_heads * c.v_head_dim};
        }
        query = {"query", q_merged, heads, qk_features, may_be_split};
        key = {"key", k_merged, kv_heads, qk_features, may_be_split};
        value = {"value", v_merged, kv_heads, v_features, may_be_split};
    }
};

attnc_status Checker::key_tokens(const TokenRules& rules) {
    if (given(in.key)) {
        ATTNC_TRY(token_tensor(rules.key, in.key, &r.key, &r.batch, &r.seq_new));
    } else {
        if (given(in.value))
            return fail(error, ATTNC_UNEXPECTED_TENSOR, {"value is given, but key is missing"});
        ATTNC_TRY(stand_in("key", "query", rules.query.merged.extent, rules.key.merged.extent));
        r.key = r.query;
        r.seq_new = r.seq_q;
    }
    if (given(in.value)) return token_tensor(rules.value, in.value, &r.value, &r.batch, &r.seq_new);
    ATTNC_TRY(stand_in("value", given(in.key) ? "key" : "query", rules.key.merged.extent,
                       rules.value.merged.extent));
    r.value = r.key;
    return ATTNC_OK;
}

attnc_status Checker::tokens() {
    const TokenRules rules(layer);
    if (!given(in.query)) return fail(error, ATTNC_MISSING_TENSOR, {"query is missing"});
    r.batch = kAny, r.seq_q = kAny, r.seq_new = kAny;
    ATTNC_TRY(packing());
    ATTNC_TRY(token_tensor(rules.query, in.query, &r.query, &r.batch, &r.seq_q));
    if (reads_cache()) {
        r.seq_new = 0;
    } else {
        ATTNC_TRY(key_tokens(rules));
    }
    if (r.query_starts.present) {
        r.total_q = r.seq_q, r.total_kv = r.seq_new;
        ATTNC_TRY(starts("query_cu_seqlens", r.total_q, &r.query_starts, &r.seq_q));
        if (!reads_cache()) {
            if (!r.key_starts.present) r.key_starts = r.query_starts;
            ATTNC_TRY(starts("key_cu_seqlens", r.total_kv, &r.key_starts, &r.seq_new));
        }
    }
    return sequences();
}

attnc_status Checker::sequences() {
    if (r.seq_q > layer.max_rows) {
        return fail(error, ATTNC_TOO_LARGE, {"seq_q is ", r.seq_q, ", at most ", layer.max_rows});
    }
    if (r.seq_new > layer.max_rows) {
        return fail(error, ATTNC_TOO_LARGE, {"seq_kv is ", r.seq_new, ", at most ", layer.max_rows});
    }
    return ATTNC_OK;
}

attnc_status Checker::memory_tokens() {
    if (!given(in.key)) return fail(error, ATTNC_MISSING_TENSOR, {"key is missing"});
    r.batch = kAny, r.seq_new = kAny;
    if (given(in.key_cu_seqlens)) {
        ATTNC_TRY(cu_seqlens("key_cu_seqlens", in.key_cu_seqlens, kAny, &r.key_starts));
        ATTNC_TRY(packed_batch("key_cu_seqlens", in.key_cu_seqlens));
    }
    ATTNC_TRY(key_tokens(TokenRules(layer)));
    if (r.key_starts.present) {
        r.total_kv = r.seq_new;
        ATTNC_TRY(starts("key_cu_seqlens", r.total_kv, &r.key_starts, &r.seq_new));
    }
    return sequences();
}

attnc_status Checker::packed_out(const TensorRule& rule, const attnc_tensor& t) {
    const attnc_config& c = layer.config;
    auto* data = static_cast<float*>(t.data);
    const Dim rows = {"rows of query", r.total_q};
    if (layer.has(ATTNC_CONFIG_OUT_PROJ)) {
        ATTNC_TRY(check_tensor(error, rule, t, {rows, {"d_model", c.d_model}}));
        r.out = {data, t.stride[0], 0, t.stride[0]};
        return ATTNC_OK;
    }
    const Dim merged = {"num_heads * v_head_dim", c.num_heads * c.v_head_dim};
    const Dim heads = {"num_heads", c.num_heads}, features = {"v_head_dim", c.v_head_dim};
    ATTNC_TRY(check_rank(error, "out", t, {rows, merged}, {heads, rows, features}));
    if (t.rank == 3) {
        ATTNC_TRY(check_tensor(error, rule, t, {heads, rows, features}));
        r.out = {data, t.stride[1], t.stride[0], t.stride[1]};
    } else {
        ATTNC_TRY(check_tensor(error, rule, t, {rows, merged}));
        r.out = {data, t.stride[0], c.v_head_dim, t.stride[0]};
    }
    return ATTNC_OK;
}

}  // namespace attnc
