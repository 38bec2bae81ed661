#include "tests/support/fake_device.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "runtime/attnc.h"
#include "runtime/halide_buffer.h"

extern "C" {
int attnc_abi1_cuda_initialize_kernels(void* user_context, void** state, const char* source, int size);
void attnc_abi1_cuda_finalize_kernels(void* user_context, void* state);
int attnc_abi1_cuda_run(void* user_context, void* state, const char* name, int grid_x, int grid_y, int grid_z,
                        int block_x, int block_y, int block_z, int shared_bytes, const size_t* sizes,
                        void** arguments, const int8_t* is_buffer);
const void* attnc_abi1_cuda_device_interface();
int attnc_abi1_copy_to_device(void* user_context, attnc::HalideBuffer* buffer, const void* interface);
int attnc_abi1_error_constraint_violated(void* user_context, const char* var, int val,
                                         const char* constrained_var, int constrained_val);
extern const attnc_device_runtime attnc_abi1_cuda;
}

namespace attnc::test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int kMostParameters = 24;  // of a kernel

enum class Kind { kFloats, kBytes, kInts, kWides, kInt, kFloat, kDouble };
bool is_buffer(Kind kind) { return kind <= Kind::kWides; }

// An argument of a kernel; of a buffer its rank, and whether its rows of features are aligned, or its strides all free.
enum class Form { kDense, kFeatures, kFree };
struct Rule {
    int argument;
    const char* name;
    Kind kind;
    int rank = 0;
    Form form = Form::kDense;
};

