#include "schedules/cpu_params.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/kernel_abi.h"
#include "schedules/schedule_text.h"
#include "stages/attention_tile.h"

namespace attnc {

const char* const kCpuTargets[3] = {"x86-64-linux-avx512_skylake", "x86-64-linux-avx2-fma-f16c",
                                    "x86-64-linux"};

namespace {

constexpr int64_t kMaxPanel = 512;
constexpr int64_t kMaxTileKv = 65536;
constexpr int64_t kMaxSplitKv = ATTNC_MAX_SPLIT_KV;

std::string number(int64_t value) { return std::to_string(value); }

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The one list of fields, in the order of the text form.
ScheduleFields field_pointers(CpuSchedule& schedule) {
    ScheduleFields fields;
    const auto visit = [&](const std::string& name, int64_t& value) { fields.emplace_back(name, &value); };
    visit("panel", schedule.layout.panel);
    visit("out_panel", schedule.layout.out_panel);
    visit("tile_kv", schedule.layout.tile_kv);
    visit("split_kv", schedule.layout.split_kv);
    CpuParams& params = schedule.params;
    visit("project_heads.rows", params.project_heads.rows);
    visit("project_out.rows", params.project_out.rows);
    visit("project_heads_tail.rows", params.project_heads_tail.rows);
    visit("project_out_tail.rows", params.project_out_tail.rows);
    const auto attend = [&](const std::string& kernel, AttendParams& of_kernel) {
        visit(kernel + ".rows", of_kernel.rows);
        visit(kernel + ".q_vectors", of_kernel.q_vectors);
        visit(kernel + ".key_rows", of_kernel.key_rows);
        visit(kernel + ".tail_rows", of_kernel.tail_rows);
        visit(kernel + ".context_rows", of_kernel.context_rows);
        visit(kernel + ".context_columns", of_kernel.context_columns);
    };
    attend("attend", params.attend);
    attend("attend_narrow", params.attend_narrow);
    attend("attend_single", params.attend_single);
    attend("attend_masked", params.attend_masked);
    attend("attend_guarded", params.attend_guarded);
    attend("attend_probs", params.attend_probs);
    visit("attend_decode.rows", params.attend_decode.rows);
    visit("attend_decode.keys", params.attend_decode.keys);
    visit("attend_decode.columns", params.attend_decode.columns);
    visit("attend_decode.single_columns", params.attend_decode.single_columns);
    return fields;
}

// ---- Registers
// -----------------------------------------------------------------------------------------------------

// Registers that a multiply-add needs beside accumulators and its vector operand. Where a multiply-add can
// read and broadcast a float from memory (AVX-512) one is left for addresses' sake; with FMA one holds the
// broadcast; without, one more holds the product.
int64_t temporaries(const VectorUnit& unit) { return unit.fma ? 1 : 2; }

// Registers of a tile of `rows` rows by `columns` floats, each row an outer product of a broadcast and the
// vectors of one row of operands.
int64_t tile_registers(int64_t rows, int64_t columns, const VectorUnit& unit) {
    const int64_t vectors = columns / unit.lanes;
    return rows * vectors + vectors + temporaries(unit);
}

// Rows that fill the registers beside `columns` floats; 0 if none fit. More than 25 accumulators gain
// nothing: the loads that they save are not what limits the loop.
int64_t best_rows(int64_t columns, const VectorUnit& unit) {
    constexpr int64_t kMostAccumulators = 25;
    const int64_t vectors = columns / unit.lanes;
    const int64_t accumulators = std::min(unit.registers - vectors - temporaries(unit), kMostAccumulators);
    return std::max<int64_t>(accumulators, 0) / vectors;
}

double loads_per_fma(int64_t rows, int64_t columns, const VectorUnit& unit) {
    const auto vectors = static_cast<double>(columns) / static_cast<double>(unit.lanes);
    return (static_cast<double>(rows) + vectors) / (static_cast<double>(rows) * vectors);
}

// ---- Rules
// ---------------------------------------------------------------------------------------------------------

[[noreturn]] void fail(const std::string& text) { throw ConfigError(text); }

// What a rule is about, put together when the rule is broken: a search asks for the rules millions of times.
struct Name {
    std::string_view kernel, rest;
    Name(const char* all) : kernel(all) {}
    Name(std::string_view of_kernel, std::string_view field) : kernel(of_kernel), rest(field) {}
    std::string text() const { return std::string(kernel) + std::string(rest); }
};
std::string operator+(const Name& name, const std::string& more) { return name.text() + more; }

void check_range(const Name& name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
        fail(name + " " + number(value) + " is outside " + number(low) + ".." + number(high));
    }
}

void check_multiple(const Name& name, int64_t value, int64_t of, std::string_view what) {
    if (value % of != 0)
        fail(name + " " + number(value) + " is not a multiple of " + number(of) + ", " + std::string(what));
}

// A panel's columns have to fall on whole heads, and on whole groups of heads in Q as in K and V: a panel
// writes the planes of its heads, and a part of a panel would write the plane of a head that isn't there.
// Empty if it fits.
std::string panel_fault(int64_t panel, const Config& config) {
    const int64_t head = padded_head(config.head_dim);
    const int64_t v_head = padded_head(config.v_head_dim);
    if (head % panel == 0 && v_head % panel == 0) return "";
    if (head != v_head) {
        return "panel " + number(panel) + " does not divide both of the padded heads of " + number(head) +
               " and " + number(v_head) + " features";
    }
    if (panel % head != 0) {
        return "panel " + number(panel) + " neither divides the padded head of " + number(head) +
               " features nor is a multiple of it";
    }
    const int64_t per_panel = panel / head;
    if (config.num_heads % per_panel != 0 || config.num_kv_heads % per_panel != 0) {
        return "panel " + number(panel) + " holds " + number(per_panel) + " heads, which does not divide " +
               number(config.num_heads) + " heads of Q and " + number(config.num_kv_heads) + " of K and V";
    }
    return "";
}

void check_layout(const Layout& layout, const Config& config) {
    constexpr std::string_view aligned = "to which heads are padded";
    check_range("panel", layout.panel, 1, kMaxPanel);
    check_multiple("panel", layout.panel, kQueryLanes, aligned);
    if (const std::string fault = panel_fault(layout.panel, config); !fault.empty()) fail(fault);
    check_range("out_panel", layout.out_panel, 1, kMaxPanel);
    check_multiple("out_panel", layout.out_panel, kQueryLanes, "the widest vector");
    check_range("tile_kv", layout.tile_kv, 1, kMaxTileKv);
    check_multiple("tile_kv", layout.tile_kv, kQueryLanes, "which is what keeps blocks on whole vectors");
    check_range("split_kv", layout.split_kv, 1, kMaxSplitKv);
    check_multiple("split_kv", layout.split_kv, kQueryLanes, "the keys of a run");
}

void check_registers(const Name& tile, int64_t rows, int64_t columns, const VectorUnit& unit) {
    const int64_t needed = tile_registers(rows, columns, unit);
    if (needed > unit.registers) {
        fail(tile + " of " + number(rows) + " x " + number(columns) + " floats needs " + number(needed) +
             " vector registers, " + number(unit.registers) + " are there");
    }
}

void check_project(const std::string& kernel, const ProjectParams& params, int64_t panel,
                   const VectorUnit& unit) {
    check_range({kernel, ".rows"}, params.rows, 1, 32);
    check_registers({kernel, ": the tile"}, params.rows, panel, unit);
}

// A form of fewer rows than another one has, if it is there.
void check_fewer(const std::string& kernel, int64_t rows, const std::string& other, int64_t other_rows) {
    if (rows < other_rows) return;
    fail(kernel + ".rows " + number(rows) + " is not less than " + other + ".rows " + number(other_rows));
}

void check_tail(const std::string& kernel, const ProjectParams& params, const ProjectParams& tail,
                int64_t panel, const VectorUnit& unit) {
    if (tail.rows == 0) return;
    check_project(kernel + "_tail", tail, panel, unit);
    check_fewer(kernel + "_tail", tail.rows, kernel, params.rows);
}

void check_attend(const std::string& kernel, const AttendParams& params, const Config& config,
                  const VectorUnit& unit) {
    check_range({kernel, ".q_vectors"}, params.q_vectors, 1, 8);
    check_range({kernel, ".rows"}, params.rows, 1, kQueryLanes * params.q_vectors);
    check_range({kernel, ".key_rows"}, params.key_rows, 1, 24);
    check_range({kernel, ".tail_rows"}, params.tail_rows, 1, 24);
    check_range({kernel, ".context_rows"}, params.context_rows, 1, 32);
    check_range({kernel, ".context_columns"}, params.context_columns, 1, kMaxPanel);
    if (params.key_rows % params.tail_rows != 0) {
        fail(kernel + ".tail_rows " + number(params.tail_rows) + " does not divide key_rows " +
             number(params.key_rows) + ": edges are cut where whole tiles could start");
    }
    if (params.rows % params.context_rows != 0) {
        fail(kernel + ".context_rows " + number(params.context_rows) + " does not divide rows " +
             number(params.rows) + ": a tile of queries is a whole number of context tiles");
    }
    check_multiple({kernel, ".context_columns"}, params.context_columns, unit.lanes, "the target's vector");
    const int64_t v_head = padded_head(config.v_head_dim);
    if (v_head % params.context_columns != 0) {
        fail(kernel + ".context_columns " + number(params.context_columns) +
             " does not divide the padded v_head_dim " + number(v_head));
    }
    // In a tile of scores the vectors are queries, and keys are the rows.
    check_registers({kernel, ": the tile of scores"}, params.key_rows, kQueryLanes * params.q_vectors, unit);
    check_registers({kernel, ": the tile of contexts"}, params.context_rows, params.context_columns, unit);
}

void check_fewer_queries(const std::string& kernel, const AttendParams& params,
                         const std::string& wider_kernel, const AttendParams& wider, const Config& config,
                         const VectorUnit& unit) {
    if (params.rows == 0) return;
    check_attend(kernel, params, config, unit);
    check_fewer(kernel, params.rows, wider_kernel, wider.rows);
}

void check_power(const Name& name, int64_t value, int64_t high) {
    check_range(name, value, 1, high);
    if (!std::has_single_bit(static_cast<uint64_t>(value)))
        fail(name + " " + number(value) + " is not a power of two");
}

void check_decode(const std::string& kernel, const DecodeParams& params, const Config& config,
                  const VectorUnit& unit) {
    check_power({kernel, ".rows"}, params.rows, 16);
    check_power({kernel, ".keys"}, params.keys, 16);
    if (params.rows * params.keys % unit.lanes != 0) {
        fail(kernel + ": a step of " + number(params.rows) + " rows x " + number(params.keys) +
             " keys is no multiple of " + number(unit.lanes) + ", so that its sums do not fill vectors");
    }
    const int64_t v_head = padded_head(config.v_head_dim);
    for (const auto& [name, columns] :
         {std::pair{".columns", params.columns}, {".single_columns", params.single_columns}}) {
        check_range({kernel, name}, columns, 1, kMaxPanel);
        check_multiple({kernel, name}, columns, unit.lanes, "the target's vector");
        if (v_head % columns != 0) {
            fail(kernel + name + " " + number(columns) + " does not divide the padded v_head_dim " +
                 number(v_head));
        }
    }
    // Lanes are features: each score, and each vector of features of a context, is an accumulator. Beside one row
    // there is its own vector or broadcast; the operand comes from memory.
    check_registers({kernel, ": the tile of scores"}, params.rows, params.keys * unit.lanes, unit);
    check_registers({kernel, ": the tile of contexts"}, params.rows, params.columns, unit);
    const int64_t needed = params.single_columns / unit.lanes + 1 + temporaries(unit);
    if (needed > unit.registers) {
        fail(kernel + ": " + number(params.single_columns) + " features of one row needs " + number(needed) +
             " vector registers, " + number(unit.registers) + " are there");
    }
}

// What a tile of queries goes through for a block of keys: K, V and its scores, twice each. Beyond the L2 of any core,
// and a core's share of the L3, a smaller block does the same work with less traffic.
constexpr int64_t kMostCacheBytes = int64_t{4} << 20;

// Halide makes a frame of constant size with at most this much for one Func, and a kernel has to say what it takes.
constexpr int64_t kMostStackBytesOfFunc = 16 * 1024;

void check_memory(const CpuSchedule& schedule, const Config& config) {
    const int64_t keys = schedule.layout.tile_kv;
    const int64_t features = padded_head(config.head_dim) + padded_head(config.v_head_dim);
    const CpuParams& params = schedule.params;
    for (const auto& [kernel, attend] :
         {std::pair{"attend", params.attend}, std::pair{"attend_narrow", params.attend_narrow},
          std::pair{"attend_single", params.attend_single}, std::pair{"attend_masked", params.attend_masked},
          std::pair{"attend_guarded", params.attend_guarded},
          std::pair{"attend_probs", params.attend_probs}}) {
        const int64_t bytes = keys * (features + kQueryLanes * attend.q_vectors) * 4;
        if (attend.rows > 0 && bytes > kMostCacheBytes) {
            fail("tile_kv " + number(keys) + ": keys, values and the scores of a tile of " + kernel +
                 " take " + number(bytes) + " bytes of cache, at most " + number(kMostCacheBytes));
        }
    }
    const int64_t runs = keys / kGranule * kTileBounds * static_cast<int64_t>(sizeof(int32_t));
    if (runs > kMostStackBytesOfFunc) {
        fail("tile_kv " + number(keys) + ": the runs of keys of kernels with masks take " + number(runs) +
             " bytes of stack, at most " + number(kMostStackBytesOfFunc));
    }
}

// ---- Defaults
// ------------------------------------------------------------------------------------------------------

// 64 columns where heads allow it (24 accumulators by 6 rows on AVX-512; a panel of 1024 inner features is
// 256 KiB), else the valid width with the fewest loads for each multiply-add.
int64_t default_panel(const Config& config, const VectorUnit& unit) {
    constexpr int64_t kPreferred = 64;
    constexpr int64_t kWidest = 128;
    int64_t best = kQueryLanes;
    for (int64_t panel = best; panel <= kWidest; panel += kQueryLanes) {
        const int64_t rows = best_rows(panel, unit);
        if (rows == 0 || !panel_fault(panel, config).empty()) continue;
        if (panel == kPreferred && unit.registers >= 32) return panel;
        if (loads_per_fma(rows, panel, unit) < loads_per_fma(best_rows(best, unit), best, unit)) best = panel;
    }
    return best;
}

// The last panel of wo is cut short by d_model but computed whole: of the widths that fill the registers, the
// one that wastes the fewest columns.
int64_t default_out_panel(const Config& config, const VectorUnit& unit) {
    if (unit.registers < 32) return 16;
    int64_t best = 64;
    for (const int64_t panel : {96, 80, 48}) {
        if (round_up(config.d_model, panel) < round_up(config.d_model, best)) best = panel;
    }
    return best;
}

// About 1 MiB of K and V, which is what a core's L2 holds beside a tile; 2048 keys of heads of 64 features.
int64_t default_tile_kv(const Config& config) {
    const int64_t features = padded_head(config.head_dim) + padded_head(config.v_head_dim);
    const int64_t keys = 2048 * 128 / features;
    return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(keys))), 256, 4096);
}

