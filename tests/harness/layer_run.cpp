#include "tests/harness/layer_run.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>

#include "runtime/kernel_abi.h"
#include "tests/harness/libraries.h"

namespace attnc::test {
namespace {

const attnc_library* library_of(const Config& config, const RunOptions& options) {
    if (options.target == kDevice) return twin_library_of(config, options.schedule);
    return test::library_of(config, options.schedule, options.only_target ? options.target : "");
}

size_t element_bytes(int32_t dtype) {
    return dtype == ATTNC_U8 ? 1 : dtype == ATTNC_I64 || dtype == ATTNC_F64 ? 8 : 4;
}

// Elements from the first to the last one that the strides reach.
int64_t span_of(const attnc_tensor& t) {
    int64_t last = 0;
    for (int n = 0; n < t.rank; ++n) {
        if (t.extent[n] == 0) return 0;
        last += (t.extent[n] - 1) * t.stride[n];
    }
    return last + 1;
}

class Buffers {
public:
    explicit Buffers(Placement placement) : placement_(placement) {}

    // The same tensor on guarded memory.
    attnc_tensor copy(attnc_tensor t) {
        if (t.rank == 0) return t;
        const size_t bytes = static_cast<size_t>(span_of(t)) * element_bytes(t.dtype);
        memory_.emplace_back(bytes, placement_, element_bytes(t.dtype));
        if (bytes > 0) std::memcpy(memory_.back().data(), t.data, bytes);
        t.data = memory_.back().data();
        return t;
    }

    attnc_tensor make(const std::vector<int64_t>& shape) {
        attnc_tensor t = {};
        t.dtype = ATTNC_F32;
        t.rank = static_cast<int32_t>(shape.size());
        int64_t stride = 1;
        for (size_t n = shape.size(); n-- > 0;) {
            t.extent[n] = shape[n];
            t.stride[n] = stride;
            stride *= shape[n];
        }
        memory_.emplace_back(static_cast<size_t>(stride) * sizeof(float), placement_, sizeof(float));
        t.data = memory_.back().data();
        return t;
    }

    void* workspace(size_t bytes, size_t alignment) {
        memory_.emplace_back(bytes, placement_, alignment);
        return memory_.back().data();
    }

private:
    Placement placement_;
    std::vector<GuardedMemory> memory_;
};

std::vector<float> values_of(const attnc_tensor& t) {
    if (t.rank == 0) return {};
    const auto* data = static_cast<const float*>(t.data);
    return {data, data + span_of(t)};
}

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};
struct PoolDelete {
    void operator()(attnc_pool* pool) const { attnc_pool_destroy(pool); }
};

int run_backwards(void*, int64_t count, int (*task)(void*, int64_t), void* data) {
    int result = 0;
    for (int64_t n = count; n-- > 0;) result |= task(data, n);
    return result;
}

// An executor for the options, and what it needs to live.
struct ChosenExecutor {
    std::unique_ptr<attnc_pool, PoolDelete> pool;
    attnc_executor backwards = {};
    const attnc_executor* executor = nullptr;
};

attnc_status choose_executor(const RunOptions& options, ChosenExecutor& chosen, attnc_error& error) {
    if (options.executor == Executor::kSequential) {
        chosen.backwards = {nullptr, options.concurrency, run_backwards};
        chosen.executor = &chosen.backwards;
    } else if (options.executor == Executor::kPool) {
        attnc_pool* pool = nullptr;
        const attnc_status status = attnc_pool_create(options.concurrency, &pool, &error);
        if (status != ATTNC_OK) return status;
        chosen.pool.reset(pool);
        chosen.executor = attnc_pool_executor(pool);
    }
    return ATTNC_OK;
}

// The bound for limits of exactly this call must suffice for it.
void check_workspace_bound(const attnc_layer* layer, const attnc_inputs& in, int64_t seq_kv,
                           int64_t concurrency, size_t workspace) {
    attnc_limits limits = ATTNC_LIMITS_INIT;
    limits.max_batch = std::max<int64_t>(1, in.query.extent[0]);
    limits.max_seq_q = std::max<int64_t>(1, in.query.extent[in.query.rank == 3 ? 1 : 2]);
    limits.max_seq_kv = std::max<int64_t>(1, seq_kv);
    limits.max_concurrency = concurrency;
    size_t bound = 0;
    attnc_error error = {};
    EXPECT_EQ(attnc_layer_workspace_bound(layer, &limits, &bound, &error), ATTNC_OK) << error.text;
    EXPECT_GE(bound, workspace);
}

void make_outputs(const Config& config, const attnc_inputs& in, int64_t seq_kv, const Wanted& wanted,
                  Buffers& buffers, attnc_outputs& out) {
    const bool per_head = in.query.rank == 4;
    const int64_t batch = in.query.extent[0];
    const int64_t seq_q = in.query.extent[per_head ? 2 : 1];
    const int64_t keys = seq_kv + (config.bias_kv ? 1 : 0) + (config.zero_attn ? 1 : 0);
    const int64_t width = config.out_proj ? config.d_model : config.num_heads * config.v_head_dim;
    out.out = per_head ? buffers.make({batch, config.num_heads, seq_q, config.v_head_dim})
                       : buffers.make({batch, seq_q, width});
    if (wanted.probs) out.probs = buffers.make({batch, config.num_heads, seq_q, keys});
    if (wanted.probs_averaged) out.probs_averaged = buffers.make({batch, seq_q, keys});
    if (wanted.lse) out.lse = buffers.make({batch, config.num_heads, seq_q});
    out.scores_stage = wanted.scores_stage;
    if (wanted.scores_stage != ATTNC_SCORES_NOT_GIVEN)
        out.scores = buffers.make({batch, config.num_heads, seq_q, seq_kv});
}

}  // namespace

