// Reader and writer for safetensors files: named tensors of plain numbers, with text attributes beside them.
//
// The reader takes files from anywhere. Whatever the bytes, it returns the tensors or throws a
// SafetensorsError whose what() is one line, "FILE: what is wrong": no crash, no memory beyond the file's own
// size, nothing half-read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

struct SafetensorsError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class StoredType { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

const char* stored_type_name(StoredType type);  // "F32", as the file spells it
int64_t stored_type_bytes(StoredType type);

// A tensor inside a SafetensorsFile, row-major and little-endian; valid as long as the file object lives.
struct StoredTensor {
    std::string name;
    StoredType type = StoredType::kF32;
    std::vector<int64_t> shape;
    int64_t elements = 0;  // product of the shape; 1 for a scalar
    const std::byte* data =
        nullptr;  // aligned to 64 bytes; null when there are no elements or they were not wanted

    int64_t bytes() const { return elements * stored_type_bytes(type); }
};

class SafetensorsFile {
public:
    // Reads and checks the whole file. Throws SafetensorsError.
    explicit SafetensorsFile(const std::string& path);

    // The same without the data of tensors for which wanted(name) is false: `data` is null there. For files that are
    // larger than what is needed of them.
    using Wanted = std::function<bool(const std::string& name)>;
    SafetensorsFile(const std::string& path, const Wanted& wanted);

    const std::string& path() const { return path_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    const std::vector<StoredTensor>& tensors() const { return tensors_; }  // sorted by name

    const StoredTensor* find(std::string_view name) const;  // null: no such tensor
    const StoredTensor& at(std::string_view name) const;    // throws: "FILE: no tensor 'NAME'"

    // View of an F32 tensor that has exactly this shape. Throws SafetensorsError that says what was got and
    // wanted.
    std::span<const float> f32(std::string_view name, std::span<const int64_t> shape) const;
    std::span<const float> f32(std::string_view name, std::initializer_list<int64_t> shape) const;

    // Elements converted: any number type to double (I64 beyond 2^53 rounds); F32, F16 and BF16 to float,
    // exactly; integers and BOOL to int64. Throw SafetensorsError for a type that is not named here.
    std::vector<double> to_f64(const StoredTensor& tensor) const;
    std::vector<float> to_f32(const StoredTensor& tensor) const;
    std::vector<int64_t> to_i64(const StoredTensor& tensor) const;

private:
    struct AlignedFree {
        void operator()(std::byte* memory) const;
    };
    std::string path_;
    std::map<std::string, std::string> metadata_;
    std::vector<StoredTensor> tensors_;
    std::unique_ptr<std::byte[], AlignedFree> memory_;
};

// A tensor to write; the caller keeps `data`, which holds the product of `shape` elements, alive.
struct TensorToStore {
    std::string name;
    StoredType type = StoredType::kF32;
    std::vector<int64_t> shape;
    const void* data = nullptr;
};

// Writes the file whole or not at all: into a temporary file beside it, which is then renamed. Equal
// arguments give equal bytes. Throws SafetensorsError ("FILE: ...") for a full disk, a folder that can't be
// written, a duplicate or reserved name, text that isn't UTF-8.
void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       std::span<const TensorToStore> tensors);

}  // namespace attnc
