// The table of a fake device: host code that checks and launches, images, and which function does the work of a launch.
#include "tests/support/fake_device.h"

#include <array>
#include <bit>

#include "tests/support/fake_device_parts.h"

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

// Of the rules, those that a library takes: one without cache knows no key_runs.
size_t argument_count(int kernel, bool cached) {
    const std::vector<Rule>& rule = rules(kernel);
    return rule.size() - (!cached && rule.back().argument == ATTNC_DEVICE_ARGUMENT_KEY_RUNS ? 1 : 0);
}

// The user context comes first, the rest backwards, so that only the table's order can be right.
const std::vector<int64_t>& order(int kernel, bool cached) {
    static const auto all = [] {
        std::array<std::vector<std::vector<int64_t>>, 2> made;
        for (const bool with_cache : {false, true}) {
            for (int k = 0; k < ATTNC_DEVICE_KERNEL_COUNT; ++k) {
                std::vector<int64_t> arguments = {ATTNC_DEVICE_ARGUMENT_USER_CONTEXT};
                for (size_t i = argument_count(k, with_cache); i-- > 0;)
                    arguments.push_back(rules(k)[i].argument);
                made[with_cache ? 1 : 0].push_back(arguments);
            }
        }
        return made;
    }();
    return all[cached ? 1 : 0][static_cast<size_t>(kernel)];
}

const char* name_of(int kernel) {
#define ATTNC_X(id, name) #name,
    static constexpr const char* kNames[] = {ATTNC_DEVICE_KERNELS(ATTNC_X)};
#undef ATTNC_X
    return kNames[kernel];
}
std::string function_name(int kernel) { return std::string("_kernel_") + name_of(kernel); }

size_t scalar_bytes(Kind kind) { return kind == Kind::kDouble ? 8 : 4; }

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

int32_t launch(int kernel, bool option, bool cached, void** argv) {
    const std::vector<Rule>& rule = rules(kernel);
    HostCall call = {*static_cast<void**>(argv[0])};
    void* state = nullptr;
    attnc_abi1_cuda_initialize_kernels(call.context, &state, "", 0);
    Shapes shapes = {};
    shapes.option = option ? 1 : 0;
    std::vector<size_t> sizes;
    std::vector<void*> arguments;
    std::vector<int8_t> buffers;
    const size_t taken = argument_count(kernel, cached);
    HalideBuffer none = {};
    for (size_t i = 0; i < rule.size(); ++i) {
        void* argument = i < taken ? argv[taken - i] : &none;
        arguments.push_back(argument);
        buffers.push_back(is_buffer(rule[i].kind) ? 1 : 0);
        sizes.push_back(is_buffer(rule[i].kind) ? 8 : scalar_bytes(rule[i].kind));
        if (!is_buffer(rule[i].kind) || i == taken) continue;
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

template <int kernel, bool cached, bool option = false>
int32_t host_code(void** argv) {
    return launch(kernel, option, cached, argv);
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
        case ATTNC_DEVICE_KERNEL_FILL_POSITIONS:
            return fill_positions(a);
        case ATTNC_DEVICE_KERNEL_CLEAR_ROWS:
            return clear_rows(a);
        case ATTNC_DEVICE_KERNEL_FILL_CACHE:
            return fill_cache(a);
        case ATTNC_DEVICE_KERNEL_FILL_RUNS:
            return fill_runs(a);
        case ATTNC_DEVICE_KERNEL_APPEND_ROWS:
            return append_rows(a);
        case ATTNC_DEVICE_KERNEL_KEEP_LENGTHS:
            return keep_lengths(a);
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
#define ATTNC_X(id, name) \
    {host_code<ATTNC_DEVICE_KERNEL_##id, false>, host_code<ATTNC_DEVICE_KERNEL_##id, true>},
    Run all[][2] = {ATTNC_DEVICE_KERNELS(ATTNC_X)};
#undef ATTNC_X
    std::array<Run, ATTNC_DEVICE_KERNEL_COUNT> runs{};
    for (size_t kernel = 0; kernel < runs.size(); ++kernel) runs[kernel] = all[kernel][config.cache ? 1 : 0];
    if (config.rotary == Rotary::kPairs) {
        runs[ATTNC_DEVICE_KERNEL_ROTATE_HEADS] = host_code<ATTNC_DEVICE_KERNEL_ROTATE_HEADS, false, true>;
    }
    if (config.sink)
        runs[ATTNC_DEVICE_KERNEL_ATTEND_MERGE] = host_code<ATTNC_DEVICE_KERNEL_ATTEND_MERGE, false, true>;
    for (int kernel = 0; kernel < ATTNC_DEVICE_KERNEL_COUNT; ++kernel) {
        std::string& text = code_[static_cast<size_t>(kernel)] = ptx_of(kernel);
        attnc_device_image* images = &images_[2 * static_cast<size_t>(kernel)];
        const auto bytes = static_cast<int64_t>(text.size() + 1);
        images[0] = {80, text.c_str(), bytes}, images[1] = {0, text.c_str(), bytes};
        const std::vector<int64_t>& arguments = order(kernel, config.cache);
        entry_.kernels[kernel] = {runs[static_cast<size_t>(kernel)], arguments.data(),
                                  static_cast<int64_t>(arguments.size()), images, 2};
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
