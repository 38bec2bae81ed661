// A folder of compiled kernels. The key is a hash of all that the object depends on, so that an entry is never stale;
// each entry carries a hash of its contents, so that a damaged one is compiled again. Any number of processes may share
// a folder, and none compiles what another is about to have compiled. It only grows: delete it to be rid of it.
#pragma once

#include <cstdint>
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

    // Who compiles a kernel holds it meanwhile: others that want it wait, and then find it.
    class Hold {
    public:
        Hold(const std::filesystem::path& locks, int64_t place);
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;
        ~Hold();

    private:
        explicit Hold(int descriptor) : descriptor_(descriptor) {}
        int descriptor_;
    };
    // Waits until nobody else holds the kernel, in this process or another; throws Interrupted. On a file system without
    // locks nobody waits.
    [[nodiscard]] Hold hold(const KernelJob& job) const;

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
