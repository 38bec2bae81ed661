// Holds the instructions of calls against those that are kept: time depends on the machine and on what else it does, the
// number of instructions doesn't. For the AVX2 target, since valgrind knows no AVX-512. What is counted is the code of kernels
// and runtime; the C library, whose memcpy differs from CPU to CPU, is left out.
//   instructions            compares; exit code 1 where a call takes over 2 % more or less, 77 where this CPU has no AVX2
//   instructions --store    keeps what is found
#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <map>

#include "compiler/build.h"
#include "compiler/files.h"
#include "compiler/subprocess.h"
#include "compiler/targets.h"
#include "runtime/cpu.h"
#include "tests/instructions/counts.h"
#include "tests/instructions/profile.h"

namespace {

using namespace attnc;
using namespace attnc::test;
namespace fs = std::filesystem;

constexpr const char* kTarget = "x86-64-linux-avx2-fma-f16c";
constexpr const char* kUpdate = "scripts/instructions --store";
constexpr std::chrono::seconds kTimeLimit{900};
constexpr int kSkipped = 77;

// Libraries by configuration, one for all calls of it.
std::map<std::string, fs::path> build_libraries(const std::vector<Count>& calls, const fs::path& folder) {
    std::map<std::string, fs::path> archives;
    make_folder(ATTNC_TEST_KERNELS);
    for (const Count& count : calls) {
        const std::string config = count.call.substr(0, count.call.find(':'));
        if (archives.contains(config)) continue;
        BuildRequest request;
        request.config = parse_config(config);
        request.name = fmt::format("counted_{}", archives.size());
        request.targets = {kTarget};
        request.output = folder / request.name;
        request.kernel_cache = ATTNC_TEST_KERNELS;
        request.installation = installation_of(ATTNC_TEST_COMMAND);
        archives[config] = build_library(request).archive;
    }
    return archives;
}

std::string list_of(const std::vector<Count>& calls, const std::map<std::string, fs::path>& archives) {
    std::string text;
    for (const Count& count : calls) {
        const fs::path& archive = archives.at(count.call.substr(0, count.call.find(':')));
        text += fmt::format("{}\t{}\n", archive.string(), count.call);
    }
    return text;
}

// The library is loaded from library.so; everything else of attnc is in the program.
Count count_of(const Profile& profile, const std::string& call) {
    const auto instructions = [&](const std::string& object) {
        const auto found = profile.instructions.find(object);
        return found == profile.instructions.end() ? 0 : found->second;
    };
    return {call, instructions("library.so"), instructions(fs::path(ATTNC_TEST_COUNTED_CALLS).filename())};
}

// Runs the calls under callgrind. In the order of `calls`.
std::vector<Count> count_instructions(const std::vector<Count>& calls, const fs::path& folder) {
    const std::string valgrind = find_program("valgrind");
    if (valgrind.empty()) throw std::runtime_error("valgrind not found on PATH: run scripts/setup");
    const fs::path list = folder / "calls";
    write_file(list, list_of(calls, build_libraries(calls, folder)));
    const std::vector<std::string> command = {
        valgrind,
        "-q",
        "--tool=callgrind",
        "--instr-atstart=no",
        "--compress-strings=no",
        "--compress-pos=no",
        fmt::format("--callgrind-out-file={}", (folder / "profile").string()),
        ATTNC_TEST_COUNTED_CALLS,
        list.string()};
    const ProcessResult result = run_process(command, kTimeLimit);
    if (!result.succeeded()) {
        throw std::runtime_error(
            fmt::format("callgrind: {}: {}", describe_failure(result, kTimeLimit), last_line(result.output)));
    }
    std::map<std::string, Profile> profiles;
    for (size_t dump = 1; dump <= calls.size(); ++dump) {
        const Profile profile = parse_profile(read_file(folder / fmt::format("profile.{}", dump)));
        profiles[profile.trigger] = profile;
    }
    std::vector<Count> counts;
    for (const Count& count : calls) {
        if (!profiles.contains(count.call))
            throw std::runtime_error(fmt::format("callgrind wrote no profile of {}", count.call));
        counts.push_back(count_of(profiles[count.call], count.call));
    }
    return counts;
}

void print(const std::vector<Count>& stored, const std::vector<Count>& found) {
    for (size_t i = 0; i < stored.size(); ++i) {
        const auto now = static_cast<double>(found[i].all()), before = static_cast<double>(stored[i].all());
        fmt::print("{:>12} {:>+8.2f} %  {}\n", found[i].all(), before == 0 ? 0 : 100 * (now / before - 1),
                   found[i].call);
    }
}

int compare(const std::vector<Count>& stored, const std::vector<Count>& found) {
    int complaints = 0;
    for (size_t i = 0; i < stored.size(); ++i) {
        const std::string text = complaint(stored[i], found[i], kUpdate);
        if (text.empty()) continue;
        ++complaints;
        fmt::print("{}\n", text);
    }
    return complaints == 0 ? 0 : 1;
}

int run(bool store) {
    if ((cpu_features(kTarget) & ~detect_cpu_features()) != 0) {
        fmt::print("skipped: this CPU can't run {}\n", kTarget);
        return kSkipped;
    }
    const std::string text = read_file(ATTNC_TEST_COUNTS);
    const std::vector<Count> stored = parse_counts(text);
    const TemporaryFolder folder(system_temporary_folder());
    const std::vector<Count> found = count_instructions(stored, folder.path());
    print(stored, found);
    if (!store) return compare(stored, found);
    write_file(ATTNC_TEST_COUNTS, with_counts(text, found));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const bool store = argc == 2 && std::strcmp(argv[1], "--store") == 0;
        if (argc > 1 && !store)
            throw std::runtime_error(
                fmt::format("unknown argument '{}'; usage: instructions [--store]", argv[1]));
        return run(store);
    } catch (const std::exception& error) {
        fmt::print(stderr, "instructions: {}\n", error.what());
        return 1;
    }
}
