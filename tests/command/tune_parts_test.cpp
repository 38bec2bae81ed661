// What the tuner stands on: how long, what is timed where, how a candidate fails.
#include "compiler/tune_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "compiler/files.h"
#include "compiler/inner_loop_cost.h"
#include "compiler/installation.h"
#include "compiler/kernel_workers.h"
#include "compiler/library_plan.h"
#include "compiler/subprocess.h"
#include "compiler/tune_builder.h"
#include "compiler/tune_display.h"
#include "compiler/tune_efforts.h"
#include "compiler/tune_here.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kTarget = "x86-64-linux";
const Config& small() {
    static const Config config = parse_config("d32_h2_f32_nomask_noprobs");
    return config;
}

std::string error_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "no error";
}

TEST(Duration, IsReadWithAUnit) {
    EXPECT_EQ(parse_duration("90"), 90);
    EXPECT_EQ(parse_duration("1.5h"), 5400);
    EXPECT_EQ(parse_duration("10m"), 600);
    EXPECT_EQ(parse_duration("30s"), 30);
    for (const std::string bad : {"", "m", "-3s", "0", "1e300h", "nan", "inf", "10 m", "10d", "5mm"})
        EXPECT_EQ(error_of([&] { parse_duration(bad); }),
                  "time '" + bad + "' is not of the form 90s, 10m or 1.5h");
    EXPECT_EQ(duration_text(200), "3:20");
    EXPECT_EQ(duration_text(3905), "1:05:05");
    EXPECT_EQ(duration_text(-1), "0:00");
}

// The longest that there is.
TEST(ProgressText, FitsALineOfATerminal) {
    TuneEvent event = {.part = "attend_masked", .candidate = "", .result = {}};
    event.best_ratio = 0.98765, event.trial = 123, event.expected = 456, event.seconds_left = 35999;
    EXPECT_EQ(progress_text(event, 0.876),
              "attend_masked: best 0.988, 0.88 of peak, trial 123 of about 579, 9:59:59 left");
    EXPECT_LT(progress_text(event, 0.876).size(), 80U);
    event.seconds_left = std::numeric_limits<double>::infinity();
    EXPECT_EQ(progress_text(event, 0.876), "attend_masked: best 0.988, 0.88 of peak, trial 123 of about 579");
}

TEST(Effort, GrowsFromNameToName) {
    EXPECT_FALSE(effort_by_name("estimate").measures);
    const Effort quick = effort_by_name("quick"), measure = effort_by_name("measure"),
                 patient = effort_by_name("patient");
    EXPECT_LT(quick.first, measure.first);
    EXPECT_LT(measure.first, patient.first);
    EXPECT_LE(quick.part_seconds, 60);
    EXPECT_LT(patient.part_seconds, 0);
}

std::string tuned_at(const char* config, const std::vector<Sizes>& sizes, const char* target,
                     const char* overrides = "") {
    const Config complete = parse_config(config);
    const CpuSchedule start = parse_schedule(overrides, default_schedule(complete, target));
    std::string text;
    for (const TunedPart& part : tuned_parts(complete, target, sizes, start)) {
        if (!part.not_tuned.empty()) continue;
        text += (text.empty() ? "" : " ") + part.part.name + ":" + std::to_string(part.sizes.size());
    }
    return text;
}

TEST(TunedParts, AreThoseThatCallsOfTheSizesRun) {
    constexpr const char* kAvx512 = "x86-64-linux-avx512_skylake";
    EXPECT_EQ(tuned_at("d512_h8_f32", {{1, 128, 128}}, kAvx512),
              "project_heads:1 project_out:1 attend:1 attend_masked:1 attend_probs:1");
    EXPECT_EQ(tuned_at("d512_h8_f32_nomask_noprobs", {{1, 10, 10}, {1, 30, 30}, {1, 64, 64}}, kAvx512),
              "project_heads:3 project_out:3 attend:1 attend_narrow:1 attend_single:1");
    EXPECT_EQ(tuned_at("d512_h8_f32_nomask_noprobs", {{1, 10, 10}}, kTarget),
              "project_heads:1 project_out:1 attend:1");
    EXPECT_EQ(tuned_at("d512_h8_f32_cache", {{1, 1, 512}}, kTarget),
              "project_heads:1 project_out:1 attend_decode:1");
    EXPECT_EQ(tuned_at("d512_h8_f32_noin_noout_nomask_noprobs", {{1, 64, 64}}, kTarget), "attend:1");
}

