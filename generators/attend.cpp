// attend and its narrow, single, masked and guarded forms, attend_probs, attend_scores: one head of one item over one
// block of keys.
#include "generators/library_generator.h"
#include "generators/register_kernel.h"
#include "schedules/cpu/ahead.h"
#include "schedules/cpu/attention.h"
#include "stages/attention_two_pass.h"

namespace attnc {
namespace {

using namespace Halide;

// Inputs common to all forms, under the names of the kernel contract.
template <typename T>
class AttendGenerator : public LibraryGenerator<T> {
protected:
    template <typename Q, typename K>
    AttentionInputs common_inputs(Q& q, K& k, const Expr& qk_scale, const Expr& first_key,
                                  const Expr& last_key) {
        const KernelConfig kernel = this->kernel_config();
        this->from_zero(q, kernel.head_dim);
        this->from_zero(k, kernel.head_dim);
        AttentionInputs in;
        in.q = q;
        in.k = k;
        in.qk_scale = qk_scale;
        in.first_key = first_key;
        in.last_key = last_key;
        in.queries = q.dim(1).extent();
        in.keys = k.dim(1).extent();
        in.head_dim = static_cast<int>(kernel.head_dim);
        in.tile_kv = static_cast<int>(this->cpu_schedule().layout.tile_kv);
        return in;
    }

    template <typename V>
    void add_values(AttentionInputs& in, V& v) {
        const int width = static_cast<int>(this->kernel_config().v_head_dim);
        this->from_zero(v, width);
        v.dim(1).set_bounds(0, in.keys);
        if (in.side_by_side) v.dim(1).set_stride(width);
        in.v = v;
    }

    template <typename KeyBias, typename Bias, typename Mask>
    void add_masks(AttentionInputs& in, KeyBias& key_bias, Bias& bias, Mask& keep, Mask& drop,
                   Mask& key_blocks, const Expr& flags) {
        this->any_strides(key_blocks);
        this->any_strides(key_bias);
        this->any_strides(bias);
        this->any_strides(keep);
        this->any_strides(drop);
        in.masks = AttentionMasks{.key_bias = key_bias,
                                  .bias = bias,
                                  .keep_mask = keep,
                                  .drop_mask = drop,
                                  .key_blocks = key_blocks,
                                  .bias_stride = bias.dim(0).stride(),
                                  .keep_stride = keep.dim(0).stride(),
                                  .drop_stride = drop.dim(0).stride(),
                                  .flags = flags,
                                  .softcap = value_of(softcap_),
                                  .alibi_slope = value_of(alibi_slope_),
                                  .own_key = value_of(own_key_)};
    }

    bool asks_ahead(const AttendParams& params) const {
        const int lanes = this->get_target().template natural_vector_size<float>();
        return scores_ask_ahead(static_cast<int>(params.key_rows * params.q_vectors) * kQueryLanes / lanes);
    }
    struct AheadAddresses {
        Expr q, k, k_bytes, v, v_bytes, context;
    };
    template <typename Q, typename Context>
    static AttentionAhead ahead_rows(Q& q, Context& context, const AheadAddresses& ahead) {
        const Expr there = address_of(q);
        return {rows_at(ahead.q, bytes_between(q.dim(1).stride()), there),
                rows_at(ahead.k, cast<int64_t>(ahead.k_bytes), there),
                rows_at(ahead.v, cast<int64_t>(ahead.v_bytes), there),
                rows_at(ahead.context, bytes_between(context.dim(1).stride()), there)};
    }

    // Inputs of the steps that the configuration's scores have; from configure().
    void add_score_steps() {
        const KernelConfig kernel = this->kernel_config();
        if (kernel.softcap) softcap_ = this->template add_input<float>("softcap");
        if (!kernel.alibi) return;
        alibi_slope_ = this->template add_input<float>("alibi_slope");
        own_key_ = this->template add_input<int32_t>("own_key");
    }

