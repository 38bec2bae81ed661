// The header of a safetensors file: parsed and checked apart from the tensors' bytes. Used by the reader and
// the writer only.
//
// The layout of a file: 8 bytes n, little-endian; n bytes of JSON, {"name": {"dtype", "shape",
// "data_offsets"}, ...} with an optional "__metadata__" of strings; then the data, which the tensors cover
// without gap or overlap.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/safetensors.h"

namespace attnc::safetensors {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr const char* kMetadataKey = "__metadata__";

struct HeaderEntry {
    std::string name;
    StoredType type = StoredType::kF32;
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;  // bytes of the data
};

struct Header {
    std::vector<HeaderEntry> entries;  // in the order of the data, which they cover exactly
    std::map<std::string, std::string> metadata;
};

// Parses and checks the header of a file with `data_bytes` bytes of data; `path` is for messages.
Header parse_header(const std::string& path, std::string_view text, int64_t data_bytes);

// Throws SafetensorsError "PATH: WHAT".
[[noreturn]] void fail(const std::string& path, const std::string& what);
std::string system_reason(int error);  // text of an errno

// A name from a file, fit for one line of text: control characters escaped, cut after 60 bytes.
std::string in_quotes(std::string_view name);
std::string shape_text(std::span<const int64_t> shape);  // "[2,3]"

// Product of the extents times the type's size; nothing when it overflows.
std::optional<int64_t> checked_bytes(std::span<const int64_t> shape, StoredType type);

}  // namespace attnc::safetensors
