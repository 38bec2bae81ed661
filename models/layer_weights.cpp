#include "models/layer_weights.h"

#include <algorithm>
#include <utility>

#include "models/hf_config.h"
#include "support/safetensors_header.h"

namespace attnc {

namespace {

using Values = std::vector<float>;

// [rows, columns] to [columns, rows].
Values transposed(const Values& values, int64_t rows, int64_t columns) {
    Values turned(values.size());
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
            turned[static_cast<size_t>(column * rows + row)] =
                values[static_cast<size_t>(row * columns + column)];
        }
    }
    return turned;
}

class Loader {
public:
    Loader(const ModelLayer& layer, const Checkpoint& checkpoint)
        : config_(layer.config), names_(layer.names), checkpoint_(checkpoint), loaded_{layer, {}} {
        begin_ = checkpoint.prefix_of(names_.layer + names_.q + ".weight", names_.prefixes) + names_.layer;
    }

    LoadedLayer load() {
        const int64_t width = config_.d_model;
        const int64_t q = config_.num_heads * config_.head_dim;
        const int64_t k = config_.num_kv_heads * config_.head_dim;
        const int64_t v = config_.num_kv_heads * config_.v_head_dim;
        const int64_t context = config_.num_heads * config_.v_head_dim;

        Values wq, wk, wv, bq, bk, bv;
        if (names_.packing == Packing::kSeparate) {
            wq = read_weight(names_.q, q, width);
            wk = read_weight(names_.k, k, width);
            wv = read_weight(names_.v, v, width);
            bq = read_bias(names_.q, names_.bias_q, q);
            bk = read_bias(names_.k, names_.bias_k, k);
            bv = read_bias(names_.v, names_.bias_v, v);
        } else {
            const Values weight = read_weight(names_.q, q + k + v, width);
            const Values bias = read_bias(names_.q, names_.bias_q, q + k + v);
            unpack(weight, width, wq, wk, wv);
            unpack(bias, bias.empty() ? 0 : 1, bq, bk, bv);
        }
        add("wq", {q, width}, std::move(wq));
        add("wk", {k, width}, std::move(wk));
        add("wv", {v, width}, std::move(wv));
        add("wo", {width, context}, read_weight(names_.out, width, context));
        add("bq", {q}, std::move(bq));
        add("bk", {k}, std::move(bk));
        add("bv", {v}, std::move(bv));
        add("bo", {width}, read_bias(names_.out, names_.bias_out, width));
        if (!names_.sink.empty()) add("sink", {config_.num_heads}, read(names_.sink, {config_.num_heads}));
        add("q_norm", {config_.head_dim}, read_norm(names_.q_norm));
        add("k_norm", {config_.head_dim}, read_norm(names_.k_norm));
        add("alibi_slopes", {config_.num_heads}, loaded_.layer.settings.alibi_slopes);
        return std::move(loaded_);
    }

private:
    Values read(const std::string& name, std::initializer_list<int64_t> shape) const {
        return checkpoint_.read(begin_ + name, {shape.begin(), shape.size()});
    }

    Values read_weight(const std::string& name, int64_t out_features, int64_t in_features) const {
        if (!names_.transposed) return read(name + ".weight", {out_features, in_features});
        return transposed(read(name + ".weight", {in_features, out_features}), in_features, out_features);
    }

    Values read_bias(const std::string& name, bool has_bias, int64_t features) const {
        if (has_bias) return read(name + ".bias", {features});
        if (checkpoint_.contains(begin_ + name + ".bias")) {
            safetensors::fail(checkpoint_.path(),
                              "tensor " + safetensors::in_quotes(begin_ + name + ".bias") +
                                  " is there, but the model's configuration has no such bias");
        }
        return {};
    }

    Values read_norm(const std::string& name) const {
        if (name.empty()) return {};
        Values weight = read(name + ".weight", {config_.head_dim});
        if (names_.norm_adds_one) {
            for (float& w : weight) w += 1;
        }
        return weight;
    }

    // `rows` has width elements a row.
    void unpack(const Values& rows, int64_t width, Values& q, Values& k, Values& v) const {
        const bool per_head = names_.packing == Packing::kPerHead;
        const int64_t groups = per_head ? config_.num_heads : 1;
        const int64_t q_rows = config_.num_heads * config_.head_dim / groups;
        const int64_t k_rows = config_.num_kv_heads * config_.head_dim / groups;
        const int64_t v_rows = config_.num_kv_heads * config_.v_head_dim / groups;
        auto next = rows.begin();
        const auto take = [&](int64_t count, Values& to) {
            to.insert(to.end(), next, next + count * width);
            next += count * width;
        };
        for (int64_t group = 0; group < groups; ++group) {
            take(q_rows, q);
            take(k_rows, k);
            take(v_rows, v);
        }
    }

    // No values: the layer has no such tensor.
    void add(const char* name, std::vector<int64_t> shape, Values values) {
        if (!values.empty()) loaded_.tensors.push_back({name, std::move(shape), std::move(values)});
    }

    const Config& config_;
    const TensorNames& names_;
    const Checkpoint& checkpoint_;
    LoadedLayer loaded_;
    std::string begin_;  // of every tensor's name
};

}  // namespace

const LayerTensor* LoadedLayer::find(std::string_view name) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const LayerTensor& tensor) { return tensor.name == name; });
    return found == tensors.end() ? nullptr : &*found;
}

LoadedLayer load_layer(const ModelLayer& layer, const Checkpoint& checkpoint) {
    return Loader(layer, checkpoint).load();
}

LoadedLayer load_model_layer(const std::filesystem::path& config, std::string_view layer,
                             const std::filesystem::path& checkpoint, int64_t max_positions) {
    const ModelLayer described = model_layer_from_hf(config, layer, max_positions);
    return load_layer(described, Checkpoint(checkpoint));
}

}  // namespace attnc