    template <typename Context, typename RowStats>
    void finish(const AttentionInputs& in, const AttendParams& params, Context& context,
                RowStats& row_stats) {
        const KernelConfig kernel = this->kernel_config();
        this->from_zero(context, kernel.v_head_dim);
        context.dim(1).set_bounds(0, in.queries);
        this->row_statistics(row_stats);
        row_stats.dim(0).set_bounds(0, in.queries);
        AttentionTile tile = attention_tile(params, this->get_target());
        if (in.guarded) tile.in_line = 1;  // it runs rarely, and is small instead
        AttentionTwoPass stage(in, tile);
        context(stage.d, stage.i) = stage.context(stage.d, stage.i);
        row_stats(stage.i, stage.c) = stage.row_stats(stage.i, stage.c);
        schedule_attend(stage, context, row_stats, params, in.head_dim, static_cast<int>(kernel.v_head_dim),
                        in.tile_kv, this->get_target());
    }

private:
    template <typename Input>
    static Expr value_of(const Input* input) {
        return input != nullptr ? Expr(*input) : Expr();
    }
    // Null: not in this configuration.
    GeneratorInput<float>*softcap_ = nullptr, *alibi_slope_ = nullptr;
    GeneratorInput<int32_t>* own_key_ = nullptr;
};

// Forms with values. Outputs, which are the same for all, have to stand behind all inputs.
template <typename T>
class ContextGenerator : public AttendGenerator<T> {
public:
    template <typename U>
    using In = typename AttendGenerator<T>::template Input<U>;

    In<Buffer<float, 2>> q{"q"};  // (d, i)
    In<Buffer<float, 2>> k{"k"};  // (d, j)
    In<Buffer<float, 2>> v{"v"};  // (d, j)
    In<float> qk_scale{"qk_scale"};
    In<int32_t> first_key{"first_key"};
    In<int32_t> last_key{"last_key"};
    In<uint64_t> ahead_q{"ahead_q"};
    In<uint64_t> ahead_k{"ahead_k"};
    In<uint64_t> ahead_k_bytes{"ahead_k_bytes"};
    In<uint64_t> ahead_v{"ahead_v"};
    In<uint64_t> ahead_v_bytes{"ahead_v_bytes"};
    In<uint64_t> ahead_context{"ahead_context"};

protected:
    template <typename Context>
    AttentionInputs context_inputs(const AttendParams& params, bool side_by_side, Context& context) {
        AttentionInputs in = this->common_inputs(q, k, qk_scale, first_key, last_key);
        in.side_by_side = side_by_side;
        this->add_values(in, v);
        if (this->asks_ahead(params)) {
            in.ahead = this->ahead_rows(
                q, context, {ahead_q, ahead_k, ahead_k_bytes, ahead_v, ahead_v_bytes, ahead_context});
        }
        return in;
    }
};

// Without masks.
template <typename T>
class PlainGenerator : public ContextGenerator<T> {
public:
    template <typename U>
    using Out = typename AttendGenerator<T>::template Output<U>;

    Out<Buffer<float, 2>> context{"context"};      // (d, i)
    Out<Buffer<float, 2>> row_stats{"row_stats"};  // (i, c)

protected:
    void generate_plain(const AttendParams& params, bool side_by_side) {
        this->check_there(params.rows);
        this->finish(this->context_inputs(params, side_by_side, context), params, context, row_stats);
    }
};

class Attend : public PlainGenerator<Attend> {
public:
    void generate() { generate_plain(cpu_schedule().params.attend, true); }
};

class AttendNarrow : public PlainGenerator<AttendNarrow> {
public:
    void generate() { generate_plain(cpu_schedule().params.attend_narrow, true); }
};

class AttendSingle : public PlainGenerator<AttendSingle> {
public:
    void generate() { generate_plain(cpu_schedule().params.attend_single, false); }
};

template <typename T>
class MaskedGenerator : public ContextGenerator<T> {
public:
    template <typename U>
    using In = typename AttendGenerator<T>::template Input<U>;
    template <typename U>
    using Out = typename AttendGenerator<T>::template Output<U>;

    In<Buffer<float, 1>> key_bias{"key_bias"};        // (j)
    In<Buffer<float, 2>> bias{"bias"};                // (j, i)
    In<Buffer<uint8_t, 2>> keep_mask{"keep_mask"};    // (j, i)
    In<Buffer<uint8_t, 2>> drop_mask{"drop_mask"};    // (j, i)
    In<Buffer<uint8_t, 2>> key_blocks{"key_blocks"};  // (jb, ib)
    In<int32_t> mask_flags{"mask_flags"};
    Out<Buffer<float, 2>> context{"context"};      // (d, i)
    Out<Buffer<float, 2>> row_stats{"row_stats"};  // (i, c)

