// A model's checkpoint: tensors by name, in one safetensors file or in several with an index.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "support/safetensors.h"

namespace attnc {

// Opening one reads names and shapes; a tensor's data is read when it is asked for, so that one layer of a large
// model takes one layer's memory. Every function throws SafetensorsError, "FILE: what is wrong".
class Checkpoint {
public:
    // A file of tensors, an index (model.safetensors.index.json), or a folder that holds model.safetensors or
    // model.safetensors.index.json.
    explicit Checkpoint(const std::filesystem::path& path);

    const std::string& path() const { return path_; }  // of the file or the index
    bool contains(const std::string& name) const { return file_of_.contains(name); }

    // What stands before `name` in the name of a tensor: nothing, one of `prefixes`, or another model's name with a
    // dot at its end if there is just one such tensor.
    std::string prefix_of(const std::string& name, const std::vector<std::string>& prefixes) const;

    // The elements of an F32, F16 or BF16 tensor that has exactly this shape, converted exactly.
    std::vector<float> read(const std::string& name, std::span<const int64_t> shape) const;

private:
    void read_file(const std::filesystem::path& path);
    void read_index(const std::filesystem::path& path);

    std::string path_;
    std::map<std::string, std::string> file_of_;  // by the name of a tensor
};

}  // namespace attnc
