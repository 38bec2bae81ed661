#include "support/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "support/reference_heads.h"
#include "support/reference_keys.h"
#include "support/reference_rows.h"
#include "support/tolerance.h"

namespace attnc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kDefaultEpsilon = 1e-6F;

// An item of a call: its lengths, and its rows as attention takes them.
struct Item {
    int64_t index = 0;
    int64_t queries = 0, keys = 0;  // valid ones; keys with those of the past
    Rows q, k, v;                   // k and v with the appended keys behind
};

// A key that a row may attend: its index in k and v, its column of probs (the appended ones come last).
struct AttendedKey {
    int64_t key = 0, column = 0;
    double score = 0, size = 0;
};

class LayerReference {
public:
    LayerReference(const Config& config, const attnc_weights& weights, const ReferenceOptions& options,
                   const attnc_inputs& inputs, const ReferencePast& past)
        : config_(config), weights_(weights), options_(options), inputs_(inputs), past_(past) {
        query_ = inputs.query;
        key_ = is_given(inputs.key) ? inputs.key : query_;
        value_ = is_given(inputs.value) ? inputs.value : key_;
        for (const attnc_tensor* t : {&query_, &key_, &value_})
            require_reference(t->rank == 3 || t->rank == 4, "bad token rank");
        scale_ =
            options.qk_scale != 0 ? options.qk_scale : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
        result_.score_steps = score_steps(has_softcap(), config.alibi && is_given(weights.alibi_slopes));
        layers_ = linear_layers(config, weights);
        if (config.rotary != Rotary::kNone && (options.rotary.base != 0 || is_given(weights.rotary_cos) ||
                                               is_given(weights.rotary_frequencies))) {
            rotation_ = rotation_of(config, weights, options.rotary);
        }
        check_shapes();
        seq_kv_ = past.given() ? longest() : sequence_of(key_);
        make_results();
    }

    Reference run() {
        for (int64_t item = 0; item < result_.batch; ++item) run_item(item);
        average_probs();
        return std::move(result_);
    }

private:
    void check_shapes() const {
        const Config& c = config_;
        const int64_t batch = query_.extent[0];
        require_reference(features_of(query_) == (c.in_proj ? c.d_model : c.num_heads * c.head_dim),
                          "query has another width");
        if (!past_.alone) {
            require_reference(key_.extent[0] == batch && value_.extent[0] == batch, "batch sizes differ");
            require_reference(sequence_of(value_) == sequence_of(key_),
                              "key and value have different lengths");
            const int64_t k = c.num_kv_heads * c.head_dim;
            const int64_t v = c.num_kv_heads * c.v_head_dim;
            require_reference(features_of(key_) == (c.in_proj ? c.k_dim : k), "key has another width");
            require_reference(features_of(value_) == (c.in_proj ? c.v_dim : v), "value has another width");
        }
        for (const attnc_tensor* t : {&weights_.sink, &weights_.alibi_slopes}) {
            require_reference(!is_given(*t) || (t->rank == 1 && t->extent[0] == c.num_heads),
                              "sink or alibi_slopes has another shape");
        }
        for (const attnc_tensor* t : {&past_.keys, &past_.values}) {
            const int64_t head_dim = t == &past_.keys ? c.head_dim : c.v_head_dim;
            require_reference(
                !is_given(*t) || (t->rank == 4 && t->extent[0] == batch && t->extent[1] == c.num_kv_heads &&
                                  t->extent[2] == past_.keys.extent[2] && t->extent[3] == head_dim),
                "past keys or values have another shape");
        }
    }

    // New keys of an item.
    int64_t fresh_keys(int64_t item) const {
        if (past_.alone) return 0;
        const int64_t all = sequence_of(key_);
        const int64_t keys = is_given(inputs_.key_lengths) ? integer(inputs_.key_lengths, {item}) : all;
        require_reference(0 <= keys && keys <= all, "length out of range");
        return keys;
    }

