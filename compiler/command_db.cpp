// attnc db: files of tuning records: joined, listed, thinned out, checked.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/command.h"
#include "compiler/database_file.h"
#include "compiler/files.h"
#include "compiler/progress.h"
#include "compiler/record_check.h"
#include "compiler/tuning_sources.h"
#include "schedules/tuning_lookup.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

// The files that were named, or the project's.
std::vector<fs::path> chosen_files(const std::vector<std::string>& named) {
    if (!named.empty()) return {named.begin(), named.end()};
    if (const auto file = project_database(fs::current_path())) return {*file};
    throw UsageError(fmt::format("no database: give files, there is no {} here", kProjectDatabase));
}

const char* ending(size_t count) { return count == 1 ? "" : "s"; }

// ---- merge

struct MergeOptions {
    std::vector<std::string> files;
    std::string output;
};

void merge(const MergeOptions& options) {
    std::vector<TuningRecord> records;  // all read before anything is written
    for (const std::string& file : options.files) {
        for (TuningRecord& record : load_database(file).records()) records.push_back(std::move(record));
    }
    const AddedRecords count = add_records(options.output, records);
    fmt::print("{}: {} record{} added, {} replaced by better ones, {} left as they were\n", options.output,
               count.added, ending(static_cast<size_t>(count.added)), count.replaced, count.kept);
}

void add_merge(CLI::App& db) {
    CLI::App* command = db.add_subcommand("merge", "Add the records of files to one");
    auto options = std::make_shared<MergeOptions>();
    command->add_option("file", options->files, "Files of records")->required();
    command->add_option("--output,-o", options->output, "File that they are added to; made if it isn't there")
        ->required();
    command->footer(
        "Example:\n  attnc db merge shard1.jsonl shard2.jsonl -o attnc.tuning.jsonl\n"
        "Of two records for the same layer, sizes, target, threads and machine the better one stays, "
        "whatever the "
        "order.");
    command->callback([options] { merge(*options); });
}

// ---- list

struct ListOptions {
    std::vector<std::string> files;
    std::string config;
    std::string target;
};

std::string milliseconds(const TuningRecord& record, const Sizes& sizes) {
    const auto call = record.calls.find(to_string(sizes));
    if (call == record.calls.end()) return "not timed";
    return fmt::format("{:.4g} ms +-{:.1f} % (probe {:.4g} GFLOP/s)", call->second.ms,
                       100 * call->second.spread, call->second.probe_gflops);
}

std::string threads_text(const TuningRecord& record) {
    if (is_of_device(record)) return "";
    return fmt::format("{} thread{}  ", record.threads, ending(static_cast<size_t>(record.threads)));
}

std::string assembled_text(const AssembledKernel& kernel) {
    return fmt::format("{} registers, {} bytes spilled, {} bytes of shared memory", kernel.registers,
                       kernel.spill_bytes, kernel.shared_bytes);
}

void list(const ListOptions& options) {
    const std::string config = options.config.empty() ? "" : to_string(parse_config(options.config));
    for (const fs::path& file : chosen_files(options.files)) {
        const TuningDatabase database = load_database(file);
        fmt::print("{}: {} record{}\n", file.string(), database.size(), ending(database.size()));
        for (const TuningRecord& record : database.records()) {
            if (!config.empty() && to_string(record.config) != config) continue;
            if (!options.target.empty() && record.target != options.target) continue;
            fmt::print("{}  {}  {}{}  {}  attnc {}  {}\n", to_string(record.config), record.target,
                       threads_text(record), record.effort, record.date.substr(0, 10), record.attnc,
                       record.machine.cpu);
            for (const Sizes& sizes : record.sizes) {
                fmt::print("  {:<20}{}\n", to_string(sizes), milliseconds(record, sizes));
            }
            for (const auto& [kernel, result] : record.kernels) {
                if (result.assembled) fmt::print("  {:<20}{}\n", kernel, assembled_text(*result.assembled));
            }
        }
    }
}

