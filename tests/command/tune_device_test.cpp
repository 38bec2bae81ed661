// attnc tune for devices on the smallest layer: what it keeps without a device, which builds and commands then know; with an
// assembler of the test's own, so that it runs where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler/database_file.h"
#include "compiler/files.h"
#include "compiler/subprocess.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tool_folder.h"
#include "tests/command/tuned_records.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Strings = std::vector<std::string>;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kConfig = "d32_h2_f32_nomask_noprobs";
const std::string kProblem = kConfig + ":b1_q20_kv20";

// An assembler that reports so many bytes for kernels of this name, none for others.
ToolFolder& with_spills(ToolFolder& tools, int spills, const std::string& kernel) {
    tools.add_ptxas("spills=0; case \"$2\" in *" + kernel + "*) spills=" + std::to_string(spills) +
                        "; esac\n"
                        "echo cubin > $4\n"
                        "echo \"    8 bytes stack frame, $spills bytes spill stores, 0 bytes spill loads\"\n"
                        "echo 'ptxas info    : Used 40 registers, used 1 barriers, 400 bytes cmem[0]'",
                    kernel + "." + std::to_string(spills));
    return tools;
}

Strings tune_for(const std::string& targets, const TestFolder& folder) {
    return {"tune", kProblem, "--target", targets, "--effort", "estimate", "--db", folder / "db"};
}

std::vector<TuningRecord> records_in(const std::string& file) { return load_database(file).records(); }

TEST(TuneDevice, KeepsAnEstimatedRecordOfEachArchitecture) {
    const TestFolder folder;
    ToolFolder tools;
    const CommandResult result = run_attnc(tune_for("cuda-sm_80,cuda-sm_90,cuda", folder),
                                           with_spills(tools, 0, "none").environment());
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, StartsWith(kConfig + " at b1_q20_kv20 on cuda-sm_80 (NVIDIA A100), estimate\n"
                                                    "  start: built-in default\n"
                                                    "  project_heads "));
    EXPECT_THAT(result.output,
                HasSubstr("\n" + kConfig + " at b1_q20_kv20 on cuda-sm_90 (NVIDIA H100), estimate\n"));
    EXPECT_THAT(
        result.output,
        ContainsRegex("\n  estimated, nothing timed: a call takes 0\\.[0-9]+ of the start's time by the "
                      "model; kept in .*db\n$"));
    const std::vector<TuningRecord> records = records_in(folder / "db");
    ASSERT_EQ(records.size(), 3U);
    Strings targets;
    for (const TuningRecord& record : records) {
        targets.push_back(record.target);
        EXPECT_EQ(record.effort, "estimate");
        EXPECT_TRUE(record.calls.empty());
        EXPECT_FALSE(is_measured(record));
        ASSERT_TRUE(is_of_device(record));
        EXPECT_EQ(cuda_schedule_fault(*record.cuda_schedule, record.config, {}), "");
        EXPECT_NE(*record.cuda_schedule, default_cuda_schedule(record.config));
        Strings kernels;
        for (const auto& [name, kernel] : record.kernels) {
            kernels.push_back(name);
            EXPECT_EQ(kernel.samples, 0);
            EXPECT_EQ(kernel.assembled.has_value(), record.target != "cuda") << name;
            if (!kernel.assembled) continue;
            EXPECT_EQ(kernel.assembled->registers, 40);
            EXPECT_EQ(kernel.assembled->stack_bytes, 8);
            EXPECT_GT(kernel.assembled->shared_bytes, 0);
        }
        EXPECT_THAT(kernels,
                    ElementsAre("attend", "attend_decode", "attend_guarded", "project_heads", "project_out"));
    }
    EXPECT_THAT(targets, ElementsAre("cuda", "cuda-sm_80", "cuda-sm_90"));
    EXPECT_EQ(records[1].machine.cpu, "NVIDIA A100");
    EXPECT_EQ(records[1].machine.cpus, 108);
    EXPECT_THAT(names_in(folder.path()), ElementsAre("db"));
}