Reference RunResult::as_reference(const Reference& sizes) const {
    Reference r;
    r.batch = sizes.batch, r.num_heads = sizes.num_heads, r.seq_q = sizes.seq_q;
    r.keys = sizes.keys, r.out_features = sizes.out_features, r.v_head_dim = sizes.v_head_dim;
    (out_per_head ? r.context : r.out).assign(out.begin(), out.end());
    r.probs.assign(probs.begin(), probs.end());
    r.probs_averaged.assign(probs_averaged.begin(), probs_averaged.end());
    r.lse.assign(lse.begin(), lse.end());
    r.scores.assign(scores.begin(), scores.end());
    return r;
}

RunResult run_layer(const Config& config, const attnc_weights& given_weights,
                    const attnc_inputs& given_inputs, const attnc_layer_options& given_options,
                    const Wanted& wanted, const RunOptions& options) {
    RunResult result;
    attnc_error error = {};
    const auto failed = keeping_status(result, error);

    attnc_layer_options layer_options = given_options;
    layer_options.target = options.target.c_str();
    layer_options.allocator = nullptr;
    attnc_layer* created = nullptr;
    {
        Buffers buffers(options.placement);
        attnc_weights w = given_weights;
        for (attnc_tensor* t : {&w.wq, &w.wk, &w.wv, &w.wo, &w.bq, &w.bk, &w.bv, &w.bo, &w.in_proj_weight,
                                &w.in_proj_bias, &w.bias_k, &w.bias_v, &w.sink, &w.alibi_slopes, &w.q_norm,
                                &w.k_norm, &w.rotary_frequencies, &w.rotary_cos, &w.rotary_sin}) {
            *t = buffers.copy(*t);
        }
        const attnc_library* library = library_of(config, options);
        if (failed(attnc_layer_create(library, &w, &layer_options, &created, &error))) return result;
    }  // the layer keeps no pointer to its weights
    const std::unique_ptr<attnc_layer, LayerDelete> layer(created);
    EXPECT_EQ(options.target, attnc_layer_target(layer.get()));

    Buffers buffers(options.placement);
    attnc_inputs in = given_inputs;
    for (attnc_tensor* t :
         {&in.query, &in.key, &in.value, &in.keep_mask, &in.drop_mask, &in.bias, &in.key_keep_mask,
          &in.key_drop_mask, &in.key_bias, &in.key_lengths, &in.query_lengths, &in.causal_offsets,
          &in.block_keep_mask, &in.position_offsets, &in.query_positions, &in.key_positions}) {
        *t = buffers.copy(*t);
    }
    const attnc_tensor& key = in.key.rank != 0 ? in.key : in.query;
    const int64_t seq_kv = key.extent[key.rank == 3 ? 1 : 2];
    attnc_outputs out = ATTNC_OUTPUTS_INIT;
    make_outputs(config, in, seq_kv, wanted, buffers, out);
    result.out_per_head = in.query.rank == 4;

    ChosenExecutor chosen;
    if (failed(choose_executor(options, chosen, error))) return result;
    attnc_run run = ATTNC_RUN_INIT;
    run.executor = chosen.executor;
    if (failed(attnc_layer_workspace(layer.get(), &in, &out, &run, &run.workspace_bytes, &error)))
        return result;
    check_workspace_bound(layer.get(), in, seq_kv, options.concurrency, run.workspace_bytes);
    run.workspace = buffers.workspace(run.workspace_bytes, options.target == kDevice ? 256 : 64);
    if (failed(attnc_layer_forward(layer.get(), &in, &out, &run, &error))) return result;
    result.out = values_of(out.out);
    result.probs = values_of(out.probs);
    result.probs_averaged = values_of(out.probs_averaged);
    result.lse = values_of(out.lse);
    result.scores = values_of(out.scores);
    return result;
}