    int64_t longest() const {
        int64_t longest = 0;
        for (int64_t item = 0; item < query_.extent[0]; ++item)
            longest = std::max(longest, past_.length(item) + fresh_keys(item));
        return longest;
    }

    void make_results() {
        Reference& r = result_;
        r.batch = query_.extent[0];
        r.num_heads = config_.num_heads;
        r.seq_q = sequence_of(query_);
        r.appended = (config_.bias_kv ? 1 : 0) + (config_.zero_attn ? 1 : 0);
        r.keys = seq_kv_ + r.appended;
        r.v_head_dim = config_.v_head_dim;
        r.out_features = config_.out_proj ? config_.d_model : config_.num_heads * config_.v_head_dim;
        const auto make = [](std::vector<double>& values, int64_t count, double value) {
            values.assign(static_cast<size_t>(count), value);
        };
        const int64_t rows = r.batch * r.num_heads * r.seq_q;
        const int64_t queries = r.batch * r.seq_q;
        make(r.context, rows * r.v_head_dim, 0);
        make(r.probs, rows * r.keys, 0);
        make(r.probs_averaged, queries * r.keys, 0);
        make(r.lse, rows, -kInfinity);
        make(r.out, queries * r.out_features, 0);
        for (auto* of_rows : {&r.score_size, &r.score_error, &r.value_size, &r.value_error})
            make(*of_rows, rows, 0);
        if (options_.scores_stage != ATTNC_SCORES_NOT_GIVEN) {
            for (auto* of_keys : {&r.scores, &r.scores_size, &r.scores_error})
                make(*of_keys, rows * seq_kv_, 0);
        }
        const int64_t stored = r.batch * config_.num_kv_heads * seq_kv_;
        for (auto* keys : {&r.keys_after, &r.keys_error}) make(*keys, stored * config_.head_dim, 0);
        for (auto* values : {&r.values_after, &r.values_error}) make(*values, stored * config_.v_head_dim, 0);
        if (!layers_.out) return;
        make(r.out_error, queries * r.out_features, 0);
        make(r.wo_sum, config_.num_heads * config_.d_model, 0);
        for (int64_t n = 0; n < config_.d_model; ++n) {
            for (int64_t c = 0; c < layers_.out->in; ++c) {
                r.wo_sum[static_cast<size_t>(c / config_.v_head_dim * config_.d_model + n)] +=
                    std::fabs(layers_.out->w(n, c));
            }
        }
    }

    void run_item(int64_t index) {
        Item item;
        item.index = index;
        const int64_t past = past_.length(index), keys = fresh_keys(index);
        item.queries =
            is_given(inputs_.query_lengths) ? integer(inputs_.query_lengths, {index}) : result_.seq_q;
        require_reference(0 <= item.queries && item.queries <= result_.seq_q, "length out of range");
        result_.queries.push_back(item.queries);
        item.keys = past + keys;
        item.q = rows_of(query_, layers_.q, index, item.queries);
        prepare(item.q, weights_.q_norm, positions(index, past, item.queries, false));
        Rows k = rows_of(key_, layers_.k, index, keys);
        prepare(k, weights_.k_norm, positions(index, past, keys, true));
        item.k = behind_past(past_.keys, index, past, std::move(k));
        item.v = behind_past(past_.values, index, past, rows_of(value_, layers_.v, index, keys));
        store(item.k, index, result_.keys_after, result_.keys_error);
        store(item.v, index, result_.values_after, result_.values_error);
        append_keys(item);
        for (int64_t head = 0; head < result_.num_heads; ++head) {
            for (int64_t row = 0; row < item.queries; ++row) attend_row(item, head, row);
        }
        project_out(index, item.queries);
    }

