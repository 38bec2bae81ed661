#include "schedules/cpu_params.h"

#include <gtest/gtest.h>

#include "runtime/kernel_abi.h"
#include "tests/unit/config_error.h"

namespace attnc {
namespace {

constexpr const char* kAvx512 = "x86-64-linux-avx512_skylake";
constexpr const char* kAvx2 = "x86-64-linux-avx2-fma-f16c";
constexpr const char* kSse2 = "x86-64-linux";

const Config& usual() {
    static const Config config = parse_config("d512_h8_f32");
    return config;
}

TEST(VectorUnit, FollowsTheTargetsFeatures) {
    const auto expect = [](const char* target, int64_t lanes, int64_t registers, bool fma) {
        const VectorUnit unit = vector_unit(target);
        EXPECT_EQ(unit.lanes, lanes) << target;
        EXPECT_EQ(unit.registers, registers) << target;
        EXPECT_EQ(unit.fma, fma) << target;
    };
    expect(kAvx512, 16, 32, true);
    expect(kAvx2, 8, 16, true);
    expect(kSse2, 4, 16, false);
    expect("x86-64-linux-avx-sse41", 8, 16, false);
    expect("x86-64-linux-sse41-no_runtime", 4, 16, false);
    for (const std::string target : {"", "x86-64-linux-cuda", "arm-64-linux", "x86-32-linux", "x86-64"}) {
        EXPECT_EQ(error_of([&] { vector_unit(target); }),
                  "target '" + target + "' is not one of an x86-64 CPU");
    }
}

TEST(DefaultSchedule, IsValidForEveryHeadAndTarget) {
    for (const char* const target : kCpuTargets) {
        for (int64_t head_dim = 16; head_dim <= 512; head_dim += 16) {
            for (const int64_t v_head_dim : {head_dim, int64_t{16}, int64_t{80}, int64_t{512}}) {
                for (const int64_t num_heads : {1, 3, 8, 12}) {
                    for (const int64_t num_kv_heads : {int64_t{1}, num_heads}) {
                        Config config;
                        config.d_model = 480;
                        config.num_heads = num_heads;
                        config.num_kv_heads = num_kv_heads;
                        config.head_dim = head_dim;
                        config.v_head_dim = v_head_dim;
                        config = complete(config);
                        EXPECT_NO_THROW(check_schedule(default_schedule(config, target), config, target))
                            << to_string(config) << " on " << target;
                    }
                }
            }
        }
    }
}

TEST(DefaultSchedule, OfCommonConfigurations) {
    EXPECT_EQ(
        to_string(default_schedule(usual(), kAvx512)),
        "panel:64,out_panel:64,tile_kv:2048,split_kv:512,project_heads.rows:6,project_out.rows:6,"
        "project_heads_tail.rows:5,project_out_tail.rows:5,"
        "attend.rows:64,attend.q_vectors:4,attend.key_rows:6,attend.tail_rows:2,attend.context_rows:8,"
        "attend.context_columns:32,"
        "attend_narrow.rows:32,attend_narrow.q_vectors:2,attend_narrow.key_rows:12,attend_narrow.tail_rows:4,"
        "attend_narrow.context_rows:8,attend_narrow.context_columns:32,"
        "attend_single.rows:16,attend_single.q_vectors:1,attend_single.key_rows:16,attend_single.tail_rows:8,"
        "attend_single.context_rows:4,attend_single.context_columns:64,"
        "attend_masked.rows:64,attend_masked.q_vectors:4,attend_masked.key_rows:6,attend_masked.tail_rows:2,"
        "attend_masked.context_rows:8,attend_masked.context_columns:32,"
        "attend_guarded.rows:64,attend_guarded.q_vectors:4,attend_guarded.key_rows:6,"
        "attend_guarded.tail_rows:2,attend_guarded.context_rows:8,attend_guarded.context_columns:32,"
        "attend_probs.rows:16,attend_probs.q_vectors:1,attend_probs.key_rows:16,attend_probs.tail_rows:16,"
        "attend_probs.context_rows:8,attend_probs.context_columns:32,"
        "attend_decode.rows:4,attend_decode.keys:4,attend_decode.columns:64,"
        "attend_decode.single_columns:64");

    const CpuSchedule avx2 = default_schedule(usual(), kAvx2);
    EXPECT_EQ(avx2.layout, (Layout{16, 16, 2048, 512}));
    EXPECT_EQ(avx2.params.project_heads.rows, 6);
    EXPECT_EQ(avx2.params.project_heads_tail.rows, 5);
    EXPECT_FALSE(has_kernel(avx2, ATTNC_KERNEL_ATTEND_NARROW));  // a tile has 16 queries already
    EXPECT_FALSE(has_kernel(avx2, ATTNC_KERNEL_ATTEND_SINGLE));
    EXPECT_TRUE(has_kernel(avx2, ATTNC_KERNEL_ATTEND));
    EXPECT_EQ(avx2.params.attend, (AttendParams{16, 1, 6, 2, 4, 16}));
    EXPECT_EQ(avx2.params.attend_probs, (AttendParams{16, 1, 4, 4, 4, 16}));
    EXPECT_EQ(avx2.params.attend_decode, (DecodeParams{4, 2, 16, 64}));

    const CpuSchedule sse2 = default_schedule(usual(), kSse2);
    EXPECT_EQ(sse2.layout, (Layout{16, 16, 2048, 512}));
    EXPECT_EQ(sse2.params.project_out.rows, 2);
    EXPECT_FALSE(has_kernel(sse2, ATTNC_KERNEL_PROJECT_OUT_TAIL));
    EXPECT_EQ(sse2.params.attend, (AttendParams{16, 1, 2, 1, 2, 16}));
    EXPECT_EQ(sse2.params.attend_probs, (AttendParams{16, 1, 2, 2, 2, 16}));
    EXPECT_EQ(sse2.params.attend_decode, (DecodeParams{4, 2, 8, 32}));
}

TEST(CpuSchedule, AKernelDependsOnItsOwnFieldsAndOneOfLayout) {
    const CpuSchedule schedule = default_schedule(usual(), kAvx512);
    EXPECT_EQ(to_string(schedule, ATTNC_KERNEL_PROJECT_HEADS), "panel:64,project_heads.rows:6");
    EXPECT_EQ(to_string(schedule, ATTNC_KERNEL_PROJECT_OUT_TAIL), "out_panel:64,project_out_tail.rows:5");
    EXPECT_EQ(to_string(schedule, ATTNC_KERNEL_PROJECT_OUT), "out_panel:64,project_out.rows:6");
    EXPECT_EQ(to_string(schedule, ATTNC_KERNEL_ATTEND_LSE), "");
    EXPECT_EQ(to_string(schedule, ATTNC_KERNEL_ATTEND_MERGE), "");
    EXPECT_TRUE(
        to_string(schedule, ATTNC_KERNEL_ATTEND_DECODE).starts_with("split_kv:512,attend_decode.rows:4,"));
    EXPECT_EQ(to_string(schedule, ATTNC_KERNEL_ATTEND_SCORES),
              to_string(schedule, ATTNC_KERNEL_ATTEND_PROBS));
    EXPECT_EQ(to_string(schedule, ATTNC_KERNEL_ATTEND),
              "tile_kv:2048,attend.rows:64,attend.q_vectors:4,attend.key_rows:6,attend.tail_rows:2,attend."
              "context_rows:8,"
              "attend.context_columns:32");
}

TEST(DefaultSchedule, PanelsHoldWholeHeads) {
    const auto expect = [](const char* config, int64_t panel, int64_t rows) {
        const CpuSchedule schedule = default_schedule(parse_config(config), kAvx512);
        EXPECT_EQ(schedule.layout.panel, panel) << config;
        EXPECT_EQ(schedule.params.project_heads.rows, rows) << config;
    };
    expect("d384_h12_f32", 64, 6);             // two heads of 32
    expect("d96_h3_f32", 96, 4);               // three heads of 32, which two do not divide
    expect("d640_h8_f32", 80, 5);              // one head of 80
    expect("d768_h8_f32", 96, 4);              // one head of 96
    expect("d1024_h8_f32", 64, 6);             // half a head of 128
    expect("d512_h8_hd64_vhd32_f32", 32, 12);  // half a head of Q, one of V
    expect("d512_h8_kv1_hd32_f32", 32, 12);    // one head of K
    expect("d512_h1_hd16_f32", 16, 25);
}

TEST(DefaultSchedule, OutPanelWastesFewColumns) {
    const auto out_panel = [](const char* config) {
        return default_schedule(parse_config(config), kAvx512).layout.out_panel;
    };
    EXPECT_EQ(out_panel("d384_h12_f32"), 64);
    EXPECT_EQ(out_panel("d480_h8_f32"), 96);
    EXPECT_EQ(out_panel("d400_h8_f32"), 80);
    EXPECT_EQ(out_panel("d48_h3_f32"), 48);
}

TEST(DefaultSchedule, BlocksOfKeysAreAboutOneMebibyte) {
    const auto tile_kv = [](const char* config) {
        return default_schedule(parse_config(config), kAvx512).layout.tile_kv;
    };
    EXPECT_EQ(tile_kv("d512_h8_f32"), 2048);
    EXPECT_EQ(tile_kv("d256_h8_f32"), 4096);
    EXPECT_EQ(tile_kv("d128_h8_f32"), 4096);
    EXPECT_EQ(tile_kv("d640_h8_f32"), 1024);
    EXPECT_EQ(tile_kv("d1024_h8_f32"), 1024);
    EXPECT_EQ(tile_kv("d512_h1_f32"), 256);
}

TEST(DefaultSchedule, SplitsOfKeysAreAboutAQuarterOfAMebibyte) {
    const auto split_kv = [](const char* config) {
        return default_schedule(parse_config(config), kAvx512).layout.split_kv;
    };
    EXPECT_EQ(split_kv("d512_h8_f32"), 512);
    EXPECT_EQ(split_kv("d256_h8_f32"), 1024);
    EXPECT_EQ(split_kv("d128_h8_f32"), 1024);
    EXPECT_EQ(split_kv("d640_h8_f32"), 256);
    EXPECT_EQ(split_kv("d1024_h8_f32"), 256);
    EXPECT_EQ(split_kv("d512_h1_f32"), 64);
}

TEST(ScheduleText, ParsingUndoesPrinting) {
    for (const char* const target : kCpuTargets) {
        const CpuSchedule schedule = default_schedule(usual(), target);
        EXPECT_EQ(parse_schedule(to_string(schedule), CpuSchedule{}), schedule);
    }
}

TEST(ScheduleText, OverridesOnlyWhatItNames) {
    CpuSchedule expected = default_schedule(usual(), kAvx512);
    expected.layout.tile_kv = 512;
    expected.params.attend_masked.rows = 32;
    const CpuSchedule base = default_schedule(usual(), kAvx512);
    EXPECT_EQ(parse_schedule("attend_masked.rows:32,tile_kv:512", base), expected);
    EXPECT_EQ(parse_schedule("", base), base);
}

TEST(ScheduleText, RefusesWithOneLine) {
    const auto refused = [](std::string_view text) {
        return error_of([&] { parse_schedule(text, CpuSchedule{}); });
    };
    EXPECT_EQ(refused("width:64"), "schedule field 'width' is unknown");
    EXPECT_EQ(refused("attend.:64"), "schedule field 'attend.' is unknown");
    EXPECT_EQ(refused("panel:64,panel:64"), "schedule field panel is given twice");
    EXPECT_EQ(refused("panel:x"), "schedule field panel: 'x' is not a number");
    EXPECT_EQ(refused("panel:"), "schedule field panel: '' is not a number");
    EXPECT_EQ(refused("panel:6.5"), "schedule field panel: '6.5' is not a number");
    EXPECT_EQ(refused("panel: 64"), "schedule field panel: ' 64' is not a number");
    EXPECT_EQ(refused("panel:99999999999999999999"),
              "schedule field panel: '99999999999999999999' is not a number");
    EXPECT_EQ(refused("panel"), "schedule part 'panel' is not of the form field:number");
    EXPECT_EQ(refused("panel=64"), "schedule part 'panel=64' is not of the form field:number");
    EXPECT_EQ(refused(",panel:64"), "schedule part '' is not of the form field:number");
    EXPECT_EQ(refused("panel:64,"), "schedule ends in a comma");
}

// The message for the default schedule of `config` with `text` laid over it.
std::string fault(const char* text, const char* target = kAvx512, const char* config_text = "d512_h8_f32") {
    const Config config = parse_config(config_text);
    return error_of(
        [&] { check_schedule(parse_schedule(text, default_schedule(config, target)), config, target); });
}

TEST(CheckSchedule, LayoutRules) {
    EXPECT_EQ(fault("panel:0"), "panel 0 is outside 1..512");
    EXPECT_EQ(fault("panel:-16"), "panel -16 is outside 1..512");
    EXPECT_EQ(fault("panel:24"), "panel 24 is not a multiple of 16, to which heads are padded");
    EXPECT_EQ(fault("panel:48"),
              "panel 48 neither divides the padded head of 64 features nor is a multiple of it");
    EXPECT_EQ(fault("panel:192,project_heads.rows:1"),
              "panel 192 holds 3 heads, which does not divide 8 heads of Q and 8 of K and V");
    EXPECT_EQ(fault("panel:128", kAvx512, "d512_h8_kv1_f32"),
              "panel 128 holds 2 heads, which does not divide 8 heads of Q and 1 of K and V");
    EXPECT_EQ(fault("panel:64", kAvx512, "d512_h8_vhd32_f32"),
              "panel 64 does not divide both of the padded heads of 64 and 32 features");
    EXPECT_EQ(fault("panel:128,project_heads.rows:2,project_heads_tail.rows:1"), "no error");
    EXPECT_EQ(fault("out_panel:40"), "out_panel 40 is not a multiple of 16, the widest vector");
    EXPECT_EQ(fault("tile_kv:0"), "tile_kv 0 is outside 1..65536");
    EXPECT_EQ(fault("tile_kv:100"),
              "tile_kv 100 is not a multiple of 16, which is what keeps blocks on whole vectors");
    EXPECT_EQ(fault("split_kv:8208"), "split_kv 8208 is outside 1..8192");
    EXPECT_EQ(fault("split_kv:24"), "split_kv 24 is not a multiple of 16, the keys of a run");
}

TEST(CheckSchedule, ProjectionRules) {
    EXPECT_EQ(fault("project_heads.rows:0"), "project_heads.rows 0 is outside 1..32");
    EXPECT_EQ(fault("project_out.rows:7"),
              "project_out: the tile of 7 x 64 floats needs 33 vector registers, 32 are there");
    EXPECT_EQ(fault("panel:64", kAvx2),
              "project_heads: the tile of 6 x 64 floats needs 57 vector registers, 16 are there");
    EXPECT_EQ(fault("project_heads_tail.rows:6"),
              "project_heads_tail.rows 6 is not less than project_heads.rows 6");
    EXPECT_EQ(fault("project_out_tail.rows:33"), "project_out_tail.rows 33 is outside 1..32");
    EXPECT_EQ(fault("project_heads_tail.rows:0,project_out_tail.rows:0"), "no error");
    EXPECT_EQ(fault("project_heads.rows:3", kSse2),
              "project_heads: the tile of 3 x 16 floats needs 18 vector registers, 16 are there");
}

TEST(CheckSchedule, AttendRules) {
    EXPECT_EQ(fault("attend.q_vectors:9"), "attend.q_vectors 9 is outside 1..8");
    EXPECT_EQ(fault("attend.rows:65"), "attend.rows 65 is outside 1..64");
    EXPECT_EQ(fault("attend_masked.rows:20"),
              "attend_masked.context_rows 8 does not divide rows 20: a tile of queries is a whole number of "
              "context "
              "tiles");
    EXPECT_EQ(fault("attend.key_rows:25"), "attend.key_rows 25 is outside 1..24");
    EXPECT_EQ(fault("attend.tail_rows:0"), "attend.tail_rows 0 is outside 1..24");
    EXPECT_EQ(
        fault("attend_guarded.tail_rows:4"),
        "attend_guarded.tail_rows 4 does not divide key_rows 6: edges are cut where whole tiles could start");
    EXPECT_EQ(fault("attend.context_rows:33"), "attend.context_rows 33 is outside 1..32");
    EXPECT_EQ(fault("attend.context_columns:8"),
              "attend.context_columns 8 is not a multiple of 16, the target's vector");
    EXPECT_EQ(fault("attend.context_columns:48"),
              "attend.context_columns 48 does not divide the padded v_head_dim 64");
    EXPECT_EQ(fault("attend.key_rows:8"),
              "attend: the tile of scores of 8 x 64 floats needs 37 vector registers, 32 are there");
    EXPECT_EQ(fault("attend.context_columns:64"),
              "attend: the tile of contexts of 8 x 64 floats needs 37 vector registers, 32 are there");
    EXPECT_EQ(fault("attend_probs.key_rows:6,attend_probs.tail_rows:6", kAvx2), "no error");
    EXPECT_EQ(fault("attend_probs.key_rows:7,attend_probs.tail_rows:7", kAvx2),
              "attend_probs: the tile of scores of 7 x 16 floats needs 17 vector registers, 16 are there");
    EXPECT_EQ(fault("attend.context_columns:8", kAvx2), "no error");
    EXPECT_EQ(fault("attend.rows:32"), "attend_narrow.rows 32 is not less than attend.rows 32");
    EXPECT_EQ(fault("attend_narrow.rows:16"), "attend_single.rows 16 is not less than attend_narrow.rows 16");
    EXPECT_EQ(fault("attend.rows:16,attend_narrow.rows:0"),
              "attend_single.rows 16 is not less than attend.rows 16");
    EXPECT_EQ(fault("attend_narrow.rows:0,attend_single.rows:0"), "no error");
    EXPECT_EQ(fault("attend_narrow.key_rows:15,attend_narrow.tail_rows:5"),
              "attend_narrow: the tile of scores of 15 x 32 floats needs 33 vector registers, 32 are there");
}

TEST(CheckSchedule, MemoryRules) {
    EXPECT_EQ(fault("tile_kv:5456"), "no error");
    EXPECT_EQ(fault("tile_kv:8192", kAvx512, "d64_h4_f32"), "no error");
    EXPECT_EQ(
        fault("tile_kv:8208", kAvx512, "d64_h4_f32"),
        "tile_kv 8208: the runs of keys of kernels with masks take 16416 bytes of stack, at most 16384");
    EXPECT_EQ(
        fault("tile_kv:5472"),
        "tile_kv 5472: keys, values and the scores of a tile of attend take 4202496 bytes of cache, at most "
        "4194304");
    EXPECT_EQ(
        fault("tile_kv:1024", kAvx512, "d512_h1_f32"),
        "tile_kv 1024: keys, values and the scores of a tile of attend take 4456448 bytes of cache, at most "
        "4194304");
    EXPECT_EQ(fault("tile_kv:65536", kAvx512, "d16_h1_f32"),
              "tile_kv 65536: keys, values and the scores of a tile of attend take 25165824 bytes of cache, "
              "at most "
              "4194304");
}

TEST(Fields, AreSetByTheirNames) {
    CpuSchedule schedule = default_schedule(usual(), kAvx512);
    const std::vector<ScheduleField> fields = fields_of(schedule);
    EXPECT_EQ(fields.front().name, "panel");
    EXPECT_EQ(fields.back().name, "attend_decode.single_columns");
    for (const ScheduleField& field : fields) EXPECT_TRUE(set_field(schedule, field.name, 7)) << field.name;
    for (const ScheduleField& field : fields_of(schedule)) EXPECT_EQ(field.value, 7) << field.name;
    EXPECT_FALSE(set_field(schedule, "attend.", 7));
}

TEST(CheckSchedule, DecodeRules) {
    EXPECT_EQ(fault("attend_decode.rows:32"), "attend_decode.rows 32 is outside 1..16");
    EXPECT_EQ(fault("attend_decode.rows:3"), "attend_decode.rows 3 is not a power of two");
    EXPECT_EQ(fault("attend_decode.keys:6"), "attend_decode.keys 6 is not a power of two");
    EXPECT_EQ(fault("attend_decode.keys:2"),
              "attend_decode: a step of 4 rows x 2 keys is no multiple of 16, so that its sums do not fill "
              "vectors");
    EXPECT_EQ(fault("attend_decode.columns:8"),
              "attend_decode.columns 8 is not a multiple of 16, the target's vector");
    EXPECT_EQ(fault("attend_decode.single_columns:48"),
              "attend_decode.single_columns 48 does not divide the padded v_head_dim 64");
    EXPECT_EQ(fault("attend_decode.keys:8"),
              "attend_decode: the tile of scores of 4 x 128 floats needs 41 vector registers, 32 are there");
    EXPECT_EQ(fault("attend_decode.columns:32", kAvx2),
              "attend_decode: the tile of contexts of 4 x 32 floats needs 21 vector registers, 16 are there");
    EXPECT_EQ(fault("attend_decode.single_columns:64", kSse2),
              "attend_decode: 64 features of one row needs 19 vector registers, 16 are there");
    EXPECT_EQ(fault("attend_decode.rows:8,attend_decode.keys:2,attend_decode.columns:32"), "no error");
}

}  // namespace
}  // namespace attnc