// Where a start lacks the forms for few queries, they are tried where they would run.
TEST(TunedParts, BringBackFormsThatTheStartLacks) {
    constexpr const char* kAvx512 = "x86-64-linux-avx512_skylake";
    EXPECT_THAT(tuned_at("d512_h8_f32", {{1, 30, 30}}, kAvx512, "attend_narrow.rows:0,attend_single.rows:0"),
                HasSubstr("attend_narrow:1"));
}

class Builder : public testing::Test {
protected:
    BuilderOptions options(const std::vector<int>& cpus = {}) {
        return {.config = small(),
                .target = kTarget,
                .installation = installation_of(attnc_command()),
                .cache = test_kernel_cache(),
                .folder = folder_.path(),
                .cpus = cpus};
    }
    CpuSchedule schedule(const char* overrides) {
        return parse_schedule(overrides, default_schedule(small(), kTarget));
    }
    MeasureRequest request(const BuiltSchedule& candidate, const BuiltSchedule& incumbent) {
        return {.candidate = candidate.library,
                .incumbent = incumbent.library,
                .target = kTarget,
                .problems = {{small(), {1, 40, 40}}},
                .seconds = 0.01};
    }
    TestFolder folder_;
};

TEST_F(Builder, MakesWhatCanBeMeasured) {
    CandidateBuilder builder(options({0}));
    const CpuSchedule first = schedule(""), second = schedule("project_out.rows:1,project_out_tail.rows:0");
    builder.prepare({first, second});
    const BuiltSchedule a = builder.get(first), b = builder.get(second);
    ASSERT_EQ(a.fault + b.fault, "");
    EXPECT_EQ(a.object_hashes.at("attend"), b.object_hashes.at("attend"));
    EXPECT_NE(a.object_hashes.at("project_out"), b.object_hashes.at("project_out"));
    EXPECT_EQ(builder.get(first).library, a.library);
    for (const TunedWork work :
         {TunedWork::kProjectInputs, TunedWork::kAttend, TunedWork::kProjectOutput, TunedWork::kCall}) {
        MeasureRequest asked = request(b, a);
        asked.work = work;
        asked.verified_calls = 1;
        const MeasureAnswer answer =
            parse_measure_answer(to_json(measure_here(parse_measure_request(to_json(asked)))));
        EXPECT_EQ(answer.fault, "");
        ASSERT_EQ(answer.problems.size(), 1U);
        EXPECT_GE(answer.problems[0].candidate.size(), 9U);
        EXPECT_GT(answer.problems[0].probe, 1e8);
        EXPECT_GT(answer.problems[0].operations, 1e4);
    }
}

// Blocks of other lengths are joined in another order: not an error of the candidate, but no equal bits.
TEST_F(Builder, CandidatesWithOtherBitsAreFoundOut) {
    CandidateBuilder builder(options());
    const BuiltSchedule a = builder.get(schedule("")), b = builder.get(schedule("tile_kv:16"));
    ASSERT_EQ(a.fault + b.fault, "");
    MeasureRequest asked = request(b, a);
    EXPECT_THAT(measure_here(asked).fault, StartsWith("wrong result: out["));
    asked.same_bits = false;
    EXPECT_EQ(measure_here(asked).fault, "");
}

