#include "compiler/kernel_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/interrupt.h"

namespace attnc {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLocks = ".attnc-locks";
constexpr std::chrono::milliseconds kPause{20};  // between two looks at a lock; a kernel takes seconds

}  // namespace

KernelCache::KernelCache(fs::path folder, CompilerVersions versions)
    : folder_(std::move(folder)), versions_(std::move(versions)) {
    make_folder(folder_);
}

std::string KernelCache::key_of(const KernelJob& job) const {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", versions_.identity, job.kernel, job.config,
                       job.schedule, job.target, job.symbol, job.registers, job.checked);
}

fs::path KernelCache::entry(const std::string& key) const { return folder_ / (hash128_hex(key) + ".kernel"); }

// An entry is a line with the hash of the rest, and the rest.
std::optional<std::string> KernelCache::take_bytes(const std::string& key) const {
    const fs::path path = entry(key);
    std::error_code error;
    if (!fs::exists(path, error)) return std::nullopt;
    const std::string bytes = read_file(path);
    const size_t hash_end = bytes.find('\n');
    if (hash_end == std::string::npos) return std::nullopt;
    std::string rest = bytes.substr(hash_end + 1);
    if (hash128_hex(rest) != std::string_view(bytes).substr(0, hash_end)) return std::nullopt;
    return rest;
}

void KernelCache::add_bytes(const std::string& key, const std::string& bytes) const {
    static std::atomic<int> count = 0;
    const fs::path unfinished = folder_ / fmt::format(".attnc-tmp-{}-{}", ::getpid(), count++);
    try {
        write_file(unfinished, hash128_hex(bytes) + "\n" + bytes);
        move_file(unfinished, entry(key));
    } catch (...) {
        std::error_code ignored;
        fs::remove(unfinished, ignored);
        throw;
    }
}

KernelCache::Hold::Hold(const fs::path& locks, int64_t place)
    : Hold(::open(locks.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    struct flock byte = {};
    byte.l_type = F_WRLCK;
    byte.l_whence = SEEK_SET;
    byte.l_start = place;
    byte.l_len = 1;
    while (::fcntl(descriptor_, F_OFD_SETLK, &byte) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) break;  // no locks here
        check_interrupt();
        std::this_thread::sleep_for(kPause);
    }
}

KernelCache::Hold::~Hold() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

// A byte of one file for each kernel, at a place that its key decides: the lock of a process that has died is gone, and no
// file of it is left behind.
KernelCache::Hold KernelCache::hold(const KernelJob& job) const {
    constexpr int kDigits = 15;  // 60 bits: offsets are signed
    return {folder_ / kLocks, std::stoll(hash128_hex(key_of(job)).substr(0, kDigits), nullptr, 16)};
}

// A kernel is a line of JSON, the object, and as many bytes of a device's code as the line says.
std::optional<KernelInfo> KernelCache::take(const KernelJob& job, const fs::path& object) const {
    const std::optional<std::string> bytes = take_bytes(key_of(job));
    if (!bytes) return std::nullopt;
    const size_t info_end = bytes->find('\n');
    if (info_end == std::string::npos) return std::nullopt;
    KernelInfo info = parse_kernel_info(bytes->substr(0, info_end));
    std::string_view files = std::string_view(*bytes).substr(info_end + 1);
    const auto device_code = static_cast<size_t>(info.device_code_bytes);
    if (device_code > files.size()) return std::nullopt;
    if (device_code > 0) write_file(device_code_file(object), files.substr(files.size() - device_code));
    files.remove_suffix(device_code);
    write_file(object, files);
    return info;
}

void KernelCache::add(const KernelJob& job, const fs::path& object, const KernelInfo& info) const {
    std::string bytes = to_json(info) + "\n" + read_file(object);
    if (info.device_code_bytes > 0) bytes += read_file(device_code_file(object));
    add_bytes(key_of(job), bytes);
}

}  // namespace attnc
