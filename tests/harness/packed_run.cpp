#include "tests/harness/packed_run.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/harness/guarded_memory.h"

namespace attnc::test {

namespace {

// Rows of all items, of `heads` heads, between guard pages.
struct PackedTokens {
    int64_t rows = 0, features = 0, heads = 1;
    bool split = false;
    std::unique_ptr<GuardedMemory> memory;
    attnc_tensor view = {};

    PackedTokens() = default;
    PackedTokens(int64_t row_count, int64_t feature_count, int64_t head_count, bool per_head)
        : rows(row_count), features(feature_count), heads(head_count), split(per_head) {
        memory = std::make_unique<GuardedMemory>(static_cast<size_t>(rows * features) * sizeof(float),
                                                 Placement::kAtEnd);
        view = split ? attnc_tensor_3d(ATTNC_F32, memory->data(), heads, rows, features / heads)
                     : attnc_tensor_2d(ATTNC_F32, memory->data(), rows, features);
    }
    float& at(int64_t row, int64_t feature) const {
        const int64_t each = features / heads;
        const int64_t offset =
            split ? (feature / each * rows + row) * each + feature % each : row * features + feature;
        return static_cast<float*>(memory->data())[offset];
    }
};

std::vector<int64_t> starts_of(const LayerCall& call, bool keys, int64_t gap) {
    std::vector<int64_t> starts = {gap};  // rows in front of the first item belong to none
    for (int64_t b = 0; b < call.sizes.batch; ++b)
        starts.push_back(starts.back() + gap + (keys ? call.key_length(b) : call.query_length(b)));
    return starts;
}

int64_t longest(const std::vector<int64_t>& starts) {
    int64_t rows = 0;
    for (size_t b = 0; b + 1 < starts.size(); ++b) rows = std::max(rows, starts[b + 1] - starts[b]);
    return rows;
}

PackedTokens pack(const Array<float>& tokens, const std::vector<int64_t>& starts, int64_t gap, int64_t heads,
                  bool split) {
    if (!tokens.given()) return {};
    PackedTokens packed(starts.back() + gap, tokens.shape[2], heads, split);
    for (size_t b = 0; b + 1 < starts.size(); ++b) {
        for (int64_t row = starts[b]; row < starts[b + 1] - gap; ++row) {
            for (int64_t f = 0; f < packed.features; ++f)
                packed.at(row, f) = tokens.at(b, row - starts[b], f);
        }
    }
    return packed;
}

// Positions [batch, seq] of the items' valid rows, [rows].
std::vector<int64_t> pack(const Array<int64_t>& positions, const std::vector<int64_t>& starts, int64_t gap) {
    std::vector<int64_t> packed;
    if (!positions.given()) return packed;
    packed.assign(static_cast<size_t>(starts.back() + gap), std::numeric_limits<int64_t>::min());
    for (size_t b = 0; b + 1 < starts.size(); ++b) {
        for (int64_t row = starts[b]; row < starts[b + 1] - gap; ++row)
            packed[static_cast<size_t>(row)] = positions.at(b, row - starts[b]);
    }
    return packed;
}

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};

// The first `rows` of a dimension.
std::vector<float> first_rows(const Array<float>& array, size_t dim, int64_t rows) {
    std::vector<float> kept;
    if (!array.given()) return kept;
    int64_t outer = 1, inner = 1;
    for (size_t i = 0; i < array.shape.size(); ++i) {
        if (i < dim) outer *= array.shape[i];
        if (i > dim) inner *= array.shape[i];
    }
    for (int64_t o = 0; o < outer; ++o) {
        const auto first = array.values.begin() + o * array.shape[dim] * inner;
        kept.insert(kept.end(), first, first + rows * inner);
    }
    return kept;
}

// Out of the padded call; where others_stay rows between the items must hold what guarded memory begins with.
std::vector<float> unpack(const PackedTokens& out, const LayerCall& call, const std::vector<int64_t>& starts,
                          int64_t gap, bool others_stay) {
    Array<float> padded = filled<float>({call.sizes.batch, call.sizes.seq_q, out.features}, 0);
    std::vector<bool> owned(static_cast<size_t>(out.rows), false);
    for (int64_t b = 0; b < call.sizes.batch; ++b) {
        const int64_t first = starts[static_cast<size_t>(b)], end = starts[static_cast<size_t>(b) + 1];
        for (int64_t row = first; row < end; ++row) {
            owned[static_cast<size_t>(row)] = true;
            for (int64_t f = 0; f < out.features; ++f) {
                if (row < end - gap) {
                    padded.at(b, row - first, f) = out.at(row, f);
                } else {
                    EXPECT_EQ(out.at(row, f), 0) << "row " << row << " past the length of item " << b;
                }
            }
        }
    }
    for (int64_t row = 0; others_stay && row < out.rows; ++row) {
        for (int64_t f = 0; f < out.features && !owned[static_cast<size_t>(row)]; ++f)
            EXPECT_EQ(std::bit_cast<uint32_t>(out.at(row, f)), 0xffffffffU) << "row " << row << " of no item";
    }
    return padded.values;
}

}  // namespace

