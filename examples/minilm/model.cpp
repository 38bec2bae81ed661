#include "model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "minilm_attention.h"

namespace minilm {
namespace {

// Sentences that go through the layers together. More would only take more memory: 32 keep any number of
// threads busy, and a padded batch costs what its valid tokens cost.
constexpr size_t kBatch = 32;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Calls work(0 .. count-1) on the pool's threads, and returns when all have returned.
template <typename Work>
void parallel_for(const attnc::ThreadPool& pool, size_t count, const Work& work) {
    const auto task = [](void* data, int64_t index) -> int {
        try {
            (*static_cast<const Work*>(data))(static_cast<size_t>(index));
            return 0;
        } catch (const std::bad_alloc&) {
            return 1;  // nothing may be thrown through the pool
        }
    };
    const attnc_executor& executor = *pool.executor();
    if (executor.parallel_for(executor.context, static_cast<int64_t>(count), task,
                              const_cast<Work*>(&work)) != 0) {
        throw std::bad_alloc();
    }
}

int64_t get_size(const nlohmann::json& json, const char* name, int64_t most, const std::string& file) {
    const auto field = json.find(name);
    if (field == json.end()) throw std::runtime_error(file + " has no '" + name + "'");
    if (!field->is_number_integer() || field->get<int64_t>() < 1 || field->get<int64_t>() > most) {
        throw std::runtime_error(file + ": '" + name + "' is " + field->dump() +
                                 ", wanted a whole number from 1 to " + std::to_string(most));
    }
    return field->get<int64_t>();
}

void expect_text(const nlohmann::json& json, const char* name, const char* wanted, const std::string& file) {
    const auto field = json.find(name);
    if (field != json.end() && *field != wanted) {
        throw std::runtime_error(file + ": '" + name + "' is " + field->dump() + ", wanted \"" + wanted +
                                 "\"");
    }
}

// Exact GELU: x times the normal distribution's probability of being below x.
float gelu(float x) { return 0.5F * x * (1.0F + std::erf(x * 0.70710678F)); }

}  // namespace

ModelConfig read_config(const std::filesystem::path& path) {
    const std::string file = path.string();
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw std::runtime_error("cannot read " + file);
    const nlohmann::json json = nlohmann::json::parse(stream, nullptr, false);
    if (!json.is_object()) throw std::runtime_error(file + " is not a JSON object");

    expect_text(json, "model_type", "bert", file);
    expect_text(json, "hidden_act", "gelu", file);
    expect_text(json, "position_embedding_type", "absolute", file);

    constexpr int64_t kMost = 1 << 20;
    ModelConfig c;
    c.hidden_size = get_size(json, "hidden_size", kMost, file);
    c.num_attention_heads = get_size(json, "num_attention_heads", kMost, file);
    c.num_hidden_layers = get_size(json, "num_hidden_layers", 1000, file);
    c.intermediate_size = get_size(json, "intermediate_size", kMost, file);
    c.vocab_size = get_size(json, "vocab_size", kMost, file);
    c.max_position_embeddings = get_size(json, "max_position_embeddings", kMost, file);
    c.type_vocab_size = get_size(json, "type_vocab_size", kMost, file);
    const auto eps = json.find("layer_norm_eps");
    if (eps == json.end()) throw std::runtime_error(file + " has no 'layer_norm_eps'");
    if (!eps->is_number() || !(eps->get<double>() > 0 && eps->get<double>() < 1)) {
        throw std::runtime_error(file + ": 'layer_norm_eps' is " + eps->dump() +
                                 ", wanted a number between 0 and 1");
    }
    c.layer_norm_eps = eps->get<double>();

    if (c.hidden_size != MINILM_ATTENTION_D_MODEL || c.num_attention_heads != MINILM_ATTENTION_NUM_HEADS) {
        throw std::runtime_error(
            file + " has hidden_size " + std::to_string(c.hidden_size) + " and " +
            std::to_string(c.num_attention_heads) + " heads, but the program was built for " +
            std::to_string(MINILM_ATTENTION_D_MODEL) + " and " + std::to_string(MINILM_ATTENTION_NUM_HEADS));
    }
    return c;
}

Model::Model(const std::filesystem::path& directory, int64_t threads, const std::string& target)
    : config_(read_config(directory / "config.json")),
      file_((directory / "model.safetensors").string()),
      pool_(threads),
      word_(matrix("embeddings.word_embeddings.weight", config_.vocab_size, config_.hidden_size)),
      position_(matrix("embeddings.position_embeddings.weight", config_.max_position_embeddings,
                       config_.hidden_size)),
      type_(matrix("embeddings.token_type_embeddings.weight", config_.type_vocab_size, config_.hidden_size)),
      embedding_norm_(norm("embeddings.LayerNorm")) {
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) layers_.push_back(encoder(i, target));
}

