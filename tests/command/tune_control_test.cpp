// Controls, and what layers share, on a machine that is made up: calls take what the static estimate says, with noise.
#include "compiler/tune_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "compiler/tune_control_report.h"
#include "support/random.h"

namespace attnc::test {
namespace {

using testing::HasSubstr;

constexpr const char* kTarget = "x86-64-linux-avx512_skylake";

// What is timed of a part, by what a measurement is asked for.
std::string part_of(TunedWork work) {
    switch (work) {
        case TunedWork::kProjectInputs:
            return "project_heads";
        case TunedWork::kProjectOutput:
            return "project_out";
        case TunedWork::kAttendMasked:
            return "attend_masked";
        case TunedWork::kAttendProbs:
            return "attend_probs";
        default:
            return "attend";
    }
}

// Its libraries are schedule texts.
class Machine {
public:
    explicit Machine(const Config& config, uint64_t seed = 1) : config_(config), random_(seed) {}

    TuneBench bench() {
        TuneBench bench;
        bench.built = [](const CpuSchedule& schedule) {
            return BuiltSchedule{.fault = "", .library = to_string(schedule), .object_hashes = {}};
        };
        bench.built_alone = bench.built;
        bench.prepare = [](const std::vector<CpuSchedule>&) {};
        bench.measure = [this](const MeasureRequest& request) { return measure(request); };
        bench.first = [this](const TunedPart& part, const SearchSpace& space, Deadline&) {
            return stuck ? std::vector<SearchPoint>{}
                         : first_candidates(
                               space, ranked_points(space, space.points(), config_, kTarget, part.sizes, {}),
                               18, 1);
        };
        bench.has = [this](const CpuSchedule&) { return !stuck; };
        bench.versions = {.halide = "21.0.0", .llvm = "21.1", .identity = "made up"};
        return bench;
    }

    double seconds(const CpuSchedule& schedule, const std::string& name, const Sizes& sizes) const {
        for (const SearchPart& part : search_parts(config_)) {
            if (part.name == name)
                return 1e-3 * static_estimate(schedule, part, config_, kTarget, {sizes}, {});
        }
        throw std::logic_error("no part " + name);
    }

