#include "compiler/hf_config.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

namespace attnc {

namespace {

using nlohmann::json;

// A file with names for 20 000 classes has about 1 MiB.
constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr int kMaxDepth = 64;

// One kind of attention layer: where its sizes stand.
struct LayerKind {
    const char* name;
    const char* width;           // field with the features of its inputs
    const char* heads;           // field with the number of heads
    bool causal = false;         // true: a query sees no later key, whatever the file says
    const char* causal_if = "";  // boolean field: true = causal; empty: there is none
    const char* one_kv_if = "";  // boolean field: true or absent = one head of K and V; empty: there is none
    const char* section = "";    // object inside the file that has the fields; empty: the file itself
};

struct Model {
    std::vector<const char*> types;  // model_type
    std::vector<LayerKind> layers;
};

const std::vector<Model>& models() {
    static const std::vector<Model> all = {
        {{"albert", "bert", "camembert", "electra", "ernie", "roberta", "xlm-roberta"},
         {{.name = "encoder.self",
           .width = "hidden_size",
           .heads = "num_attention_heads",
           .causal_if = "is_decoder"}}},
        {{"distilbert"}, {{"encoder.self", "dim", "n_heads"}}},
        {{"audio-spectrogram-transformer", "deit", "dinov2", "vit", "vit_mae", "wav2vec2"},
         {{"encoder.self", "hidden_size", "num_attention_heads"}}},
        {{"clip"},
         {{.name = "text.self",
           .width = "hidden_size",
           .heads = "num_attention_heads",
           .causal = true,
           .section = "text_config"},
          {.name = "vision.self",
           .width = "hidden_size",
           .heads = "num_attention_heads",
           .section = "vision_config"}}},
        {{"bart", "blenderbot", "m2m_100", "marian", "mbart", "pegasus", "whisper"},
         {{"encoder.self", "d_model", "encoder_attention_heads"},
          {"decoder.self", "d_model", "decoder_attention_heads", true},
          {"decoder.cross", "d_model", "decoder_attention_heads"}}},
        {{"gpt2"}, {{"decoder.self", "n_embd", "n_head", true}}},
        {{"gpt_bigcode"},
         {{.name = "decoder.self",
           .width = "n_embd",
           .heads = "n_head",
           .causal = true,
           .one_kv_if = "multi_query"}}},
        {{"opt"}, {{"decoder.self", "hidden_size", "num_attention_heads", true}}},
    };
    return all;
}

// Models that are well known and whose attention a library can't compute.
struct Unsupported {
    const char* needs;
    std::vector<const char*> types;
};

const std::vector<Unsupported>& unsupported_models() {
    static const std::vector<Unsupported> all = {
        {"rotary position embeddings",
         {"codegen",     "cohere",    "esm",      "falcon",  "gemma",    "gemma2",    "gemma3",
          "gemma3_text", "gpt_neox",  "gptj",     "llama",   "mistral",  "mixtral",   "modernbert",
          "nomic_bert",  "olmo",      "olmo2",    "phi",     "phi3",     "qwen2",     "qwen2_moe",
          "qwen3",       "qwen3_moe", "roformer", "smollm3", "stablelm", "starcoder2"}},
        {"position biases that depend on the distance of query and key (ALiBi)", {"bloom", "mpt"}},
        {"learned biases for relative positions",
         {"beit", "deberta", "deberta-v2", "longt5", "mpnet", "mt5", "swin", "t5", "umt5", "wavlm"}},
        {"sliding windows", {"big_bird", "led", "longformer"}},
        {"unscaled scores and sliding windows", {"gpt_neo"}},
    };
    return all;
}

template <class Range, class Name>
std::string joined(const Range& range, const Name& name) {
    std::string text;
    for (const auto& item : range) {
        text += (text.empty() ? "" : ", ") + std::string(name(item));
    }
    return text;
}

std::string read_file(const std::string& file) {
    const auto close = [](FILE* stream) { std::fclose(stream); };
    const std::unique_ptr<FILE, decltype(close)> stream(std::fopen(file.c_str(), "rb"), close);
    if (!stream) throw ConfigError("cannot be read: " + std::string(std::strerror(errno)));
    std::string text;
    char buffer[1 << 14];
    while (const size_t got = std::fread(buffer, 1, sizeof buffer, stream.get())) {
        text.append(buffer, got);
        if (text.size() > kMaxFileBytes) throw ConfigError("longer than 16 MiB, which no configuration is");
    }
    if (std::ferror(stream.get()) != 0)
        throw ConfigError("cannot be read: " + std::string(std::strerror(errno)));
    return text;
}

json parse_object(const std::string& text) {
    const auto limit_depth = [](int depth, json::parse_event_t, const json&) {
        if (depth > kMaxDepth) throw ConfigError("nested deeper than 64 levels");
        return true;
    };
    json root;
    try {
        root = json::parse(text, limit_depth);
    } catch (const json::parse_error& error) {
        if (error.byte > text.size()) throw ConfigError("ends before its JSON does");
        throw ConfigError("not JSON from byte " + std::to_string(error.byte) + " of " +
                          std::to_string(text.size()) + " on");
    } catch (const json::exception&) {
        throw ConfigError("holds a number beyond double precision");
    }
    if (!root.is_object()) throw ConfigError("not a JSON object");
    return root;
}

// null where the field is absent or null, as these files write "not given".
const json* find(const json& object, const std::string& field) {
    const auto found = object.find(field);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

int64_t read_size(const json& object, const std::string& field) {
    const json* const value = find(object, field);
    if (value == nullptr) throw ConfigError(field + " is missing");
    if (!value->is_number_integer()) {
        throw ConfigError(
            field + " is not a whole number but " +
            in_quotes(value->is_structured() ? value->type_name() : value->dump(-1, ' ', true)));
    }
    // Above the range of int64 the parser makes unsigned numbers, and above theirs floating ones.
    const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX};
    if (huge || value->get<int64_t>() < 1)
        throw ConfigError(field + " " + value->dump() + " is not a positive size");
    return value->get<int64_t>();
}

bool read_flag(const json& object, const std::string& field, bool absent) {
    const json* const value = find(object, field);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) throw ConfigError(field + " is neither true nor false");
    return value->get<bool>();
}

std::string read_text(const json& object, const std::string& field) {
    const json* const value = find(object, field);
    if (value == nullptr) throw ConfigError(field + " is missing");
    if (!value->is_string()) throw ConfigError(field + " is not a string");
    return value->get<std::string>();
}

const Model& find_model(const std::string& type) {
    for (const Model& model : models()) {
        if (std::find(model.types.begin(), model.types.end(), type) != model.types.end()) return model;
    }
    for (const Unsupported& group : unsupported_models()) {
        if (std::find(group.types.begin(), group.types.end(), type) != group.types.end()) {
            throw ConfigError("attention of model_type " + type + " has " + group.needs +
                              ", which are not supported");
        }
    }
    throw ConfigError("model_type " + in_quotes(type) + " is unknown, known are " + known_hf_model_types());
}

const LayerKind& find_layer(const Model& model, const std::string& type, std::string_view layer) {
    const std::string names = joined(model.layers, [](const LayerKind& kind) { return kind.name; });
    if (layer.empty()) {
        if (model.layers.size() == 1) return model.layers.front();
        throw ConfigError("model_type " + type + " has several kinds of layers, name one of " + names);
    }
    for (const LayerKind& kind : model.layers) {
        if (kind.name == layer) return kind;
    }
    throw ConfigError("model_type " + type + " has no layer " + in_quotes(layer) + ", it has " + names);
}

// Options of supported models that change what attention computes.
void refuse_unsupported_options(const json& object) {
    if (find(object, "position_embedding_type") != nullptr) {
        const std::string positions = read_text(object, "position_embedding_type");
        // Other values concern the embeddings alone; these change the scores.
        if (positions == "relative_key" || positions == "relative_key_query" || positions == "rotary" ||
            positions == "alibi") {
            throw ConfigError("position_embedding_type " + in_quotes(positions) +
                              " is not supported, absolute is");
        }
    }
    if (!read_flag(object, "scale_attn_weights", true)) {
        throw ConfigError(
            "scale_attn_weights false is not supported: scores are divided by the root of head_dim");
    }
    if (read_flag(object, "scale_attn_by_inverse_layer_idx", false)) {
        throw ConfigError(
            "scale_attn_by_inverse_layer_idx true is not supported: all layers scale their scores alike");
    }
    const json* const pruned = find(object, "pruned_heads");
    if (pruned != nullptr && !pruned->empty()) {
        throw ConfigError(
            "pruned_heads is not empty, so that layers differ in their heads, which is not supported");
    }
}

Config read_layer(const json& object, const LayerKind& kind) {
    refuse_unsupported_options(object);
    Config config;
    config.d_model = read_size(object, kind.width);
    config.num_heads = read_size(object, kind.heads);
    if (*kind.one_kv_if != '\0' && read_flag(object, kind.one_kv_if, true)) config.num_kv_heads = 1;
    config.causal = kind.causal || (*kind.causal_if != '\0' && read_flag(object, kind.causal_if, false));
    return config;
}

Config read_config(const std::string& file, std::string_view layer) {
    const json root = parse_object(read_file(file));
    const std::string type = read_text(root, "model_type");
    const Model& model = find_model(type);
    const LayerKind& kind = find_layer(model, type, layer);

    const std::string section = kind.section;
    if (section.empty()) return complete(read_layer(root, kind));
    const json* const object = find(root, section);
    if (object == nullptr) throw ConfigError(section + " is missing");
    if (!object->is_object()) throw ConfigError(section + " is not a JSON object");
    try {
        return complete(read_layer(*object, kind));
    } catch (const ConfigError& error) {
        throw ConfigError("in " + section + ", " + error.what());
    }
}

}  // namespace

Config config_from_hf(const std::filesystem::path& file, std::string_view layer) {
    try {
        return read_config(file.string(), layer);
    } catch (const ConfigError& error) {
        throw ConfigError(file.string() + ": " + error.what());
    }
}

std::string known_hf_model_types() {
    std::vector<std::string> types;
    for (const Model& model : models()) types.insert(types.end(), model.types.begin(), model.types.end());
    std::sort(types.begin(), types.end());
    return joined(types, [](const std::string& type) { return type; });
}

}  // namespace attnc