const char* Model::target() const { return layers_.front().attention.target(); }

RowMap Model::matrix(const std::string& name, int64_t rows, int64_t columns) const {
    return RowMap(file_.f32(name, {rows, columns}).data(), rows, columns);
}

VectorMap Model::vector(const std::string& name, int64_t size) const {
    return VectorMap(file_.f32(name, {size}).data(), size);
}

Model::Norm Model::norm(const std::string& prefix) const {
    return {vector(prefix + ".weight", config_.hidden_size), vector(prefix + ".bias", config_.hidden_size)};
}

Model::Linear Model::linear(const std::string& prefix, int64_t out_features, int64_t in_features) const {
    return {matrix(prefix + ".weight", out_features, in_features), vector(prefix + ".bias", out_features)};
}

Model::Encoder Model::encoder(int64_t index, const std::string& target) const {
    const int64_t d = config_.hidden_size;
    const std::string layer = "encoder.layer." + std::to_string(index) + ".";
    const auto weight = [&](const char* name) {
        return attnc::Tensor(file_.f32(layer + "attention." + name + ".weight", {d, d}), {d, d});
    };
    const auto bias = [&](const char* name) {
        return attnc::Tensor(file_.f32(layer + "attention." + name + ".bias", {d}), {d});
    };
    return {.attention = attnc::Layer(minilm_attention(),
                                      {.wq = weight("self.query"),
                                       .wk = weight("self.key"),
                                       .wv = weight("self.value"),
                                       .wo = weight("output.dense"),
                                       .bq = bias("self.query"),
                                       .bk = bias("self.key"),
                                       .bv = bias("self.value"),
                                       .bo = bias("output.dense")},
                                      {.target = target}),
            .attention_norm = norm(layer + "attention.output.LayerNorm"),
            .up = linear(layer + "intermediate.dense", config_.intermediate_size, d),
            .down = linear(layer + "output.dense", d, config_.intermediate_size),
            .output_norm = norm(layer + "output.LayerNorm")};
}

// LayerNorm of each row. Sums are taken in double: six layers of it would otherwise be the largest error.
void Model::normalise(const Norm& by, Eigen::Ref<RowMajor> rows) const {
    for (Eigen::Index i = 0; i < rows.rows(); ++i) {
        const Eigen::RowVectorXd row = rows.row(i).cast<double>();
        const double mean = row.mean();
        const double variance = (row.array() - mean).square().mean();
        const double scale = 1 / std::sqrt(variance + config_.layer_norm_eps);
        rows.row(i) = ((row.array() - mean) * scale).cast<float>() * by.weight.array() + by.bias.array();
    }
}

// Sum of the word's, the position's and the (first) segment's vector, normalised.
void Model::embed(std::span<const int32_t> ids, Eigen::Ref<RowMajor> hidden) const {
    for (size_t i = 0; i < ids.size(); ++i) {
        const auto row = static_cast<Eigen::Index>(i);
        hidden.row(row) = word_.row(ids[i]) + position_.row(row) + type_.row(0);
    }
    normalise(embedding_norm_, hidden);
}