TEST(TuneDevice, DoesWithoutAnAssembler) {
    const TestFolder folder;
    const ToolFolder tools;
    const CommandResult result = run_attnc(tune_for("cuda-sm_80", folder), tools.environment());
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output,
                StartsWith("ptxas is not on PATH: registers and spills are the model's alone\n"));
    const std::vector<TuningRecord> records = records_in(folder / "db");
    ASSERT_EQ(records.size(), 1U);
    EXPECT_FALSE(records.front().kernels.at("attend").assembled);
}

TEST(TuneDevice, DropsWhatSpillsMoreThanIsAllowed) {
    const TestFolder folder;
    ToolFolder tools;
    const Strings command = tune_for("cuda-sm_80", folder) + Strings{"--kernel", "project_heads"};
    const CommandResult result = run_attnc(command, with_spills(tools, 17, "project_heads").environment());
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("  start: built-in default\n"
                                         "  dropped: project_heads: ptxas spills 17 bytes, 16 are allowed\n"
                                         "  dropped: project_heads: ptxas spills 17 bytes, 16 are allowed\n"
                                         "  given up: project_heads with as many sums for each thread\n"));
    EXPECT_THAT(result.output,
                HasSubstr("\n  project_heads  the start's\n"
                          "  estimated, nothing timed: a call takes 1.000 of the start's time"));
    const TuningRecord record = records_in(folder / "db").front();
    EXPECT_EQ(*record.cuda_schedule, default_cuda_schedule(record.config));
    // The start's is in use whatever it spills.
    EXPECT_EQ(record.kernels.at("project_heads").assembled->spill_bytes, 17);
}

TEST(TuneDevice, TakesWhatSpillsAsLittleAsIsAllowed) {
    const TestFolder folder;
    ToolFolder tools;
    const Strings command = tune_for("cuda-sm_80", folder) + Strings{"--kernel", "project_heads"};
    const CommandResult result = run_attnc(command, with_spills(tools, 16, "project_heads").environment());
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, Not(HasSubstr("dropped")));
    const TuningRecord record = records_in(folder / "db").front();
    EXPECT_NE(*record.cuda_schedule, default_cuda_schedule(record.config));
    EXPECT_EQ(record.kernels.at("project_heads").assembled->spill_bytes, 16);
}

