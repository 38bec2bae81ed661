// attnc verify: a library, or what case files ask for, on every instruction set of this machine against float64.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "compiler/build.h"
#include "compiler/command.h"
#include "compiler/files.h"
#include "compiler/load_library.h"
#include "compiler/progress.h"
#include "compiler/run_apart.h"
#include "compiler/verify_layer.h"
#include "support/case_file.h"
#include "support/comparison.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

struct Options {
    std::string library;
    std::string cases;
    std::vector<std::string> targets;
    uint64_t seed = 1;
    int count = 24;
    std::string kernel_cache;
};

struct Tally {
    int passed = 0;
    int failed = 0;
    int skipped = 0;
    void add(const Tally& other) {
        passed += other.passed;
        failed += other.failed;
        skipped += other.skipped;
    }
};

// The last line, and whether all is well: something was compared, and nothing failed.
int conclude(const Tally& tally) {
    fmt::print("{} passed, {} failed, {} skipped\n", tally.passed, tally.failed, tally.skipped);
    return tally.failed == 0 && tally.passed > 0 ? 0 : 1;
}

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

int verify_library(const Options& options) {
    const LoadedLibrary library(options.library, own_installation());
    const Config config = config_of(library);
    const std::vector<LibraryTarget> targets = library_targets(library, options.targets);
    std::map<std::string, Tally> tallies;
    Progress progress("calls");
    for (int i = 0; i < options.count; ++i) {
        const std::unique_ptr<VerifyCall> call = random_call(config, options.seed + static_cast<uint64_t>(i));
        const Reference want = reference_of(*call);
        for (const LibraryTarget& target : targets) {
            Tally& tally = tallies[target.name];
            if (!target.runs) {
                ++tally.skipped;
                continue;
            }
            const std::string wrong = check_call(library, target.name, *call, want);
            ++(wrong.empty() ? tally.passed : tally.failed);
            if (wrong.empty()) continue;
            fmt::print(
                "{} on {}, seed {}: {}\n  to repeat: attnc verify {} --target {} --seed {} --count 1\n",
                to_string(call->problem), target.name, call->seed, wrong, options.library, target.name,
                call->seed);
        }
        progress.show(i + 1, options.count);
    }
    Tally all;
    for (const LibraryTarget& target : targets) {
        const Tally& tally = tallies[target.name];
        if (target.runs) {
            fmt::print("{}: {} passed, {} failed\n", target.name, tally.passed, tally.failed);
        } else {
            fmt::print("{}: skipped, this machine cannot run it\n", target.name);
        }
        all.add(tally);
    }
    return conclude(all);
}

std::vector<fs::path> case_files(const fs::path& folder) {
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    if (error) throw std::runtime_error(fmt::format("cannot read {}: {}", folder.string(), error.message()));
    if (files.empty()) throw std::runtime_error(fmt::format("no .safetensors files in {}", folder.string()));
    std::sort(files.begin(), files.end());
    return files;
}

// Libraries by configuration, made as they are needed.
class Libraries {
public:
    Libraries(const Options& options, fs::path folder) : options_(options), folder_(std::move(folder)) {}

    const attnc_library* get(const Config& config) {
        const std::string key = to_string(config);
        auto found = libraries_.find(key);
        if (found == libraries_.end()) {
            BuildRequest request;
            request.config = config;
            request.targets = options_.targets;
            request.output = folder_;
            request.kernel_cache =
                options_.kernel_cache.empty() ? folder_ / "kernels" : fs::path(options_.kernel_cache);
            request.installation = own_installation();
            const BuildResult built = build_library(request);
            found = libraries_.emplace(key, LoadedLibrary(built.archive, own_installation())).first;
        }
        return found->second.library();
    }

private:
    const Options& options_;
    fs::path folder_;
    std::map<std::string, LoadedLibrary> libraries_;
};

// Sizes of a call, as run_layer wants them.
Reference sizes_of(const CaseFile& file) {
    const Config& config = file.config;
    Reference sizes;
    sizes.batch = file.batch;
    sizes.num_heads = config.num_heads;
    sizes.seq_q = file.seq_q;
    sizes.keys = file.seq_kv + int64_t{config.bias_kv} + int64_t{config.zero_attn};
    sizes.v_head_dim = config.v_head_dim;
    sizes.out_features = config.out_proj ? config.d_model : config.num_heads * config.v_head_dim;
    return sizes;
}

// "" if every expected tensor that a library can give is as it must be.
std::string check_case(const CaseFile& file, const attnc_library* library, const std::string& target) {
    const auto expects = [&](const char* role) { return file.expected.contains(role); };
    const Wanted wanted = {
        .probs = expects("probs"), .probs_averaged = expects("avg_probs"), .lse = expects("lse")};
    const Reference got =
        run_layer(library, target, file.weights, file.inputs, file.options, wanted, sizes_of(file));
    std::string wrong;
    for (const auto& [role, expected] : file.expected) {
        if (role == "ctx" && got.context.empty()) continue;  // inside the layer: no output of a library
        if (role.ends_with("_f64_arithmetic")) continue;     // what float64 would give where float32 rounds
        const Comparison comparison = compare(result_of_role(file, got, role), expected);
        if (!comparison.ok())
            wrong += fmt::format("{}{}: {}", wrong.empty() ? "" : "; ", role, comparison.text());
    }
    return wrong;
}

int verify_cases(const Options& options, const fs::path& folder) {
    Libraries libraries(options, folder);
    Tally all;
    for (const fs::path& path : case_files(options.cases)) {
        const CaseFile file = read_case(path.string());
        const attnc_library* library = libraries.get(file.config);
        for (const LibraryTarget& target : library_targets(library, options.targets)) {
            if (!target.runs) {
                ++all.skipped;
                continue;
            }
            const std::string wrong = check_case(file, library, target.name);
            ++(wrong.empty() ? all.passed : all.failed);
            if (!wrong.empty()) fmt::print("{} on {}: {}\n", file.name, target.name, wrong);
        }
    }
    return conclude(all);
}

void run(const Options& options) {
    if (options.library.empty() == options.cases.empty())
        throw UsageError("give a library or --cases, one of them");
    const std::string what = options.library.empty() ? options.cases : options.library;
    const TemporaryFolder folder(system_temporary_folder());  // here, since the process apart may be killed
    const int code = run_apart(what, [&] {
        return options.library.empty() ? verify_cases(options, folder.path()) : verify_library(options);
    });
    if (code != 0) throw CLI::RuntimeError(code);
}

}  // namespace

void add_verify_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("verify", "Compare a library's results with float64");
    auto options = std::make_shared<Options>();
    command->add_option("library", options->library, "lib<name>.a, checked on random calls");
    command->add_option("--cases", options->cases,
                        "Folder of case files: build what each asks for, run, compare");
    command->add_option("--target", options->targets, "Only these instruction sets, separated by commas")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_option("--seed", options->seed, "Of the first random call; default: 1");
    command->add_option("--count", options->count, "Random calls; default: 24")
        ->check(CLI::Range(1, 1000000));
    command->add_option("--kernel-cache", options->kernel_cache, "Folder that keeps compiled kernels")
        ->envname("ATTNC_KERNEL_CACHE");
    command->footer(
        "Example:\n"
        "  attnc verify generated/libmy_attention.a\n"
        "Each call is within the error bounds of docs/numerics.md or has failed. An instruction set that "
        "this machine\n"
        "lacks is skipped.");
    command->callback([options] { run(*options); });
}

}  // namespace attnc