// 256 KiB of K and V: some ten microseconds from memory, which is long beside a call and short enough that few items
// still make work for many threads. 512 keys of heads of 64 features.
int64_t default_split_kv(const Config& config) {
    const int64_t features = padded_head(config.head_dim) + padded_head(config.v_head_dim);
    const int64_t keys = 512 * 128 / features;
    return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(keys))), 64, 1024);
}

// The largest width of at most `most` vectors that divides a head.
int64_t widest_columns(int64_t v_head, int64_t most, const VectorUnit& unit) {
    int64_t columns = most * unit.lanes;
    while (v_head % columns != 0) columns -= unit.lanes;
    return columns;
}

DecodeParams default_decode(const Config& config, const VectorUnit& unit) {
    const int64_t v_head = padded_head(config.v_head_dim);
    // 4 x 4 scores are 16 accumulators for 8 loads, and their sums fill one vector of 16; with half the registers 4 x 2
    // are 8. Contexts of 4 rows in as many accumulators; 5 vectors to a row still fit where heads have 80 features.
    const bool many = unit.registers >= 32;
    return {.rows = 4,
            .keys = many ? 4 : 2,
            .columns = widest_columns(v_head, many ? (v_head % 64 == 0 ? 4 : 5) : 2, unit),
            .single_columns = widest_columns(v_head, many ? 16 : 8, unit)};
}