    void configure() { this->add_score_steps(); }

protected:
    void generate_masked(const AttendParams& params, bool guarded) {
        AttentionInputs in = this->context_inputs(params, !guarded, context);
        this->add_masks(in, key_bias, bias, keep_mask, drop_mask, key_blocks, mask_flags);
        in.guarded = guarded;
        this->finish(in, params, context, row_stats);
    }
};

class AttendMasked : public MaskedGenerator<AttendMasked> {
public:
    void generate() { generate_masked(cpu_schedule().params.attend_masked, false); }
};

class AttendGuarded : public MaskedGenerator<AttendGuarded> {
public:
    void generate() { generate_masked(cpu_schedule().params.attend_guarded, true); }
};

// Forms without values: a number for each query and key.
template <typename T>
class PairsGenerator : public AttendGenerator<T> {
public:
    template <typename U>
    using In = typename AttendGenerator<T>::template Input<U>;

    In<Buffer<float, 2>> q{"q"};  // (d, i)
    In<Buffer<float, 2>> k{"k"};  // (d, j)
    In<float> qk_scale{"qk_scale"};
    In<int32_t> first_key{"first_key"};
    In<int32_t> last_key{"last_key"};
    In<Buffer<float, 1>> key_bias{"key_bias"};        // (j)
    In<Buffer<float, 2>> bias{"bias"};                // (j, i)
    In<Buffer<uint8_t, 2>> keep_mask{"keep_mask"};    // (j, i)
    In<Buffer<uint8_t, 2>> drop_mask{"drop_mask"};    // (j, i)
    In<Buffer<uint8_t, 2>> key_blocks{"key_blocks"};  // (jb, ib)
    In<int32_t> mask_flags{"mask_flags"};

    void configure() { this->add_score_steps(); }

protected:
    // pairs (j, i) = value(stage)
    template <typename Pairs, typename Value>
    void generate_pairs(Pairs& pairs, const Value& value) {
        AttentionInputs in = this->common_inputs(q, k, qk_scale, first_key, last_key);
        in.side_by_side = true;
        this->add_masks(in, key_bias, bias, keep_mask, drop_mask, key_blocks, mask_flags);
        this->from_zero(pairs);
        pairs.dim(0).set_bounds(0, in.keys);
        pairs.dim(1).set_bounds(0, in.queries);
        const AttendParams params = this->cpu_schedule().params.attend_probs;
        AttentionTwoPass stage(in, attention_tile(params, this->get_target()));
        pairs(stage.j, stage.i) = value(stage);
        schedule_pairs(stage, pairs, params, in.head_dim, in.tile_kv, this->get_target());
    }
};

class AttendProbs : public PairsGenerator<AttendProbs> {
public:
    Input<Buffer<float, 2>> row_stats_in{"row_stats_in"};  // (i, c)
    Output<Buffer<float, 2>> probs{"probs"};               // (j, i)

    void generate() {
        row_statistics(row_stats_in);
        generate_pairs(probs, [&](const AttentionTwoPass& stage) {
            return stage.probability(stage.j, stage.i, row_stats_in(stage.i, kLargest),
                                     row_stats_in(stage.i, kSum));
        });
    }
};

class AttendScores : public PairsGenerator<AttendScores> {
public:
    Output<Buffer<float, 2>> scores{"scores"};  // (j, i)

    void generate() {
        generate_pairs(scores, [&](const AttentionTwoPass& stage) { return stage.score(stage.j, stage.i); });
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_KERNEL(attnc::Attend, attend)
ATTNC_REGISTER_KERNEL(attnc::AttendNarrow, attend_narrow)
ATTNC_REGISTER_KERNEL(attnc::AttendSingle, attend_single)
ATTNC_REGISTER_KERNEL(attnc::AttendMasked, attend_masked)
ATTNC_REGISTER_KERNEL(attnc::AttendGuarded, attend_guarded)
ATTNC_REGISTER_KERNEL(attnc::AttendProbs, attend_probs)
ATTNC_REGISTER_KERNEL(attnc::AttendScores, attend_scores)
