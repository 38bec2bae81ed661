#include "schedules/tuning_lookup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/tuning_example.h"

namespace attnc {
namespace {

using test::measured_record;

const Machine kHere = test::example_record().machine;
const Machine kElsewhere = {
    .cpu = "Other CPU", .cpus = 4, .l1d_bytes = 32768, .l2_bytes = 524288, .l3_bytes = 0};

// A record that can be told from others by its split_kv.
TuningRecord tagged(
    int64_t split_kv, const std::function<void(TuningRecord&)>& change = [](TuningRecord&) {}) {
    TuningRecord record = measured_record(1);
    record.schedule.layout.split_kv = split_kv;
    change(record);
    return record;
}

LookupRequest request(const std::string& config = "d512_h8_f32") {
    return {parse_config(config), "x86-64-linux-avx2-fma-f16c", test::example_record().sizes, kHere};
}

RecordSource source(RecordOrigin origin, std::vector<TuningRecord> records, std::string file = "a.jsonl") {
    return {origin, std::move(file), std::move(records)};
}

int64_t tag(const FoundSchedule& found) { return found.schedule.layout.split_kv; }

std::string outcome_of(const FoundRecord& found) {
    std::string text;
    for (const LookupStep& step : found.steps) {
        text += (step.taken ? "-> " : "   ") + step.asked + ": " + step.outcome + "\n";
    }
    return text;
}

TEST(LookUp, WithoutRecordsGivesTheDefault) {
    const FoundSchedule found = look_up(request(), {});
    EXPECT_EQ(found.schedule, default_schedule(request().config, request().target));
    EXPECT_FALSE(found.record);
    EXPECT_EQ(outcome_of(found),
              "   --db: not given\n"
              "   project: it has none\n"
              "   shipped, this machine: no record of d512_h8_f32\n"
              "   nearest machine, sizes and layer: no record of heads of 64 and 64 features\n"
              "-> built-in default: always there\n");
}

TEST(LookUp, AsksSourcesInTheirOrder) {
    const std::vector<RecordSource> all = {
        source(RecordOrigin::kOption, {tagged(16)}, "first.jsonl"),
        source(RecordOrigin::kOption, {tagged(32)}, "second.jsonl"),
        source(RecordOrigin::kProject, {tagged(48)}, "attnc.tuning.jsonl"),
        source(RecordOrigin::kShipped, {tagged(64)}, "x86-64-linux-avx2-fma-f16c.jsonl"),
    };
    for (size_t given = 0; given < all.size(); ++given) {
        const FoundSchedule found = look_up(request(), {all.begin() + static_cast<long>(given), all.end()});
        EXPECT_EQ(tag(found), 16 * (static_cast<int64_t>(given) + 1));
        EXPECT_EQ(found.origin, all[given].origin);
        EXPECT_EQ(found.file, all[given].file);
    }
    EXPECT_EQ(outcome_of(look_up(request(), {all.begin() + 2, all.end()})),
              "   --db: not given\n"
              "-> project attnc.tuning.jsonl: d512_h8_f32 at b1_q128_kv128 b32_q50_kv50 on Some CPU @ 2 GHz, "
              "2 threads, quick, 2026-03-01\n");
}

TEST(LookUp, PassesOverOtherTargets) {
    const TuningRecord other = tagged(16, [](TuningRecord& r) { r.target = "x86-64-linux"; });
    EXPECT_FALSE(look_up(request(), {source(RecordOrigin::kOption, {other})}).record);
}

TEST(LookUp, PrefersThisMachineAmongShippedRecords) {
    const TuningRecord there = tagged(16, [](TuningRecord& r) { r.machine = kElsewhere; });
    const FoundSchedule found = look_up(request(), {source(RecordOrigin::kShipped, {there, tagged(32)})});
    EXPECT_EQ(tag(found), 32);
    EXPECT_EQ(found.steps.back().asked, "shipped, this machine");
    const FoundSchedule nearest = look_up(request(), {source(RecordOrigin::kShipped, {there})});
    EXPECT_EQ(tag(nearest), 16);
    EXPECT_EQ(nearest.steps.back().asked, "nearest machine, sizes and layer");
}

TEST(LookUp, TakesAnotherMachinesRecordOfANamedFile) {
    const TuningRecord there = tagged(16, [](TuningRecord& r) { r.machine = kElsewhere; });
    const std::vector<RecordSource> sources = {source(RecordOrigin::kOption, {there}),
                                               source(RecordOrigin::kShipped, {tagged(32)})};
    EXPECT_EQ(tag(look_up(request(), sources)), 16);
    // But this machine's where the file has both.
    EXPECT_EQ(tag(look_up(request(), {source(RecordOrigin::kOption, {there, tagged(32)})})), 32);
}

TEST(LookUp, TakesTheNearestSizes) {
    const auto at = [](int64_t split_kv, const char* sizes) {
        return tagged(split_kv, [&](TuningRecord& r) {
            r.sizes = {parse_sizes(sizes)};
            r.calls.clear();
        });
    };
    const std::vector<RecordSource> sources = {source(
        RecordOrigin::kProject, {at(16, "b1_q1_kv512"), at(32, "b32_q50_kv50"), at(48, "b1_q2048_kv2048")})};
    const auto asked = [&](const char* sizes) {
        LookupRequest wanted = request();
        wanted.sizes = {parse_sizes(sizes)};
        return tag(look_up(wanted, sources));
    };
    EXPECT_EQ(asked("b1_q1_kv1024"), 16);
    EXPECT_EQ(asked("b1_q64_kv64"), 32);
    EXPECT_EQ(asked("b8_q1024_kv1024"), 48);
    LookupRequest any = request();
    any.sizes.clear();
    EXPECT_TRUE(look_up(any, sources).record);
}

TEST(LookUp, PrefersTheRecordOfExactlyTheSizesThatAreWanted) {
    const TuningRecord one = tagged(16, [](TuningRecord& r) {
        r.calls.erase("b32_q50_kv50");
        r.sizes = {parse_sizes("b1_q128_kv128")};
    });
    LookupRequest wanted = request();
    const std::vector<RecordSource> sources = {source(RecordOrigin::kProject, {one, tagged(32)})};
    EXPECT_EQ(tag(look_up(wanted, sources)), 32);
    wanted.sizes = {parse_sizes("b1_q128_kv128")};
    EXPECT_EQ(tag(look_up(wanted, sources)), 16);
}

TEST(LookUp, TakesANearLayerWhereThereIsNoneOfThisOne) {
    const auto of = [](int64_t split_kv, const char* config) {
        return tagged(split_kv, [&](TuningRecord& r) {
            r.config = parse_config(config);
            r.schedule = default_schedule(r.config, r.target);
            r.schedule.layout.split_kv = split_kv;
        });
    };
    const std::vector<RecordSource> sources = {
        source(RecordOrigin::kShipped,
               {of(16, "d2048_h32_f32"), of(32, "d768_h12_f32_causal"), of(48, "d512_h4_f32")})};
    const FoundSchedule found = look_up(request("d768_h12_f32_causal_cache"), sources);
    EXPECT_EQ(tag(found), 32);
    EXPECT_EQ(found.steps.back().asked, "nearest machine, sizes and layer");
    EXPECT_EQ(tag(look_up(request("d1024_h8_f32"), sources)), 48);   // heads of 128
    EXPECT_FALSE(look_up(request("d384_h12_f32"), sources).record);  // heads of 32
}

TEST(LookUp, AsksNearLayersOfTheProjectAfterShippedRecordsOfThisOne) {
    const TuningRecord near =
        tagged(16, [](TuningRecord& r) { r.config = parse_config("d512_h8_f32_causal"); });
    const std::vector<RecordSource> sources = {source(RecordOrigin::kProject, {near}),
                                               source(RecordOrigin::kShipped, {tagged(32)})};
    EXPECT_EQ(tag(look_up(request(), sources)), 32);
    EXPECT_EQ(tag(look_up(request("d512_h8_f32_causal_cache"), sources)), 16);
}

TEST(LookUp, PassesOverWhatTheRulesRefuseAndSaysWhy) {
    const TuningRecord bad = tagged(24);
    const FoundSchedule found = look_up(request(), {source(RecordOrigin::kOption, {bad})});
    EXPECT_EQ(found.schedule, default_schedule(request().config, request().target));
    EXPECT_EQ(found.steps.front().outcome,
              "refused: d512_h8_f32 at b1_q128_kv128 b32_q50_kv50 on Some CPU @ 2 GHz, 2 threads, quick, "
              "2026-03-01 (split_kv 24 is not a multiple of 16, the keys of a run)");
    const TuningRecord other = tagged(32, [](TuningRecord& r) { r.threads = 8; });
    EXPECT_EQ(tag(look_up(request(), {source(RecordOrigin::kOption, {bad, other})})), 32);
}

TEST(LookUp, PrefersFewerThreadsThenTheBetterRecord) {
    const TuningRecord eight = tagged(16, [](TuningRecord& r) { r.threads = 8; });
    const TuningRecord two = tagged(32);
    const TuningRecord cpus = tagged(48, [](TuningRecord& r) {
        r.machine.cpus = 64;  // another virtual machine of the same model
        for (auto& [sizes, call] : r.calls) call.ms = 0.5;
    });
    EXPECT_EQ(tag(look_up(request(), {source(RecordOrigin::kOption, {eight, two})})), 32);
    EXPECT_EQ(tag(look_up(request(), {source(RecordOrigin::kOption, {eight, two, cpus})})), 48);
}

// ---- Devices

using test::device_record;

TuningRecord device_tagged(
    int64_t split_kv, const std::string& target,
    const std::function<void(TuningRecord&)>& change = [](TuningRecord&) {}) {
    TuningRecord record = device_record(target);
    record.cuda_schedule->layout.split_kv = split_kv;
    change(record);
    return record;
}

FoundCudaSchedule look_up_for(const std::vector<int>& architectures,
                              const std::vector<RecordSource>& sources) {
    return look_up_device({parse_config("d512_h8_f32"), architectures, test::example_record().sizes},
                          sources);
}

int64_t tag(const FoundCudaSchedule& found) { return found.schedule.layout.split_kv; }

TEST(LookUpDevice, AsksTheSameSteps) {
    EXPECT_EQ(outcome_of(look_up_for({80}, {})),
              "   --db: not given\n"
              "   project: it has none\n"
              "   shipped, this machine: no record of d512_h8_f32\n"
              "   nearest machine, sizes and layer: no record of heads of 64 and 64 features\n"
              "-> built-in default: always there\n");
    const std::vector<RecordSource> all = {
        source(RecordOrigin::kOption, {device_tagged(64, "cuda-sm_80")}, "first.jsonl"),
        source(RecordOrigin::kProject, {device_tagged(128, "cuda-sm_80")}, "attnc.tuning.jsonl"),
        source(RecordOrigin::kShipped, {device_tagged(192, "cuda-sm_80")}, "cuda-sm_80.jsonl"),
    };
    for (size_t given = 0; given < all.size(); ++given) {
        const FoundCudaSchedule found =
            look_up_for({80}, {all.begin() + static_cast<long>(given), all.end()});
        EXPECT_EQ(tag(found), 64 * (static_cast<int64_t>(given) + 1));
        EXPECT_EQ(found.file, all[given].file);
    }
    EXPECT_EQ(outcome_of(look_up_for({80}, {all[2]})),
              "   --db: not given\n"
              "   project: it has none\n"
              "-> shipped, this machine: d512_h8_f32 at b1_q128_kv128 b32_q50_kv50 on NVIDIA A100, estimate, "
              "2026-03-01\n");
}

TEST(LookUpDevice, PassesOverOtherArchitecturesAndCpus) {
    const std::vector<RecordSource> sources = {
        source(RecordOrigin::kOption, {measured_record(1), device_tagged(64, "cuda-sm_90")})};
    EXPECT_FALSE(look_up_for({80}, sources).record);
    EXPECT_FALSE(look_up_for({}, sources).record);
    EXPECT_EQ(tag(look_up_for({90}, sources)), 64);
    // Nor does a CPU's build take a device's.
    EXPECT_FALSE(look_up(request(), {source(RecordOrigin::kOption, {device_record()})}).record);
}

TEST(LookUpDevice, TakesTheNewestArchitecturesRecordAndSaysWhichItPassesOver) {
    const std::vector<RecordSource> sources = {source(
        RecordOrigin::kOption,
        {device_tagged(64, "cuda"), device_tagged(128, "cuda-sm_80"), device_tagged(192, "cuda-sm_90")})};
    EXPECT_EQ(tag(look_up_for({}, sources)), 64);
    EXPECT_EQ(tag(look_up_for({75}, sources)), 64);
    EXPECT_EQ(tag(look_up_for({75, 80}, sources)), 128);
    const FoundCudaSchedule found = look_up_for({80, 90}, sources);
    EXPECT_EQ(tag(found), 192);
    const std::string record =
        "d512_h8_f32 at b1_q128_kv128 b32_q50_kv50 on NVIDIA A100, estimate, 2026-03-01";
    EXPECT_EQ(
        outcome_of(found),
        "-> --db a.jsonl: " + record + "; passed over: " + record +
            " for cuda-sm_80 (a library has one schedule for a device, that of cuda-sm_90); passed over: " +
            record + " for cuda (a library has one schedule for a device, that of cuda-sm_90)\n");
}

TEST(LookUpDevice, TakesWhatEveryArchitectureOfTheLibraryCanRun) {
    // 96 KiB, of which sm_75 has 64.
    const auto wide = [](TuningRecord& record) {
        record.cuda_schedule = parse_cuda_schedule(
            "threads_x:16,tile_kv:128,split_kv:512,attend.threads_y:8,attend.depth:64,attend.value_keys:128",
            *record.cuda_schedule);
    };
    const std::vector<RecordSource> sources = {
        source(RecordOrigin::kOption, {device_tagged(512, "cuda-sm_90", wide)})};
    const FoundCudaSchedule alone = look_up_for({90}, sources);
    ASSERT_TRUE(alone.record) << outcome_of(alone);
    const FoundCudaSchedule both = look_up_for({75, 90}, sources);
    EXPECT_FALSE(both.record);
    EXPECT_EQ(
        both.steps.front().outcome,
        "refused: d512_h8_f32 at b1_q128_kv128 b32_q50_kv50 on NVIDIA A100, estimate, 2026-03-01 (attend: a "
        "block takes 73728 bytes of shared memory, 65536 are there on sm_75)");
}

// An architecture is the machine: what was measured on one device of it comes before what was estimated for another.
TEST(LookUpDevice, PrefersAMeasuredRecordOfTheSameArchitecture) {
    const TuningRecord measured = device_tagged(128, "cuda-sm_80", [](TuningRecord& record) {
        record.machine.cpu = "NVIDIA A30";
        record.calls = measured_record(1).calls;
        record.effort = "measure";
    });
    const std::vector<RecordSource> sources = {
        source(RecordOrigin::kShipped, {device_tagged(64, "cuda-sm_80"), measured})};
    EXPECT_EQ(tag(look_up_for({80}, sources)), 128);
}

TEST(MachineDistance, GrowsWithCachesAndNames) {
    const Machine larger = {
        .cpu = "Some CPU @ 3 GHz", .cpus = 4, .l1d_bytes = 49152, .l2_bytes = 4194304, .l3_bytes = 0};
    EXPECT_EQ(machine_distance(kHere, kHere), 0);
    EXPECT_GT(machine_distance(kHere, larger), 0);
    EXPECT_GT(machine_distance(kHere, kElsewhere), machine_distance(kHere, larger));
    EXPECT_EQ(machine_distance(kHere, kElsewhere), machine_distance(kElsewhere, kHere));
    EXPECT_TRUE(std::isfinite(machine_distance(kHere, {})));
}

TEST(SizesDistance, IsZeroForTheSameAloneAndCountsDoublings) {
    const auto sizes = [](const char* text) { return std::vector{parse_sizes(text)}; };
    EXPECT_EQ(sizes_distance(sizes("b1_q128_kv128"), sizes("b1_q128_kv128")), 0);
    const double batch = sizes_distance(sizes("b1_q128_kv128"), sizes("b2_q128_kv128"));
    const double queries = sizes_distance(sizes("b1_q128_kv128"), sizes("b1_q256_kv128"));
    EXPECT_GT(batch, 0);
    EXPECT_GT(queries, batch);
    std::vector<Sizes> both = {parse_sizes("b1_q128_kv128"), parse_sizes("b1_q2048_kv2048")};
    EXPECT_GT(sizes_distance(sizes("b1_q128_kv128"), both), 0);
    EXPECT_GT(sizes_distance(both, sizes("b1_q128_kv128")), sizes_distance(sizes("b1_q128_kv128"), both));
    EXPECT_EQ(sizes_distance({}, both), 0);
}

}  // namespace
}  // namespace attnc
