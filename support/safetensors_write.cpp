#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "support/safetensors.h"
#include "support/safetensors_header.h"

namespace attnc {
namespace {

using safetensors::checked_bytes;
using safetensors::fail;
using safetensors::in_quotes;
using safetensors::kLengthBytes;
using safetensors::kMaxHeaderBytes;
using safetensors::kMetadataKey;
using safetensors::shape_text;
using safetensors::system_reason;

// Header and order of the data: wide types first, so that every tensor is aligned to its own type, then by
// name.
std::string make_header(const std::string& path, const std::map<std::string, std::string>& metadata,
                        std::span<const TensorToStore> tensors, std::vector<size_t>& order) {
    order.resize(tensors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return std::pair(-stored_type_bytes(tensors[a].type), std::string_view(tensors[a].name)) <
               std::pair(-stored_type_bytes(tensors[b].type), std::string_view(tensors[b].name));
    });

    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header[kMetadataKey] = metadata;
    int64_t offset = 0;
    for (const size_t n : order) {
        const TensorToStore& tensor = tensors[n];
        if (tensor.name == kMetadataKey) fail(path, "a tensor cannot be named " + in_quotes(tensor.name));
        if (header.contains(tensor.name)) fail(path, "duplicate tensor " + in_quotes(tensor.name));
        const bool negative =
            std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t e) { return e < 0; });
        const std::optional<int64_t> bytes = checked_bytes(tensor.shape, tensor.type);
        int64_t end = 0;
        if (negative || !bytes || __builtin_add_overflow(offset, *bytes, &end)) {
            fail(path, "tensor " + in_quotes(tensor.name) + " cannot have shape " + shape_text(tensor.shape));
        }
        header[tensor.name] = {{"dtype", stored_type_name(tensor.type)},
                               {"shape", tensor.shape},
                               {"data_offsets", {offset, end}}};
        offset = end;
    }
    std::string text;
    try {
        text = header.dump();
    } catch (const nlohmann::json::exception&) {
        fail(path, "a name or attribute is not UTF-8");
    }
    text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
    return text;
}

// Renaming over a device or a pipe would put a plain file in its place.
void refuse_special_file(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) fail(path, "not a regular file");
}

void write_all(int fd, const std::string& path, const void* data, int64_t bytes) {
    const auto* place = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t done = write(fd, place, static_cast<size_t>(bytes));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail(path, "cannot write: " + system_reason(errno));
        place += done;
        bytes -= done;
    }
}

// A file beside `path` that takes its place when all is written, and vanishes when not.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& path) : path_(path), temporary_(path + ".XXXXXX") {
        fd_ = mkostemp(temporary_.data(), O_CLOEXEC);
        if (fd_ < 0) fail(path, "cannot write: " + system_reason(errno));
    }
    ~TemporaryFile() {
        if (fd_ >= 0) close(fd_);
        if (!moved_) unlink(temporary_.c_str());
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    int descriptor() const { return fd_; }

    void move_into_place() {
        const mode_t mask = umask(0);  // mkostemp gives 0600; the file gets what open would have given
        umask(mask);
        const bool failed = fchmod(fd_, 0666 & ~mask) != 0 || fsync(fd_) != 0;
        const int error = errno;
        const bool close_failed = close(std::exchange(fd_, -1)) != 0;
        if (failed || close_failed) fail(path_, "cannot write: " + system_reason(failed ? error : errno));
        if (rename(temporary_.c_str(), path_.c_str()) != 0)
            fail(path_, "cannot write: " + system_reason(errno));
        moved_ = true;
    }

private:
    const std::string& path_;
    std::string temporary_;
    int fd_ = -1;
    bool moved_ = false;
};

}  // namespace

void write_safetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                       std::span<const TensorToStore> tensors) {
    std::vector<size_t> order;
    refuse_special_file(path);
    const std::string header = make_header(path, metadata, tensors, order);
    if (header.size() > static_cast<size_t>(kMaxHeaderBytes)) {
        fail(path, "header of " + std::to_string(header.size()) + " bytes is beyond the limit of " +
                       std::to_string(kMaxHeaderBytes));
    }
    TemporaryFile file(path);
    const uint64_t length = header.size();
    write_all(file.descriptor(), path, &length, kLengthBytes);
    write_all(file.descriptor(), path, header.data(), static_cast<int64_t>(header.size()));
    for (const size_t n : order) {
        write_all(file.descriptor(), path, tensors[n].data,
                  *checked_bytes(tensors[n].shape, tensors[n].type));
    }
    file.move_into_place();
}

}  // namespace attnc