// What follows attention in a layer: residual, LayerNorm, feed-forward, residual, LayerNorm. In place.
void Model::finish_layer(const Encoder& layer, const Eigen::Ref<const RowMajor>& attended,
                         Eigen::Ref<RowMajor> hidden) const {
    hidden += attended;
    normalise(layer.attention_norm, hidden);

    RowMajor inner(hidden.rows(), layer.up.weight.rows());
    inner.noalias() = hidden * layer.up.weight.transpose();
    inner.rowwise() += layer.up.bias;
    inner = inner.unaryExpr(&gelu);

    RowMajor result(hidden.rows(), hidden.cols());
    result.noalias() = inner * layer.down.weight.transpose();
    hidden += result;
    hidden.rowwise() += layer.down.bias;
    normalise(layer.output_norm, hidden);
}

void Model::reserve_workspace(int64_t batch, int64_t seq) {
    const size_t bytes = layers_.front().attention.workspace_bound({.max_batch = batch, .max_seq = seq},
                                                                   pool_.executor()->concurrency);
    if (bytes <= workspace_bytes_) return;
    workspace_bytes_ = 0;
    workspace_.reset();
    workspace_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
    workspace_bytes_ = bytes;
}

void Model::encode_batch(std::span<const std::vector<int32_t>> sentences, Eigen::Ref<RowMajor> embeddings,
                         Times& times) {
    const auto start = std::chrono::steady_clock::now();
    const auto batch = static_cast<int64_t>(sentences.size());
    std::vector<int64_t> lengths;
    for (const auto& ids : sentences) lengths.push_back(static_cast<int64_t>(ids.size()));
    const int64_t seq = *std::max_element(lengths.begin(), lengths.end());
    reserve_workspace(batch, seq);

    // One padded batch [batch, seq, hidden_size]; a sentence's tokens are the first lengths[b] rows of its
    // item.
    RowMajor hidden = RowMajor::Zero(batch * seq, config_.hidden_size);
    RowMajor attended(batch * seq, config_.hidden_size);
    const auto rows = [&](RowMajor& all, size_t b) {
        return all.middleRows(static_cast<int64_t>(b) * seq, lengths[b]);
    };
    const auto elements = [](RowMajor& all) {
        return std::span(all.data(), static_cast<size_t>(all.size()));
    };
    const attnc::Inputs inputs{.query = {elements(hidden), {batch, seq, config_.hidden_size}},
                               .key_lengths = lengths,
                               .query_lengths = lengths};
    const attnc::Outputs outputs{.out = {elements(attended), {batch, seq, config_.hidden_size}}};

    parallel_for(pool_, sentences.size(), [&](size_t b) { embed(sentences[b], rows(hidden, b)); });
    for (const Encoder& layer : layers_) {
        const auto attention_start = std::chrono::steady_clock::now();
        layer.attention.forward(inputs, outputs, {workspace_.get(), workspace_bytes_}, pool_.executor());
        times.attention_s += seconds_since(attention_start);
        parallel_for(pool_, sentences.size(),
                     [&](size_t b) { finish_layer(layer, rows(attended, b), rows(hidden, b)); });
    }
    for (size_t b = 0; b < sentences.size(); ++b) {
        const Eigen::RowVectorXd mean = rows(hidden, b).cast<double>().colwise().mean();
        embeddings.row(static_cast<Eigen::Index>(b)) = mean.normalized().cast<float>();
    }
    times.total_s += seconds_since(start);
}

RowMajor Model::encode(std::span<const std::vector<int32_t>> sentences, Times& times) {
    RowMajor embeddings(static_cast<Eigen::Index>(sentences.size()), config_.hidden_size);
    for (size_t first = 0; first < sentences.size(); first += kBatch) {
        const size_t count = std::min(kBatch, sentences.size() - first);
        encode_batch(
            sentences.subspan(first, count),
            embeddings.middleRows(static_cast<Eigen::Index>(first), static_cast<Eigen::Index>(count)), times);
    }
    return embeddings;
}

}  // namespace minilm