TEST(TuneDevice, SaysWhatItCannotDo) {
    const TestFolder folder;
    const auto said = [&](const Strings& command) {
        const CommandResult result = run_attnc(command);
        EXPECT_NE(result.exit_code, 0);
        return result.output;
    };
    const Strings device = {"tune", kProblem, "--target", "cuda-sm_80,cuda-sm_90", "--db", folder / "db"};
    EXPECT_THAT(
        said(device),
        StartsWith("attnc: effort measure measures, and no device is there for cuda-sm_80,cuda-sm_90: "
                   "--effort estimate does without\n"));
    EXPECT_THAT(said(device + Strings{"--effort", "quick"}),
                StartsWith("attnc: effort quick measures, and no device"));
    EXPECT_THAT(said(tune_for("cuda-sm_80,x86-64-linux", folder)),
                StartsWith("attnc: tune takes one instruction set, or devices: cuda-sm_80,cuda-sm_90\n"));
    EXPECT_THAT(said(tune_for("cuda-sm_81", folder)),
                StartsWith("attnc: target 'cuda-sm_81' is not supported: sm_81 is not one of sm_70, "));
    EXPECT_THAT(
        said(tune_for("cuda-sm_80", folder) + Strings{"--kernel", "attend_narrow"}),
        StartsWith("attnc: no kernel 'attend_narrow' to tune for a device: it is one of project_heads, "
                   "project_out, attend, attend_masked, attend_decode\n"));
    EXPECT_THAT(said(tune_for("cuda-sm_80", folder) + Strings{"--report", folder / "page"}),
                StartsWith("attnc: --mpi, --export, --report, --random and --detuned are for CPUs: nothing "
                           "is run for a device\n"));
    EXPECT_THAT(said(tune_for("cuda-sm_80", folder) + Strings{"--schedule", "tile_kv:48"}),
                StartsWith("attnc: split_kv 512 is not a multiple of tile_kv, 48\n"));
    EXPECT_THAT(
        said(tune_for("cuda-sm_80", folder) + Strings{"--lookup-only"}),
        HasSubstr("attnc: no record of " + kConfig + " for cuda-sm_80, and --lookup-only searches none\n"));
    EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

// ---- Records of devices, in all that reads them

TuningRecord device_record(const std::string& target, int64_t split_kv) {
    TuningRecord record = small_record(32);
    record.target = target;
    record.machine = {
        .cpu = "Test device", .cpus = 10, .l1d_bytes = 65536, .l2_bytes = 1048576, .l3_bytes = 0};
    record.cuda_schedule = default_cuda_schedule(record.config);
    record.cuda_schedule->layout.split_kv = split_kv;
    record.calls.clear();
    record.effort = "estimate";
    return record;
}

constexpr const char* kDescription =
    "d32_h2_f32_nomask_noprobs at b1_q40_kv40 on Test device, estimate, 2026-03-01";

Strings build_for(const std::string& targets, const TestFolder& folder) {
    return {"build", kConfig,       "--name", "tuned", "--target", targets, "--db", folder / "my.jsonl",
            "-o",    folder / "out"};
}

TEST(DeviceRecords, AreTakenByBuildsForTheirArchitecture) {
    const TestFolder folder;
    const ToolFolder tools;
    tools.add_ptxas("echo cubin > $4", "records");
    write_file(folder / "my.jsonl",
               line_of(device_record("cuda-sm_80", 1024)) + line_of(device_record("cuda-sm_90", 2048)));
    const CommandResult result =
        run_attnc(build_for("x86-64-linux,cuda-sm_80,cuda-sm_90", folder), tools.environment());
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const Json manifest = Json::parse(contents(folder / "out/tuned.json"));
    EXPECT_EQ(manifest.at("targets").at(0).at("record"), Json());
    const Json& device = manifest.at("device");
    EXPECT_EQ(device.at("layout").at("split_kv"), 2048);
    EXPECT_EQ(device.at("schedule_origin"), std::string("record of my.jsonl: ") + kDescription);
    const Json expected = {{"origin", "--db"},
                           {"file", "my.jsonl"},
                           {"config", kConfig},
                           {"tuned_for", {"b1_q40_kv40"}},
                           {"target", "cuda-sm_90"},
                           {"device", "Test device"},
                           {"effort", "estimate"},
                           {"date", "2026-03-01T12:00:00Z"},
                           {"attnc", "0.1.0"},
                           {"state", "unverified"},
                           {"reason", "it has no hash of a kernel to compare"}};
    EXPECT_EQ(device.at("record"), expected);
    EXPECT_THAT(
        run_attnc({"show", folder / "out/libtuned.a"}).output,
        HasSubstr("(record of my.jsonl: " + std::string(kDescription) +
                  ")\n  record    unverified: it has no hash of a kernel to compare\n  code      PTX; "));
    // PTX alone is of none of these.
    ASSERT_EQ(run_attnc(build_for("cuda", folder)).exit_code, 0);
    const Json ptx = Json::parse(contents(folder / "out/tuned.json")).at("device");
    EXPECT_EQ(ptx.at("schedule_origin"), "built-in default");
    EXPECT_EQ(ptx.at("record"), Json());
}

TEST(DeviceRecords, AreExplained) {
    const TestFolder folder;
    write_file(folder / "my.jsonl",
               line_of(device_record("cuda-sm_80", 1024)) + line_of(device_record("cuda-sm_90", 2048)));
    const std::string description = kDescription;
    EXPECT_THAT(
        run_attnc({"explain", kConfig, "--target", "cuda-sm_80,cuda-sm_90", "--db", folder / "my.jsonl"})
            .output,
        StartsWith(kConfig + "\n\ncuda: record of my.jsonl: " + description +
                   "\n  -> --db my.jsonl: " + description + "; passed over: " + description +
                   " for cuda-sm_80 (a library has one schedule for a device, that of cuda-sm_90)\n"
                   "  record unverified: it has no hash of a kernel to compare\n"));
}

TEST(DeviceRecords, AreLookedUpWithoutASearch) {
    const TestFolder folder;
    write_file(folder / "db", line_of(device_record("cuda-sm_80", 1024)));
    const CommandResult result = run_attnc(tune_for("cuda-sm_80", folder) + Strings{"--lookup-only"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, StartsWith(kProblem.substr(0, kConfig.size()) +
                                          " at b1_q20_kv20 on cuda-sm_80\n  -> --db db: " + kDescription +
                                          "\n  panel:128,out_panel:128,"));
}

TEST(DeviceRecords, AreListedMergedAndPruned) {
    const TestFolder folder;
    TuningRecord record = device_record("cuda-sm_80", 1024);
    record.kernels["attend"] = {
        .object_hash = std::string(32, '0'),
        .assembled =
            AssembledKernel{.registers = 40, .spill_bytes = 4, .stack_bytes = 8, .shared_bytes = 2048}};
    TuningRecord refused = device_record("cuda-sm_90", 1024);
    refused.cuda_schedule->layout.tile_kv = 7;
    write_file(folder / "a", line_of(record) + line_of(small_record(32)));
    write_file(folder / "b", line_of(refused));
    EXPECT_EQ(run_attnc({"db", "merge", folder / "a", folder / "b", "-o", folder / "db"}).output,
              folder / "db: 3 records added, 0 replaced by better ones, 0 left as they were\n");
    EXPECT_EQ(run_attnc({"db", "list", folder / "db", "--target", "cuda-sm_80"}).output,
              folder / "db: 3 records\n" + kConfig +
                  "  cuda-sm_80  estimate  2026-03-01  attnc 0.1.0  Test device\n"
                  "  b1_q40_kv40         not timed\n"
                  "  attend              40 registers, 4 bytes spilled, 2048 bytes of shared memory\n");
    EXPECT_EQ(run_attnc({"db", "prune", folder / "db"}).output,
              std::string("gone  ") + kDescription + " for cuda-sm_90: tile_kv 7 is outside 16..512\n" +
                  (folder / "db: 1 of 3 records removed\n"));
    EXPECT_EQ(contents(folder / "db"), line_of(record) + line_of(small_record(32)));
}

TEST(DeviceRecords, AreCheckedByTheirCode) {
    const TestFolder folder;
    ASSERT_EQ(run_attnc(tune_for("cuda", folder)).exit_code, 0);
    EXPECT_THAT(run_attnc({"db", "check", folder / "db"}).output,
                HasSubstr("\n1 ok, 0 unverified, 0 invalid\n"));
    TuningRecord record = records_in(folder / "db").front();
    record.kernels.at("attend").object_hash = std::string(32, '0');
    write_file(folder / "db", line_of(record));
    EXPECT_THAT(run_attnc({"db", "check", folder / "db"}).output,
                HasSubstr(" for cuda: estimated with other code of attend\n"));
    record.kernels["attend_masked"] = record.kernels.at("attend");
    write_file(folder / "db", line_of(record));
    EXPECT_THAT(run_attnc({"db", "check", folder / "db"}).output,
                HasSubstr(": its layer has no kernel attend_masked\n"));
}

// A runner measures on CPUs alone.
TEST(DeviceRecords, AreNoResultsOfARunner) {
    const TestFolder folder;
    write_file(folder / "results", "attnc tuning results 1\n" + line_of(device_record("cuda", 1024)));
    EXPECT_THAT(run_attnc({"tune", "--import", folder / "results", "--db", folder / "db"}).output,
                HasSubstr("results:2: target 'cuda' is not one of an x86-64 CPU\n"));
}

}  // namespace
}  // namespace attnc::test