#define FLOATS(id, name, ...) \
    { ATTNC_DEVICE_ARGUMENT_##id, #name, Kind::kFloats, __VA_ARGS__ }
#define BYTES(id, name, ...) \
    { ATTNC_DEVICE_ARGUMENT_##id, #name, Kind::kBytes, __VA_ARGS__ }
#define INTS(id, name, ...) \
    { ATTNC_DEVICE_ARGUMENT_##id, #name, Kind::kInts, __VA_ARGS__ }
#define SCALAR(id, name, kind) \
    { ATTNC_DEVICE_ARGUMENT_##id, #name, Kind::kind }

std::vector<Rule> operator+(std::vector<Rule> a, const std::vector<Rule>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::vector<Rule> rules_of(int kernel) {
    const std::vector<Rule> project = {FLOATS(INPUT, x, 2), FLOATS(WEIGHTS, weights, 3, Form::kFeatures),
                                       FLOATS(BIAS_VECTOR, bias_vector, 2, Form::kFeatures),
                                       INTS(LENGTHS, lengths, 1), SCALAR(SEQ, seq, kInt)};
    const std::vector<Rule> scores = {FLOATS(Q, q, 3, Form::kFeatures),
                                      FLOATS(K, k, 3, Form::kFeatures),
                                      INTS(ITEMS, items, 2),
                                      SCALAR(SEQ_Q, seq_q, kInt),
                                      SCALAR(SEQ_KV, seq_kv, kInt),
                                      SCALAR(QK_SCALE, qk_scale, kFloat)};
    const std::vector<Rule> masks = {FLOATS(KEY_BIAS, key_bias, 2, Form::kFree),
                                     FLOATS(BIAS, bias, 4, Form::kFree),
                                     BYTES(KEEP_MASK, keep_mask, 4, Form::kFree),
                                     BYTES(DROP_MASK, drop_mask, 4, Form::kFree),
                                     SCALAR(MASK_FLAGS, mask_flags, kInt),
                                     SCALAR(SOFTCAP, softcap, kFloat),
                                     FLOATS(ALIBI_SLOPES, alibi_slopes, 1, Form::kFree)};
    const std::vector<Rule> blocks = {BYTES(KEY_BLOCKS, key_blocks, 4, Form::kFree)};
    const std::vector<Rule> results = {FLOATS(V, v, 3, Form::kFeatures),
                                       FLOATS(CONTEXT, context, 3, Form::kFeatures),
                                       FLOATS(ROW_STATS, row_stats, 3)};
    const std::vector<Rule> tables = {FLOATS(COS_TABLE, cos_table, 2), FLOATS(SIN_TABLE, sin_table, 2)};
    const std::vector<Rule> positions = {INTS(POSITIONS, positions, 2, Form::kFree),
                                         INTS(POSITION_OFFSETS, position_offsets, 1, Form::kFree),
                                         SCALAR(GIVEN, given, kInt)};
    switch (kernel) {
        case ATTNC_DEVICE_KERNEL_FILL_ITEMS:
            return {INTS(QUERY_LENGTHS, query_lengths, 1, Form::kFree),
                    INTS(KEY_LENGTHS, key_lengths, 1, Form::kFree),
                    INTS(CAUSAL_OFFSETS, causal_offsets, 1, Form::kFree),
                    INTS(QUERY_STARTS, query_starts, 1, Form::kFree),
                    INTS(KEY_STARTS, key_starts, 1, Form::kFree),
                    SCALAR(GIVEN, given, kInt),
                    SCALAR(SEQ_Q, seq_q, kInt),
                    SCALAR(SEQ_KV, seq_kv, kInt),
                    SCALAR(DIAGONAL, diagonal, kInt),
                    SCALAR(WINDOW_LEFT, window_left, kInt),
                    SCALAR(WINDOW_RIGHT, window_right, kInt),
                    INTS(ITEMS, items, 2),
                    INTS(QUERY_COUNTS, query_counts, 1),
                    INTS(KEY_COUNTS, key_counts, 1)};
        case ATTNC_DEVICE_KERNEL_PROJECT_HEADS:
            return project + std::vector<Rule>{FLOATS(Y, y, 3, Form::kFeatures)};
        case ATTNC_DEVICE_KERNEL_PROJECT_OUT:
            return project + std::vector<Rule>{FLOATS(OUT, out, 2)};
        case ATTNC_DEVICE_KERNEL_ATTEND:
            return scores + results;
        case ATTNC_DEVICE_KERNEL_ATTEND_MASKED:
            return scores + masks + blocks + results;
        case ATTNC_DEVICE_KERNEL_ATTEND_SUSPECTS:
            return {FLOATS(CONTEXT, context, 3, Form::kFeatures), INTS(ITEMS, items, 2),
                    SCALAR(SEQ_Q, seq_q, kInt), INTS(SUSPECTS, suspects, 2)};
        case ATTNC_DEVICE_KERNEL_ATTEND_GUARDED:
            return scores + masks + blocks + results + std::vector<Rule>{INTS(SUSPECTS, suspects, 2)};
        case ATTNC_DEVICE_KERNEL_ATTEND_DECODE:
            return scores + masks +
                   std::vector<Rule>{FLOATS(V, v, 3, Form::kFeatures),
                                     FLOATS(CONTEXT, context, 4, Form::kFeatures),
                                     FLOATS(ROW_STATS, row_stats, 4)};
        case ATTNC_DEVICE_KERNEL_ATTEND_MERGE:
            return {FLOATS(CONTEXTS, contexts, 4, Form::kFeatures), FLOATS(ROW_STATS_IN, row_stats_in, 4),
                    FLOATS(SINKS, sinks, 1), FLOATS(CONTEXT, context, 3, Form::kFeatures),
                    FLOATS(ROW_STATS, row_stats, 3)};
        case ATTNC_DEVICE_KERNEL_FILL_EMPTY:
            return {FLOATS(ROW_STATS_IN, row_stats_in, 3),
                    FLOATS(V, v, 3, Form::kFeatures),
                    INTS(ITEMS, items, 2),
                    SCALAR(SEQ_Q, seq_q, kInt),
                    SCALAR(EMPTY_ROWS, empty_rows, kInt),
                    FLOATS(CONTEXT, context, 3, Form::kFeatures)};
        case ATTNC_DEVICE_KERNEL_ATTEND_LSE:
            return {FLOATS(ROW_STATS_IN, row_stats_in, 3), INTS(ITEMS, items, 2), FLOATS(LSE, lse, 3)};
        case ATTNC_DEVICE_KERNEL_ATTEND_PROBS:
            return scores + masks + blocks +
                   std::vector<Rule>{FLOATS(ROW_STATS_IN, row_stats_in, 3),
                                     SCALAR(EMPTY_ROWS, empty_rows, kInt), FLOATS(PROBS, probs, 4)};
        case ATTNC_DEVICE_KERNEL_ATTEND_SCORES:
            return scores + masks + blocks + std::vector<Rule>{FLOATS(SCORES, scores, 4)};
        case ATTNC_DEVICE_KERNEL_AVERAGE_PROBS:
            return {FLOATS(PROBS, probs, 4), FLOATS(AVERAGED, averaged, 3)};
        case ATTNC_DEVICE_KERNEL_SPLIT_HEADS:
            return {FLOATS(INPUT, x, 4), INTS(LENGTHS, lengths, 1), FLOATS(Y, y, 3, Form::kFeatures)};
        case ATTNC_DEVICE_KERNEL_MERGE_HEADS:
            return {FLOATS(CONTEXT, context, 3, Form::kFeatures), INTS(LENGTHS, lengths, 1),
                    FLOATS(OUT, out, 4)};
        case ATTNC_DEVICE_KERNEL_NORM_HEADS:
            return {FLOATS(INPUT, x, 3, Form::kFeatures), FLOATS(NORM_WEIGHT, norm_weight, 1),
                    SCALAR(EPSILON, epsilon, kFloat), FLOATS(Y, y, 3, Form::kFeatures)};
        case ATTNC_DEVICE_KERNEL_ROTARY_ANGLES:
            return positions + tables +
                   std::vector<Rule>{{ATTNC_DEVICE_ARGUMENT_FREQUENCIES, "frequencies", Kind::kWides, 1},
                                     SCALAR(MAGNITUDE, magnitude, kDouble)};
        case ATTNC_DEVICE_KERNEL_ROTARY_ROWS:
            return positions + tables +
                   std::vector<Rule>{FLOATS(TABLE_COS, table_cos, 2), FLOATS(TABLE_SIN, table_sin, 2)};
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BIAS:
            return {FLOATS(BIAS, bias, 2, Form::kFree),
                    FLOATS(KEY_BIAS_IN, key_bias_in, 2, Form::kFree),
                    BYTES(KEEP_MASK, keep_mask, 2, Form::kFree),
                    BYTES(KEY_KEEP_MASK, key_keep_mask, 2, Form::kFree),
                    BYTES(DROP_MASK, drop_mask, 2, Form::kFree),
                    BYTES(KEY_DROP_MASK, key_drop_mask, 2, Form::kFree),
                    SCALAR(GIVEN, given, kInt),
                    FLOATS(KEY_BIAS, key_bias, 2)};
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BLOCKS:
            return {BYTES(BLOCK_KEEP_MASK, block_keep_mask, 4, Form::kFree), SCALAR(BLOCK_Q, block_q, kInt),
                    SCALAR(BLOCK_KV, block_kv, kInt), BYTES(KEY_BLOCKS, key_blocks, 4)};
        default:  // rotate_heads
            return tables +
                   std::vector<Rule>{FLOATS(INPUT, x, 3, Form::kFeatures), FLOATS(Y, y, 3, Form::kFeatures)};
    }
}

const std::vector<Rule>& rules(int kernel) {
    static const std::vector<std::vector<Rule>> all = [] {
        std::vector<std::vector<Rule>> made;
        for (int k = 0; k < ATTNC_DEVICE_KERNEL_COUNT; ++k) made.push_back(rules_of(k));
        return made;
    }();
    return all[static_cast<size_t>(kernel)];
}

// The user context comes first, the rest backwards, so that only the table's order can be right.
const std::vector<int64_t>& order(int kernel) {
    static const std::vector<std::vector<int64_t>> all = [] {
        std::vector<std::vector<int64_t>> made;
        for (int k = 0; k < ATTNC_DEVICE_KERNEL_COUNT; ++k) {
            std::vector<int64_t> arguments = {ATTNC_DEVICE_ARGUMENT_USER_CONTEXT};
            for (size_t i = rules(k).size(); i-- > 0;) arguments.push_back(rules(k)[i].argument);
            made.push_back(arguments);
        }
        return made;
    }();
    return all[static_cast<size_t>(kernel)];
}

const char* name_of(int kernel) {
#define ATTNC_X(id, name) #name,
    static constexpr const char* kNames[] = {ATTNC_DEVICE_KERNELS(ATTNC_X)};
#undef ATTNC_X
    return kNames[kernel];
}
std::string function_name(int kernel) { return std::string("_kernel_") + name_of(kernel); }

HalideType type_of(Kind kind) {
    switch (kind) {
        case Kind::kBytes:
            return kUint8;
        case Kind::kInts:
            return kInt32;
        case Kind::kWides:
            return kUint64;
        default:
            return kFloat32;
    }
}
size_t scalar_bytes(Kind kind) { return kind == Kind::kDouble ? 8 : 4; }

// Dimensions of a launch's buffers, by their arguments; the last parameter.
struct Shapes {
    int32_t extent[kMostParameters][4];
    int32_t stride[kMostParameters][4];
    int32_t option;  // rotate_heads: pairs are features 2 i and 2 i + 1; attend_merge: there are sinks
};

// ---- the host's side

struct HostCall {
    void* context;
    int32_t code = 0;

    void want(const char* name, int64_t got, const char* what, int64_t wanted) {
        if (got == wanted || code != 0) return;
        code = attnc_abi1_error_constraint_violated(context, name, static_cast<int>(got), what,
                                                    static_cast<int>(wanted));
    }

    void check(const Rule& rule, const HalideBuffer& b) {
        want(rule.name, b.host == nullptr ? 0 : 1, "memory of the host", 0);
        want(rule.name, b.device_interface == attnc_abi1_cuda_device_interface() ? 1 : 0, "the interface", 1);
        want(rule.name, std::bit_cast<int32_t>(b.type), "type", std::bit_cast<int32_t>(type_of(rule.kind)));
        want(rule.name, b.dimensions, "rank", rule.rank);
        int64_t elements = 1;
        for (int i = 0; i < std::min(b.dimensions, 4); ++i) {
            const HalideDimension& d = b.dim[i];
            want(rule.name, d.min, "min", 0);
            want(rule.name, d.extent >= 1 ? 1 : 0, "an extent of at least 1", 1);
            elements *= d.extent;
            want(rule.name, int64_t{d.extent} * d.stride <= INT32_MAX && elements <= INT32_MAX ? 1 : 0,
                 "a span within 32 bits", 1);
            if (rule.form == Form::kFeatures && i > 0) want(rule.name, d.stride % 4, "stride of rows", 0);
        }
        if (rule.form != Form::kFree && b.dim[0].extent > 1) want(rule.name, b.dim[0].stride, "stride", 1);
        if (rule.form == Form::kFeatures)
            want(rule.name, static_cast<int64_t>(b.device % 16), "alignment", 0);
        const int copied = attnc_abi1_copy_to_device(context, const_cast<HalideBuffer*>(&b),
                                                     attnc_abi1_cuda_device_interface());
        if (copied != 0 && code == 0) code = copied;
    }
};

// Blocks along the axes of a launch: items and rows along x, heads along y, keys along z.
struct Grid {
    int64_t x, y, z;
    int shared_bytes;
};
Grid grid_of(int kernel, const Shapes& s) {
    const auto& rule = rules(kernel);
    const auto extent = [&](int argument, int dim) -> int64_t {
        for (size_t i = 0; i < rule.size(); ++i) {
            if (rule[i].argument == argument) return s.extent[i][dim];
        }
        return 1;
    };
    constexpr int64_t kRows = 8;
    switch (kernel) {
        case ATTNC_DEVICE_KERNEL_PROJECT_HEADS:
        case ATTNC_DEVICE_KERNEL_PROJECT_OUT:
            return {extent(ATTNC_DEVICE_ARGUMENT_INPUT, 1) / kRows + 1,
                    extent(ATTNC_DEVICE_ARGUMENT_WEIGHTS, 2), 1, 24576};
        case ATTNC_DEVICE_KERNEL_ATTEND_SUSPECTS:
            return {1, extent(ATTNC_DEVICE_ARGUMENT_CONTEXT, 1), extent(ATTNC_DEVICE_ARGUMENT_ITEMS, 1), 0};
        case ATTNC_DEVICE_KERNEL_ATTEND:
        case ATTNC_DEVICE_KERNEL_ATTEND_MASKED:
        case ATTNC_DEVICE_KERNEL_ATTEND_GUARDED:
            return {extent(ATTNC_DEVICE_ARGUMENT_ITEMS, 1), extent(ATTNC_DEVICE_ARGUMENT_Q, 2), 1, 60000};
        case ATTNC_DEVICE_KERNEL_ATTEND_DECODE:
            return {extent(ATTNC_DEVICE_ARGUMENT_ITEMS, 1), extent(ATTNC_DEVICE_ARGUMENT_K, 2),
                    extent(ATTNC_DEVICE_ARGUMENT_CONTEXT, 3), 60000};
        case ATTNC_DEVICE_KERNEL_ATTEND_PROBS:
        case ATTNC_DEVICE_KERNEL_ATTEND_SCORES:
            return {extent(ATTNC_DEVICE_ARGUMENT_ITEMS, 1), extent(ATTNC_DEVICE_ARGUMENT_Q, 2),
                    extent(ATTNC_DEVICE_ARGUMENT_KEY_BIAS, 0) / kFakeDeviceTile + 1, 60000};
        default:
            return {1, 1, 1, 0};
    }
}

int32_t launch(int kernel, bool option, void** argv) {
    const std::vector<Rule>& rule = rules(kernel);
    HostCall call = {*static_cast<void**>(argv[0])};
    void* state = nullptr;
    attnc_abi1_cuda_initialize_kernels(call.context, &state, "", 0);
    Shapes shapes = {};
    shapes.option = option ? 1 : 0;
    std::vector<size_t> sizes;
    std::vector<void*> arguments;
    std::vector<int8_t> buffers;
    for (size_t i = 0; i < rule.size(); ++i) {
        void* argument = argv[rule.size() - i];
        arguments.push_back(argument);
        buffers.push_back(is_buffer(rule[i].kind) ? 1 : 0);
        sizes.push_back(is_buffer(rule[i].kind) ? 8 : scalar_bytes(rule[i].kind));
        if (!is_buffer(rule[i].kind)) continue;
        const auto& b = *static_cast<const HalideBuffer*>(argument);
        call.check(rule[i], b);
        for (int d = 0; d < std::min(b.dimensions, 4); ++d) {
            shapes.extent[i][d] = b.dim[d].extent;
            shapes.stride[i][d] = b.dim[d].extent == 1 ? 0 : b.dim[d].stride;
        }
    }
    if (call.code != 0) return call.code;
    arguments.push_back(&shapes), sizes.push_back(sizeof shapes), buffers.push_back(0);
    arguments.push_back(nullptr), sizes.push_back(0), buffers.push_back(0);
    const Grid g = grid_of(kernel, shapes);
    const int result = attnc_abi1_cuda_run(
        call.context, state, function_name(kernel).c_str(), static_cast<int>(g.x), static_cast<int>(g.y),
        static_cast<int>(g.z), 16, 8, 1, g.shared_bytes, sizes.data(), arguments.data(), buffers.data());
    attnc_abi1_cuda_finalize_kernels(call.context, state);
    return result;
}

template <int kernel, bool option = false>
int32_t host_code(void** argv) {
    return launch(kernel, option, argv);
}

std::string ptx_of(int kernel) {
    std::string text = "//\n.version 6.0\n.target sm_70\n.visible .entry " + function_name(kernel) + "(\n";
    for (const Rule& rule : rules(kernel)) {
        text += is_buffer(rule.kind)        ? "\t.param .u64 .ptr .align 1 "
                : rule.kind == Kind::kInt   ? "\t.param .u32 "
                : rule.kind == Kind::kFloat ? "\t.param .f32 "
                                            : "\t.param .f64 ";
        text += std::string(rule.name) + ",\n";
    }
    return text + "\t.param .align 8 .b8 shapes[" + std::to_string(sizeof(Shapes)) + "]\n)\n{\n\tret;\n}\n";
}

// ---- the device's side

struct DeviceView {
    unsigned char* data = nullptr;
    size_t size = 4;
    const int32_t *extents = nullptr, *strides = nullptr;
    int64_t extent(int dim) const { return extents[dim]; }
    template <typename T>
    T& at(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) const {
        const int64_t offset = a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
        return *reinterpret_cast<T*>(data + offset * static_cast<int64_t>(size));
    }
    float& f(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0) const { return at<float>(a, b, c, d); }
    int32_t& i(int64_t a, int64_t b = 0) const { return at<int32_t>(a, b); }
};

// The parameters of a launch by their arguments.
class DeviceArguments {
public:
    DeviceArguments(int kernel, void** parameters) : rules_(rules(kernel)), parameters_(parameters) {
        std::memcpy(&shapes_, parameters[rules_.size()], sizeof shapes_);
    }
    DeviceView view(int argument) const {
        const size_t i = index(argument);
        uintptr_t address = 0;
        std::memcpy(&address, parameters_[i], sizeof address);
        return {reinterpret_cast<unsigned char*>(address), type_of(rules_[i].kind).bits / size_t{8},
                shapes_.extent[i], shapes_.stride[i]};
    }
    template <typename T>
    T scalar(int argument) const {
        T value;
        std::memcpy(&value, parameters_[index(argument)], sizeof value);
        return value;
    }
    int32_t integer(int argument) const { return scalar<int32_t>(argument); }
    bool option() const { return shapes_.option != 0; }

private:
    size_t index(int argument) const {
        size_t i = 0;
        while (rules_[i].argument != argument) ++i;
        return i;
    }
    const std::vector<Rule>& rules_;
    void** parameters_;
    Shapes shapes_;
};

#define VIEW(id) a.view(ATTNC_DEVICE_ARGUMENT_##id)
#define INTEGER(id) a.integer(ATTNC_DEVICE_ARGUMENT_##id)
#define REAL(id) a.scalar<float>(ATTNC_DEVICE_ARGUMENT_##id)

int64_t clamped(int64_t value, int64_t low, int64_t high) { return std::max(low, std::min(value, high)); }

void fill_items(const DeviceArguments& a) {
    constexpr int64_t kNoLimit = 1 << 30;
    const DeviceView items = VIEW(ITEMS);
    const int32_t given = INTEGER(GIVEN), diagonal = INTEGER(DIAGONAL);
    const int64_t count = items.extent(1);
    struct Side {
        int64_t row, rows, length;
    };
    const auto side = [&](int64_t b, const DeviceView& starts, int starts_flag, const DeviceView& lengths,
                          int lengths_flag, int64_t seq) {
        Side s = {b * seq, seq, seq};
        if ((given & starts_flag) != 0) {
            s.row = clamped(starts.i(b), 0, seq * count);
            s.rows = std::min(clamped(starts.i(b + 1), s.row, seq * count) - s.row, seq);
        }
        s.length = (given & lengths_flag) != 0 ? clamped(lengths.i(b), 0, s.rows) : s.rows;
        return s;
    };
    for (int64_t b = 0; b < count; ++b) {
        const Side q = side(b, VIEW(QUERY_STARTS), ATTNC_GIVEN_QUERY_STARTS, VIEW(QUERY_LENGTHS),
                            ATTNC_GIVEN_QUERY_LENGTHS, INTEGER(SEQ_Q));
        const Side k = side(b, VIEW(KEY_STARTS), ATTNC_GIVEN_KEY_STARTS, VIEW(KEY_LENGTHS),
                            ATTNC_GIVEN_KEY_LENGTHS, INTEGER(SEQ_KV));
        const int64_t own = diagonal == ATTNC_DIAGONAL_TOP_LEFT  ? 0
                            : diagonal == ATTNC_DIAGONAL_OFFSETS ? VIEW(CAUSAL_OFFSETS).i(b)
                                                                 : k.length - q.length;
        const int64_t left = INTEGER(WINDOW_LEFT);
        const int64_t right = diagonal != ATTNC_DIAGONAL_NONE ? 0 : INTEGER(WINDOW_RIGHT);
        const int64_t columns[] = {q.row,
                                   q.length,
                                   q.rows,
                                   k.row,
                                   k.length,
                                   left < 0 ? -kNoLimit : clamped(own - left, -kNoLimit, kNoLimit),
                                   right < 0 ? kNoLimit : clamped(own + right + 1, -kNoLimit, kNoLimit),
                                   clamped(own, -kNoLimit, kNoLimit)};
        for (int c = 0; c < ATTNC_ITEM_COLUMNS; ++c) items.i(c, b) = static_cast<int32_t>(columns[c]);
        VIEW(QUERY_COUNTS).i(b) = static_cast<int32_t>(q.length);
        VIEW(KEY_COUNTS).i(b) = static_cast<int32_t>(k.length);
    }
}

// store(column, row, value) for all columns of all panels.
template <typename Store>
void project(const DeviceArguments& a, const Store& store) {
    const DeviceView x = VIEW(INPUT), weights = VIEW(WEIGHTS), bias = VIEW(BIAS_VECTOR),
                     lengths = VIEW(LENGTHS);
    const int64_t panel = weights.extent(0), seq = INTEGER(SEQ);
    for (int64_t m = 0; m < x.extent(1); ++m) {
        const int64_t item = m / seq;
        const bool counts = item < lengths.extent(0) && m % seq < lengths.i(item);
        if (counts) fake_device_counts().rows_projected += weights.extent(2);
        for (int64_t column = 0; column < panel * weights.extent(2); ++column) {
            const int64_t n = column % panel, p = column / panel;
            float sum = counts ? bias.f(n, p) : 0.0F;
            for (int64_t k = 0; counts && k < x.extent(0); ++k) sum += weights.f(n, k, p) * x.f(k, m);
            store(column, m, sum);
        }
    }
}

void project_heads(const DeviceArguments& a) {
    const DeviceView y = VIEW(Y);
    project(a, [&](int64_t column, int64_t m, float value) {
        const int64_t plane = column / y.extent(0);
        if (plane < y.extent(2)) y.f(column % y.extent(0), m, plane) = value;
    });
}

void project_out(const DeviceArguments& a) {
    const DeviceView out = VIEW(OUT);
    project(a, [&](int64_t column, int64_t m, float value) {
        if (column < out.extent(0)) out.f(column, m) = value;
    });
}

// Scores of a launch.
class DeviceScores {
public:
    DeviceScores(const DeviceArguments& a, int kernel)
        : q(VIEW(Q)), k(VIEW(K)), items(VIEW(ITEMS)), scale_(REAL(QK_SCALE)) {
        if (kernel == ATTNC_DEVICE_KERNEL_ATTEND) return;
        flags_ = INTEGER(MASK_FLAGS);
        softcap_ = REAL(SOFTCAP);
        slopes_ = VIEW(ALIBI_SLOPES), key_bias_ = VIEW(KEY_BIAS), bias_ = VIEW(BIAS);
        keep_ = VIEW(KEEP_MASK), drop_ = VIEW(DROP_MASK);
        if (kernel != ATTNC_DEVICE_KERNEL_ATTEND_DECODE) blocks_ = VIEW(KEY_BLOCKS);
    }
    int64_t column(int c, int64_t b) const { return items.i(c, b); }
    int64_t kv_head(int64_t h) const { return h / (q.extent(2) / k.extent(2)); }
    // Of query i and key j of item b, -infinity where it is dropped.
    float operator()(int64_t b, int64_t h, int64_t i, int64_t j) const {
        const int64_t row = column(ATTNC_ITEM_QUERY_ROW, b) + i, key = column(ATTNC_ITEM_KEY_ROW, b) + j;
        if (j >= column(ATTNC_ITEM_KEYS, b) || j < i + column(ATTNC_ITEM_FIRST, b) ||
            j >= i + column(ATTNC_ITEM_LAST, b)) {
            return kMinusInfinity;
        }
        double score = 0;
        for (int64_t d = 0; d < q.extent(0); ++d)
            score += static_cast<double>(q.f(d, row, h)) * static_cast<double>(k.f(d, key, kv_head(h)));
        score *= static_cast<double>(scale_);
        if (has(ATTNC_MASK_SOFTCAP)) {
            const auto cap = static_cast<double>(softcap_);
            score = cap * std::tanh(score / cap);
        }
        if (has(ATTNC_MASK_ALIBI)) {
            const int64_t distance = std::abs(i + column(ATTNC_ITEM_OWN_KEY, b) - j);
            score -= static_cast<double>(slopes_.f(h)) * static_cast<double>(distance);
        }
        if (has(ATTNC_MASK_BIAS)) score += static_cast<double>(bias_.f(j, i, h, b));
        if (has(ATTNC_MASK_KEY_BIAS)) score += static_cast<double>(key_bias_.f(j, b));
        const bool dropped = (has(ATTNC_MASK_KEEP) && keep_.at<uint8_t>(j, i, h, b) == 0) ||
                             (has(ATTNC_MASK_DROP) && drop_.at<uint8_t>(j, i, h, b) != 0) ||
                             (has(ATTNC_MASK_BLOCKS) && blocks_.at<uint8_t>(j / 16, i / 16, h, b) == 0);
        return dropped ? kMinusInfinity : static_cast<float>(score);
    }

    DeviceView q, k, items;

private:
    bool has(int flag) const { return (flags_ & flag) != 0; }
    float scale_, softcap_ = 1;
    int32_t flags_ = 0;
    DeviceView slopes_, key_bias_, bias_, keep_, drop_, blocks_;
};

// A row's attention over keys first .. end; guarded: what is dropped isn't multiplied.
struct RowResult {
    std::vector<double> context;
    float largest = kMinusInfinity;
    double sum = 0;
};
RowResult attend_row(const DeviceScores& scores, const DeviceView& v, int64_t b, int64_t h, int64_t i,
                     int64_t first, int64_t end, bool guarded) {
    RowResult row;
    row.context.assign(static_cast<size_t>(v.extent(0)), 0);
    end = std::min(end, scores.column(ATTNC_ITEM_KEYS, b));
    std::vector<float> all;
    for (int64_t j = first; j < end; ++j) {
        all.push_back(scores(b, h, i, j));
        if (!(all.back() <= row.largest)) row.largest = all.back();
    }
    if (row.largest == kMinusInfinity) return row;
    for (int64_t block = first; block < end; block += kFakeDeviceTile) {
        const int64_t last = std::min(block + kFakeDeviceTile, end);
        const auto seen = [&](int64_t j) { return all[static_cast<size_t>(j - first)] != kMinusInfinity; };
        bool any = false;
        for (int64_t j = block; j < last; ++j) any = any || seen(j);
        for (int64_t j = block; any && j < last; ++j) {
            const double weight =
                seen(j) ? std::exp(static_cast<double>(all[static_cast<size_t>(j - first)] - row.largest))
                        : 0;
            row.sum += weight;
            if (guarded && !seen(j)) continue;
            const int64_t key = scores.column(ATTNC_ITEM_KEY_ROW, b) + j;
            for (int64_t d = 0; d < v.extent(0); ++d)
                row.context[static_cast<size_t>(d)] +=
                    weight * static_cast<double>(v.f(d, key, scores.kv_head(h)));
        }
    }
    for (double& value : row.context) value /= row.sum;
    return row;
}

void store_row(const RowResult& row, const DeviceView& context, const DeviceView& stats, int64_t h, int64_t m,
               int64_t split) {
    for (int64_t d = 0; d < context.extent(0); ++d)
        context.f(d, h, m, split) = static_cast<float>(row.context[static_cast<size_t>(d)]);
    stats.f(m, h, 0, split) = row.largest;
    stats.f(m, h, 1, split) = static_cast<float>(row.sum);
}

// row(b, h, i, m): all rows of items that are written; i is -1 where they don't count.
template <typename Row>
void for_rows(const DeviceView& items, int64_t heads, const Row& row) {
    for (int64_t b = 0; b < items.extent(1); ++b) {
        for (int64_t h = 0; h < heads; ++h) {
            for (int64_t i = 0; i < items.i(ATTNC_ITEM_ROWS, b); ++i)
                row(b, h, i < items.i(ATTNC_ITEM_QUERIES, b) ? i : -1, items.i(ATTNC_ITEM_QUERY_ROW, b) + i);
        }
    }
}

void attend(const DeviceArguments& a, int kernel) {
    const DeviceScores scores(a, kernel);
    const DeviceView v = VIEW(V), context = VIEW(CONTEXT), stats = VIEW(ROW_STATS);
    const bool guarded = kernel != ATTNC_DEVICE_KERNEL_ATTEND && kernel != ATTNC_DEVICE_KERNEL_ATTEND_MASKED;
    const bool decodes = kernel == ATTNC_DEVICE_KERNEL_ATTEND_DECODE;
    const bool again = kernel == ATTNC_DEVICE_KERNEL_ATTEND_GUARDED;
    const DeviceView suspects = again ? VIEW(SUSPECTS) : DeviceView();
    const int64_t splits = decodes ? context.extent(3) : 1;
    const int64_t keys = decodes ? kFakeDeviceSplit : std::numeric_limits<int32_t>::max();
    for_rows(scores.items, scores.q.extent(2), [&](int64_t b, int64_t h, int64_t i, int64_t m) {
        if (again && suspects.i(h, b) == 0) return;
        if (again && i == 0) ++fake_device_counts().heads_done_again;
        RowResult none;
        none.context.assign(static_cast<size_t>(v.extent(0)), 0);
        for (int64_t s = 0; s < splits; ++s) {
            store_row(i < 0 ? none : attend_row(scores, v, b, h, i, s * keys, (s + 1) * keys, guarded),
                      context, stats, h, m, s);
        }
    });
}

void attend_suspects(const DeviceArguments& a) {
    const DeviceView context = VIEW(CONTEXT), items = VIEW(ITEMS), suspects = VIEW(SUSPECTS);
    for (int64_t b = 0; b < items.extent(1); ++b) {
        for (int64_t h = 0; h < context.extent(1); ++h) suspects.i(h, b) = 0;
    }
    for_rows(items, context.extent(1), [&](int64_t b, int64_t h, int64_t i, int64_t m) {
        for (int64_t d = 0; i >= 0 && d < context.extent(0); ++d) {
            if (!std::isfinite(context.f(d, h, m))) suspects.i(h, b) = 1;
        }
    });
}

void attend_merge(const DeviceArguments& a) {
    const DeviceView from = VIEW(CONTEXTS), stats_in = VIEW(ROW_STATS_IN), sinks = VIEW(SINKS);
    const DeviceView to = VIEW(CONTEXT), stats = VIEW(ROW_STATS);
    for (int64_t m = 0; m < to.extent(2); ++m) {
        for (int64_t h = 0; h < to.extent(1); ++h) {
            const float sink = a.option() ? sinks.f(h) : kMinusInfinity;
            float largest = sink;
            for (int64_t s = 0; s < from.extent(3); ++s) {
                if (stats_in.f(m, h, 1, s) != 0 && !(stats_in.f(m, h, 0, s) <= largest))
                    largest = stats_in.f(m, h, 0, s);
            }
            RowResult row;
            row.context.assign(static_cast<size_t>(to.extent(0)), 0);
            row.largest = largest;
            const auto weight = [&](float score) { return std::exp(static_cast<double>(score - largest)); };
            if (sink != kMinusInfinity) row.sum += weight(sink);
            for (int64_t s = 0; s < from.extent(3); ++s) {
                if (stats_in.f(m, h, 1, s) == 0) continue;
                const double w = weight(stats_in.f(m, h, 0, s)) * static_cast<double>(stats_in.f(m, h, 1, s));
                row.sum += w;
                for (int64_t d = 0; d < to.extent(0); ++d)
                    row.context[static_cast<size_t>(d)] += w * static_cast<double>(from.f(d, h, m, s));
            }
            for (double& value : row.context) value = row.sum != 0 ? value / row.sum : 0;
            store_row(row, to, stats, h, m, 0);
        }
    }
}

void fill_empty(const DeviceArguments& a) {
    const DeviceView stats = VIEW(ROW_STATS_IN), v = VIEW(V), items = VIEW(ITEMS), context = VIEW(CONTEXT);
    const int64_t heads = context.extent(1), group = heads / v.extent(2);
    for_rows(items, heads, [&](int64_t b, int64_t h, int64_t i, int64_t m) {
        if (i < 0 || stats.f(m, h, 1) != 0) return;
        const int64_t keys = items.i(ATTNC_ITEM_KEYS, b);
        for (int64_t d = 0; d < context.extent(0); ++d) {
            double value = std::numeric_limits<double>::quiet_NaN();
            if (INTEGER(EMPTY_ROWS) == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES) {
                value = 0;
                for (int64_t j = 0; j < keys; ++j)
                    value += static_cast<double>(v.f(d, items.i(ATTNC_ITEM_KEY_ROW, b) + j, h / group));
                if (keys > 0) value /= static_cast<double>(keys);
            }
            context.f(d, h, m) = static_cast<float>(value);
        }
    });
}

void attend_lse(const DeviceArguments& a) {
    const DeviceView stats = VIEW(ROW_STATS_IN), items = VIEW(ITEMS), lse = VIEW(LSE);
    for (int64_t b = 0; b < lse.extent(2); ++b) {
        for (int64_t h = 0; h < lse.extent(1); ++h) {
            for (int64_t i = 0; i < lse.extent(0); ++i) {
                const int64_t m = items.i(ATTNC_ITEM_QUERY_ROW, b) + i;
                const bool counts = i < items.i(ATTNC_ITEM_QUERIES, b);
                const float sum = counts ? stats.f(m, h, 1) : 0.0F;
                lse.f(i, h, b) = sum == 0 ? kMinusInfinity : stats.f(m, h, 0) + std::log(sum);
            }
        }
    }
}

// value(b, h, i, j), with `outside` in rows that don't count.
template <typename Value>
void write_pairs(const DeviceView& to, const DeviceView& items, float outside, const Value& value) {
    for (int64_t b = 0; b < to.extent(3); ++b) {
        for (int64_t h = 0; h < to.extent(2); ++h) {
            for (int64_t i = 0; i < to.extent(1); ++i) {
                for (int64_t j = 0; j < to.extent(0); ++j)
                    to.f(j, i, h, b) = i < items.i(ATTNC_ITEM_QUERIES, b) ? value(b, h, i, j) : outside;
            }
        }
    }
}

void attend_probs(const DeviceArguments& a) {
    const DeviceScores scores(a, ATTNC_DEVICE_KERNEL_ATTEND_PROBS);
    const DeviceView stats = VIEW(ROW_STATS_IN);
    const int32_t policy = INTEGER(EMPTY_ROWS);
    write_pairs(VIEW(PROBS), scores.items, 0, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
        const int64_t m = scores.column(ATTNC_ITEM_QUERY_ROW, b) + i,
                      keys = scores.column(ATTNC_ITEM_KEYS, b);
        if (stats.f(m, h, 1) == 0) {
            if (policy == ATTNC_EMPTY_ROWS_NAN) return std::numeric_limits<float>::quiet_NaN();
            return policy == ATTNC_EMPTY_ROWS_MEAN_OF_VALUES && j < keys ? 1 / static_cast<float>(keys)
                                                                         : 0.0F;
        }
        return std::exp(scores(b, h, i, j) - stats.f(m, h, 0)) / stats.f(m, h, 1);
    });
}

void attend_scores(const DeviceArguments& a) {
    const DeviceScores scores(a, ATTNC_DEVICE_KERNEL_ATTEND_SCORES);
    write_pairs(VIEW(SCORES), scores.items, 0,
                [&](int64_t b, int64_t h, int64_t i, int64_t j) { return scores(b, h, i, j); });
}

void average_probs(const DeviceArguments& a) {
    const DeviceView probs = VIEW(PROBS), averaged = VIEW(AVERAGED);
    for (int64_t b = 0; b < averaged.extent(2); ++b) {
        for (int64_t i = 0; i < averaged.extent(1); ++i) {
            for (int64_t j = 0; j < averaged.extent(0); ++j) {
                double sum = 0;
                for (int64_t h = 0; h < probs.extent(2); ++h) sum += static_cast<double>(probs.f(j, i, h, b));
                averaged.f(j, i, b) = static_cast<float>(sum / static_cast<double>(probs.extent(2)));
            }
        }
    }
}

void split_heads(const DeviceArguments& a) {
    const DeviceView x = VIEW(INPUT), lengths = VIEW(LENGTHS), y = VIEW(Y);
    const int64_t seq = x.extent(1);
    for (int64_t m = 0; m < y.extent(1); ++m) {
        const bool counts = m % seq < lengths.i(m / seq);
        for (int64_t h = 0; h < y.extent(2); ++h) {
            for (int64_t d = 0; d < y.extent(0); ++d)
                y.f(d, m, h) = counts && d < x.extent(0) ? x.f(d, m % seq, h, m / seq) : 0.0F;
        }
    }
}

void merge_heads(const DeviceArguments& a) {
    const DeviceView context = VIEW(CONTEXT), lengths = VIEW(LENGTHS), out = VIEW(OUT);
    const int64_t seq = out.extent(1);
    for (int64_t b = 0; b < out.extent(3); ++b) {
        for (int64_t h = 0; h < out.extent(2); ++h) {
            for (int64_t i = 0; i < seq; ++i) {
                for (int64_t d = 0; d < out.extent(0); ++d)
                    out.f(d, i, h, b) = i < lengths.i(b) ? context.f(d, h, b * seq + i) : 0.0F;
            }
        }
    }
}

void norm_heads(const DeviceArguments& a) {
    const DeviceView x = VIEW(INPUT), weight = VIEW(NORM_WEIGHT), y = VIEW(Y);
    for (int64_t h = 0; h < x.extent(2); ++h) {
        for (int64_t m = 0; m < x.extent(1); ++m) {
            auto sum = static_cast<double>(REAL(EPSILON));
            for (int64_t d = 0; d < x.extent(0); ++d) sum += std::pow(static_cast<double>(x.f(d, m, h)), 2);
            for (int64_t d = 0; d < x.extent(0); ++d)
                y.f(d, m, h) =
                    static_cast<float>(static_cast<double>(x.f(d, m, h) * weight.f(d)) / std::sqrt(sum));
        }
    }
}

int64_t position(const DeviceArguments& a, int64_t m) {
    const DeviceView positions = VIEW(POSITIONS);
    const int64_t seq = positions.extent(0), i = m % seq, b = m / seq;
    const int32_t given = INTEGER(GIVEN);
    if ((given & ATTNC_GIVEN_POSITIONS) != 0) return positions.i(i, b);
    return (given & ATTNC_GIVEN_POSITION_OFFSETS) != 0 ? VIEW(POSITION_OFFSETS).i(b) + i : i;
}

void rotary_angles(const DeviceArguments& a) {
    const DeviceView cosines = VIEW(COS_TABLE), sines = VIEW(SIN_TABLE), frequencies = VIEW(FREQUENCIES);
    const auto magnitude = a.scalar<double>(ATTNC_DEVICE_ARGUMENT_MAGNITUDE);
    for (int64_t m = 0; m < cosines.extent(1); ++m) {
        for (int64_t r = 0; r < cosines.extent(0); ++r) {
            const uint64_t turns = frequencies.at<uint64_t>(r) * static_cast<uint64_t>(position(a, m));
            const double angle =
                static_cast<double>(static_cast<int64_t>(turns)) * 0x1p-64 * 2 * std::numbers::pi;
            cosines.f(r, m) = static_cast<float>(std::cos(angle) * magnitude);
            sines.f(r, m) = static_cast<float>(std::sin(angle) * magnitude);
        }
    }
}

void rotary_rows(const DeviceArguments& a) {
    const DeviceView cosines = VIEW(COS_TABLE), sines = VIEW(SIN_TABLE);
    const DeviceView from_cos = VIEW(TABLE_COS), from_sin = VIEW(TABLE_SIN);
    for (int64_t m = 0; m < cosines.extent(1); ++m) {
        const int64_t row = clamped(position(a, m), 0, from_cos.extent(1) - 1);
        for (int64_t r = 0; r < cosines.extent(0); ++r)
            cosines.f(r, m) = from_cos.f(r, row), sines.f(r, m) = from_sin.f(r, row);
    }
}

void rotate_heads(const DeviceArguments& a) {
    const DeviceView cosines = VIEW(COS_TABLE), sines = VIEW(SIN_TABLE), x = VIEW(INPUT), y = VIEW(Y);
    const int64_t pairs = cosines.extent(0);
    for (int64_t h = 0; h < x.extent(2); ++h) {
        for (int64_t m = 0; m < x.extent(1); ++m) {
            for (int64_t d = 2 * pairs; d < x.extent(0); ++d) y.f(d, m, h) = x.f(d, m, h);
            for (int64_t r = 0; r < pairs; ++r) {
                const int64_t one = a.option() ? 2 * r : r, other = a.option() ? 2 * r + 1 : r + pairs;
                const float u = x.f(one, m, h), w = x.f(other, m, h), c = cosines.f(r, m), s = sines.f(r, m);
                y.f(one, m, h) = u * c - w * s;
                y.f(other, m, h) = w * c + u * s;
            }
        }
    }
}

void fill_key_bias(const DeviceArguments& a) {
    const DeviceView to = VIEW(KEY_BIAS);
    const int32_t given = INTEGER(GIVEN);
    const auto addend = [&](int flag, const DeviceView& bias, int64_t j, int64_t b) {
        return (given & flag) != 0 ? static_cast<double>(bias.f(j, b)) : 0;
    };
    const auto drops = [&](int flag, const DeviceView& mask, bool where, int64_t j, int64_t b) {
        return (given & flag) != 0 && (mask.at<uint8_t>(j, b) != 0) == where;
    };
    for (int64_t b = 0; b < to.extent(1); ++b) {
        for (int64_t j = 0; j < to.extent(0); ++j) {
            const bool dropped = drops(ATTNC_GIVEN_KEEP_MASK, VIEW(KEEP_MASK), false, j, b) ||
                                 drops(ATTNC_GIVEN_KEY_KEEP_MASK, VIEW(KEY_KEEP_MASK), false, j, b) ||
                                 drops(ATTNC_GIVEN_DROP_MASK, VIEW(DROP_MASK), true, j, b) ||
                                 drops(ATTNC_GIVEN_KEY_DROP_MASK, VIEW(KEY_DROP_MASK), true, j, b);
            to.f(j, b) = dropped ? kMinusInfinity
                                 : static_cast<float>(addend(ATTNC_GIVEN_BIAS, VIEW(BIAS), j, b) +
                                                      addend(ATTNC_GIVEN_KEY_BIAS, VIEW(KEY_BIAS_IN), j, b));
        }
    }
}

void fill_key_blocks(const DeviceArguments& a) {
    const DeviceView from = VIEW(BLOCK_KEEP_MASK), to = VIEW(KEY_BLOCKS);
    for (int64_t b = 0; b < to.extent(3); ++b) {
        for (int64_t h = 0; h < to.extent(2); ++h) {
            for (int64_t ib = 0; ib < to.extent(1); ++ib) {
                for (int64_t jb = 0; jb < to.extent(0); ++jb) {
                    to.at<uint8_t>(jb, ib, h, b) =
                        from.at<uint8_t>(jb * 16 / INTEGER(BLOCK_KV), ib * 16 / INTEGER(BLOCK_Q), h, b);
                }
            }
        }
    }
}

void do_work(int kernel, void** parameters) {
    const DeviceArguments a(kernel, parameters);
    switch (kernel) {
        case ATTNC_DEVICE_KERNEL_FILL_ITEMS:
            return fill_items(a);
        case ATTNC_DEVICE_KERNEL_PROJECT_HEADS:
            return project_heads(a);
        case ATTNC_DEVICE_KERNEL_PROJECT_OUT:
            return project_out(a);
        case ATTNC_DEVICE_KERNEL_ATTEND_SUSPECTS:
            return attend_suspects(a);
        case ATTNC_DEVICE_KERNEL_ATTEND_MERGE:
            return attend_merge(a);
        case ATTNC_DEVICE_KERNEL_FILL_EMPTY:
            return fill_empty(a);
        case ATTNC_DEVICE_KERNEL_ATTEND_LSE:
            return attend_lse(a);
        case ATTNC_DEVICE_KERNEL_ATTEND_PROBS:
            return attend_probs(a);
        case ATTNC_DEVICE_KERNEL_ATTEND_SCORES:
            return attend_scores(a);
        case ATTNC_DEVICE_KERNEL_AVERAGE_PROBS:
            return average_probs(a);
        case ATTNC_DEVICE_KERNEL_SPLIT_HEADS:
            return split_heads(a);
        case ATTNC_DEVICE_KERNEL_MERGE_HEADS:
            return merge_heads(a);
        case ATTNC_DEVICE_KERNEL_NORM_HEADS:
            return norm_heads(a);
        case ATTNC_DEVICE_KERNEL_ROTARY_ANGLES:
            return rotary_angles(a);
        case ATTNC_DEVICE_KERNEL_ROTARY_ROWS:
            return rotary_rows(a);
        case ATTNC_DEVICE_KERNEL_ROTATE_HEADS:
            return rotate_heads(a);
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BIAS:
            return fill_key_bias(a);
        case ATTNC_DEVICE_KERNEL_FILL_KEY_BLOCKS:
            return fill_key_blocks(a);
        default:
            return attend(a, kernel);
    }
}

template <int kernel>
void code(void** parameters) {
    do_work(kernel, parameters);
}

}  // namespace

FakeDevice::FakeDevice(const Config& config, const FakeDeviceLayout& layout)
    : code_(ATTNC_DEVICE_KERNEL_COUNT), images_(2 * ATTNC_DEVICE_KERNEL_COUNT) {
    entry_.name = "cuda";
    entry_.runtime = &attnc_abi1_cuda;
    entry_.layout = {
        layout.panel,      layout.out_panel, layout.depth, layout.depth, kFakeDeviceTile, kFakeDeviceSplit, 8,
        layout.decode_rows};
    using Run = int32_t (*)(void**);
#define ATTNC_X(id, name) host_code<ATTNC_DEVICE_KERNEL_##id>,
    Run runs[] = {ATTNC_DEVICE_KERNELS(ATTNC_X)};
#undef ATTNC_X
    if (config.rotary == Rotary::kPairs) {
        runs[ATTNC_DEVICE_KERNEL_ROTATE_HEADS] = host_code<ATTNC_DEVICE_KERNEL_ROTATE_HEADS, true>;
    }
    if (config.sink)
        runs[ATTNC_DEVICE_KERNEL_ATTEND_MERGE] = host_code<ATTNC_DEVICE_KERNEL_ATTEND_MERGE, true>;
    for (int kernel = 0; kernel < ATTNC_DEVICE_KERNEL_COUNT; ++kernel) {
        std::string& text = code_[static_cast<size_t>(kernel)] = ptx_of(kernel);
        attnc_device_image* images = &images_[2 * static_cast<size_t>(kernel)];
        const auto bytes = static_cast<int64_t>(text.size() + 1);
        images[0] = {80, text.c_str(), bytes}, images[1] = {0, text.c_str(), bytes};
        entry_.kernels[kernel] = {runs[kernel], order(kernel).data(),
                                  static_cast<int64_t>(order(kernel).size()), images, 2};
    }
}

std::vector<FakeDeviceFunction> fake_device_functions() {
#define ATTNC_X(id, name) {function_name(ATTNC_DEVICE_KERNEL_##id), code<ATTNC_DEVICE_KERNEL_##id>},
    return {ATTNC_DEVICE_KERNELS(ATTNC_X)};
#undef ATTNC_X
}

FakeDeviceCounts& fake_device_counts() {
    static FakeDeviceCounts counts;
    return counts;
}

}  // namespace attnc::test
