// Wrong uses of the command, each with its exact message: one line, lower case, exit code 2 (1 where the use is right
// and something is missing).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

struct WrongUse {
    std::string name;
    std::vector<std::string> arguments;
    int exit_code;
    std::string message;
};

class Usage : public testing::TestWithParam<WrongUse> {};

TEST_P(Usage, IsRefusedInOneLine) {
    const WrongUse& use = GetParam();
    const CommandResult result = run_attnc(use.arguments);
    EXPECT_EQ(result.output, "attnc: " + use.message + "\n");
    EXPECT_EQ(result.exit_code, use.exit_code);
}

const WrongUse kCommand[] = {
    {"NoCommand", {}, 2, "a subcommand is required"},
    {"UnknownCommand",
     {"frob"},
     2,
     "no command 'frob': it is one of build, show, verify, bench, weights, explain, list, db, generate, "
     "tune"},
    {"UnknownOption", {"list", "--frob"}, 2, "the following argument was not expected: --frob"},
};

const WrongUse kTune[] = {
    {"NoProblem", {"tune"}, 2, "problem is required"},
    {"NoSizes",
     {"tune", "d512_h8_f32"},
     2,
     "problem 'd512_h8_f32' has no sizes: d512_h8_f32:b32_q50_kv50, say"},
    {"NoKeys", {"tune", "d512_h8_f32:b1_q5_kv0"}, 2, "problem 'd512_h8_f32:b1_q5_kv0' has nothing to time"},
    {"UnknownEffort",
     {"tune", "d512_h8_f32:b1_q5", "--effort", "hard"},
     2,
     "effort 'hard' is not one of estimate, quick, measure, patient"},
    {"UnknownTime",
     {"tune", "d512_h8_f32:b1_q5", "--time-limit", "soon"},
     2,
     "time 'soon' is not of the form 90s, 10m or 1.5h"},
    {"ShardBeyondTheEnd",
     {"tune", "d512_h8_f32:b1_q5", "--shard", "4/3"},
     2,
     "shard '4/3' is not of the form 2/3, the second of three"},
    {"UnknownKernel",
     {"tune", "d512_h8_f32_noin_noout_nomask_noprobs:b1_q5", "--kernel", "attend_masked"},
     2,
     "no kernel 'attend_masked' to tune: it is one of attend, attend_guarded, attend_narrow, attend_single"},
    {"ExportWithoutTarget",
     {"tune", "d512_h8_f32:b1_q5", "--export", "runner"},
     2,
     "--export needs --target: the instruction set of the machine that will measure"},
    {"ExportOfNothingToMeasure",
     {"tune", "d512_h8_f32:b1_q5", "--export", "runner", "--target", "x86-64-linux", "--effort", "estimate"},
     2,
     "effort estimate measures nothing that --export could be for"},
    {"ExportAndImport",
     {"tune", "--import", "results.txt", "--export", "runner"},
     2,
     "--export excludes --import"},
    {"ImportOfProblems",
     {"tune", "d512_h8_f32:b1_q5", "--import", "results.txt"},
     2,
     "--import takes no problems: the file says which"},
    {"MpiWithReport",
     {"tune", "d512_h8_f32:b1_q5", "--mpi", "--report", "page.html"},
     2,
     "--mpi excludes --report"},
};

