// attnc tune --mpi with a few ranks on this machine: what comes back, and what is lost with a rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

#include "compiler/database_file.h"
#include "compiler/files.h"
#include "compiler/installation.h"
#include "compiler/rank_link.h"
#include "compiler/subprocess.h"
#include "tests/command/attnc_process.h"
#include "tests/command/run_attnc.h"
#include "tuner/journal.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::ContainsRegex;
using testing::HasSubstr;

const Strings kProblems = {"d16_h1_f32_nomask_noprobs:b1_q8_kv8", "d32_h2_f32_nomask_noprobs:b1_q20_kv20",
                           "d48_h3_f32_nomask_noprobs:b1_q8_kv8"};

bool has_module() { return fs::exists(installation_of(attnc_command()).mpi_module); }

std::string why_not() {
    if (!has_module()) return "attnc was built without MPI (Debian package libopenmpi-dev)";
    if (find_program("mpirun").empty()) return "mpirun is not there (Debian package openmpi-bin)";
    return "";
}

Strings mpirun(int ranks) {
    return {find_program("mpirun"), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
            std::to_string(ranks)};
}

Strings tuning(const TestFolder& folder) {
    return Strings{attnc_command().string(),
                   "tune",
                   "--mpi",
                   "--target",
                   "x86-64-linux",
                   "--effort",
                   "quick",
                   "--kernel",
                   "project_out",
                   "--schedule",
                   "project_out.rows:1,project_out_tail.rows:0",
                   "--kernel-cache",
                   test_kernel_cache().string(),
                   "--db",
                   folder / "db"} +
           kProblems;
}

std::set<std::string> layers_in(const std::string& database) {
    std::set<std::string> layers;
    for (const TuningRecord& record : load_database(database).records())
        layers.insert(to_string(record.config));
    return layers;
}

const std::set<std::string> kLayers = {"d16_h1_f32_nomask_noprobs", "d32_h2_f32_nomask_noprobs",
                                       "d48_h3_f32_nomask_noprobs"};

// ---- Processes of a run

std::string file_of(pid_t pid, const char* name) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

pid_t parent_of(pid_t pid) {
    const std::string stat = file_of(pid, "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) return 0;
    std::istringstream rest(stat.substr(name_end + 1));
    std::string state;
    pid_t parent = 0;
    rest >> state >> parent;
    return parent;
}

bool is_below(pid_t pid, pid_t ancestor) {
    for (int steps = 0; pid > 1 && steps < 20; ++steps, pid = parent_of(pid)) {
        if (pid == ancestor) return true;
    }
    return false;
}

// A process of the run whose command line and environment have these; 0: none.
pid_t find_process(pid_t run, const std::string& argument, const std::string& variable) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const pid_t pid = std::atoi(entry.path().filename().c_str());
        if (pid <= 0 || pid == run || !is_below(pid, run)) continue;
        const std::string environment = std::string(1, '\0') + file_of(pid, "environ");
        const std::string arguments = file_of(pid, "cmdline");
        const bool named = arguments.find(argument + std::string(1, '\0')) != std::string::npos;
        if (named &&
            environment.find(std::string(1, '\0') + variable + std::string(1, '\0')) != std::string::npos)
            return pid;
    }
    return 0;
}

struct MpiRun {
    int status = 0;
    std::string log;
    pid_t killed = 0;
};

// Kills the process that `victim` finds, if any, once trials have come to rank 0.
MpiRun run_and_kill(const TestFolder& folder, const Strings& launcher,
                    const std::function<pid_t(pid_t run)>& victim) {
    const std::string log = folder / "log";
    const pid_t pid = start_program(launcher + tuning(folder), log, [] {});
    MpiRun run;
    for (int wait = 0; victim && run.killed == 0 && wait < 6000; ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::error_code none;
        const auto bytes = fs::file_size(folder / "db.journal", none);
        if (none || bytes == 0) continue;
        run.killed = victim(pid);
        if (run.killed > 0) ::kill(run.killed, SIGKILL);
    }
    run.status = wait_for(pid);
    run.log = contents(log);
    return run;
}

#define SKIP_WITHOUT_MPI() \
    if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason

TEST(TuneMpi, RankZeroKeepsWhatTheOthersFind) {
    SKIP_WITHOUT_MPI();
    const TestFolder folder;
    const MpiRun run = run_and_kill(folder, mpirun(3), {});
    ASSERT_TRUE(WIFEXITED(run.status) && WEXITSTATUS(run.status) == 0) << run.log;
    EXPECT_EQ(layers_in(folder / "db"), kLayers);
    EXPECT_GT(Journal(folder / "db.journal").size(), 0U);
    // Two cores: a rank has one. One core: a rank is in reserve.
    if (std::thread::hardware_concurrency() == 2) {
        EXPECT_THAT(run.log, ContainsRegex("rank 1 on .* begins with .* on cpu 0,"));
        EXPECT_THAT(run.log, ContainsRegex("rank 2 on .* begins with .* on cpu 1,"));
    }
    // The next run measures nothing again.
    const std::string before = contents(folder / "db.journal");
    const MpiRun again = run_and_kill(folder, mpirun(2), {});
    EXPECT_THAT(again.log, HasSubstr(" of them measured before"));
    EXPECT_EQ(contents(folder / "db.journal"), before);
}

