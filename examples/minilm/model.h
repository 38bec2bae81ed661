// all-MiniLM-L6-v2: a BERT encoder of six layers whose mean-pooled, normalised output is a sentence's
// embedding. Attention runs in the linked library; what surrounds it is written here with Eigen.
//
// A sentence's embedding has the same bits alone, in any batch and with any number of threads: the attention
// library promises that for its part, and everything here works on the tokens of one sentence at a time.
#pragma once

#include <Eigen/Core>
#include <attnc.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/safetensors.h"

namespace minilm {

// What the program uses of the model's config.json.
struct ModelConfig {
    int64_t hidden_size = 0, num_attention_heads = 0, num_hidden_layers = 0;
    int64_t intermediate_size = 0, vocab_size = 0, max_position_embeddings = 0, type_vocab_size = 0;
    double layer_norm_eps = 0;
};

// Throws std::runtime_error for a file that can't be read, a field that is missing or out of range, or a kind
// of model that this program does not compute.
ModelConfig read_config(const std::filesystem::path& file);

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using RowMap = Eigen::Map<const RowMajor>;
using VectorMap = Eigen::Map<const Eigen::RowVectorXf>;

struct Times {
    double attention_s = 0;
    double total_s = 0;  // attention among it; loading apart
};

class Model {
public:
    // Reads `directory`/config.json and model.safetensors. `target` names the instruction set for attention;
    // empty: the best that this machine has. Throws attnc::SafetensorsError, attnc::Error or
    // std::runtime_error, each with one sentence.
    Model(const std::filesystem::path& directory, int64_t threads, const std::string& target = {});

    const ModelConfig& config() const { return config_; }
    const char* target() const;  // instruction set that attention runs on

    // Normalised embeddings [sentences, hidden_size] of token ids, each with [CLS] and [SEP] and at most
    // max_position_embeddings long. Adds to `times`.
    RowMajor encode(std::span<const std::vector<int32_t>> sentences, Times& times);

private:
    struct Norm {
        VectorMap weight, bias;
    };
    struct Linear {
        RowMap weight;  // [out_features, in_features]
        VectorMap bias;
    };
    struct Encoder {  // one of the layers
        attnc::Layer attention;
        Norm attention_norm;
        Linear up, down;  // the feed-forward part
        Norm output_norm;
    };

    RowMap matrix(const std::string& name, int64_t rows, int64_t columns) const;
    VectorMap vector(const std::string& name, int64_t size) const;
    Norm norm(const std::string& prefix) const;
    Linear linear(const std::string& prefix, int64_t out_features, int64_t in_features) const;
    Encoder encoder(int64_t index, const std::string& target) const;

    void embed(std::span<const int32_t> ids, Eigen::Ref<RowMajor> hidden) const;
    void finish_layer(const Encoder& layer, const Eigen::Ref<const RowMajor>& attended,
                      Eigen::Ref<RowMajor> hidden) const;
    void normalise(const Norm& by, Eigen::Ref<RowMajor> rows) const;
    void encode_batch(std::span<const std::vector<int32_t>> sentences, Eigen::Ref<RowMajor> embeddings,
                      Times& times);
    void reserve_workspace(int64_t batch, int64_t seq);

    ModelConfig config_;
    attnc::SafetensorsFile file_;  // all maps point into it
    attnc::ThreadPool pool_;
    RowMap word_, position_, type_;
    Norm embedding_norm_;
    std::vector<Encoder> layers_;

    struct Free {
        void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
    };
    std::unique_ptr<std::byte, Free> workspace_;  // one for all layers: they run one after another
    size_t workspace_bytes_ = 0;
};

}  // namespace minilm
