// attnc verify: a library, or what case files ask for, on every instruction set of this machine against float64.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "compiler/command.h"
#include "compiler/files.h"
#include "compiler/load_library.h"
#include "compiler/progress.h"
#include "compiler/run_apart.h"
#include "compiler/tuning_options.h"
#include "compiler/verify_cases.h"
#include "compiler/verify_layer.h"
#include "compiler/verify_outcome.h"

namespace attnc {

namespace {

struct Options {
    std::string library;
    std::vector<std::string> cases;
    std::vector<std::string> names;  // of cases
    std::vector<std::string> targets;
    uint64_t seed = 1;
    int count = 24;
    std::string kernel_cache;
    std::string json;
    TuningOptions tuning;
};

struct LibraryTarget {
    std::string name;
    bool runs = false;
};

// The library's targets, or those of them that were asked for.
std::vector<LibraryTarget> library_targets(const attnc_library* library,
                                           const std::vector<std::string>& asked) {
    std::vector<LibraryTarget> targets;
    for (int64_t n = 0; attnc_library_target_name(library, n) != nullptr; ++n) {
        const std::string name = attnc_library_target_name(library, n);
        if (asked.empty() || std::find(asked.begin(), asked.end(), name) != asked.end()) {
            targets.push_back({name, attnc_library_target_runs(library, n) != 0});
        }
    }
    for (const std::string& name : asked) {
        if (std::none_of(targets.begin(), targets.end(),
                         [&](const LibraryTarget& t) { return t.name == name; })) {
            throw std::runtime_error(fmt::format("the library has no target {}", name));
        }
    }
    return targets;
}

void check(Outcome& outcome, const attnc_library* library, const VerifyCall& call, const Reference& want) {
    outcome.reason = check_call(library, outcome.target, call, want);
    outcome.kind = outcome.reason.empty() ? Outcome::Kind::kPassed : Outcome::Kind::kFailed;
}

bool verify_library(const Options& options) {
    const LoadedLibrary library(options.library, own_installation());
    const Config config = config_of(library);
    const std::vector<LibraryTarget> targets = library_targets(library, options.targets);
    std::vector<Outcome> outcomes;
    Progress progress("calls");
    for (int i = 0; i < options.count; ++i) {
        const std::unique_ptr<VerifyCall> call = random_call(config, options.seed + static_cast<uint64_t>(i));
        const Reference want = reference_of(*call);
        for (const LibraryTarget& target : targets) {
            Outcome outcome = {.name = fmt::format("{}, seed {}", to_string(call->problem), call->seed),
                               .target = target.name,
                               .kind = Outcome::Kind::kSkipped,
                               .reason = "this machine cannot run it",
                               .repeat = ""};
            if (target.runs) {
                check(outcome, library, *call, want);
            }
            if (outcome.kind == Outcome::Kind::kFailed) {
                outcome.repeat = fmt::format("attnc verify {} --target {} --seed {} --count 1",
                                             shell_quoted(options.library), target.name, call->seed);
                fmt::print("{}", text_of(outcome));
            }
            outcomes.push_back(std::move(outcome));
        }
        progress.show(i + 1, options.count);
    }
    for (const LibraryTarget& target : targets) {
        const auto count = [&](Outcome::Kind kind) {
            return std::count_if(outcomes.begin(), outcomes.end(), [&](const Outcome& outcome) {
                return outcome.target == target.name && outcome.kind == kind;
            });
        };
        if (target.runs) {
            fmt::print("{}: {} passed, {} failed\n", target.name, count(Outcome::Kind::kPassed),
                       count(Outcome::Kind::kFailed));
        } else {
            fmt::print("{}: skipped, this machine cannot run it\n", target.name);
        }
    }
    return conclude(outcomes, options.json);
}

void run(const Options& options) {
    if (options.library.empty() == options.cases.empty())
        throw UsageError("give a library or --cases, one of them");
    const TemporaryFolder folder(system_temporary_folder());  // here, since the process apart may be killed
    bool well = false;
    if (options.library.empty()) {
        const CaseRequest request = {.folders = options.cases,
                                     .names = options.names,
                                     .targets = options.targets,
                                     .kernel_cache = options.kernel_cache,
                                     .tuning = chosen_tuning(options.tuning, {}),
                                     .installation = own_installation()};
        well = conclude(verify_cases(request, folder.path()), options.json);
    } else {
        well = run_apart(options.library, [&] { return verify_library(options) ? 0 : 1; }) == 0;
    }
    if (!well) throw CLI::RuntimeError(1);
}

}  // namespace

void add_verify_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("verify", "Compare a library's results with float64");
    auto options = std::make_shared<Options>();
    command->add_option("library", options->library, "lib<name>.a, checked on random calls");
    command->add_option("--cases", options->cases,
                        "Folders of case files, or files: build what each asks for, run, compare");
    command->add_option("--case", options->names,
                        "Only these cases, by their files' names without extension");
    command
        ->add_option("--target", options->targets,
                     "Only these instruction sets, or cuda, separated by commas")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_option("--seed", options->seed, "Of the first random call; default: 1");
    command->add_option("--count", options->count, "Random calls; default: 24")
        ->check(CLI::Range(1, 1000000));
    command->add_option("--kernel-cache", options->kernel_cache, "Folder that keeps compiled kernels")
        ->envname("ATTNC_KERNEL_CACHE");
    add_tuning_options(*command, options->tuning);
    command->add_option("--json", options->json, "File for all outcomes");
    command->footer(
        "Example:\n"
        "  attnc verify generated/libmy_attention.a\n"
        "  attnc verify --cases my_cases --json outcomes.json\n"
        "Each call is within the error bounds of docs/numerics.md or has failed. An instruction set that "
        "this machine\n"
        "lacks is skipped. A case file states its own tolerance.");
    command->callback([options] { run(*options); });
}

}  // namespace attnc