const WrongUse kBuild[] = {
    {"NoOutput", {"build", "d512_h8_f32"}, 2, "--output is required"},
    {"NoConfiguration",
     {"build", "-o", "x"},
     2,
     "no configuration: give --d-model and --num-heads, a problem string, or --hf-config"},
    {"TwoConfigurations",
     {"build", "-o", "x", "d512_h8_f32", "--causal"},
     2,
     "more than one configuration: give sizes, a problem string or --hf-config, not several"},
    {"HeadsDoNotDivide",
     {"build", "-o", "x", "--d-model", "500", "--num-heads", "12"},
     2,
     "d_model 500 is not divisible by num_heads 12"},
    {"NotANumber", {"build", "-o", "x", "--d-model", "wide"}, 2, "could not convert: --d-model = wide"},
    {"LayerWithoutModel",
     {"build", "-o", "x", "d512_h8_f32", "--layer", "encoder.self"},
     2,
     "--layer requires --hf-config"},
    {"NoCacheWithoutModel",
     {"build", "-o", "x", "d512_h8_f32", "--no-cache"},
     2,
     "--no-cache requires --hf-config"},
    {"SizesBesideAModel",
     {"build", "-o", "x", "--hf-config", "/nowhere/config.json", "--causal"},
     2,
     "more than one configuration: give sizes, a problem string or --hf-config, not several"},
    {"NoModelFile",
     {"build", "-o", "x", "--hf-config", "/nowhere/config.json"},
     2,
     "/nowhere/config.json: cannot be read: No such file or directory"},
    {"OtherMachine",
     {"build", "-o", "x", "d512_h8_f32", "--target", "arm-64-linux"},
     2,
     "target 'arm-64-linux' is not supported: it does not start with x86-64-linux, and is neither cpu nor "
     "cuda nor cuda-sm_80"},
    {"UnknownArchitecture",
     {"build", "-o", "x", "d512_h8_f32", "--target", "cuda-sm_81"},
     2,
     "target 'cuda-sm_81' is not supported: sm_81 is not one of sm_70, sm_72, sm_75, sm_80, sm_86, sm_87, "
     "sm_88, sm_89, sm_90, sm_100, sm_103, sm_120, sm_121"},
    {"DeviceTwice",
     {"build", "-o", "x", "d512_h8_f32", "--target", "cuda,cpu,cuda"},
     2,
     "target 'cuda' is given twice"},
    {"CpuInTwoWays",
     {"build", "-o", "x", "d512_h8_f32", "--target", "cpu,x86-64-linux"},
     2,
     "target 'x86-64-linux' is given twice"},
    {"DeviceScheduleWithoutDevice",
     {"build", "-o", "x", "d512_h8_f32", "--cuda-schedule", "panel:64"},
     2,
     "--cuda-schedule is given, but no target cuda"},
    {"CpuScheduleWithoutCpu",
     {"build", "-o", "x", "d512_h8_f32", "--target", "cuda", "--schedule", "panel:32"},
     2,
     "--schedule is given, but no target that is a CPU; a device has --cuda-schedule"},
    {"UnknownCudaScheduleField",
     {"build", "-o", "x", "d512_h8_f32", "--target", "cuda", "--cuda-schedule", "speed:9"},
     2,
     "schedule field 'speed' is unknown"},
    {"BrokenCudaSchedule",
     {"build", "-o", "x", "d512_h8_f32", "--target", "cuda", "--cuda-schedule", "attend.depth:24"},
     2,
     "the padded head_dim 64 is not a multiple of attend.depth, 24"},
    {"UnknownFeature",
     {"build", "-o", "x", "d512_h8_f32", "--target", "x86-64-linux-avx512_zen4"},
     2,
     "target 'x86-64-linux-avx512_zen4' is not supported: 'avx512_zen4' is not one of sse41, avx, f16c, fma, "
     "avx2, "
     "avx512_skylake"},
    {"TargetTwice",
     {"build", "-o", "x", "d512_h8_f32", "--target", "x86-64-linux", "--target", "x86-64-linux"},
     2,
     "target 'x86-64-linux' is given twice"},
    {"UnknownScheduleField",
     {"build", "-o", "x", "d512_h8_f32", "--schedule", "speed:9"},
     2,
     "schedule field 'speed' is unknown"},
    {"NoIdentifier",
     {"build", "-o", "x", "d512_h8_f32", "--name", "9a"},
     2,
     "library name '9a' is not a C identifier: a letter, then letters, digits and underscores"},
    {"NoJobs",
     {"build", "-o", "x", "d512_h8_f32", "--jobs", "0"},
     2,
     "--jobs: value 0 not in range 1 to 1024"},
    {"UnknownEmit",
     {"build", "-o", "x", "d512_h8_f32", "--emit", "wasm"},
     2,
     "--emit: wasm not in {asm,stmt,llvm}"},
    {"OutputIsNoFolder",
     {"build", "-o", "/dev/null", "d32_h2_f32"},
     1,
     "cannot make folder /dev/null: Not a directory"},
};

