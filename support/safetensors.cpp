#include "support/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "support/safetensors_header.h"

namespace attnc {
namespace {

using safetensors::fail;
using safetensors::in_quotes;
using safetensors::kLengthBytes;
using safetensors::kMaxHeaderBytes;
using safetensors::shape_text;
using safetensors::system_reason;

static_assert(std::endian::native == std::endian::little, "tensor data is used as it is stored");

constexpr int64_t kAlignment = 64;
int64_t round_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The file's handle; reads at a place, whole or with an error.
class Descriptor {
public:
    // Not blocking: opening a pipe that nobody writes to would wait for ever.
    explicit Descriptor(const std::string& path)
        : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        if (fd_ < 0) fail(path, "cannot open: " + system_reason(errno));
    }
    ~Descriptor() { close(fd_); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    int64_t size() const {
        struct stat status {};
        if (fstat(fd_, &status) != 0) fail(path_, "cannot read: " + system_reason(errno));
        if (!S_ISREG(status.st_mode)) fail(path_, "not a regular file");
        return status.st_size;
    }

    void read(int64_t offset, void* to, int64_t bytes) const {
        auto* place = static_cast<char*>(to);
        while (bytes > 0) {
            const ssize_t got = pread(fd_, place, static_cast<size_t>(bytes), offset);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail(path_, "cannot read: " + system_reason(errno));
            if (got == 0) fail(path_, "file became shorter while it was read");
            place += got;
            offset += got;
            bytes -= got;
        }
    }

private:
    const std::string& path_;
    int fd_;
};

double f16_to_f64(uint16_t bits) {
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 0x3ff;
    if (exponent == 31) {
        return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    }
    return exponent == 0 ? sign * std::ldexp(fraction, -24)
                         : sign * std::ldexp(fraction + 1024, exponent - 25);
}

template <typename T>
T element(const StoredTensor& tensor, int64_t index) {
    T value;
    std::memcpy(&value, tensor.data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

template <typename To, typename Read>
std::vector<To> converted(const StoredTensor& tensor, Read read) {
    std::vector<To> values(static_cast<size_t>(tensor.elements));
    for (int64_t n = 0; n < tensor.elements; ++n) {
        // NOLINTNEXTLINE(bugprone-signed-char-misuse): I8 holds numbers, not characters
        values[static_cast<size_t>(n)] = static_cast<To>(read(n));
    }
    return values;
}

// Integers of any width and BOOL; nothing for other types.
template <typename To>
std::optional<std::vector<To>> converted_integers(const StoredTensor& t) {
    switch (t.type) {
        case StoredType::kI64:
            return converted<To>(t, [&](int64_t n) { return element<int64_t>(t, n); });
        case StoredType::kI32:
            return converted<To>(t, [&](int64_t n) { return element<int32_t>(t, n); });
        case StoredType::kI16:
            return converted<To>(t, [&](int64_t n) { return element<int16_t>(t, n); });
        case StoredType::kI8:
            return converted<To>(t, [&](int64_t n) { return element<int8_t>(t, n); });
        case StoredType::kU8:
            return converted<To>(t, [&](int64_t n) { return element<uint8_t>(t, n); });
        case StoredType::kBool:
            return converted<To>(t, [&](int64_t n) { return element<uint8_t>(t, n) != 0; });
        default:
            return std::nullopt;
    }
}

}  // namespace

void SafetensorsFile::AlignedFree::operator()(std::byte* memory) const { std::free(memory); }

SafetensorsFile::SafetensorsFile(const std::string& path)
    : SafetensorsFile(path, [](const std::string&) { return true; }) {}

SafetensorsFile::SafetensorsFile(const std::string& path, const Wanted& wanted) : path_(path) {
    const Descriptor file(path_);
    const int64_t file_bytes = file.size();
    if (file_bytes < kLengthBytes) {
        fail(path, "file of " + std::to_string(file_bytes) + " bytes is too short for a header length");
    }
    uint64_t stated = 0;
    file.read(0, &stated, kLengthBytes);
    if (stated > static_cast<uint64_t>(kMaxHeaderBytes)) {
        fail(path, "header length " + std::to_string(stated) + " is beyond the limit of " +
                       std::to_string(kMaxHeaderBytes));
    }
    const auto header_bytes = static_cast<int64_t>(stated);
    if (header_bytes > file_bytes - kLengthBytes) {
        fail(path, "header length " + std::to_string(header_bytes) + " is beyond the end of the file");
    }
    const int64_t data_begin = kLengthBytes + header_bytes;

    std::string text(static_cast<size_t>(header_bytes), '\0');
    file.read(kLengthBytes, text.data(), header_bytes);
    safetensors::Header header = safetensors::parse_header(path_, text, file_bytes - data_begin);
    metadata_ = std::move(header.metadata);

    // Each tensor gets an aligned place of its own: nothing in the format aligns them inside the file.
    int64_t memory_bytes = 0;
    for (const safetensors::HeaderEntry& entry : header.entries) {
        if (wanted(entry.name)) memory_bytes += round_up(entry.end - entry.begin);
    }
    if (memory_bytes > 0) {
        memory_.reset(
            static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(memory_bytes))));
        if (memory_ == nullptr)
            fail(path, "not enough memory for " + std::to_string(memory_bytes) + " bytes");
    }
    std::byte* place = memory_.get();
    for (safetensors::HeaderEntry& entry : header.entries) {
        const int64_t bytes = entry.end - entry.begin;
        const bool is_wanted = wanted(entry.name);
        StoredTensor tensor;
        tensor.name = std::move(entry.name);
        tensor.type = entry.type;
        tensor.elements = bytes / stored_type_bytes(tensor.type);
        tensor.shape = std::move(entry.shape);
        if (bytes > 0 && is_wanted) {
            file.read(data_begin + entry.begin, place, bytes);
            tensor.data = place;
            place += round_up(bytes);
        }
        tensors_.push_back(std::move(tensor));
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
    const auto found =
        std::lower_bound(tensors_.begin(), tensors_.end(), name,
                         [](const StoredTensor& t, std::string_view wanted) { return t.name < wanted; });
    return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr) fail(path_, "no tensor " + in_quotes(name));
    return *tensor;
}

std::span<const float> SafetensorsFile::f32(std::string_view name, std::span<const int64_t> shape) const {
    const StoredTensor& tensor = at(name);
    if (tensor.type != StoredType::kF32 ||
        !std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
        fail(path_, "tensor " + in_quotes(name) + " is " + stored_type_name(tensor.type) +
                        shape_text(tensor.shape) + ", wanted F32" + shape_text(shape));
    }
    return {reinterpret_cast<const float*>(tensor.data), static_cast<size_t>(tensor.elements)};
}

std::span<const float> SafetensorsFile::f32(std::string_view name,
                                            std::initializer_list<int64_t> shape) const {
    return f32(name, std::span<const int64_t>(shape.begin(), shape.size()));
}

std::vector<double> SafetensorsFile::to_f64(const StoredTensor& t) const {
    switch (t.type) {
        case StoredType::kF64:
            return converted<double>(t, [&](int64_t n) { return element<double>(t, n); });
        case StoredType::kF32:
            return converted<double>(t, [&](int64_t n) { return element<float>(t, n); });
        case StoredType::kF16:
            return converted<double>(t, [&](int64_t n) { return f16_to_f64(element<uint16_t>(t, n)); });
        case StoredType::kBF16:
            return converted<double>(t, [&](int64_t n) { return bf16_to_f32(element<uint16_t>(t, n)); });
        default:
            return *converted_integers<double>(t);
    }
}

std::vector<float> SafetensorsFile::to_f32(const StoredTensor& t) const {
    switch (t.type) {
        case StoredType::kF32:
            return converted<float>(t, [&](int64_t n) { return element<float>(t, n); });
        case StoredType::kF16:
            return converted<float>(t, [&](int64_t n) { return f16_to_f64(element<uint16_t>(t, n)); });
        case StoredType::kBF16:
            return converted<float>(t, [&](int64_t n) { return bf16_to_f32(element<uint16_t>(t, n)); });
        default:
            fail(path_, "tensor " + in_quotes(t.name) + " is " + stored_type_name(t.type) +
                            ", wanted F32, F16 or BF16");
    }
}

std::vector<int64_t> SafetensorsFile::to_i64(const StoredTensor& t) const {
    std::optional<std::vector<int64_t>> values = converted_integers<int64_t>(t);
    if (!values)
        fail(path_, "tensor " + in_quotes(t.name) + " is " + stored_type_name(t.type) + ", wanted integers");
    return std::move(*values);
}

}  // namespace attnc