void add_list(CLI::App& db) {
    CLI::App* command = db.add_subcommand("list", "List records with what was measured");
    auto options = std::make_shared<ListOptions>();
    command->add_option("file", options->files,
                        "Files of records; default: the project's attnc.tuning.jsonl");
    command->add_option("--config", options->config, "Only those of this layer: d512_h8_f32");
    command->add_option("--target", options->target, "Only those of this instruction set, or device");
    command->footer("Example:\n  attnc db list attnc.tuning.jsonl --config d512_h8_f32");
    command->callback([options] { list(*options); });
}

// ---- check

struct CheckOptions {
    std::vector<std::string> files;
    std::string kernel_cache;
    int jobs = 0;
};

// Compiles kernels of records, those that are alike once.
class Checker {
public:
    explicit Checker(const CheckOptions& options)
        : folder_(system_temporary_folder()),
          attnc_(own_installation().command),
          versions_(versions_of(attnc_)) {
        workers_.attnc = attnc_;
        workers_.cache =
            options.kernel_cache.empty() ? folder_.path() / "kernels" : fs::path(options.kernel_cache);
        workers_.folder = folder_.path();
        workers_.jobs = options.jobs;
    }
    CheckedRecord check(const TuningRecord& record) const {
        return check_record(record, versions_, workers_);
    }

private:
    TemporaryFolder folder_;
    fs::path attnc_;
    CompilerVersions versions_;
    WorkerOptions workers_;
};

void check(const CheckOptions& options) {
    const Checker checker(options);
    std::map<RecordState, size_t> counts;
    for (const fs::path& file : chosen_files(options.files)) {
        const std::vector<TuningRecord> records = load_database(file).records();
        fmt::print("{}: {} record{}\n", file.string(), records.size(), ending(records.size()));
        Progress progress("checking records");
        std::string lines;
        for (size_t i = 0; i < records.size(); ++i) {
            const CheckedRecord checked = checker.check(records[i]);
            ++counts[checked.state];
            lines +=
                fmt::format("  {:<11}{} for {}{}{}\n", state_name(checked.state), describe_record(records[i]),
                            records[i].target, checked.reason.empty() ? "" : ": ", checked.reason);
            progress.show(static_cast<int>(i + 1), static_cast<int>(records.size()));
        }
        fmt::print("{}", lines);
    }
    fmt::print("{} ok, {} unverified, {} invalid\n", counts[RecordState::kOk],
               counts[RecordState::kUnverified], counts[RecordState::kInvalid]);
    if (counts[RecordState::kInvalid] > 0) throw CLI::RuntimeError(1);
}

void add_check(CLI::App& db) {
    CLI::App* command =
        db.add_subcommand("check", "Compile the kernels of records and compare them with what was measured");
    auto options = std::make_shared<CheckOptions>();
    command->add_option("file", options->files,
                        "Files of records; default: the project's attnc.tuning.jsonl");
    command->add_option("--jobs,-j", options->jobs, "Worker processes at a time; default: one per CPU")
        ->check(CLI::Range(1, 1024));
    command->add_option("--kernel-cache", options->kernel_cache, "Folder that keeps compiled kernels")
        ->envname("ATTNC_KERNEL_CACHE");
    command->footer(
        "Example:\n  attnc db check attnc.tuning.jsonl\n"
        "ok: every kernel is, byte for byte, the one that was measured. unverified: the schedule is valid, "
        "but this "
        "attnc\n"
        "makes other code of it; builds use it all the same. invalid: the schedule is refused, and builds "
        "pass it "
        "over;\n"
        "then the exit code is 1.");
    command->callback([options] { check(*options); });
}

// ---- prune

struct PruneOptions {
    std::string file;
    bool covered = false;
    bool unverified = false;
    bool dry_run = false;
    CheckOptions check;
};

