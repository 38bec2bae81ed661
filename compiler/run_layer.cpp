#include "compiler/run_layer.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "compiler/device_call.h"
#include "compiler/layer_data.h"
#include "compiler/packed_tokens.h"
#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};
using Layer = std::unique_ptr<attnc_layer, LayerDelete>;

Layer make_layer(const attnc_library* library, const std::string& target, const attnc_weights& weights,
                 const ReferenceOptions& layer_options) {
    attnc_layer_options options = layer_options_of(layer_options);
    options.target = target.c_str();
    attnc_error error;
    attnc_layer* layer = nullptr;
    check_status(attnc_layer_create(library, &weights, &options, &layer, &error), error,
                 "attnc_layer_create");
    return Layer(layer);
}

// A dense float tensor and its elements.
struct Output {
    std::vector<float> values;
    attnc_tensor view = {};

    void make(std::initializer_list<int64_t> shape) {
        view.dtype = ATTNC_F32;
        int64_t count = 1;
        for (const int64_t extent : shape) {
            view.extent[view.rank++] = extent;
            count *= extent;
        }
        int64_t stride = 1;
        for (int n = view.rank; n-- > 0; stride *= view.extent[n]) view.stride[n] = stride;
        values.resize(static_cast<size_t>(count));
        values.reserve(1);  // a pointer that is not null
        view.data = values.data();
    }
    std::vector<double> widened() const { return {values.begin(), values.end()}; }
};

struct Outputs {
    bool per_head = false;
    Output out, probs, averaged, lse, scores;

    attnc_outputs view(attnc_scores_stage stage) const {
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = out.view, outputs.probs = probs.view, outputs.probs_averaged = averaged.view;
        outputs.lse = lse.view, outputs.scores = scores.view, outputs.scores_stage = stage;
        return outputs;
    }
};

Outputs make_outputs(bool per_head, const Wanted& wanted, attnc_scores_stage stage, const Reference& sizes) {
    const int64_t batch = sizes.batch, heads = sizes.num_heads, seq_q = sizes.seq_q;
    Outputs outputs;
    outputs.per_head = per_head;
    if (per_head) {
        outputs.out.make({batch, heads, seq_q, sizes.v_head_dim});
    } else {
        outputs.out.make({batch, seq_q, sizes.out_features});
    }
    if (wanted.probs) outputs.probs.make({batch, heads, seq_q, sizes.keys});
    if (wanted.probs_averaged) outputs.averaged.make({batch, seq_q, sizes.keys});
    if (wanted.lse) outputs.lse.make({batch, heads, seq_q});
    if (stage != ATTNC_SCORES_NOT_GIVEN)
        outputs.scores.make({batch, heads, seq_q, sizes.keys - sizes.appended});
    return outputs;
}

Reference as_reference(const Outputs& outputs, const Reference& sizes) {
    Reference result;
    result.batch = sizes.batch;
    result.num_heads = sizes.num_heads;
    result.seq_q = sizes.seq_q;
    result.keys = sizes.keys;
    result.appended = sizes.appended;
    result.out_features = sizes.out_features;
    result.v_head_dim = sizes.v_head_dim;
    (outputs.per_head ? result.context : result.out) = outputs.out.widened();
    result.probs = outputs.probs.widened();
    result.probs_averaged = outputs.averaged.widened();
    result.lse = outputs.lse.widened();
    result.scores = outputs.scores.widened();
    return result;
}

// A cache with the past of each item in its slot.
class PastCache {
public:
    // `keys` is the most that an item has after the call.
    PastCache(const attnc_layer* layer, const ReferencePast& past, int64_t keys)
        : layer_(layer), past_(past), batch_(past.keys.extent[0]), cache_(layer, options(batch_, keys)) {
        const PlacedTensor past_keys(layer, past.keys), past_values(layer, past.values);
        for (int64_t item = 0; item < batch_; ++item) {
            const Part part(item, past.length(item));
            const attnc_tensor key = part.of(past_keys.view()), value = part.of(past_values.view());
            attnc_error error;
            check_status(attnc_cache_import(cache(), &part.range, &key, &value, &error), error,
                         "attnc_cache_import");
        }
    }
    PastCache(const PastCache&) = delete;
    PastCache& operator=(const PastCache&) = delete;

    attnc_cache* cache() const { return cache_.cache(); }

    // What all items have now, [batch, num_kv_heads, keys, head_dim], and 0 past the end of those that have less.
    void give_back(int64_t keys, Reference& result) const {
        const auto heads = [&](const attnc_tensor& past) {
            Output all;
            all.make({batch_, past.extent[1], keys, past.extent[3]});
            return all;
        };
        const Output key = heads(past_.keys), value = heads(past_.values);
        const PlacedTensor all_keys(layer_, key.view), all_values(layer_, value.view);
        for (int64_t item = 0; item < batch_; ++item) {
            const Part part(item, attnc_cache_length(cache(), item));
            const attnc_tensor key_part = part.of(all_keys.view()), value_part = part.of(all_values.view());
            attnc_error error;
            check_status(attnc_cache_export(cache(), &part.range, &key_part, &value_part, &error), error,
                         "attnc_cache_export");
        }
        all_keys.copy_out();
        all_values.copy_out();
        result.keys_after = key.widened();
        result.values_after = value.widened();
    }

private:
    // The first keys of one item: of its slot, and of a tensor of all items.
    struct Part {
        int64_t item;
        attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;

