// Models made up for tests: a folder with a config.json and a checkpoint whose every element is known.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stages/config.h"
#include "support/safetensors.h"

namespace attnc::test {

// Gone when the test is over.
class ModelFolder {
public:
    ModelFolder() {
        static int count = 0;
        path_ = std::filesystem::path(testing::TempDir()) /
                ("attnc_model_" + std::to_string(getpid()) + "_" + std::to_string(count++));
        std::filesystem::create_directories(path_);
    }
    ModelFolder(const ModelFolder&) = delete;
    ModelFolder& operator=(const ModelFolder&) = delete;
    ~ModelFolder() { std::filesystem::remove_all(path_); }

    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    std::string path() const { return path_.string(); }

    void write(const std::string& name, const std::string& text) const {
        std::ofstream(path_ / name, std::ios::binary) << text;
    }

private:
    std::filesystem::path path_;
};

// Tensors by name. Elements are sixteenths from -30/16 to 30/16, which every floating type holds exactly, and differ
// from tensor to tensor.
class MadeUpTensors {
public:
    void add(const std::string& name, std::vector<int64_t> shape) {
        int64_t count = 1;
        for (const int64_t extent : shape) count *= extent;
        Tensor tensor{std::move(shape), {}};
        const size_t seed = 7 * tensors_.size() + 1;
        for (size_t i = 0; i < static_cast<size_t>(count); ++i)
            tensor.values.push_back(static_cast<float>((i * i + 5 * i + seed) % 61) / 16 - 30.0F / 16);
        tensors_[name] = std::move(tensor);
    }

    const std::vector<float>& operator[](const std::string& name) const {
        const auto known = aliases_.find(name);
        return known != aliases_.end() ? known->second : tensors_.at(name).values;
    }
    bool contains(const std::string& name) const {
        return aliases_.contains(name) || tensors_.contains(name);
    }

    // Values by another name, which are not written.
    void alias(const std::string& name, std::vector<float> values) { aliases_[name] = std::move(values); }
    void alias(const std::string& name, const std::string& of) { alias(name, tensors_.at(of).values); }

    void write(const std::string& path, StoredType type = StoredType::kF32) const {
        std::vector<TensorToStore> stored;
        std::vector<std::vector<uint16_t>> halves;
        halves.reserve(tensors_.size());
        for (const auto& [name, tensor] : tensors_) {
            const void* data = tensor.values.data();
            if (type != StoredType::kF32) {
                halves.emplace_back();
                for (const float value : tensor.values) halves.back().push_back(half(value, type));
                data = halves.back().data();
            }
            stored.push_back({name, type, tensor.shape, data});
        }
        write_safetensors(path, {}, stored);
    }

private:
    struct Tensor {
        std::vector<int64_t> shape;
        std::vector<float> values;
    };

    // Of a number that the type holds exactly.
    static uint16_t half(float value, StoredType type) {
        uint32_t bits = 0;
        static_assert(sizeof bits == sizeof value);
        std::memcpy(&bits, &value, sizeof bits);
        if (type == StoredType::kBF16) return static_cast<uint16_t>(bits >> 16);
        if (value == 0) return 0;
        const uint32_t sign = bits >> 31, exponent = (bits >> 23) & 255, fraction = (bits >> 13) & 1023;
        return static_cast<uint16_t>(sign << 15 | (exponent - 127 + 15) << 10 | fraction);
    }

    std::map<std::string, Tensor> tensors_;
    std::map<std::string, std::vector<float>> aliases_;
};

// The sentence of the error that `action` throws.
std::string error_of_action(const auto& action) {
    try {
        action();
    } catch (const ConfigError& error) {
        return error.what();
    } catch (const SafetensorsError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace attnc::test