// Another record of the same layer, target, machine and threads that was tuned for all of its sizes; null: none.
const TuningRecord* covering(const TuningRecord& record, const std::vector<TuningRecord>& records) {
    TuningRecord same = record;
    for (const TuningRecord& other : records) {
        const auto is_covered = [&](const Sizes& sizes) {
            return std::find(other.sizes.begin(), other.sizes.end(), sizes) != other.sizes.end();
        };
        same.sizes = other.sizes;
        if (other.sizes.size() > record.sizes.size() && record_key(other) == record_key(same) &&
            (is_measured(other) || !is_measured(record)) &&
            std::all_of(record.sizes.begin(), record.sizes.end(), is_covered)) {
            return &other;
        }
    }
    return nullptr;
}

// Why a record is of no use; empty if it is.
std::string uselessness(const TuningRecord& record, const std::vector<TuningRecord>& records,
                        const PruneOptions& options, const Checker* checker) {
    if (std::string refused = refusal_of(record); !refused.empty()) return refused;
    const TuningRecord* other = options.covered ? covering(record, records) : nullptr;
    if (other != nullptr) {
        return fmt::format("another one is tuned for {}", describe_sizes(other->sizes));
    }
    if (!options.unverified) return "";
    const CheckedRecord checked = checker->check(record);
    return checked.state == RecordState::kOk ? "" : checked.reason;
}

void prune(const PruneOptions& options) {
    const fs::path file =
        chosen_files(options.file.empty() ? std::vector<std::string>() : std::vector{options.file}).front();
    const std::unique_ptr<Checker> checker =
        options.unverified ? std::make_unique<Checker>(options.check) : nullptr;
    // Found out without holding the file's lock; what others add meanwhile stays.
    const std::vector<TuningRecord> records = load_database(file).records();
    std::set<std::string> useless;
    for (const TuningRecord& record : records) {
        const std::string reason = uselessness(record, records, options, checker.get());
        if (reason.empty()) continue;
        useless.insert(to_json_line(record));
        fmt::print("{}  {} for {}: {}\n", options.dry_run ? "would go" : "gone", describe_record(record),
                   record.target, reason);
    }
    if (!options.dry_run && !useless.empty()) {
        change_database(file, [&](TuningDatabase& database) {
            for (const TuningRecord& record : database.records()) {
                if (useless.contains(to_json_line(record))) database.erase(record_key(record));
            }
        });
    }
    fmt::print("{}: {} of {} record{} {}\n", file.string(), useless.size(), records.size(),
               ending(records.size()), options.dry_run ? "would be removed" : "removed");
}

void add_prune(CLI::App& db) {
    CLI::App* command = db.add_subcommand("prune", "Remove records whose schedule is refused");
    auto options = std::make_shared<PruneOptions>();
    command->add_option("file", options->file, "File of records; default: the project's attnc.tuning.jsonl");
    command->add_flag("--covered", options->covered,
                      "Also those of which another one is tuned for all sizes and more");
    command->add_flag("--unverified", options->unverified,
                      "Also those whose kernels are not the ones that were measured; compiles them");
    command->add_flag("--dry-run", options->dry_run, "Say which, and leave the file alone");
    command->add_option("--kernel-cache", options->check.kernel_cache, "Folder that keeps compiled kernels")
        ->envname("ATTNC_KERNEL_CACHE");
    command->footer("Example:\n  attnc db prune attnc.tuning.jsonl --dry-run");
    command->callback([options] { prune(*options); });
}

}  // namespace

void add_db_command(CLI::App& app) {
    CLI::App* db = app.add_subcommand("db", "Look after files of tuning records");
    db->require_subcommand(1);
    db->footer("Example:\n  attnc db list attnc.tuning.jsonl");
    add_merge(*db);
    add_list(*db);
    add_prune(*db);
    add_check(*db);
}

}  // namespace attnc
