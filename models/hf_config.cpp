#include "models/hf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "models/families.h"
#include "models/json_fields.h"

namespace attnc {

namespace {

// Models that are well known and whose attention a library can't compute.
struct Unsupported {
    const char* needs;
    std::vector<const char*> types;
};

const std::vector<Unsupported>& unsupported_models() {
    static const std::vector<Unsupported> all = {
        {"learned biases for relative positions",
         {"beit", "deberta", "deberta-v2", "longt5", "mpnet", "mt5", "swin", "t5", "umt5", "wavlm"}},
        {"global tokens beside its windows", {"big_bird", "led", "longformer"}},
        {"keys and values in a compressed form (latent attention)",
         {"deepseek_v2", "deepseek_v3", "minicpm3"}},
        {"norms over all heads of the queries and of the keys", {"olmo2", "olmo3", "olmoe"}},
        {"chunks and scores that depend on the position", {"llama4", "llama4_text"}},
    };
    return all;
}

const std::array<const std::vector<Family>*, 3>& all_families() {
    static const std::array<const std::vector<Family>*, 3> all = {&encoder_families(), &decoder_families(),
                                                                  &rotary_families()};
    return all;
}

const Family& find_family(const std::string& type) {
    for (const std::vector<Family>* const families : all_families()) {
        for (const Family& family : *families) {
            if (std::find(family.types.begin(), family.types.end(), type) != family.types.end())
                return family;
        }
    }
    for (const Unsupported& group : unsupported_models()) {
        if (std::find(group.types.begin(), group.types.end(), type) != group.types.end()) {
            throw ConfigError("attention of model_type " + type + " has " + group.needs +
                              ", which are not supported");
        }
    }
    throw ConfigError("model_type " + in_quotes(type) + " is unknown, known are " + known_hf_model_types());
}

// "decoder.self.3": a kind, which may be empty, and a number, which may be absent.
struct LayerName {
    std::string_view kind;
    std::optional<int64_t> number;
};

LayerName parse_layer_name(std::string_view text) {
    const size_t dot = text.rfind('.');
    const std::string_view last = dot == std::string_view::npos ? text : text.substr(dot + 1);
    if (last.empty() || last.find_first_not_of("0123456789") != std::string_view::npos) return {text, {}};
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(last.data(), last.data() + last.size(), number);
    if (error != std::errc{}) throw ConfigError("layer number " + in_quotes(last) + " is too large");
    return {dot == std::string_view::npos ? std::string_view() : text.substr(0, dot), number};
}

const LayerKind& find_kind(const Family& family, const std::string& type, std::string_view kind) {
    std::vector<std::string> names;
    names.reserve(family.kinds.size());
    for (const LayerKind& known : family.kinds) names.emplace_back(known.name);
    if (kind.empty()) {
        if (family.kinds.size() == 1) return family.kinds.front();
        throw ConfigError("model_type " + type + " has several kinds of layers, name one of " +
                          joined(names));
    }
    for (const LayerKind& known : family.kinds) {
        if (known.name == kind) return known;
    }
    throw ConfigError("model_type " + type + " has no layer " + in_quotes(kind) + ", it has " +
                      joined(names));
}

// Options that change what attention computes, in models of several families.
void refuse_unsupported_options(const Json& fields) {
    const std::string positions = read_text(fields, "position_embedding_type", "absolute");
    // Other values concern the embeddings alone; these change the scores.
    if (positions == "relative_key" || positions == "relative_key_query" || positions == "rotary" ||
        positions == "alibi") {
        throw ConfigError("position_embedding_type " + in_quotes(positions) +
                          " is not supported, absolute is");
    }
    const Json* const pruned = find_field(fields, "pruned_heads");
    if (pruned != nullptr && !pruned->empty()) {
        throw ConfigError(
            "pruned_heads is not empty, so that layers differ in their heads, which is not supported");
    }
}

void read_fields(const Json& fields, const LayerKind& kind, std::optional<int64_t> number,
                 int64_t max_positions, ModelLayer& layer) {
    refuse_unsupported_options(fields);
    if (number) {
        constexpr int64_t kMostLayers = 1'000'000;  // so that no arithmetic with numbers of layers overflows
        const int64_t count = read_size(fields, kind.count);
        if (count > kMostLayers) {
            throw ConfigError(kind.count + (" " + std::to_string(count)) + " is beyond " +
                              std::to_string(kMostLayers));
        }
        if (*number >= count) {
            throw ConfigError("no layer " + std::to_string(*number) + ", " + kind.count + " is " +
                              std::to_string(count) + " and they count from 0");
        }
    }
    layer.kind = kind.name;
    layer.number = number.value_or(0);
    kind.read(fields, {layer.number, max_positions}, layer);
    layer.config = complete(layer.config);
}

ModelLayer read_layer(const std::string& file, std::string_view text, bool number_needed,
                      int64_t max_positions) {
    const Json root = read_json_object(file);
    const LayerName name = parse_layer_name(text);
    ModelLayer layer;
    layer.model_type = read_text(root, "model_type");
    const LayerKind& kind = find_kind(find_family(layer.model_type), layer.model_type, name.kind);
    if (number_needed && !name.number)
        throw ConfigError("no number of a layer is given, as in " + std::string(kind.name) + ".0");

    const std::string section = kind.section;
    if (section.empty()) {
        read_fields(root, kind, name.number, max_positions, layer);
        return layer;
    }
    const Json& fields = read_section(root, section);
    try {
        read_fields(fields, kind, name.number, max_positions, layer);
    } catch (const ConfigError& error) {
        throw ConfigError("in " + section + ", " + error.what());
    }
    return layer;
}

ModelLayer read_layer_of_file(const std::filesystem::path& file, std::string_view layer, bool number_needed,
                              int64_t max_positions) {
    try {
        return read_layer(file.string(), layer, number_needed, max_positions);
    } catch (const ConfigError& error) {
        throw ConfigError(file.string() + ": " + error.what());
    }
}

}  // namespace

Config config_from_hf(const std::filesystem::path& file, std::string_view layer) {
    return read_layer_of_file(file, layer, false, 0).config;
}

ModelLayer model_layer_from_hf(const std::filesystem::path& file, std::string_view layer,
                               int64_t max_positions) {
    return read_layer_of_file(file, layer, true, max_positions);
}

std::string known_hf_model_types() {
    std::vector<std::string> types;
    for (const std::vector<Family>* const families : all_families()) {
        for (const Family& family : *families)
            types.insert(types.end(), family.types.begin(), family.types.end());
    }
    std::sort(types.begin(), types.end());
    return joined(types);
}

}  // namespace attnc
