// Parameters of the CPU kernels' schedules: how each kernel runs, never what it computes. Plain structs; each field
// says its unit, its range and its reason. Validity rules and the text form live beside them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stages/config.h"
#include "stages/layout.h"

namespace attnc {

// project_heads, project_out and their tail kernels: the register tile is `rows` x panel.
struct ProjectParams {
    // Rows of the register tile, 1..32: rows * panel / vector accumulators must fit the registers. 0 in a tail kernel:
    // the target does without.
    int64_t rows = 6;
    bool operator==(const ProjectParams&) const = default;
};

// attend and its masked, guarded and probability forms. Lanes are queries, 16 to a vector.
struct AttendParams {
    // Queries of a tile, 1..16 * q_vectors, a multiple of context_rows; 0 in attend_narrow and attend_single: the
    // target does without.
    int64_t rows = 64;
    int64_t q_vectors = 4;  // 16-lane vectors of queries in the score tile, 1..8
    int64_t key_rows = 6;   // keys of the score tile, 1..24: q_vectors * key_rows accumulators (in 16 lanes)
    int64_t tail_rows = 2;  // keys of the score tile at the edges, divides key_rows
    int64_t context_rows = 8;  // queries of the context tile, 1..32
    int64_t context_columns =
        32;  // features of the context tile: a multiple of the vector that divides the padded head
    bool operator==(const AttendParams&) const = default;
};

// attend_decode: few rows (a row: one query of one head), features in vector lanes. Rows are computed in blocks where
// there are more than one.
struct DecodeParams {
    int64_t rows = 4;  // rows of a block, 1..16, a power of two
    int64_t keys = 4;  // keys of the score tile of a block, 1..16, a power of two: rows * keys accumulators
    int64_t columns =
        64;  // features of the context tile of a block: a multiple of the vector that divides the
             // padded head of V
    int64_t single_columns = 64;  // the same for one row
    bool operator==(const DecodeParams&) const = default;
};

struct CpuParams {
    ProjectParams project_heads;
    ProjectParams project_out;
    // With a row less than those: tiles of both make up any number of rows, where one would overhang by up to a tile.
    ProjectParams project_heads_tail = {.rows = 0}, project_out_tail = {.rows = 0};
    AttendParams attend;
    // attend for fewer queries, of which a wide tile would compute most in vain.
    AttendParams attend_narrow = {.rows = 0}, attend_single = {.rows = 0};
    AttendParams attend_masked;
    AttendParams attend_guarded;
    AttendParams attend_probs;  // and of attend_scores
    DecodeParams attend_decode;
    bool operator==(const CpuParams&) const = default;
};

// One schedule text holds the whole of a target: Layout fields bare, kernel fields qualified:
// "panel:64,out_panel:64,tile_kv:2048,project_heads.rows:6,attend.rows:64,...". Every field, in the structs' order.
struct CpuSchedule {
    Layout layout;
    CpuParams params;
    bool operator==(const CpuSchedule&) const = default;
};
std::string to_string(const CpuSchedule& schedule);

// The same field by field: "attend.rows" and its value.
struct ScheduleField {
    std::string name;
    int64_t value = 0;
};
std::vector<ScheduleField> fields_of(const CpuSchedule& schedule);
bool set_field(CpuSchedule& schedule, std::string_view name, int64_t value);  // false: there is no such field
int64_t* field_of(CpuSchedule& schedule, std::string_view name);              // null: there is no such field
const int64_t* field_of(const CpuSchedule& schedule, std::string_view name);

// The part of it that a kernel's (ATTNC_KERNEL_*) code depends on, a field of Layout and its own: kernels that are alike in it
// are the same.
std::string to_string(const CpuSchedule& schedule, int kernel);

// Starts from `base` and overrides the fields that `text` names. Throws ConfigError for an unknown field, a field
// given twice, or a value that is no number.
CpuSchedule parse_schedule(std::string_view text, const CpuSchedule& base);

// What the instruction set of a target gives: 32-bit lanes of a vector, and vector registers.
struct VectorUnit {
    int64_t lanes, registers;
    bool fma;
};
VectorUnit vector_unit(std::string_view target);  // throws ConfigError for a target that isn't a CPU's

// Whether a target with this schedule has the kernel (ATTNC_KERNEL_*).
bool has_kernel(const CpuSchedule& schedule, int kernel);

// Right for every configuration; good for common ones.
CpuSchedule default_schedule(const Config& config, std::string_view target);

// Throws ConfigError with the reason when a rule is broken.
void check_schedule(const CpuSchedule& schedule, const Config& config, std::string_view target);

// The usual CPU set, best first.
extern const char* const kCpuTargets[3];

}  // namespace attnc
