// Runs the attnc command of this build.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace attnc::test {

struct CommandResult {
    int exit_code = 0;
    int signal = 0;
    std::string output;  // standard output and error together
};

// `environment` is set beside this process's own. The kernel cache of the tests is used unless `environment` has
// another ATTNC_KERNEL_CACHE ("": none).
CommandResult run_attnc(const std::vector<std::string>& arguments,
                        const std::map<std::string, std::string>& environment = {});

std::filesystem::path attnc_command();
std::filesystem::path test_kernel_cache();

// A folder of this test's own, removed with it.
class TestFolder {
public:
    TestFolder();
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;
    ~TestFolder();
    const std::filesystem::path& path() const { return path_; }
    std::string operator/(const std::string& name) const { return (path_ / name).string(); }

private:
    std::filesystem::path path_;
};

// Names of what is in a folder, hidden files included, sorted.
std::vector<std::string> names_in(const std::filesystem::path& folder);

std::string contents(const std::filesystem::path& file);

// The cheapest library: one target, no masks, no probabilities; by the default schedule, whatever records there are.
inline const std::vector<std::string> kSmallBuild = {"build", "d32_h2_f32_nomask_noprobs", "--target",
                                                     "x86-64-linux", "--no-records"};
std::vector<std::string> operator+(std::vector<std::string> first, const std::vector<std::string>& more);

}  // namespace attnc::test
