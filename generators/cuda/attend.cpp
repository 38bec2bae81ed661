// attend, attend_masked, attend_decode, attend_probs and attend_scores on a GPU: all heads and items.
#include <vector>

#include "generators/cuda/gpu_generator.h"
#include "schedules/cuda/attention.h"
#include "schedules/cuda/merge.h"
#include "stages/row_stats.h"

namespace attnc {
namespace {

using namespace Halide;

template <typename T>
class GpuAttend : public GpuGenerator<T> {
public:
    template <typename U>
    using In = typename GpuGenerator<T>::template Input<U>;

    In<Buffer<float, 3>> q{"q"};            // (d, m, h)
    In<Buffer<float, 3>> k{"k"};            // (d, m, h)
    In<Buffer<int32_t, 2>> items{"items"};  // (c, b): ATTNC_ITEM_*
    In<int32_t> seq_q{"seq_q"};
    In<int32_t> seq_kv{"seq_kv"};
    In<float> qk_scale{"qk_scale"};

    void configure() { key_runs_ = this->add_key_runs(); }

protected:
    AttentionGpuInputs common_inputs(GpuRows rows) {
        const KernelConfig kernel = this->kernel_config();
        this->aligned_rows(q, kernel.head_dim);
        this->aligned_rows(k, kernel.head_dim);
        this->item_columns(items);
        AttentionGpuInputs in;
        in.q = q;
        in.k = k;
        in.items = items;
        in.q_rows = q.dim(1).extent();
        in.key_rows = k.dim(1).extent();
        in.q_heads = q.dim(2).extent();
        in.key_heads = k.dim(2).extent();
        in.item_count = items.dim(1).extent();
        in.key_runs = this->key_runs_of_items(key_runs_, items);
        in.seq_q = seq_q;
        in.seq_kv = seq_kv;
        in.qk_scale = qk_scale;
        in.head_dim = static_cast<int>(kernel.head_dim);
        in.v_head_dim = static_cast<int>(kernel.v_head_dim);
        in.rows = rows;
        in.target = this->get_target();
        return in;
    }

    template <typename V>
    void add_values(AttentionGpuInputs& in, V& v) {
        this->aligned_rows(v, this->kernel_config().v_head_dim);
        for (int dim : {1, 2}) v.dim(dim).set_bounds(0, k.dim(dim).extent());
        in.v = v;
    }

    // context (d, m, h), row_stats (m, h, c) with splits behind where there are some.
    template <typename Context, typename RowStats>
    void finish(const AttentionGpuInputs& in, const CudaAttendParams& params, Context& context,
                RowStats& row_stats) {
        const int splits = in.rows == GpuRows::kGroups ? 1 : 0;
        this->aligned_rows(context, in.v_head_dim);
        context.dim(1).set_bounds(0, q.dim(2).extent());
        context.dim(2).set_bounds(0, q.dim(1).extent());
        this->row_statistics(row_stats);
        row_stats.dim(0).set_bounds(0, q.dim(1).extent());
        row_stats.dim(1).set_bounds(0, q.dim(2).extent());
        AttentionGpu stage(in, attention_gpu_tile(params, this->cuda_schedule().layout));
        std::vector<Var> context_vars = {Var("d"), Var("h"), Var("m")},
                         stats_vars = {Var("m"), Var("h"), Var("c")};
        std::vector<Expr> place = {stage.context_feature(), stage.context_head(), stage.context_row()};
        std::vector<Expr> stats_place = {stage.stats_row(), stage.stats_head(),
                                         stage.stats_store[AttentionGpu::kStat]};
        if (splits != 0) {
            context_vars.emplace_back("split");
            stats_vars.emplace_back("split");
            place.emplace_back(stage.context_store[AttentionGpu::kBlockKeys]);
            stats_place.emplace_back(stage.stats_store[AttentionGpu::kBlockKeys]);
        }
        context(context_vars) = undef<float>();
        context(place) = stage.context();
        row_stats(stats_vars) = undef<float>();
        row_stats(stats_place) = stage.row_stat();
        schedule_attention_gpu(stage, context, row_stats, params);
    }

private:
    typename GpuGenerator<T>::KeyRuns* key_runs_ = nullptr;
};

class Attend : public GpuAttend<Attend> {
public:
    Input<Buffer<float, 3>> v{"v"};                   // (d, m, h)
    Output<Buffer<float, 3>> context{"context"};      // (d, h, m)
    Output<Buffer<float, 3>> row_stats{"row_stats"};  // (m, h, c)

