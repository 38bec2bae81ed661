// Whatever check_schedule accepts can be compiled, and computes the layer: random points, since what a rule forgets is
// nowhere else to be found. ATTNC_TEST_POINTS=100 tries as many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "schedules/cpu_params.h"
#include "support/random.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

bool is_valid(const CpuSchedule& schedule, const Config& config, const std::string& target) {
    try {
        check_schedule(schedule, config, target);
        return true;
    } catch (const ConfigError&) {
        return false;
    }
}

int64_t draw(Random& random, int64_t low, int64_t high, int64_t step) {
    return low + step * random.between(0, (high - low) / step);
}

// A value that the field might have; most combinations are invalid.
int64_t draw_field(Random& random, const std::string& name, int64_t lanes) {
    const std::string field = name.substr(name.find('.') + 1);
    if (field == "panel" || field == "out_panel") return draw(random, 16, 256, 16);
    if (field == "tile_kv")
        return random.chance(0.5) ? draw(random, 16, 512, 16) : draw(random, 512, 8192, 16);
    if (field == "split_kv") return draw(random, 16, 2048, 16);
    if (field == "context_columns" || field == "columns" || field == "single_columns")
        return draw(random, lanes, 128, lanes);
    if (field == "keys" || name == "attend_decode.rows") return int64_t{1} << random.between(0, 4);
    if (field == "q_vectors") return random.between(1, 8);
    if (field == "rows" && name.starts_with("attend"))
        return random.chance(0.1) ? 0 : draw(random, 1, 128, 1);
    return random.between(0, 32);
}

// Each group by itself, from the default, until it is valid.
CpuSchedule random_schedule(Random& random, const Config& config, const std::string& target) {
    const int64_t lanes = vector_unit(target).lanes;
    CpuSchedule schedule = default_schedule(config, target);
    const std::vector<std::vector<std::string>> groups = {{"panel", "project_heads"},
                                                          {"out_panel", "project_out"},
                                                          {"split_kv"},
                                                          {"attend_single"},
                                                          {"attend_narrow"},
                                                          {"attend_masked"},
                                                          {"attend"},
                                                          {"attend_guarded"},
                                                          {"attend_probs"},
                                                          {"attend_decode"},
                                                          {"tile_kv"}};
    for (const std::vector<std::string>& group : groups) {
        const auto belongs = [&](const std::string& field) {
            for (const std::string& name : group) {
                if (field == name || field.starts_with(name + ".") || field.starts_with(name + "_tail."))
                    return true;
            }
            return false;
        };
        for (int attempt = 0; attempt < 3000; ++attempt) {
            CpuSchedule changed = schedule;
            for (const ScheduleField& field : fields_of(schedule)) {
                if (belongs(field.name))
                    set_field(changed, field.name, draw_field(random, field.name, lanes));
            }
            if (!is_valid(changed, config, target)) continue;
            schedule = changed;
            break;
        }
    }
    return schedule;
}

int points() {
    const char* asked = std::getenv("ATTNC_TEST_POINTS");
    return asked == nullptr ? 1 : std::atoi(asked);
}

class RandomSchedules : public TargetTest {};

TEST_P(RandomSchedules, ThatAreValidCompileAndComputeTheLayer) {
    if (!cpu_runs(target())) GTEST_SKIP() << "this CPU does not run " << target();
    const std::vector<std::string> problems = {
        "d128_h2_f32_softcap_alibi_scores_cache:b2_q37_kv53", "d48_h3_kv1_hd32_vhd48_f32_alibi:b2_q70_kv90",
        "d80_h1_f32_ropepairs_qknorm:b1_q50_kv50", "d96_h1_hd512_vhd96_f32_cache:b2_q5_kv600"};
    for (int point = 0; point < points(); ++point) {
        Random random(1000 + static_cast<uint64_t>(point));
        const std::string& problem = problems[static_cast<size_t>(point) % problems.size()];
        LayerCall call = random_call(problem, 5);
        const CpuSchedule schedule = random_schedule(random, call.config, target());
        const RunOptions options = {.target = target(), .schedule = to_string(schedule), .only_target = true};
        const RunResult result = run_call(call, options);
        ASSERT_EQ(result.status, ATTNC_OK) << problem << " " << options.schedule << ": " << result.error;
        EXPECT_TRUE(matches_reference(call, result, options)) << problem << " " << options.schedule;
    }
}

ATTNC_FOR_EACH_TARGET(RandomSchedules);

}  // namespace
}  // namespace attnc::test