RunResult run_packed(const attnc_library* library, const LayerCall& call, const Packing& packing) {
    RunResult result;
    attnc_error error = {};
    const auto failed = keeping_status(result, error);
    const attnc_weights weights = call.weights();
    attnc_layer_options options = call.options();
    options.target = packing.target;
    attnc_layer* created = nullptr;
    if (failed(attnc_layer_create(library, &weights, &options, &created, &error))) return result;
    const std::unique_ptr<attnc_layer, LayerDelete> layer(created);
    return run_packed(created, call, packing, [](attnc_inputs&) {});
}

RunResult run_packed(const attnc_layer* layer, const LayerCall& call, const Packing& packing,
                     const std::function<void(attnc_inputs&)>& place) {
    RunResult result;
    attnc_error error = {};
    const auto failed = keeping_status(result, error);
    const Config& c = call.config;
    const bool on_device = std::string_view(attnc_layer_target(layer)) == "cuda";
    const int64_t gap = packing.gap;
    const std::vector<int64_t> q_starts = starts_of(call, false, gap), kv_starts = starts_of(call, true, gap);
    const PackedTokens query = pack(call.query, q_starts, gap, c.num_heads, packing.split);
    const PackedTokens key = pack(call.key, kv_starts, gap, c.num_kv_heads, packing.split);
    const PackedTokens value = pack(call.value, kv_starts, gap, c.num_kv_heads, packing.split);
    const PackedTokens out(query.rows, c.out_proj ? c.d_model : c.num_heads * c.v_head_dim, c.num_heads,
                           packing.split && !c.out_proj);
    attnc_inputs in = call.inputs();
    in.query = query.view, in.key = key.view, in.value = value.view;
    const std::vector<int64_t> q_positions = pack(call.query_positions, q_starts, gap);
    const std::vector<int64_t> kv_positions = pack(call.key_positions, kv_starts, gap);
    const auto rows_of = [](const std::vector<int64_t>& p) {
        return p.empty() ? attnc_tensor{}
                         : attnc_tensor_1d(ATTNC_I64, p.data(), static_cast<int64_t>(p.size()));
    };
    in.query_positions = rows_of(q_positions), in.key_positions = rows_of(kv_positions);
    const auto count = static_cast<int64_t>(q_starts.size());
    in.query_cu_seqlens = attnc_tensor_1d(ATTNC_I64, q_starts.data(), count);
    if (call.key.given()) in.key_cu_seqlens = attnc_tensor_1d(ATTNC_I64, kv_starts.data(), count);
    std::vector<int64_t> q_lengths, kv_lengths;
    for (int64_t b = 0; b < call.sizes.batch; ++b) {
        q_lengths.push_back(call.query_length(b));
        kv_lengths.push_back(call.key_length(b));
    }
    in.query_lengths = in.key_lengths = {};
    if (gap > 0) {
        in.query_lengths = attnc_tensor_1d(ATTNC_I64, q_lengths.data(), call.sizes.batch);
        in.key_lengths = attnc_tensor_1d(ATTNC_I64, kv_lengths.data(), call.sizes.batch);
    }
    place(in);
    if (in.cache_use == ATTNC_CACHE_READ) in.key_lengths = in.key_cu_seqlens = {};
    if (in.cache != nullptr && on_device) in.max_keys = call.sizes.seq_kv;

    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out.view;
    Array<float> probs, averaged, lse;
    // On a device an item may have all rows.
    const int64_t batch = call.sizes.batch, seq_q = on_device ? query.rows : longest(q_starts);
    const int64_t keys = call.keys();
    if (call.probs)
        probs = filled<float>({batch, c.num_heads, seq_q, keys}, -1), outputs.probs = probs.view();
    if (call.probs_averaged)
        averaged = filled<float>({batch, seq_q, keys}, -1), outputs.probs_averaged = averaged.view();
    if (call.lse) lse = filled<float>({batch, c.num_heads, seq_q}, -1), outputs.lse = lse.view();

    attnc_run run = ATTNC_RUN_INIT;
    run.executor = packing.executor;
    if (failed(attnc_layer_workspace(layer, &in, &outputs, &run, &run.workspace_bytes, &error)))
        return result;
    const GuardedMemory workspace(run.workspace_bytes, Placement::kAtEnd, on_device ? 256 : 64);
    run.workspace = workspace.data();
    if (failed(attnc_layer_forward(layer, &in, &outputs, &run, &error))) return result;
    if (on_device && failed(attnc_device_synchronize(layer, nullptr, &error))) return result;
    result.out = unpack(out, call, q_starts, gap, !on_device);
    result.probs = first_rows(probs, 2, call.sizes.seq_q);
    result.probs_averaged = first_rows(averaged, 1, call.sizes.seq_q);
    result.lse = first_rows(lse, 2, call.sizes.seq_q);
    return result;
}

}  // namespace attnc::test
