// A folder of compiled kernels. The key is a hash of all that the object depends on, so that an entry is never stale;
// each entry carries a hash of its contents, so that a damaged one is compiled again. Any number of processes may share
// a folder. It only grows: delete it to be rid of it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "compiler/kernel_job.h"

namespace attnc {

class KernelCache {
public:
    // Makes the folder if it isn't there; throws std::runtime_error if it can't.
    KernelCache(std::filesystem::path folder, CompilerVersions versions);

    // Writes the object, and a device's code beside it, if the kernel is here.
    std::optional<KernelInfo> take(const KernelJob& job, const std::filesystem::path& object) const;
    void add(const KernelJob& job, const std::filesystem::path& object, const KernelInfo& info) const;

    // Any other bytes that `key` decides.
    std::optional<std::string> take_bytes(const std::string& key) const;
    void add_bytes(const std::string& key, const std::string& bytes) const;

private:
    std::string key_of(const KernelJob& job) const;
    std::filesystem::path entry(const std::string& key) const;

    std::filesystem::path folder_;
    CompilerVersions versions_;
};

}  // namespace attnc