TEST_F(Builder, ACandidateThatTakesTooMuchCostsItselfAlone) {
    BuilderOptions tight = options();
    tight.cache = folder_.path() / "cache";
    tight.memory_mib = 64;  // Halide itself takes more
    CandidateBuilder no_memory(tight);
    EXPECT_THAT(no_memory.get(schedule("")).fault, StartsWith("cannot compile "));
    tight.memory_mib = 0;
    tight.time_limit = std::chrono::seconds(0);
    CandidateBuilder no_time(tight);
    EXPECT_THAT(no_time.get(schedule("")).fault, HasSubstr("no end after 0 s"));
    EXPECT_EQ(CandidateBuilder(options()).get(schedule("")).fault, "");
}

// A library whose table leads nowhere.
TEST_F(Builder, ACandidateThatCrashesEndsTheProcessOfItsMeasurement) {
    CandidateBuilder builder(options());
    const BuiltSchedule good = builder.get(schedule(""));
    write_file(folder_ / "bad.c", "const void *attnc_loaded_library(void) { return (const void *)16; }\n");
    ASSERT_TRUE(
        run_process({find_program("cc"), "-shared", "-fPIC", "-o", folder_ / "bad.so", folder_ / "bad.c"},
                    std::chrono::seconds(60))
            .succeeded());
    MeasureRequest asked = request(good, good);
    asked.candidate = folder_ / "bad.so";
    write_file(folder_ / "request", to_json(asked));
    const CommandResult result = run_attnc({"measure-candidate", folder_ / "request", folder_ / "answer"});
    EXPECT_NE(result.signal + result.exit_code, 0);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "answer"));
}

TEST(CodeLoops, AreThoseThatJumpToTheirOwnLabel) {
    const std::string text =
        "<f>:\n\tmovl\t$1, %eax\n<L0>:\n\tmulps\t%xmm0, %xmm1\n<L1>:\n\tvfmadd231ps\t%ymm0, %ymm1, %ymm2\n"
        "\tmulps\t%xmm0, %xmm1\n\taddq\t$4, "
        "%rax\n\tjne\t<L1>\n\tjne\t<L0>\n<L2>:\n\tincq\t%rax\n\tjne\t<L2>\n"
        "<L3>:\n\tmulps\t%xmm0, %xmm1\n\tjne\t<L3>\n";
    const std::vector<CodeLoop> loops = code_loops(text);
    ASSERT_EQ(loops.size(), 2U);
    EXPECT_EQ(loops[0].multiply_adds, 2);
    EXPECT_EQ(loops[0].instructions,
              "\tvfmadd231ps\t%ymm0, %ymm1, %ymm2\n\tmulps\t%xmm0, %xmm1\n\taddq\t$4, %rax\n");
    EXPECT_EQ(loops[1].multiply_adds, 1);
    EXPECT_TRUE(code_loops("").empty());
}

// A tile of one row waits for its sums and its loads.
TEST_F(Builder, InnerLoopsOfSmallTilesTakeMoreCyclesForAMultiplyAdd) {
    for (const char* target : kCpuTargets) {
        const auto cycles = [&](const std::string& rows) {
            const CpuSchedule chosen = parse_schedule("project_heads_tail.rows:0,project_heads.rows:" + rows,
                                                      default_schedule(small(), target));
            const KernelJob job = kernel_job(small(), target, chosen, kernel_by_name("project_heads"));
            const WorkerOptions workers = {.attnc = attnc_command(),
                                           .cache = test_kernel_cache(),
                                           .folder = folder_.path(),
                                           .emit = {},
                                           .progress = {}};
            const CompiledKernel kernel =
                compile_kernels({job}, versions_of(attnc_command()), workers).front();
            return inner_loop_cycles(kernel.object, target, 1, folder_.path()).value_or(-1);
        };
        const double one = cycles("1"), two = cycles("2");
        EXPECT_GT(two, 0.3) << target;
        EXPECT_GT(one, 1.05 * two) << target;
    }
}

TEST(MeasureRequest, ThatIsDamagedIsRefused) {
    EXPECT_THAT(error_of([] { parse_measure_request("{"); }), StartsWith("damaged request to measure: "));
    EXPECT_THAT(error_of([] { parse_measure_answer("{\"fault\":3}"); }),
                StartsWith("damaged answer of a measurement: "));
}

}  // namespace
}  // namespace attnc::test