// The tile of contexts: its rows divide the rows of a tile of queries, a power of two times three at most, so
// that few widths come into question.
void choose_context_tile(AttendParams& params, int64_t v_head, const VectorUnit& unit) {
    const auto choose = [&](int64_t rows, int64_t columns) {
        params.context_rows = rows;
        params.context_columns = columns;
    };
    if (unit.registers < 32) {
        choose(unit.lanes == 8 ? 4 : 2, 16);
    } else if (v_head % 48 == 0) {
        choose(8, 48);
    } else if (v_head % 32 == 0) {
        choose(8, 32);
    } else if (v_head % 80 == 0) {
        choose(4, 80);
    } else {
        choose(16, 16);
    }
}

}  // namespace

VectorUnit vector_unit(std::string_view target) {
    std::set<std::string_view> features;
    for (size_t begin = 0; begin <= target.size();) {
        const size_t end = std::min(target.find('-', begin), target.size());
        features.insert(target.substr(begin, end - begin));
        begin = end + 1;
    }
    if (!target.starts_with("x86-64-") || features.contains("cuda") || features.contains("opencl")) {
        fail("target '" + std::string(target) + "' is not one of an x86-64 CPU");
    }
    if (features.contains("avx512_skylake")) return {16, 32, true};
    const bool wide = features.contains("avx2") || features.contains("avx");
    return {wide ? 8 : 4, 16, features.contains("fma")};
}

