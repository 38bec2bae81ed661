#include "tests/command/run_attnc.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "compiler/files.h"
#include "compiler/subprocess.h"

namespace attnc::test {

namespace fs = std::filesystem;

CommandResult run_attnc(const std::vector<std::string>& arguments,
                        const std::map<std::string, std::string>& environment) {
    std::map<std::string, std::string> variables = environment;
    variables.emplace("ATTNC_KERNEL_CACHE", ATTNC_TEST_KERNELS);
    std::vector<std::string> command = {"/usr/bin/env"};
    for (const auto& [name, value] : variables) command.push_back(name + "=" + value);
    command.emplace_back(ATTNC_TEST_COMMAND);
    command.insert(command.end(), arguments.begin(), arguments.end());
    const ProcessResult result = run_process(command, std::chrono::seconds(300));
    EXPECT_FALSE(result.timed_out) << quoted(command);
    return {result.exit_code, result.signal, result.output};
}

fs::path attnc_command() { return ATTNC_TEST_COMMAND; }
fs::path test_kernel_cache() { return ATTNC_TEST_KERNELS; }

TestFolder::TestFolder() {
    fs::create_directories(ATTNC_TEST_FOLDERS);
    std::string name = std::string(ATTNC_TEST_FOLDERS) + "/command-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
}

TestFolder::~TestFolder() {
    std::error_code ignored;  // a leftover folder harms nobody
    fs::remove_all(path_, ignored);
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

std::string contents(const fs::path& file) { return read_file(file); }

std::vector<std::string> operator+(std::vector<std::string> first, const std::vector<std::string>& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
}

}  // namespace attnc::test