    std::map<std::string, int> measured;  // trials, by part
    bool stuck = false;                   // a search has nowhere to go

private:
    MeasureAnswer measure(const MeasureRequest& request) {
        MeasureAnswer answer;
        if (request.seconds <= 0) return answer;
        const CpuSchedule usual = default_schedule(config_, kTarget);
        const std::string part = part_of(request.work);
        if (request.work != TunedWork::kCall) ++measured[part];
        for (const Problem& problem : request.problems) {
            MeasureAnswer::Times times = {.candidate = {}, .incumbent = {}, .probe = 1e11, .operations = 1e6};
            for (int64_t i = 0; i < request.fewest_rounds; ++i) {
                times.candidate.push_back(
                    noisy(seconds(parse_schedule(request.candidate, usual), part, problem.sizes)));
                times.incumbent.push_back(
                    noisy(seconds(parse_schedule(request.incumbent, usual), part, problem.sizes)));
            }
            answer.problems.push_back(times);
        }
        return answer;
    }
    double noisy(double seconds) {
        return seconds * (1 + 0.01 * (static_cast<double>(random_.bits() >> 11) * 0x1p-53 - 0.5));
    }
    Config config_;
    Random random_;
};

struct Layer {
    Config config;
    std::vector<Sizes> sizes;
};

Layer layer(const std::string& config) {
    return {parse_config(config), {parse_sizes("b1_q128_kv128"), parse_sizes("b32_q50_kv50")}};
}

// Each part at its least estimate.
CpuSchedule best_schedule(const Layer& of) {
    CpuSchedule schedule = default_schedule(of.config, kTarget);
    for (const TunedPart& part : tuned_parts(of.config, kTarget, of.sizes, schedule)) {
        if (!part.not_tuned.empty()) continue;
        const SearchSpace space(of.config, kTarget, part.part, schedule, part.sizes);
        schedule =
            space.schedule(ranked_points(space, space.points(), of.config, kTarget, part.sizes, {}).front());
    }
    return schedule;
}

ControlRequest request_of(const Layer& of, const CpuSchedule& schedule, size_t random) {
    return {.config = of.config,
            .sizes = of.sizes,
            .target = kTarget,
            .machine = {.cpu = "Test CPU", .cpus = 2, .l1d_bytes = 0, .l2_bytes = 0, .l3_bytes = 0},
            .schedule = schedule,
            .kernels = {},
            .random = random,
            .effort = effort_by_name("quick"),
            .version = "0.1.0"};
}

ControlReport report_of(const ControlRequest& request, const std::vector<ControlResult>& results) {
    return {.target = kTarget,
            .random = request.random,
            .effort = request.effort.name,
            .layers = {{request.config, "built-in default", results}}};
}

std::vector<ControlResult> run(const ControlRequest& request, Machine& machine, Journal& journal,
                               double limit = -1) {
    Deadline deadline(steady_seconds, limit);
    return run_control(request, machine.bench(), journal, {}, deadline);
}

TEST(Control, OfTheBestScheduleFindsNothingFaster) {
    const Layer of = layer("d512_h8_f32");
    Machine machine(of.config);
    Journal journal;
    const ControlRequest request = request_of(of, best_schedule(of), 200);
    const std::vector<ControlResult> results = run(request, machine, journal);
    std::vector<std::string> parts;
    for (const ControlResult& result : results) {
        SCOPED_TRACE(result.part);
        parts.push_back(result.part);
        EXPECT_EQ(result.tried, std::min<int64_t>(result.points, 200));
        EXPECT_GE(result.trials, result.tried);
        ASSERT_TRUE(result.ratio.has_value());
        EXPECT_GT(result.ratio->median, 0.995);
        EXPECT_NE(faster(result), "other");
    }
    EXPECT_THAT(parts, testing::IsSupersetOf(
                           {"project_heads", "project_out", "attend", "attend_masked", "attend_probs"}));
    EXPECT_EQ(control_fault(report_of(request, results)), "");
}

TEST(Control, FindsOutASlowSchedule) {
    const Layer of = layer("d512_h8_f32");
    Machine machine(of.config);
    Journal journal;
    CpuSchedule schedule = best_schedule(of);
    schedule.params.project_out.rows = 1;
    schedule.params.project_out_tail.rows = 0;
    ControlRequest request = request_of(of, schedule, 50);
    request.kernels = {"project_out", "attend"};
    const std::vector<ControlResult> results = run(request, machine, journal);
    ASSERT_EQ(results.size(), 2U);
    EXPECT_EQ(faster(results[0]), "other");
    EXPECT_THAT(results[0].schedule, HasSubstr("project_out.rows:1,"));
    // What the table says is true of the point that it names.
    CpuSchedule best = parse_schedule(results[0].best, schedule);
    double truth = 1;
    for (const Sizes& sizes : of.sizes)
        truth *=
            machine.seconds(best, "project_out", sizes) / machine.seconds(schedule, "project_out", sizes);
    EXPECT_NEAR(results[0].ratio->median / std::sqrt(truth), 1, 0.01);
    EXPECT_NE(faster(results[1]), "other");
    EXPECT_EQ(control_fault(report_of(request, results)),
              "of 1 kernel a point drawn at random is faster than what builds take");
}

TEST(Control, GoesOnFromItsJournal) {
    const Layer of = layer("d512_h8_f32");
    ControlRequest request = request_of(of, best_schedule(of), 40);
    request.kernels = {"project_out"};
    Journal journal;
    Machine first(of.config), second(of.config, 2);
    const std::vector<ControlResult> before = run(request, first, journal);
    EXPECT_EQ(before[0].known, 0);
    const std::vector<ControlResult> after = run(request, second, journal);
    EXPECT_EQ(after[0].known, after[0].trials);
    EXPECT_EQ(second.measured["project_out"], 0);
    EXPECT_EQ(after[0].best, before[0].best);
    EXPECT_EQ(after[0].ratio->median, before[0].ratio->median);
    // Another seed has other points.
    request.seed = 2;
    EXPECT_GT(run(request, second, journal)[0].trials, second.measured["project_out"] / 2);
    EXPECT_GT(second.measured["project_out"], 0);
}

TEST(Control, SaysWhatTheTimeDidNotSufficeFor) {
    const Layer of = layer("d512_h8_f32");
    Machine machine(of.config);
    Journal journal;
    ControlRequest request = request_of(of, best_schedule(of), 40);
    request.kernels = {"project_out", "attend"};
    const std::vector<ControlResult> results = run(request, machine, journal, 0);
    for (const ControlResult& result : results) {
        EXPECT_FALSE(result.finished);
        EXPECT_EQ(faster(result), "-");
    }
    EXPECT_EQ(control_fault(report_of(request, results)), "2 kernels not measured to the end");
}

TEST(DetunedControl, HoldsWhereASearchFindsItsWayBack) {
    const Layer of = layer("d512_h8_f32");
    Machine machine(of.config);
    Journal journal;
    const ControlRequest request = request_of(of, best_schedule(of), 0);
    const std::vector<ControlResult> results = run(request, machine, journal);
    EXPECT_GE(results.size(), 5U);
    for (const ControlResult& result : results) {
        SCOPED_TRACE(result.part);
        ASSERT_TRUE(result.ratio.has_value());
        EXPECT_LE(result.ratio->low, 1.05);
        EXPECT_GT(result.tried, 1);
    }
    EXPECT_EQ(control_fault(report_of(request, results)), "");
}

TEST(DetunedControl, FailsWhereTheSearchStaysBehind) {
    const Layer of = layer("d512_h8_f32");
    Machine machine(of.config);
    machine.stuck = true;
    Journal journal;
    ControlRequest request = request_of(of, best_schedule(of), 0);
    request.kernels = {"project_out", "attend"};
    const std::vector<ControlResult> results = run(request, machine, journal);
    ASSERT_EQ(results.size(), 2U);
    EXPECT_EQ(results[0].best, "out_panel:16,project_out.rows:1,project_out_tail.rows:0");
    for (const ControlResult& result : results) EXPECT_GT(result.ratio->low, 1.05);
    EXPECT_EQ(control_fault(report_of(request, results)),
              "of 2 kernels the search ends more than 5.0 % above what builds take");
}

// ---- Reports

ControlReport example() {
    const std::vector<Sizes> sizes = {parse_sizes("b1_q128_kv128")};
    ControlReport report = {.target = kTarget, .random = 200, .effort = "measure", .layers = {}};
    report.layers.push_back({parse_config("d512_h8_f32"),
                             "built-in default",
                             {{.part = "attend",
                               .sizes = sizes,
                               .points = 9000,
                               .tried = 200,
                               .trials = 290,
                               .seconds = 725,
                               .schedule = "tile_kv:2048",
                               .best = "tile_kv:1024",
                               .ratio = Ratio{1.04, 1.02, 1.05, 61}},
                              {.part = "project_out",
                               .sizes = sizes,
                               .points = 3,
                               .tried = 1,
                               .trials = 1,
                               .seconds = 4,
                               .schedule = "",
                               .best = "",
                               .ratio = {},
                               .finished = false}}});
    return report;
}

TEST(ControlReport, IsATable) {
    EXPECT_EQ(
        control_table(example()),
        "layer        kernel       points       time      best   interval        faster     sizes\n"
        "d512_h8_f32  attend       200 of 9000  12:05     1.040  1.020 to 1.050  incumbent  b1_q128_kv128\n"
        "d512_h8_f32  project_out  1 of 3       0:04, up  -      -               -          b1_q128_kv128\n");
}

TEST(ControlReport, IsJson) {
    const nlohmann::json json = nlohmann::json::parse(control_json(example()));
    EXPECT_EQ(json.at("random"), 200);
    EXPECT_EQ(json.at("target"), kTarget);
    const nlohmann::json& attend = json.at("kernels").at(0);
    EXPECT_EQ(attend.at("config"), "d512_h8_f32");
    EXPECT_EQ(attend.at("kernel"), "attend");
    EXPECT_EQ(attend.at("best"), "tile_kv:1024");
    EXPECT_EQ(attend.at("ratio").at("low"), 1.02);
    EXPECT_EQ(attend.at("faster"), "incumbent");
    EXPECT_TRUE(json.at("kernels").at(1).at("ratio").is_null());
    EXPECT_EQ(json.at("kernels").at(1).at("finished"), false);
}

TEST(ControlReport, KnowsWhatTwoBuildsDifferBy) {
    const auto faster_of = [](double low, double high) {
        return faster(
            {.part = "", .sizes = {}, .schedule = "", .best = "", .ratio = Ratio{1, low, high, 61}});
    };
    EXPECT_EQ(faster_of(0.9, 0.99), "other");
    EXPECT_EQ(faster_of(0.9, 0.996), "even");
    EXPECT_EQ(faster_of(0.99, 1.01), "even");
    EXPECT_EQ(faster_of(1.004, 1.2), "even");
    EXPECT_EQ(faster_of(1.006, 1.2), "incumbent");
    EXPECT_DOUBLE_EQ(allowed_excess("quick"), 1.05);
    EXPECT_DOUBLE_EQ(allowed_excess("measure"), 1.005);
}

// ---- What layers share

std::map<std::string, int> trials_after(const std::string& other, const std::string& own, int threads = 1) {
    Journal journal;
    std::map<std::string, int> measured;
    for (const std::string& config : {other, own}) {
        const Layer of = layer(config);
        Machine machine(of.config);
        const TuneRequest request = {.config = of.config,
                                     .sizes = of.sizes,
                                     .target = kTarget,
                                     .threads = threads,
                                     .machine = request_of(of, {}, 0).machine,
                                     .start = default_schedule(of.config, kTarget),
                                     .effort = effort_by_name("quick"),
                                     .kernels = {},
                                     .version = "0.1.0"};
        Deadline deadline(steady_seconds, -1);
        tune(request, machine.bench(), journal, {}, deadline);
        measured = machine.measured;
    }
    return measured;
}

// But for the last measurement before a candidate takes the incumbent's place.
constexpr int kOwnTrials = 4;

TEST(LayersShare, AttentionOfHeadsThatAreAlike) {
    const std::map<std::string, int> alone = trials_after("d256_h8_f32", "d1024_h8_f32"),
                                     after = trials_after("d512_h4_f32", "d1024_h8_f32");
    for (const char* part : {"attend", "attend_masked", "attend_probs"}) {
        SCOPED_TRACE(part);
        EXPECT_GT(alone.at(part), 18);
        EXPECT_LE(after.contains(part) ? after.at(part) : 0, kOwnTrials);
    }
    EXPECT_GT(after.at("project_heads"), 18);
    EXPECT_GT(after.at("project_out"), 18);
}

TEST(LayersShare, TheOutputProjectionOfRowsThatAreAlike) {
    const std::map<std::string, int> after = trials_after("d1024_h4_f32", "d1024_h8_f32");
    EXPECT_LE(after.contains("project_out") ? after.at("project_out") : 0, kOwnTrials);
    EXPECT_GT(after.at("attend"), 18);
    EXPECT_GT(after.at("project_heads"), 18);
}

TEST(LayersShare, NothingWhereThreadsShareHeadsOrCallsDiffer) {
    for (const auto& measured :
         {trials_after("d512_h4_f32", "d1024_h8_f32", 2), trials_after("d512_h4_f32", "d1024_h8_f32_causal"),
          trials_after("d512_h4_f32", "d1024_h8_kv4_f32")}) {
        for (const char* part : {"attend", "attend_masked", "project_heads"})
            EXPECT_GT(measured.at(part), 18) << part;
    }
}

}  // namespace
}  // namespace attnc::test