const WrongUse kOther[] = {
    {"ShowNothing", {"show"}, 2, "library is required"},
    {"ShowMissing", {"show", "/nowhere/liba.a"}, 1, "cannot read /nowhere/liba.a: No such file or directory"},
    {"ShowOther", {"show", "/dev/null"}, 1, "/dev/null is neither a library nor a manifest of attnc"},
    {"BenchNothing", {"bench"}, 2, "problem is required"},
    {"BenchWithoutSizes",
     {"bench", "d512_h8_f32"},
     2,
     "problem 'd512_h8_f32' has no sizes: d512_h8_f32:b32_q50_kv50, say"},
    {"BenchWithoutRows", {"bench", "d512_h8_f32:b0_q5"}, 2, "problem 'd512_h8_f32:b0_q5' has no rows"},
    {"BenchNoThreads",
     {"bench", "d512_h8_f32:b1_q5", "--threads", "0"},
     2,
     "--threads: value 0 not in range 1 to 1024"},
    {"VerifyNothing", {"verify"}, 2, "give a library or --cases, one of them"},
    {"VerifyBoth", {"verify", "liba.a", "--cases", "x"}, 2, "give a library or --cases, one of them"},
    {"VerifyMissing",
     {"verify", "/nowhere/liba.a"},
     1,
     "cannot read /nowhere/liba.a: No such file or directory"},
    {"VerifyNoCases",
     {"verify", "--cases", "/nowhere"},
     1,
     "cannot read /nowhere: No such file or directory"},
    {"WeightsNothing", {"weights"}, 2, "--hf-config is required"},
    {"WeightsNoModelFile",
     {"weights", "--hf-config", "/nowhere/config.json", "--layer", "0", "--checkpoint", "x", "-o", "y"},
     2,
     "/nowhere/config.json: cannot be read: No such file or directory"},
    {"ExplainNothing", {"explain"}, 2, "problem is required"},
    {"ExplainNoDatabase",
     {"explain", "d512_h8_f32", "--db", "/nowhere/x.jsonl"},
     1,
     "cannot read /nowhere/x.jsonl: No such file or directory"},
    {"ListTwoThings",
     {"list", "--targets", "--kernels"},
     2,
     "requires at most 1 options be given from [--targets,--schedules,--kernels]"},
    {"WorkerUnknownKernel",
     {"compile-kernel", "--kernel", "frob", "--target", "x86-64-linux"},
     1,
     "no generator 'frob'"},
};

const WrongUse kDatabase[] = {
    {"Nothing", {"db"}, 2, "a subcommand is required"},
    {"UnknownCommand", {"db", "frob"}, 2, "no command 'frob': it is one of merge, list, prune, check"},
    {"MergeNothing", {"db", "merge", "-o", "x"}, 2, "file is required"},
    {"MergeWithoutOutput", {"db", "merge", "a.jsonl"}, 2, "--output is required"},
    {"MergeMissing",
     {"db", "merge", "/nowhere/a.jsonl", "-o", "x"},
     1,
     "cannot read /nowhere/a.jsonl: No such file or directory"},
    {"MergeToAFolder",
     {"db", "merge", "/dev/null", "-o", "/"},
     1,
     "cannot read /dev/null: it is not a plain file"},
    {"ListMissing", {"db", "list", "/nowhere/a"}, 1, "cannot read /nowhere/a: No such file or directory"},
    {"ListFolder", {"db", "list", "/"}, 1, "cannot read /: it is not a plain file"},
    {"ListOtherLayer",
     {"db", "list", "--config", "d500_h12_f32"},
     2,
     "d_model 500 is not divisible by num_heads 12"},
    {"CheckMissing", {"db", "check", "/nowhere/a"}, 1, "cannot read /nowhere/a: No such file or directory"},
    {"PruneMissing", {"db", "prune", "/nowhere/a"}, 1, "cannot read /nowhere/a: No such file or directory"},
    {"NoProject", {"db", "list"}, 2, "no database: give files, there is no attnc.tuning.jsonl here"},
    {"RecordsAndNone",
     {"build", "d512_h8_f32", "-o", "x", "--db", "a", "--no-records"},
     2,
     "--db excludes --no-records"},
    {"TunedForNothing",
     {"build", "d512_h8_f32", "-o", "x", "--tuned-for", "wide"},
     2,
     "sizes 'wide' are not of the form b<batch>_q<seq_q>_kv<seq_kv>"},
    {"TunedForNoRows",
     {"build", "d512_h8_f32", "-o", "x", "--tuned-for", "b1_q128,b0_q1"},
     2,
     "sizes 'b0_q1' have no rows"},
};

std::string name_of(const testing::TestParamInfo<WrongUse>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Command, Usage, testing::ValuesIn(kCommand), name_of);
INSTANTIATE_TEST_SUITE_P(Build, Usage, testing::ValuesIn(kBuild), name_of);
INSTANTIATE_TEST_SUITE_P(Database, Usage, testing::ValuesIn(kDatabase), name_of);
INSTANTIATE_TEST_SUITE_P(Tune, Usage, testing::ValuesIn(kTune), name_of);
INSTANTIATE_TEST_SUITE_P(Other, Usage, testing::ValuesIn(kOther), name_of);

TEST(Build, SaysWhichLlvmToolsAreMissing) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc(kSmallBuild + std::vector<std::string>{"-o", folder / "out"}, {{"PATH", "/nowhere"}});
    EXPECT_EQ(
        result.output,
        "attnc: LLVM tools not found on PATH: llvm-mc-19, llvm-objcopy-19, llvm-ar-19, llvm-objdump-19, "
        "ld.lld-19 (Debian packages llvm-19 and lld-19)\n");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(names_in(folder.path()).empty());
}

}  // namespace
}  // namespace attnc::test