CpuSchedule default_schedule(const Config& config, std::string_view target) {
    const VectorUnit unit = vector_unit(target);
    CpuSchedule schedule;
    schedule.layout.panel = default_panel(config, unit);
    schedule.layout.out_panel = default_out_panel(config, unit);
    schedule.layout.tile_kv = default_tile_kv(config);
    schedule.layout.split_kv = default_split_kv(config);

    CpuParams& params = schedule.params;
    params.project_heads.rows = best_rows(schedule.layout.panel, unit);
    params.project_out.rows = best_rows(schedule.layout.out_panel, unit);
    // Of a tile of few rows the tail would waste more than it saves: its loop is short of independent sums.
    const auto tail_of = [](int64_t rows) { return rows >= 4 ? rows - 1 : 0; };
    params.project_heads_tail.rows = tail_of(params.project_heads.rows);
    params.project_out_tail.rows = tail_of(params.project_out.rows);
    if (unit.registers >= 32) {
        // 4 x 6 vectors are 24 accumulators, for 10 loads in 24 multiply-adds. The edges take 2 keys at a
        // time: 8 accumulators are the least that hide the latency of a multiply-add.
        params.attend = {.rows = 64, .q_vectors = 4, .key_rows = 6, .tail_rows = 2};
        params.attend_narrow = {.rows = 32, .q_vectors = 2, .key_rows = 12, .tail_rows = 4};
        params.attend_single = {.rows = 16, .q_vectors = 1, .key_rows = 16, .tail_rows = 8};
        params.attend_probs = {.rows = 16, .q_vectors = 1, .key_rows = 16, .tail_rows = 16};
    } else if (unit.lanes == 8) {
        // A q_vector is two registers: 12 accumulators of 16 registers.
        params.attend = {.rows = 16, .q_vectors = 1, .key_rows = 6, .tail_rows = 2};
        params.attend_probs = {.rows = 16, .q_vectors = 1, .key_rows = 4, .tail_rows = 4};
    } else {
        // A q_vector is four registers: 8 accumulators, 4 vectors of queries and the temporaries.
        params.attend = {.rows = 16, .q_vectors = 1, .key_rows = 2, .tail_rows = 1};
        params.attend_probs = {.rows = 16, .q_vectors = 1, .key_rows = 2, .tail_rows = 2};
    }
    choose_context_tile(params.attend, padded_head(config.v_head_dim), unit);
    for (AttendParams* fewer : {&params.attend_narrow, &params.attend_single}) {
        if (fewer->rows > 0) choose_context_tile(*fewer, padded_head(config.v_head_dim), unit);
    }
    // Few queries: fewer contexts in vain past the last one.
    if (params.attend_single.rows > 0 && padded_head(config.v_head_dim) % 64 == 0) {
        params.attend_single.context_rows = 4;
        params.attend_single.context_columns = 64;
    }
    choose_context_tile(params.attend_probs, padded_head(config.v_head_dim), unit);
    params.attend_masked = params.attend;
    params.attend_guarded = params.attend;
    params.attend_decode = default_decode(config, unit);
    return schedule;
}

