// The stored calls with right answers, as a parameter of tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace attnc::test {

inline std::vector<std::string> case_paths() {
    std::vector<std::string> paths;
    for (const char* folder : {"torch", "minilm", "onnx", "onnx_rotary"}) {
        for (const auto& entry :
             std::filesystem::directory_iterator(std::string(ATTNC_TEST_DATA "/vectors/") + folder)) {
            if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
        }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

inline std::string case_name(const ::testing::TestParamInfo<std::string>& info) {
    const std::filesystem::path path(info.param);
    return path.parent_path().filename().string() + "_" + path.stem().string();
}

}  // namespace attnc::test