    void generate() {
        AttentionGpuInputs in = common_inputs(GpuRows::kQueries);
        add_values(in, v);
        finish(in, cuda_schedule().params.attend, context, row_stats);
    }
};

// With masks and steps of the scores.
template <typename T>
class GpuScored : public GpuAttend<T> {
public:
    template <typename U>
    using In = typename GpuAttend<T>::template Input<U>;

    In<Buffer<float, 2>> key_bias{"key_bias"};      // (j, b)
    In<Buffer<float, 4>> bias{"bias"};              // (j, i, h, b)
    In<Buffer<uint8_t, 4>> keep_mask{"keep_mask"};  // (j, i, h, b)
    In<Buffer<uint8_t, 4>> drop_mask{"drop_mask"};  // (j, i, h, b)

    void configure() {
        GpuAttend<T>::configure();
        const KernelConfig kernel = this->kernel_config();
        if (kernel.softcap) softcap_ = this->template add_input<float>("softcap");
        if (kernel.alibi) alibi_slopes_ = this->template add_input<Buffer<float, 1>>("alibi_slopes");  // (h)
    }

protected:
    AttentionGpuInputs scored_inputs(GpuRows rows, const Expr& flags) {
        AttentionGpuInputs in = this->common_inputs(rows);
        this->any_strides(key_bias);
        this->any_strides(bias);
        this->any_strides(keep_mask);
        this->any_strides(drop_mask);
        in.masks = GpuMasks{.key_bias = key_bias,
                            .bias = bias,
                            .keep_mask = keep_mask,
                            .drop_mask = drop_mask,
                            .key_blocks = {},
                            .flags = flags,
                            .softcap = {},
                            .alibi_slopes = {}};
        if (softcap_ != nullptr) in.masks->softcap = *softcap_;
        if (alibi_slopes_ != nullptr) {
            this->from_zero(*alibi_slopes_);
            in.masks->alibi_slopes = *alibi_slopes_;
        }
        return in;
    }

private:
    // Null: not in this configuration.
    GeneratorInput<float>* softcap_ = nullptr;
    GeneratorInput<Buffer<float, 1>>* alibi_slopes_ = nullptr;
};

// With all that attend_masked takes.
template <typename T>
class GpuMasked : public GpuScored<T> {
public:
    template <typename U>
    using In = typename GpuScored<T>::template Input<U>;

    In<Buffer<uint8_t, 4>> key_blocks{"key_blocks"};  // (jb, ib, h, b)
    In<int32_t> mask_flags{"mask_flags"};

protected:
    AttentionGpuInputs masked_inputs(GpuRows rows) {
        AttentionGpuInputs in = this->scored_inputs(rows, mask_flags);
        this->any_strides(key_blocks);
        in.masks->key_blocks = key_blocks;
        return in;
    }
};

class AttendMasked : public GpuMasked<AttendMasked> {
public:
    Input<Buffer<float, 3>> v{"v"};                   // (d, m, h)
    Output<Buffer<float, 3>> context{"context"};      // (d, h, m)
    Output<Buffer<float, 3>> row_stats{"row_stats"};  // (m, h, c)

    void generate() {
        AttentionGpuInputs in = masked_inputs(GpuRows::kQueries);
        add_values(in, v);
        finish(in, cuda_schedule().params.attend_masked, context, row_stats);
    }
};

// Heads of items with a context that isn't finite, for attend_guarded.
class AttendSuspects : public GpuGenerator<AttendSuspects> {
public:
    Input<Buffer<float, 3>> context{"context"};  // (d, h, m)
    Input<Buffer<int32_t, 2>> items{"items"};    // (c, b): ATTNC_ITEM_*
    Input<int32_t> seq_q{"seq_q"};
    Output<Buffer<int32_t, 2>> suspects{"suspects"};  // (h, b)

