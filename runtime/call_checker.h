// The parts of check_call: each checks some of the arguments and writes what it found into the request.
#pragma once

#include "runtime/check.h"
#include "runtime/request.h"

namespace attnc {

// What query, key or value must look like: merged [batch, seq, merged], split [batch, heads, seq, features]; both without
// batch where the items are packed.
struct TokenRule {
    const char* name;
    Dim merged, heads, features;
    bool may_be_split;
};

struct Checker {
    attnc_error* error;
    const attnc_layer& layer;
    const attnc_inputs& in;
    const attnc_outputs& out;
    bool needs_data;
    Request& r;
    bool knows_keys = true;  // r.seq_kv is that of this call, not the most for a call of unknown lengths

    attnc_status tokens();
    struct TokenRules;
    attnc_status key_tokens(const TokenRules& rules);
    attnc_status memory_tokens();
    attnc_status sequences();
    bool reads_cache() const { return in.cache != nullptr && number_of(in.cache_use) == ATTNC_CACHE_READ; }
    // seq_kv as an extent of masks and outputs, with `more` keys behind.
    int64_t key_extent(int64_t more = 0) const {
        return knows_keys || in.max_keys != 0 ? r.seq_kv + more : kAny;
    }
    attnc_status token_tensor(const TokenRule& rule, const attnc_tensor& t, TokenView* view, int64_t* batch,
                              int64_t* seq);
    attnc_status packed_tensor(const TokenRule& rule, const attnc_tensor& t, TokenView* view, int64_t* rows);
    attnc_status starts(const char* name, int64_t rows, ItemNumbers* numbers, int64_t* longest);
    attnc_status packing();
    attnc_status cu_seqlens(const char* name, const attnc_tensor& t, int64_t wanted, ItemNumbers* numbers);
    attnc_status packed_batch(const char* name, const attnc_tensor& t);
    attnc_status stand_in(const char* name, const char* by, int64_t got, int64_t wanted);
    attnc_status masks();
    attnc_status mask(const char* name, const attnc_tensor& t, attnc_dtype dtype, MaskView* view);
    attnc_status key_form(const char* name, const attnc_tensor& t, attnc_dtype dtype, MaskView* view);
    attnc_status item_numbers(const char* name, const attnc_tensor& t, ItemNumbers* numbers);
    attnc_status lengths(const char* name, const attnc_tensor& t, int64_t (*rows_of)(const Request&, int64_t),
                         ItemNumbers* numbers);
    attnc_status block_mask();
    attnc_status diagonal();
    attnc_status outputs();
    attnc_status out_tensor();
    attnc_status packed_out(const TensorRule& rule, const attnc_tensor& t);
    attnc_status probs();
    attnc_status scores();
};

}  // namespace attnc