    void prepare(Rows& rows, const attnc_tensor& norm, const std::vector<int64_t>& at) const {
        const double epsilon = options_.qk_norm_epsilon != 0 ? options_.qk_norm_epsilon : kDefaultEpsilon;
        if (config_.qk_norm && is_given(norm)) norm_heads(rows, config_.head_dim, norm, epsilon);
        if (rotation_) rotate_heads(rows, *rotation_, at);
    }

    // Positions of the item's new queries or keys.
    std::vector<int64_t> positions(int64_t item, int64_t past, int64_t rows, bool of_keys) const {
        const bool self = !is_given(inputs_.key) || inputs_.key.data == inputs_.query.data;
        const attnc_tensor& own = of_keys ? inputs_.key_positions : inputs_.query_positions;
        const attnc_tensor& given = of_keys && self && !is_given(own) ? inputs_.query_positions : own;
        const int64_t offset =
            is_given(inputs_.position_offsets) ? integer(inputs_.position_offsets, {item}) : past;
        std::vector<int64_t> positions;
        positions.reserve(static_cast<size_t>(rows));
        for (int64_t n = 0; n < rows; ++n)
            positions.push_back(is_given(given) ? integer(given, {item, n}) : offset + n);
        return positions;
    }

    void store(const Rows& rows, int64_t item, std::vector<double>& values,
               std::vector<double>& errors) const {
        const int64_t head_dim = rows.features / config_.num_kv_heads;
        for (int64_t n = 0; n < rows.count(); ++n) {
            for (int64_t feature = 0; feature < rows.features; ++feature) {
                const int64_t head = item * config_.num_kv_heads + feature / head_dim;
                const auto at = static_cast<size_t>((head * seq_kv_ + n) * head_dim + feature % head_dim);
                values[at] = rows.row(n)[feature];
                errors[at] = rows.error(n, feature);
            }
        }
    }

    void append_keys(Item& item) const {
        for (auto [rows, learned] :
             {std::pair(&item.k, &weights_.bias_k), std::pair(&item.v, &weights_.bias_v)}) {
            if (config_.bias_kv) {
                require_reference(learned->rank == 1 && learned->extent[0] == rows->features,
                                  "bias_k or bias_v has another shape");
                std::vector<double> row;
                row.reserve(static_cast<size_t>(rows->features));
                for (int64_t n = 0; n < rows->features; ++n) row.push_back(element<float>(*learned, {n}));
                rows->append(row);
            }
            if (config_.zero_attn)
                rows->append(std::vector<double>(static_cast<size_t>(rows->features), 0.0));
        }
    }

    bool has_softcap() const { return config_.softcap && options_.softcap > 0; }

    // q . k * qk_scale of a query row and a key row, its size and what the errors of both make of it.
    struct Scaled {
        double score = 0, size = 0, error = 0;
    };
    Scaled scaled_score(const Item& item, int64_t head, int64_t row, int64_t key) const {
        const int64_t kv_head = head / (config_.num_heads / config_.num_kv_heads);
        Scaled sum;
        for (int64_t d = 0; d < config_.head_dim; ++d) {
            const int64_t q_feature = head * config_.head_dim + d;
            const int64_t k_feature = kv_head * config_.head_dim + d;
            const double q = item.q.row(row)[q_feature], q_error = item.q.error(row, q_feature);
            const double k = item.k.row(key)[k_feature], k_error = item.k.error(key, k_feature);
            sum.score += q * k;
            sum.size += std::fabs(q * k);
            sum.error += q_error * std::fabs(k) + std::fabs(q) * k_error + q_error * k_error;
        }
        return {sum.score * scale_, sum.size * std::fabs(scale_), sum.error * std::fabs(scale_)};
    }

    double capped(double score) const {
        return has_softcap() ? options_.softcap * std::tanh(score / options_.softcap) : score;
    }

    bool has_sink() const { return config_.sink && is_given(weights_.sink); }
    double sink_of(int64_t head) const {
        return has_sink() ? static_cast<double>(element<float>(weights_.sink, {head})) : -kInfinity;
    }