        Part(int64_t number, int64_t count) : item(number) {
            range.slots = attnc_tensor_1d(ATTNC_I64, &item, 1);
            range.count = count;
        }
        Part(const Part&) = delete;
        Part& operator=(const Part&) = delete;
        attnc_tensor of(attnc_tensor all) const {
            all.data = static_cast<float*>(all.data) + item * all.stride[0];
            all.extent[0] = 1;
            all.extent[2] = range.count;
            return all;
        }
    };
    static attnc_cache_options options(int64_t batch, int64_t keys) {
        attnc_cache_options options = ATTNC_CACHE_OPTIONS_INIT;
        options.slots = std::max<int64_t>(1, batch);
        options.capacity = std::max<int64_t>(1, keys);
        return options;
    }

    const attnc_layer* layer_;
    const ReferencePast& past_;
    int64_t batch_;
    PlacedCache cache_;
};

void forward(const attnc_layer* layer, const attnc_inputs& inputs, const attnc_outputs& outputs) {
    if (is_on_device(layer)) {
        DeviceCall call(layer, inputs, outputs);
        call.run();
        call.wait();
        call.copy_outputs();
        return;
    }
    attnc_error error;
    attnc_run run = ATTNC_RUN_INIT;
    check_status(attnc_layer_workspace(layer, &inputs, &outputs, &run, &run.workspace_bytes, &error), error,
                 "attnc_layer_workspace");
    const AlignedBytes workspace(run.workspace_bytes);
    run.workspace = workspace.data();
    check_status(attnc_layer_forward(layer, &inputs, &outputs, &run, &error), error, "attnc_layer_forward");
}

bool is_per_head(const attnc_library* library, const attnc_inputs& inputs) {
    return inputs.query.rank == 4 && (library->config.flags & ATTNC_CONFIG_OUT_PROJ) == 0;
}

}  // namespace

Reference run_layer(const attnc_library* library, const std::string& target, const attnc_weights& weights,
                    const attnc_inputs& given_inputs, const ReferenceOptions& layer_options,
                    const Wanted& wanted, const Reference& sizes, const ReferencePast& past) {
    const Layer layer = make_layer(library, target, weights, layer_options);
    attnc_inputs inputs = given_inputs;
    std::optional<PastCache> cache;
    if (past.given()) {
        cache.emplace(layer.get(), past, sizes.keys - sizes.appended);
        inputs.cache = cache->cache();
        inputs.cache_use = past.alone ? ATTNC_CACHE_READ : ATTNC_CACHE_APPEND;
    }
    const Outputs outputs =
        make_outputs(is_per_head(library, inputs), wanted, layer_options.scores_stage, sizes);
    forward(layer.get(), inputs, outputs.view(layer_options.scores_stage));
    Reference result = as_reference(outputs, sizes);
    if (cache) cache->give_back(sizes.keys - sizes.appended, result);
    return result;
}

Reference run_packed(const attnc_library* library, const std::string& target, const attnc_weights& weights,
                     const attnc_inputs& padded, const ReferenceOptions& layer_options, const Wanted& wanted,
                     const Reference& sizes) {
    const Layer layer = make_layer(library, target, weights, layer_options);
    const bool per_head = is_per_head(library, padded);
    const PackedCall call(padded);
    const Outputs outputs = make_outputs(per_head, wanted, layer_options.scores_stage, sizes);
    attnc_outputs views = outputs.view(layer_options.scores_stage);
    Output rows;
    if (per_head) {
        rows.make({sizes.num_heads, call.query_rows(), sizes.v_head_dim});
    } else {
        rows.make({call.query_rows(), sizes.out_features});
    }
    views.out = rows.view;
    forward(layer.get(), call.inputs(), views);
    call.unpack(rows.view, outputs.out.view);
    return as_reference(outputs, sizes);
}

std::vector<double> run_rotation(const attnc_library* library, const std::string& target,
                                 const attnc_weights& weights, const attnc_inputs& inputs,
                                 const ReferenceOptions& layer_options) {
    const Layer layer = make_layer(library, target, weights, layer_options);
    const attnc_tensor& x = inputs.query;
    Output out;
    if (x.rank == 4) {
        out.make({x.extent[0], x.extent[1], x.extent[2], x.extent[3]});
    } else {
        out.make({x.extent[0], x.extent[1], x.extent[2]});
    }
    const PlacedTensor from(layer.get(), x), to(layer.get(), out.view);
    const PlacedTensor positions(layer.get(), inputs.query_positions);
    attnc_rotation rotation = ATTNC_ROTATION_INIT;
    rotation.heads = ATTNC_HEADS_QUERY;
    rotation.x = from.view();
    rotation.positions = positions.view();
    rotation.out = to.view();
    attnc_error error;
    attnc_run run = ATTNC_RUN_INIT;
    check_status(attnc_layer_rotate_workspace(layer.get(), &run, &run.workspace_bytes, &error), error,
                 "attnc_layer_rotate_workspace");
    const PlacedWorkspace workspace(layer.get(), run.workspace_bytes);
    run.workspace = workspace.data();
    check_status(attnc_layer_rotate(layer.get(), &rotation, &run, &error), error, "attnc_layer_rotate");
    to.copy_out();
    return out.widened();
}

}  // namespace attnc