    void generate() {
        const int v_head_dim = static_cast<int>(kernel_config().v_head_dim);
        aligned_rows(context, v_head_dim);
        item_columns(items);
        from_zero(suspects);
        suspects.dim(0).set_bounds(0, context.dim(1).extent());
        suspects.dim(1).set_bounds(0, items.dim(1).extent());
        SuspectsGpu stage(context, items, v_head_dim, context.dim(2).extent(), context.dim(1).extent(),
                          seq_q);
        suspects(stage.h, stage.b) = 0;
        suspects(stage.head(), stage.item()) = 1;
        schedule_suspects_gpu(stage, suspects);
    }
};

// attend_masked where the context has come out not finite; elsewhere it stays as it is.
class AttendGuarded : public GpuMasked<AttendGuarded> {
public:
    Input<Buffer<float, 3>> v{"v"};                   // (d, m, h)
    Input<Buffer<int32_t, 2>> suspects{"suspects"};   // (h, b)
    Output<Buffer<float, 3>> context{"context"};      // (d, h, m)
    Output<Buffer<float, 3>> row_stats{"row_stats"};  // (m, h, c)

    void generate() {
        AttentionGpuInputs in = masked_inputs(GpuRows::kQueries);
        in.guarded = true;
        from_zero(suspects);
        suspects.dim(0).set_bounds(0, in.q_heads);
        suspects.dim(1).set_bounds(0, in.item_count);
        in.suspects = suspects;
        add_values(in, v);
        finish(in, cuda_schedule().params.attend_masked, context, row_stats);
    }
};

class AttendDecode : public GpuScored<AttendDecode> {
public:
    Input<int32_t> mask_flags{"mask_flags"};
    Input<Buffer<float, 3>> v{"v"};                   // (d, m, h)
    Output<Buffer<float, 4>> context{"context"};      // (d, h, m, split)
    Output<Buffer<float, 4>> row_stats{"row_stats"};  // (m, h, c, split)

    void generate() {
        AttentionGpuInputs in = scored_inputs(GpuRows::kGroups, mask_flags);
        in.split_kv = static_cast<int>(cuda_schedule().layout.split_kv);
        in.guarded = true;
        add_values(in, v);
        finish(in, cuda_schedule().params.attend_decode, context, row_stats);
    }
};

// Forms without values: a number for each query and key.
template <typename T>
class GpuPairs : public GpuMasked<T> {
protected:
    // pairs (j, i, h, b) = value(stage)
    template <typename Pairs, typename Value>
    void generate_pairs(Pairs& pairs, const Value& value) {
        const AttentionGpuInputs in = this->masked_inputs(GpuRows::kPairs);
        this->from_zero(pairs);
        pairs.dim(0).set_bounds(0, in.seq_kv);
        pairs.dim(1).set_bounds(0, in.seq_q);
        pairs.dim(2).set_bounds(0, in.q_heads);
        pairs.dim(3).set_bounds(0, in.item_count);
        const CudaSchedule schedule = this->cuda_schedule();
        AttentionGpu stage(in, attention_gpu_tile(schedule.params.attend_probs, schedule.layout));
        const Var j("j"), i("i"), h("h"), b("b");
        pairs(j, i, h, b) = undef<float>();
        pairs(clamp(stage.pair_key(), 0, in.seq_kv - 1), clamp(stage.pair_query(), 0, in.seq_q - 1),
              stage.context_head(), stage.pair_item()) = value(stage);
        schedule_pairs_gpu(stage, pairs, schedule.params.attend_probs);
    }
};

class AttendProbs : public GpuPairs<AttendProbs> {
public:
    Input<Buffer<float, 3>> row_stats_in{"row_stats_in"};  // (m, h, c)
    Input<int32_t> empty_rows{"empty_rows"};               // attnc_empty_rows
    Output<Buffer<float, 4>> probs{"probs"};               // (j, i, h, b)

    void generate() {
        row_statistics(row_stats_in);
        generate_pairs(probs, [&](const AttentionGpu& stage) {
            const Expr row = stage.pair_row(), head = stage.context_head();
            return stage.probability(row_stats_in(row, head, kLargest), row_stats_in(row, head, kSum),
                                     empty_rows);
        });
    }
};

class AttendScores : public GpuPairs<AttendScores> {
public:
    Output<Buffer<float, 4>> scores{"scores"};  // (j, i, h, b)

    void generate() {
        generate_pairs(scores, [&](const AttentionGpu& stage) { return stage.score(); });
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::Attend, attend)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendMasked, attend_masked)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendSuspects, attend_suspects)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendGuarded, attend_guarded)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendDecode, attend_decode)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendProbs, attend_probs)
ATTNC_REGISTER_GPU_KERNEL(attnc::AttendScores, attend_scores)