    // The keys that a row may attend, with their scores; those of all keys go to `scores` where that is wanted.
    std::vector<AttendedKey> attended_keys(const Item& item, int64_t head, int64_t row, size_t at) {
        std::vector<AttendedKey> attended;
        const attnc_scores_stage stage = options_.scores_stage;
        const int64_t first = static_cast<int64_t>(at) * seq_kv_;
        if (stage != ATTNC_SCORES_NOT_GIVEN) std::fill_n(result_.scores.begin() + first, seq_kv_, -kInfinity);
        for (int64_t j = 0; j < item.keys; ++j) {
            const KeyPermission permission = key_permission(
                config_, weights_, options_, inputs_, {item.index, head, row, j, item.queries, item.keys});
            if (!permission.allowed && (stage == ATTNC_SCORES_NOT_GIVEN || stage == ATTNC_SCORES_BIASED)) {
                continue;
            }
            const Scaled scaled = scaled_score(item, head, row, j);
            const double biased = capped(scaled.score) + permission.bias;
            if (stage != ATTNC_SCORES_NOT_GIVEN) {
                const auto place = static_cast<size_t>(first + j);
                const bool with_bias = stage == ATTNC_SCORES_BIASED;
                result_.scores[place] = with_bias                      ? biased
                                        : stage == ATTNC_SCORES_SCALED ? scaled.score
                                                                       : capped(scaled.score);
                result_.scores_size[place] = scaled.size + (with_bias ? permission.bias_size : 0);
                result_.scores_error[place] = scaled.error;
            }
            if (!permission.allowed) continue;
            attended.push_back({j, j, biased, scaled.size + permission.bias_size});
            result_.score_error[at] = std::max(result_.score_error[at], scaled.error);
        }
        for (int64_t n = 0; n < result_.appended; ++n) {
            const Scaled scaled = scaled_score(item, head, row, item.keys + n);
            attended.push_back({item.keys + n, seq_kv_ + n, capped(scaled.score), scaled.size});
            result_.score_error[at] = std::max(result_.score_error[at], scaled.error);
        }
        return attended;
    }

    // score_size of a row: of the sink and the keys that matter beside the largest.
    double score_size(const std::vector<AttendedKey>& attended, double sink) const {
        double largest = sink, largest_size = has_sink() ? std::fabs(sink) : 0;
        for (const AttendedKey& key : attended) {
            if (key.score > largest) largest_size = key.size;
            largest = std::max(largest, key.score);
        }
        double size = 0;
        const auto enter = [&](double score, double magnitude) {
            if (!can_be_ignored(score, magnitude, largest, largest_size, config_.head_dim,
                                result_.score_steps))
                size = std::max(size, magnitude);
        };
        for (const AttendedKey& key : attended) enter(key.score, key.size);
        if (has_sink()) enter(sink, std::fabs(sink));
        return size;
    }

