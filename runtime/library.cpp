#include "runtime/library.h"

#include "runtime/cpu.h"
#include "runtime/device_library.h"
#include "runtime/device_runtime.h"
#include "runtime/text.h"

namespace attnc {
namespace {

constexpr int64_t bit(int id) { return int64_t{1} << id; }
static_assert(ATTNC_ARGUMENT_COUNT < 63);

// The arguments that the runtime sets for each kernel.
int64_t arguments_of(int kernel) {
    constexpr int64_t kContext = bit(ATTNC_ARGUMENT_USER_CONTEXT);
    constexpr int64_t kProject =
        kContext | bit(ATTNC_ARGUMENT_INPUT) | bit(ATTNC_ARGUMENT_WEIGHTS) | bit(ATTNC_ARGUMENT_BIAS_VECTOR);
    constexpr int64_t kScores = kContext | bit(ATTNC_ARGUMENT_Q) | bit(ATTNC_ARGUMENT_K) |
                                bit(ATTNC_ARGUMENT_QK_SCALE) | bit(ATTNC_ARGUMENT_FIRST_KEY) |
                                bit(ATTNC_ARGUMENT_LAST_KEY);
    constexpr int64_t kAttend =
        kScores | bit(ATTNC_ARGUMENT_V) | bit(ATTNC_ARGUMENT_CONTEXT) | bit(ATTNC_ARGUMENT_ROW_STATS);
    constexpr int64_t kAhead = bit(ATTNC_ARGUMENT_AHEAD_Q) | bit(ATTNC_ARGUMENT_AHEAD_K) |
                               bit(ATTNC_ARGUMENT_AHEAD_K_BYTES) | bit(ATTNC_ARGUMENT_AHEAD_V) |
                               bit(ATTNC_ARGUMENT_AHEAD_V_BYTES) | bit(ATTNC_ARGUMENT_AHEAD_CONTEXT);
    constexpr int64_t kMasks =
        bit(ATTNC_ARGUMENT_KEY_BLOCKS) | bit(ATTNC_ARGUMENT_KEY_BIAS) | bit(ATTNC_ARGUMENT_BIAS) |
        bit(ATTNC_ARGUMENT_KEEP_MASK) | bit(ATTNC_ARGUMENT_DROP_MASK) | bit(ATTNC_ARGUMENT_MASK_FLAGS) |
        bit(ATTNC_ARGUMENT_SOFTCAP) | bit(ATTNC_ARGUMENT_ALIBI_SLOPE) | bit(ATTNC_ARGUMENT_OWN_KEY);
    constexpr int64_t kTables = bit(ATTNC_ARGUMENT_COS_TABLE) | bit(ATTNC_ARGUMENT_SIN_TABLE);
    switch (kernel) {
        case ATTNC_KERNEL_PROJECT_HEADS:
        case ATTNC_KERNEL_PROJECT_HEADS_TAIL:
            return kProject | bit(ATTNC_ARGUMENT_Y);
        case ATTNC_KERNEL_PROJECT_OUT:
        case ATTNC_KERNEL_PROJECT_OUT_TAIL:
            return kProject | bit(ATTNC_ARGUMENT_OUT);
        case ATTNC_KERNEL_ATTEND:
        case ATTNC_KERNEL_ATTEND_NARROW:
        case ATTNC_KERNEL_ATTEND_SINGLE:
            return kAttend | kAhead;
        case ATTNC_KERNEL_ATTEND_MASKED:
        case ATTNC_KERNEL_ATTEND_GUARDED:
            return kAttend | kAhead | kMasks;
        case ATTNC_KERNEL_ATTEND_DECODE:
            return kAttend | (kMasks & ~bit(ATTNC_ARGUMENT_ALIBI_SLOPE)) | bit(ATTNC_ARGUMENT_ALIBI_SLOPES) |
                   bit(ATTNC_ARGUMENT_KEY_ROWS) | bit(ATTNC_ARGUMENT_KEYS) | bit(ATTNC_ARGUMENT_ASK_AHEAD);
        case ATTNC_KERNEL_ATTEND_MERGE:
            return kContext | bit(ATTNC_ARGUMENT_CONTEXT_A) | bit(ATTNC_ARGUMENT_ROW_STATS_A) |
                   bit(ATTNC_ARGUMENT_CONTEXT_B) | bit(ATTNC_ARGUMENT_ROW_STATS_B) |
                   bit(ATTNC_ARGUMENT_CONTEXT) | bit(ATTNC_ARGUMENT_ROW_STATS);
        case ATTNC_KERNEL_ATTEND_LSE:
            return kContext | bit(ATTNC_ARGUMENT_ROW_STATS_IN) | bit(ATTNC_ARGUMENT_LSE);
        case ATTNC_KERNEL_ATTEND_PROBS:
            return kScores | kMasks | bit(ATTNC_ARGUMENT_ROW_STATS_IN) | bit(ATTNC_ARGUMENT_PROBS);
        case ATTNC_KERNEL_ATTEND_SCORES:
            return kScores | kMasks | bit(ATTNC_ARGUMENT_SCORES);
        case ATTNC_KERNEL_NORM_HEADS:
            return kContext | bit(ATTNC_ARGUMENT_INPUT) | bit(ATTNC_ARGUMENT_NORM_WEIGHT) |
                   bit(ATTNC_ARGUMENT_EPSILON) | bit(ATTNC_ARGUMENT_Y);
        case ATTNC_KERNEL_ROTATE_HEADS:
            return kContext | kTables | bit(ATTNC_ARGUMENT_Y);
        case ATTNC_KERNEL_ROTARY_ANGLES:
            return kContext | kTables | bit(ATTNC_ARGUMENT_POSITIONS) | bit(ATTNC_ARGUMENT_FREQUENCIES) |
                   bit(ATTNC_ARGUMENT_MAGNITUDE);
        default:
            return kContext | bit(ATTNC_ARGUMENT_INPUT) | bit(ATTNC_ARGUMENT_Y);
    }
}

const char* argument_name(int64_t argument) {
#define ATTNC_X(id, name) #name,
    static constexpr const char* kNames[] = {ATTNC_ARGUMENTS(ATTNC_X)};
#undef ATTNC_X
    return kNames[argument];
}

// Whether forward of this configuration can call the kernel.
bool is_called(int64_t flags, const attnc_layout& layout, int kernel) {
    switch (kernel) {
        case ATTNC_KERNEL_PROJECT_HEADS_TAIL:
            return (flags & ATTNC_CONFIG_IN_PROJ) != 0 && layout.tail_rows != 0;
        case ATTNC_KERNEL_PROJECT_OUT_TAIL:
            return (flags & ATTNC_CONFIG_OUT_PROJ) != 0 && layout.out_tail_rows != 0;
        case ATTNC_KERNEL_ATTEND_NARROW:
            return layout.tile_q_narrow != 0;
        case ATTNC_KERNEL_ATTEND_SINGLE:
            return layout.tile_q_single != 0;
        case ATTNC_KERNEL_PROJECT_HEADS:
            return (flags & ATTNC_CONFIG_IN_PROJ) != 0;
        case ATTNC_KERNEL_PROJECT_OUT:
            return (flags & ATTNC_CONFIG_OUT_PROJ) != 0;
        case ATTNC_KERNEL_ATTEND_MASKED:
            return (flags & (ATTNC_CONFIG_MASKS | ATTNC_CONFIG_ALIBI | ATTNC_CONFIG_SOFTCAP)) != 0;
        case ATTNC_KERNEL_ATTEND_PROBS:
            return (flags & ATTNC_CONFIG_PROBS) != 0;
        case ATTNC_KERNEL_SPLIT_HEADS:
            return (flags & ATTNC_CONFIG_IN_PROJ) == 0;
        case ATTNC_KERNEL_MERGE_HEADS:
            return (flags & ATTNC_CONFIG_OUT_PROJ) == 0;
        case ATTNC_KERNEL_ATTEND_DECODE:
            return (flags & ATTNC_CONFIG_CACHE) != 0;
        case ATTNC_KERNEL_ATTEND_SCORES:
            return (flags & ATTNC_CONFIG_SCORES) != 0;
        case ATTNC_KERNEL_NORM_HEADS:
            return (flags & ATTNC_CONFIG_QK_NORM) != 0;
        case ATTNC_KERNEL_ROTATE_HEADS:
        case ATTNC_KERNEL_ROTARY_ANGLES:
            return (flags & (ATTNC_CONFIG_ROTARY | ATTNC_CONFIG_ROTARY_PAIRS)) != 0;
        default:
            return true;
    }
}

attnc_status bad_table(attnc_error* error, std::initializer_list<Piece> pieces) {
    return fail(error, ATTNC_BAD_LIBRARY, pieces);
}

attnc_status check_config(attnc_error* error, const attnc_config& c) {
    constexpr int64_t kMost =
        1 << 24;  // so that products of two of them with a type's size stay far from overflow
    const struct {
        const char* name;
        int64_t value;
    } numbers[] = {{"d_model", c.d_model},   {"num_heads", c.num_heads},   {"num_kv_heads", c.num_kv_heads},
                   {"head_dim", c.head_dim}, {"v_head_dim", c.v_head_dim}, {"k_dim", c.k_dim},
                   {"v_dim", c.v_dim}};
    for (const auto& number : numbers) {
        if (number.value < 1 || number.value > kMost) {
            return bad_table(error,
                             {"the library's ", number.name, " is ", number.value, ", wanted 1 to ", kMost});
        }
    }
    if (c.num_heads % c.num_kv_heads != 0) {
        return bad_table(error, {"the library's num_heads ", c.num_heads,
                                 " is not divisible by its num_kv_heads ", c.num_kv_heads});
    }
    return ATTNC_OK;
}

attnc_status check_kernel(attnc_error* error, const attnc_target_entry& target, int kernel) {
    const attnc_kernel_entry& entry = target.kernels[kernel];
    if (entry.run == nullptr || entry.arguments == nullptr) {
        return bad_table(error,
                         {"the library has no kernel ", name_of_kernel(kernel), " for target ", target.name});
    }
    if (entry.argument_count < 1 || entry.argument_count > ATTNC_ARGUMENT_COUNT || entry.scratch_bytes < 0) {
        return bad_table(error, {"the library's entry of kernel ", name_of_kernel(kernel), " for target ",
                                 target.name, " is corrupt"});
    }
    const int64_t known = arguments_of(kernel);
    for (int64_t i = 0; i < entry.argument_count; ++i) {
        const int64_t argument = entry.arguments[i];
        if (argument < 0 || argument >= ATTNC_ARGUMENT_COUNT) {
            return bad_table(error, {"the library's kernel ", name_of_kernel(kernel), " takes argument ",
                                     argument, ", which this runtime does not know"});
        }
        if ((known & bit(static_cast<int>(argument))) == 0) {
            return bad_table(error, {"the library's kernel ", name_of_kernel(kernel), " takes argument ",
                                     argument_name(argument), ", which this runtime does not give it"});
        }
    }
    return ATTNC_OK;
}

bool fits_heads(int64_t panel, int64_t features) {
    const int64_t width = (features + ATTNC_HEAD_ALIGN - 1) / ATTNC_HEAD_ALIGN * ATTNC_HEAD_ALIGN;
    return width % panel == 0 || panel % width == 0;
}

attnc_status check_layout(attnc_error* error, const attnc_target_entry& target, const attnc_config& config) {
    constexpr int64_t kMost = 1 << 20;
    const attnc_layout& l = target.layout;
    const struct {
        const char* name;
        int64_t value, multiple, most = kMost;
    } numbers[] = {{"panel", l.panel, ATTNC_HEAD_ALIGN},
                   {"out_panel", l.out_panel, ATTNC_HEAD_ALIGN},
                   {"tile_rows", l.tile_rows, 1},
                   {"out_tile_rows", l.out_tile_rows, 1},
                   {"tile_kv", l.tile_kv, 1},
                   {"tile_q", l.tile_q, 1},
                   {"split_kv", l.split_kv, ATTNC_RUN_KEYS, ATTNC_MAX_SPLIT_KV}};
    for (const auto& number : numbers) {
        if (number.value < 1 || number.value > number.most || number.value % number.multiple != 0) {
            return bad_table(
                error, {"the library's ", number.name, " for target ", target.name, " is ", number.value,
                        ", wanted a multiple of ", number.multiple, " up to ", number.most});
        }
    }
    const struct {
        const char* name;
        int64_t value;
        const char* than;
        int64_t less_than;
    } fewer[] = {{"tail_rows", l.tail_rows, "tile_rows", l.tile_rows},
                 {"out_tail_rows", l.out_tail_rows, "out_tile_rows", l.out_tile_rows},
                 {"tile_q_narrow", l.tile_q_narrow, "tile_q", l.tile_q},
                 {"tile_q_single", l.tile_q_single, "tile_q", l.tile_q}};
    for (const auto& number : fewer) {
        if (number.value < 0 || number.value >= number.less_than) {
            return bad_table(
                error, {"the library's ", number.name, " for target ", target.name, " is ", number.value,
                        ", wanted less than ", number.than, ", ", number.less_than});
        }
    }
    if ((config.flags & ATTNC_CONFIG_IN_PROJ) != 0 &&
        (!fits_heads(l.panel, config.head_dim) || !fits_heads(l.panel, config.v_head_dim))) {
        return bad_table(error, {"the library's panel for target ", target.name, " is ", l.panel,
                                 ", which neither divides nor is a multiple of a padded head"});
    }
    return ATTNC_OK;
}

bool runs(const attnc_target_entry& target, int64_t features) {
    return (target.cpu_features & ~features) == 0;
}

bool equal(const char* a, const char* b) {
    while (*a != 0 && *a == *b) ++a, ++b;
    return *a == *b;
}

}  // namespace

const char* name_of_kernel(int kernel) {
#define ATTNC_X(id, name) #name,
    static constexpr const char* kNames[] = {ATTNC_KERNELS(ATTNC_X)};
#undef ATTNC_X
    return kNames[kernel];
}

attnc_status check_library(attnc_error* error, const attnc_library* library) {
    if (library == nullptr) return fail(error, ATTNC_NULL_ARGUMENT, {"library is null"});
    if (library->abi_version != ATTNC_ABI_VERSION) {
        return bad_table(error, {"the library has ABI version ", library->abi_version,
                                 ", this runtime serves ", ATTNC_ABI_VERSION});
    }
    ATTNC_TRY(check_config(error, library->config));
    const bool has_cpu = library->target_count > 0 && library->targets != nullptr;
    if (!has_cpu && (library->target_count != 0 || library->device == nullptr))
        return bad_table(error, {"the library has no target"});
    for (int64_t i = 0; i < library->target_count; ++i) {
        const attnc_target_entry& target = library->targets[i];
        if (target.name == nullptr) return bad_table(error, {"the library's target ", i, " has no name"});
        ATTNC_TRY(check_layout(error, target, library->config));
        for (int kernel = 0; kernel < ATTNC_KERNEL_COUNT; ++kernel) {
            if (is_called(library->config.flags, target.layout, kernel))
                ATTNC_TRY(check_kernel(error, target, kernel));
        }
    }
    if (library->device == nullptr) return ATTNC_OK;
    return check_device_entry(error, *library->device, library->config);
}

attnc_status choose_target(attnc_error* error, const attnc_library* library, const char* name,
                           ChosenTarget* chosen) {
    const attnc_device_entry* device = library->device;
    const bool wants_device =
        name != nullptr ? device != nullptr && equal(device->name, name) : library->target_count == 0;
    if (wants_device) {
        chosen->device = device;
        return ATTNC_OK;
    }
    const int64_t features = detect_cpu_features();
    for (int64_t i = 0; i < library->target_count; ++i) {
        const attnc_target_entry& candidate = library->targets[i];
        if (name != nullptr && !equal(candidate.name, name)) continue;
        if (runs(candidate, features)) {
            chosen->cpu = &candidate;
            return ATTNC_OK;
        }
        if (name != nullptr) {
            return fail(error, ATTNC_NO_TARGET,
                        {"target ", name,
                         " needs instructions that this CPU or its operating "
                         "system does not have"});
        }
    }
    if (name != nullptr) return fail(error, ATTNC_NO_TARGET, {"target ", name, " is not in the library"});
    return fail(error, ATTNC_NO_TARGET,
                {"this CPU runs none of the library's ", library->target_count, " targets"});
}

}  // namespace attnc

extern "C" {

const char* attnc_library_manifest(const attnc_library* library) { return library->manifest; }

const char* attnc_library_problem(const attnc_library* library) { return library->problem; }

const char* attnc_library_target_name(const attnc_library* library, int64_t index) {
    if (index == library->target_count && library->device != nullptr) return library->device->name;
    return index >= 0 && index < library->target_count ? library->targets[index].name : nullptr;
}

int attnc_library_target_runs(const attnc_library* library, int64_t index) {
    if (index == library->target_count && library->device != nullptr)
        return library->device->runtime->is_there() ? 1 : 0;
    if (index < 0 || index >= library->target_count) return 0;
    return attnc::runs(library->targets[index], attnc::detect_cpu_features()) ? 1 : 0;
}

}  // extern "C"
