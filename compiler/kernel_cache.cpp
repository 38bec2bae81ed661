#include "compiler/kernel_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <utility>

#include "compiler/files.h"
#include "compiler/hash.h"

namespace attnc {

namespace fs = std::filesystem;

KernelCache::KernelCache(fs::path folder, CompilerVersions versions)
    : folder_(std::move(folder)), versions_(std::move(versions)) {
    make_folder(folder_);
}

fs::path KernelCache::entry(const KernelJob& job) const {
    const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", versions_.identity, job.kernel, job.config,
                                        job.schedule, job.target, job.symbol);
    return folder_ / (hash128_hex(key) + ".kernel");
}

// An entry is a line with the hash of the rest, a line of JSON, and the object.
std::optional<KernelInfo> KernelCache::take(const KernelJob& job, const fs::path& object) const {
    const fs::path path = entry(job);
    std::error_code error;
    if (!fs::exists(path, error)) return std::nullopt;
    const std::string bytes = read_file(path);
    const size_t hash_end = bytes.find('\n');
    if (hash_end == std::string::npos) return std::nullopt;
    const std::string rest = bytes.substr(hash_end + 1);
    if (hash128_hex(rest) != std::string_view(bytes).substr(0, hash_end)) return std::nullopt;
    const size_t info_end = rest.find('\n');
    if (info_end == std::string::npos) return std::nullopt;
    write_file(object, std::string_view(rest).substr(info_end + 1));
    return parse_kernel_info(rest.substr(0, info_end));
}

void KernelCache::add(const KernelJob& job, const fs::path& object, const KernelInfo& info) const {
    static std::atomic<int> count = 0;
    const std::string rest = to_json(info) + "\n" + read_file(object);
    const fs::path unfinished = folder_ / fmt::format(".attnc-tmp-{}-{}", ::getpid(), count++);
    try {
        write_file(unfinished, hash128_hex(rest) + "\n" + rest);
        move_file(unfinished, entry(job));
    } catch (...) {
        std::error_code ignored;
        fs::remove(unfinished, ignored);
        throw;
    }
}

}  // namespace attnc