    void attend_row(const Item& item, int64_t head, int64_t row) {
        const int64_t kv_head = head / (config_.num_heads / config_.num_kv_heads);
        const auto at = static_cast<size_t>((item.index * result_.num_heads + head) * result_.seq_q + row);
        double* probs = result_.probs.data() + static_cast<int64_t>(at) * result_.keys;
        double* context = result_.context.data() + static_cast<int64_t>(at) * config_.v_head_dim;

        std::vector<AttendedKey> attended = attended_keys(item, head, row, at);
        // Scores of -inf that infinite data made have weight 0 as dropped keys have; nothing else: an empty row.
        const bool none = std::all_of(attended.begin(), attended.end(),
                                      [](const AttendedKey& key) { return key.score == -kInfinity; });
        if (none) attended.clear();
        const double sink = sink_of(head);
        result_.score_size[at] = score_size(attended, sink);
        double largest = sink;
        for (const AttendedKey& key : attended)
            largest = std::max(largest, key.score);  // NaN shows in the sum
        double sum = has_sink() ? std::exp(sink - largest) : 0;
        for (const AttendedKey& key : attended) sum += std::exp(key.score - largest);
        if (!attended.empty() || has_sink()) {
            result_.lse[at] = largest + std::log(sum);
            for (const AttendedKey& key : attended) probs[key.column] = std::exp(key.score - largest) / sum;
        } else if (options_.empty_rows == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES) {
            for (int64_t j = 0; j < item.keys; ++j) {
                attended.push_back({j, j, 0, 0});
                probs[j] = 1.0 / static_cast<double>(item.keys);
            }
        } else if (options_.empty_rows == ATTNC_EMPTY_ROWS_NAN) {
            std::fill_n(context, config_.v_head_dim, std::numeric_limits<double>::quiet_NaN());
            std::fill_n(probs, result_.keys, std::numeric_limits<double>::quiet_NaN());
        }
        for (const AttendedKey& key : attended) {
            for (int64_t d = 0; d < config_.v_head_dim; ++d) {
                const int64_t feature = kv_head * config_.v_head_dim + d;
                const double value = item.v.row(key.key)[feature];
                context[d] += probs[key.column] * value;
                result_.value_size[at] = std::max(result_.value_size[at], std::fabs(value));
                result_.value_error[at] = std::max(result_.value_error[at], item.v.error(key.key, feature));
            }
        }
    }

    void project_out(int64_t item, int64_t queries) {
        const int64_t width = config_.num_heads * config_.v_head_dim;
        std::vector<double> merged(static_cast<size_t>(queries * width));
        for (int64_t row = 0; row < queries; ++row) {
            for (int64_t c = 0; c < width; ++c) {
                const int64_t head = c / config_.v_head_dim;
                const int64_t at = (item * result_.num_heads + head) * result_.seq_q + row;
                merged[static_cast<size_t>(row * width + c)] =
                    result_.context[static_cast<size_t>(at * config_.v_head_dim + c % config_.v_head_dim)];
            }
        }
        const auto first = item * result_.seq_q * result_.out_features;
        if (!layers_.out) {
            std::copy(merged.begin(), merged.end(), result_.out.begin() + first);
            return;
        }
        const Rows y = project(*layers_.out, merged, queries);
        std::copy(y.values.begin(), y.values.end(), result_.out.begin() + first);
        std::copy(y.errors.begin(), y.errors.end(), result_.out_error.begin() + first);
    }

    void average_probs() {
        const int64_t plane = result_.seq_q * result_.keys;
        for (int64_t item = 0; item < result_.batch; ++item) {
            for (int64_t n = 0; n < plane; ++n) {
                double sum = 0;
                for (int64_t head = 0; head < result_.num_heads; ++head) {
                    sum += result_.probs[static_cast<size_t>((item * result_.num_heads + head) * plane + n)];
                }
                result_.probs_averaged[static_cast<size_t>(item * plane + n)] =
                    sum / static_cast<double>(result_.num_heads);
            }
        }
    }

    const Config& config_;
    const attnc_weights& weights_;
    const ReferenceOptions& options_;
    const attnc_inputs& inputs_;
    const ReferencePast& past_;
    attnc_tensor query_{}, key_{}, value_{};
    LinearLayers layers_;
    std::optional<Rotation> rotation_;
    int64_t seq_kv_ = 0;  // with the past
    double scale_ = 0;
    Reference result_;
};

}  // namespace

bool Reference::empty_row(int64_t item, int64_t head, int64_t row) const {
    return lse[static_cast<size_t>((item * num_heads + head) * seq_q + row)] == -kInfinity;
}

Reference reference_layer(const Config& config, const attnc_weights& weights, const ReferenceOptions& options,
                          const attnc_inputs& inputs, const ReferencePast& past) {
    return LayerReference(config, weights, options, inputs, past).run();
}

}  // namespace attnc