bool has_kernel(const CpuSchedule& schedule, int kernel) {
    if (kernel == ATTNC_KERNEL_PROJECT_HEADS_TAIL) return schedule.params.project_heads_tail.rows > 0;
    if (kernel == ATTNC_KERNEL_PROJECT_OUT_TAIL) return schedule.params.project_out_tail.rows > 0;
    if (kernel == ATTNC_KERNEL_ATTEND_NARROW) return schedule.params.attend_narrow.rows > 0;
    if (kernel == ATTNC_KERNEL_ATTEND_SINGLE) return schedule.params.attend_single.rows > 0;
    return true;
}

void check_schedule(const CpuSchedule& schedule, const Config& config, std::string_view target) {
    const VectorUnit unit = vector_unit(target);
    const CpuParams& params = schedule.params;
    check_layout(schedule.layout, config);
    check_project("project_heads", params.project_heads, schedule.layout.panel, unit);
    check_project("project_out", params.project_out, schedule.layout.out_panel, unit);
    check_tail("project_heads", params.project_heads, params.project_heads_tail, schedule.layout.panel, unit);
    check_tail("project_out", params.project_out, params.project_out_tail, schedule.layout.out_panel, unit);
    check_attend("attend", params.attend, config, unit);
    check_fewer_queries("attend_narrow", params.attend_narrow, "attend", params.attend, config, unit);
    const bool narrow = params.attend_narrow.rows > 0;
    check_fewer_queries("attend_single", params.attend_single, narrow ? "attend_narrow" : "attend",
                        narrow ? params.attend_narrow : params.attend, config, unit);
    check_attend("attend_masked", params.attend_masked, config, unit);
    check_attend("attend_guarded", params.attend_guarded, config, unit);
    check_attend("attend_probs", params.attend_probs, config, unit);
    check_decode("attend_decode", params.attend_decode, config, unit);
    check_memory(schedule, config);
}

