#include "models/checkpoint.h"

#include <algorithm>

#include "models/json_fields.h"
#include "support/safetensors_header.h"

namespace attnc {

namespace fs = std::filesystem;
using safetensors::fail;
using safetensors::shape_text;

Checkpoint::Checkpoint(const fs::path& path) {
    std::error_code ignored;
    fs::path file = path;
    if (fs::is_directory(path, ignored)) {
        file = path / "model.safetensors";
        if (!fs::exists(file, ignored)) file = path / "model.safetensors.index.json";
        if (!fs::exists(file, ignored))
            fail(path.string(),
                 "neither model.safetensors nor model.safetensors.index.json is in this folder");
    }
    path_ = file.string();
    if (file.extension() == ".json") {
        read_index(file);
    } else {
        read_file(file);
    }
}

void Checkpoint::read_file(const fs::path& path) {
    const SafetensorsFile file(path.string(), [](const std::string&) { return false; });
    for (const StoredTensor& tensor : file.tensors()) file_of_[tensor.name] = path.string();
}

// {"weight_map": {"model.layers.0.self_attn.q_proj.weight": "model-00001-of-00002.safetensors", ...}}
void Checkpoint::read_index(const fs::path& path) {
    try {
        const Json index = read_json_object(path.string());
        for (const auto& [name, file] : read_section(index, "weight_map").items()) {
            if (!file.is_string()) throw ConfigError("weight_map has an entry that is not a string");
            const auto text = file.get<std::string>();
            if (text.empty() || fs::path(text).filename() != text || text == "." || text == "..")
                throw ConfigError("weight_map names " + in_quotes(text) + ", which is not a file beside it");
            file_of_[name] = (path.parent_path() / text).string();
        }
    } catch (const ConfigError& error) {
        fail(path_, error.what());
    }
}

std::string Checkpoint::prefix_of(const std::string& name, const std::vector<std::string>& prefixes) const {
    if (contains(name)) return "";
    for (const std::string& prefix : prefixes) {
        if (contains(prefix + name)) return prefix;
    }
    std::vector<std::string> found;
    for (const auto& [whole, file] : file_of_) {
        if (whole.ends_with("." + name)) found.push_back(whole.substr(0, whole.size() - name.size()));
    }
    if (found.empty()) fail(path_, "no tensor " + in_quotes(name) + ", with or without a prefix");
    if (found.size() > 1) {
        fail(path_, "tensor " + in_quotes(name) + " is there after several prefixes, " + in_quotes(found[0]) +
                        " and " + in_quotes(found[1]));
    }
    return found.front();
}

std::vector<float> Checkpoint::read(const std::string& name, std::span<const int64_t> shape) const {
    const auto found = file_of_.find(name);
    if (found == file_of_.end()) fail(path_, "no tensor " + in_quotes(name));
    const std::string& path = found->second;
    const SafetensorsFile file(path, [&](const std::string& other) { return other == name; });
    const StoredTensor* const tensor = file.find(name);
    if (tensor == nullptr) fail(path, "no tensor " + in_quotes(name) + ", which " + path_ + " says is there");
    const bool is_number = tensor->type == StoredType::kF32 || tensor->type == StoredType::kF16 ||
                           tensor->type == StoredType::kBF16;
    if (!is_number || !std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
        fail(path, "tensor " + in_quotes(name) + " is " + stored_type_name(tensor->type) +
                       shape_text(tensor->shape) + ", wanted F32, F16 or BF16" + shape_text(shape));
    }
    return file.to_f32(*tensor);
}

}  // namespace attnc
