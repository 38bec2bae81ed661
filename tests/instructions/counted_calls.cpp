// Runs calls whose instructions are counted. Meant to run under callgrind, which counts the second call of each: it dumps what
// it has counted when that has returned.
//   counted_calls FILE     lines "archive<TAB>call"
#include <valgrind/callgrind.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "compiler/cached_call.h"
#include "compiler/call_extras.h"
#include "compiler/files.h"
#include "compiler/load_library.h"
#include "compiler/stage_call.h"
#include "schedules/cpu_params.h"

namespace {

using namespace attnc;

// A stage's name among the words of a call, taken out.
std::optional<Stage> take_stage(std::vector<std::string>& words) {
    for (const Stage stage : {Stage::kProjectInputs, Stage::kAttend, Stage::kProjectOutput}) {
        if (std::erase(words, stage_name(stage)) > 0) return stage;
    }
    return {};
}

void count(const std::string& name, const std::function<void()>& call) {
    call();
    CALLGRIND_START_INSTRUMENTATION;
    call();
    CALLGRIND_STOP_INSTRUMENTATION;
    CALLGRIND_DUMP_STATS_AT(name.c_str());
}

// Each archive is loaded once.
const attnc_library* library_of(const std::string& archive) {
    static std::map<std::string, LoadedLibrary> libraries;
    auto found = libraries.find(archive);
    if (found == libraries.end())
        found = libraries.emplace(archive, LoadedLibrary(archive, installation_of(ATTNC_TEST_COMMAND))).first;
    return found->second.library();
}

void count_call(const std::string& archive, const std::string& name) {
    std::istringstream text(name);
    std::string word;
    text >> word;
    const Problem problem = parse_problem(word);
    std::vector<std::string> words;
    while (text >> word) words.push_back(word);
    const std::optional<Stage> stage = take_stage(words);
    const CallExtras extras(problem, words);
    LayerCallSetup setup = {problem, problem.config, library_of(archive), "", nullptr, {}};
    setup.most_sets = 1;
    setup.adjust = [&](attnc_inputs& inputs, attnc_outputs& outputs) { extras.apply(inputs, outputs); };
    if (problem.config.cache) {
        CachedCall call(setup);
        return count(name, [&] { call.call(); });
    }
    LayerCall call(setup);
    if (!stage) return count(name, [&] { call.call(); });
    StageCall stage_call(call, *stage);
    count(name, [&] { stage_call.call(); });
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 2) throw std::runtime_error("wanted: a file of archives and calls");
        std::istringstream lines(read_file(argv[1]));
        for (std::string line; std::getline(lines, line);) {
            const size_t tab = line.find('\t');
            count_call(line.substr(0, tab), line.substr(tab + 1));
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "counted_calls: %s\n", error.what());
        return 1;
    }
}