TEST(TuneMpi, ATunerThatIsKilledCostsItsTrialAlone) {
    SKIP_WITHOUT_MPI();
    const TestFolder folder;
    const MpiRun run = run_and_kill(folder, mpirun(4), [](pid_t mpi) {
        return find_process(mpi, "--under-rank", "OMPI_COMM_WORLD_RANK=1");
    });
    ASSERT_GT(run.killed, 0) << run.log;
    ASSERT_TRUE(WIFEXITED(run.status) && WEXITSTATUS(run.status) == 0) << run.log;
    EXPECT_THAT(run.log, ContainsRegex("rank 1 on .* lost .*: the tuner ended with signal 9 .Killed."));
    EXPECT_EQ(layers_in(folder / "db"), kLayers);
}

TEST(TuneMpi, TheWorkOfARankThatIsKilledGoesToAnother) {
    SKIP_WITHOUT_MPI();
    const TestFolder folder;
    pid_t tuner = 0;
    Strings recovering = mpirun(3);
    recovering.emplace_back("--enable-recovery");  // otherwise mpirun ends them all
    const MpiRun run = run_and_kill(folder, recovering, [&](pid_t mpi) {
        tuner = find_process(mpi, "--under-rank", "OMPI_COMM_WORLD_RANK=1");
        return tuner > 0 ? find_process(mpi, "--mpi", "OMPI_COMM_WORLD_RANK=1") : 0;
    });
    ASSERT_GT(run.killed, 0) << run.log;
    ASSERT_TRUE(WIFEXITED(run.status) && WEXITSTATUS(run.status) == 0) << run.log;
    EXPECT_THAT(run.log, ContainsRegex("rank 1 is lost: silent for [0-9]+ s"));
    EXPECT_EQ(layers_in(folder / "db"), kLayers);
    EXPECT_EQ(file_of(tuner, "cmdline").find("--under-rank"), std::string::npos) << "its tuner runs on";
}

TEST(TuneMpi, ALayerThatCannotBeTunedIsSaidAndTheOthersAreDone) {
    SKIP_WITHOUT_MPI();
    const TestFolder folder;
    const ProcessResult result = run_process(
        mpirun(2) + Strings{attnc_command().string(), "tune", "--mpi", "--effort", "estimate", "--target",
                            "x86-64-linux-avx512_unknown", "--db", folder / "db", kProblems[0]},
        std::chrono::seconds(120));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("rank 1 on "));
    EXPECT_THAT(result.output,
                HasSubstr("takes no part: target 'x86-64-linux-avx512_unknown' is not supported"));
    EXPECT_THAT(result.output, HasSubstr("attnc: 1 of 1 layers are not tuned: no rank is left to do it\n"));
}

TEST(RankMessage, SaysWhatWasSaid) {
    RankMessage message;
    message.kind = RankMessage::Kind::kWork;
    message.work = 3;
    message.all_there = false;
    message.text = "a \"b\"\n", message.host = "h", message.target = "t", message.versions = "v";
    message.machine = {.cpu = "c", .cpus = 2, .l1d_bytes = 3, .l2_bytes = 4, .l3_bytes = 5};
    message.cores = {{0, 4}, {1}};
    message.arguments = {"--effort", "quick"};
    message.lines = {"{}", ""};
    const RankMessage read = parse_rank_message(to_json(message));
    EXPECT_EQ(to_json(read), to_json(message));
    EXPECT_EQ(read.cores, message.cores);
    EXPECT_EQ(read.machine, message.machine);
    for (const char* damaged : {"", "{", "[]", "{\"kind\":1}", "{\"kind\":99}"})
        EXPECT_EQ(parse_rank_message(damaged).kind, RankMessage::Kind::kDamaged) << damaged;
}

TEST(TuneMpi, WithoutTheModuleItSaysSo) {
    const TestFolder folder;
    const Installation own = installation_of(attnc_command());
    fs::create_directories(folder / "bin");
    fs::create_directories(folder / "lib");
    fs::create_hard_link(own.command, folder / "bin/attnc");
    fs::create_symlink(own.runtime_archive, folder / "lib/libattnc_runtime.a");
    fs::create_symlink(own.include_folder, folder / "include");
    const ProcessResult result =
        run_process({folder / "bin/attnc", "tune", "--mpi", "--db", folder / "db", kProblems[0]},
                    std::chrono::seconds(60));
    EXPECT_EQ(result.output,
              "attnc: this attnc was built without MPI (Debian package libopenmpi-dev), which --mpi needs\n");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_FALSE(fs::exists(folder / "db"));
}

TEST(TuneMpi, OneRankIsTooFew) {
    SKIP_WITHOUT_MPI();
    const TestFolder folder;
    const ProcessResult result = run_process(mpirun(1) + tuning(folder), std::chrono::seconds(60));
    EXPECT_THAT(result.output,
                HasSubstr("attnc: --mpi has no rank to measure on: start it as mpirun -n 3 attnc tune "
                          "--mpi, of which two measure\n"));
    EXPECT_EQ(result.exit_code, 2);
}

}  // namespace
}  // namespace attnc::test