RunResult run_layer(const Config& config, const attnc_weights& weights, const attnc_inputs& inputs,
                    attnc_empty_rows empty_rows, float qk_scale, const Wanted& wanted,
                    const RunOptions& options) {
    attnc_layer_options layer_options = ATTNC_LAYER_OPTIONS_INIT;
    layer_options.empty_rows = empty_rows;
    layer_options.qk_scale = qk_scale;
    return run_layer(config, weights, inputs, layer_options, wanted, options);
}

RunResult run_call(const LayerCall& call, const RunOptions& options) {
    return run_layer(call.config, call.weights(), call.inputs(), call.options(),
                     {call.probs, call.probs_averaged, call.lse, call.scores_stage}, options);
}

RunResult run_call(const LayerCall& call, const std::string& target) {
    return run_call(call, RunOptions{.target = target});
}

std::string repeat_line(const std::string& problem, const std::string& target, uint64_t seed) {
    std::string line = problem + " on " + target + ", seed " + std::to_string(seed);
    if (const auto* test = ::testing::UnitTest::GetInstance()->current_test_info()) {
        std::string program = "TEST";
        if (const auto arguments = ::testing::internal::GetArgvs(); !arguments.empty())
            program = arguments[0];
        line += std::string("\nrepeat: ") + program + " --gtest_filter=" + test->test_suite_name() + "." +
                test->name();
    }
    return line;
}

::testing::AssertionResult matches_reference(const LayerCall& call, const RunResult& got,
                                             const RunOptions& options, const Reference* want) {
    const std::string problem = to_string(Problem{call.config, call.sizes});
    const std::string repeat = repeat_line(problem, options.target, call.seed);
    if (got.status != ATTNC_OK) {
        return ::testing::AssertionFailure() << "status " << got.status << ": " << got.error << "\n"
                                             << repeat;
    }
    const Reference computed = want == nullptr ? call.reference() : Reference();
    const Reference& reference = want == nullptr ? computed : *want;
    const KeyBlocks blocks = key_blocks_of(library_of(call.config, options), options.target);
    const LayerComparison comparison =
        compare_layer(call.config, got.as_reference(reference), reference, blocks);
    if (comparison.ok()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << comparison.text() << "\n" << repeat;
}

::testing::AssertionResult matches_reference(const LayerCall& call, const RunOptions& options) {
    return matches_reference(call, run_call(call, options), options);
}

::testing::AssertionResult matches_reference(const LayerCall& call, const std::string& target) {
    return matches_reference(call, RunOptions{.target = target});
}

::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size())
        return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " elements";
    for (size_t n = 0; n < a.size(); ++n) {
        if (std::bit_cast<uint32_t>(a[n]) != std::bit_cast<uint32_t>(b[n])) {
            return ::testing::AssertionFailure() << "element " << n << " of " << a.size() << ": " << a[n]
                                                 << " and " << b[n] << ", difference " << a[n] - b[n];
        }
    }
    return ::testing::AssertionSuccess();
}

::testing::AssertionResult same_bits(const RunResult& a, const RunResult& b) {
    if (a.status != ATTNC_OK) return ::testing::AssertionFailure() << a.error;
    if (b.status != ATTNC_OK) return ::testing::AssertionFailure() << b.error;
    const struct {
        const char* name;
        const std::vector<float>&a, &b;
    } parts[] = {{"out", a.out, b.out},
                 {"probs", a.probs, b.probs},
                 {"probs_averaged", a.probs_averaged, b.probs_averaged},
                 {"lse", a.lse, b.lse},
                 {"scores", a.scores, b.scores}};
    for (const auto& part : parts) {
        if (part.a.empty() || part.b.empty()) continue;
        if (const auto same = same_bits(part.a, part.b); !same) {
            return ::testing::AssertionFailure() << part.name << ": " << same.message();
        }
    }
    return ::testing::AssertionSuccess();
}

}  // namespace attnc::test