std::vector<ScheduleField> fields_of(const CpuSchedule& schedule) {
    CpuSchedule copy = schedule;
    std::vector<ScheduleField> fields;
    for (const auto& [name, value] : field_pointers(copy)) fields.push_back({name, *value});
    return fields;
}

namespace {

// Where each field lies in a schedule, in bytes: the list of names is long to make, and searches ask by name often.
const std::map<std::string, std::ptrdiff_t, std::less<>>& field_offsets() {
    static_assert(std::is_standard_layout_v<CpuSchedule>);
    static const auto offsets = [] {
        CpuSchedule any;
        std::map<std::string, std::ptrdiff_t, std::less<>> made;
        for (const auto& [name, pointer] : field_pointers(any))
            made[name] = reinterpret_cast<const char*>(pointer) - reinterpret_cast<const char*>(&any);
        return made;
    }();
    return offsets;
}

}  // namespace

const int64_t* field_of(const CpuSchedule& schedule, std::string_view name) {
    const auto found = field_offsets().find(name);
    if (found == field_offsets().end()) return nullptr;
    return reinterpret_cast<const int64_t*>(reinterpret_cast<const char*>(&schedule) + found->second);
}

int64_t* field_of(CpuSchedule& schedule, std::string_view name) {
    return const_cast<int64_t*>(field_of(std::as_const(schedule), name));
}

bool set_field(CpuSchedule& schedule, std::string_view name, int64_t value) {
    int64_t* field = field_of(schedule, name);
    if (field != nullptr) *field = value;
    return field != nullptr;
}

std::string to_string(const CpuSchedule& schedule) {
    CpuSchedule copy = schedule;
    return schedule_text(field_pointers(copy));
}

namespace {

// The Layout field that a kernel's code is made by; "" for kernels that know nothing of Layout.
std::string_view layout_field_of(int kernel) {
    switch (kernel) {
        case ATTNC_KERNEL_PROJECT_HEADS:
        case ATTNC_KERNEL_PROJECT_HEADS_TAIL:
            return "panel";
        case ATTNC_KERNEL_PROJECT_OUT:
        case ATTNC_KERNEL_PROJECT_OUT_TAIL:
            return "out_panel";
        case ATTNC_KERNEL_ATTEND:
        case ATTNC_KERNEL_ATTEND_NARROW:
        case ATTNC_KERNEL_ATTEND_SINGLE:
        case ATTNC_KERNEL_ATTEND_MASKED:
        case ATTNC_KERNEL_ATTEND_GUARDED:
        case ATTNC_KERNEL_ATTEND_PROBS:
        case ATTNC_KERNEL_ATTEND_SCORES:
            return "tile_kv";
        case ATTNC_KERNEL_ATTEND_DECODE:
            return "split_kv";
        default:
            return "";
    }
}

}  // namespace

std::string to_string(const CpuSchedule& schedule, int kernel) {
    const std::string own =
        std::string(kernel_name(kernel == ATTNC_KERNEL_ATTEND_SCORES ? ATTNC_KERNEL_ATTEND_PROBS : kernel)) +
        ".";
    const std::string_view of_layout = layout_field_of(kernel);
    CpuSchedule copy = schedule;
    ScheduleFields fields = field_pointers(copy);
    std::erase_if(
        fields, [&](const auto& field) { return field.first != of_layout && !field.first.starts_with(own); });
    return schedule_text(fields);
}

CpuSchedule parse_schedule(std::string_view text, const CpuSchedule& base) {
    CpuSchedule schedule = base;
    read_schedule_text(text, field_pointers(schedule));
    return schedule;
}

}  // namespace attnc
