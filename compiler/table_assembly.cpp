// The table as assembler text: everything in it is 8 bytes wide, so `.quad` alone makes it, for any target.
#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <vector>

#include "compiler/library_writer.h"
#include "compiler/manifest.h"
#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

// The order below is the order of the fields. A field more or less in kernel_abi.h fails here.
static_assert(sizeof(attnc_kernel_entry) == 4 * 8 && offsetof(attnc_kernel_entry, run) == 0 &&
              offsetof(attnc_kernel_entry, arguments) == 8 &&
              offsetof(attnc_kernel_entry, argument_count) == 16 &&
              offsetof(attnc_kernel_entry, scratch_bytes) == 24);
static_assert(sizeof(attnc_layout) == 11 * 8 && offsetof(attnc_layout, panel) == 0 &&
              offsetof(attnc_layout, out_panel) == 8 && offsetof(attnc_layout, tile_rows) == 16 &&
              offsetof(attnc_layout, tail_rows) == 24 && offsetof(attnc_layout, out_tile_rows) == 32 &&
              offsetof(attnc_layout, out_tail_rows) == 40 && offsetof(attnc_layout, tile_kv) == 48 &&
              offsetof(attnc_layout, tile_q) == 56 && offsetof(attnc_layout, tile_q_narrow) == 64 &&
              offsetof(attnc_layout, tile_q_single) == 72 && offsetof(attnc_layout, split_kv) == 80);
static_assert(sizeof(attnc_target_entry) == 13 * 8 + ATTNC_KERNEL_COUNT * sizeof(attnc_kernel_entry) &&
              offsetof(attnc_target_entry, name) == 0 && offsetof(attnc_target_entry, cpu_features) == 8 &&
              offsetof(attnc_target_entry, layout) == 16 && offsetof(attnc_target_entry, kernels) == 104);
static_assert(sizeof(attnc_config) == 9 * 8 && offsetof(attnc_config, d_model) == 0 &&
              offsetof(attnc_config, num_heads) == 8 && offsetof(attnc_config, num_kv_heads) == 16 &&
              offsetof(attnc_config, head_dim) == 24 && offsetof(attnc_config, v_head_dim) == 32 &&
              offsetof(attnc_config, k_dim) == 40 && offsetof(attnc_config, v_dim) == 48 &&
              offsetof(attnc_config, flags) == 56 && offsetof(attnc_config, page_size) == 64);
static_assert(sizeof(attnc_library) == 18 * 8 && offsetof(attnc_library, abi_version) == 0 &&
              offsetof(attnc_library, hash) == 8 && offsetof(attnc_library, name) == 16 &&
              offsetof(attnc_library, problem) == 24 && offsetof(attnc_library, config) == 32 &&
              offsetof(attnc_library, target_count) == 104 && offsetof(attnc_library, targets) == 112 &&
              offsetof(attnc_library, manifest) == 120 && offsetof(attnc_library, manifest_bytes) == 128 &&
              offsetof(attnc_library, device) == 136);

static_assert(sizeof(attnc_device_image) == 3 * 8 && offsetof(attnc_device_image, architecture) == 0 &&
              offsetof(attnc_device_image, data) == 8 && offsetof(attnc_device_image, bytes) == 16);
static_assert(sizeof(attnc_device_kernel) == 5 * 8 && offsetof(attnc_device_kernel, run) == 0 &&
              offsetof(attnc_device_kernel, arguments) == 8 &&
              offsetof(attnc_device_kernel, argument_count) == 16 &&
              offsetof(attnc_device_kernel, images) == 24 &&
              offsetof(attnc_device_kernel, image_count) == 32);
static_assert(sizeof(attnc_device_layout) == 8 * 8 && offsetof(attnc_device_layout, panel) == 0 &&
              offsetof(attnc_device_layout, out_panel) == 8 && offsetof(attnc_device_layout, depth) == 16 &&
              offsetof(attnc_device_layout, out_depth) == 24 &&
              offsetof(attnc_device_layout, tile_kv) == 32 && offsetof(attnc_device_layout, split_kv) == 40 &&
              offsetof(attnc_device_layout, tile_q) == 48 &&
              offsetof(attnc_device_layout, decode_rows) == 56);
static_assert(sizeof(attnc_device_entry) ==
                  10 * 8 + ATTNC_DEVICE_KERNEL_COUNT * sizeof(attnc_device_kernel) &&
              offsetof(attnc_device_entry, name) == 0 && offsetof(attnc_device_entry, runtime) == 8 &&
              offsetof(attnc_device_entry, layout) == 16 && offsetof(attnc_device_entry, kernels) == 80);

class Assembly {
public:
    void line(const std::string& text) { text_ += text + "\n"; }
    void section(const std::string& name, const std::string& flags) {
        line(fmt::format(".section {},\"{}\",@progbits", name, flags));
    }
    void align() { line(".p2align 3"); }
    void label(const std::string& name) { line(name + ":"); }
    void quad(int64_t value) { line(fmt::format(".quad {}", value)); }
    void quad(const std::string& symbol) { line(".quad " + symbol); }
    void string(const std::string& label_name, const std::string& text) {
        label(label_name);
        line(fmt::format(".asciz \"{}\"", escaped(text)));
    }
    // The bytes of a file.
    void file(const std::string& label_name, const std::filesystem::path& path) {
        label(label_name);
        line(fmt::format(".incbin \"{}\"", escaped(path.string())));
    }
    const std::string& text() const { return text_; }

private:
    static std::string escaped(const std::string& text) {
        std::string escaped;
        for (char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            const bool plain = byte >= ' ' && byte < 127 && c != '"' && c != '\\';
            escaped += plain ? std::string(1, c) : fmt::format("\\{:03o}", byte);
        }
        return escaped;
    }

    std::string text_;
};

const PlannedKernel* find_kernel(const std::vector<PlannedKernel>& kernels, int kernel) {
    for (const PlannedKernel& planned : kernels) {
        if (planned.kernel == kernel) return &planned;
    }
    return nullptr;
}

std::string arguments_label(size_t target, int kernel) {
    return fmt::format(".Lattnc_arguments_{}_{}", target, kernel);
}

void write_argument_lists(Assembly& to, const LibraryPlan& plan) {
    for (size_t t = 0; t < plan.targets.size(); ++t) {
        for (const PlannedKernel& kernel : plan.targets[t].kernels) {
            to.label(arguments_label(t, kernel.kernel));
            for (const std::string& name : kernel.compiled.info.arguments) to.quad(argument_by_name(name));
        }
    }
}

void write_target(Assembly& to, const LibraryPlan& plan, size_t index) {
    const PlannedTarget& target = plan.targets[index];
    to.quad(fmt::format(".Lattnc_target_name_{}", index));
    to.quad(target.features);
    to.quad(target.schedule.layout.panel);
    to.quad(target.schedule.layout.out_panel);
    const CpuParams& params = target.schedule.params;
    to.quad(params.project_heads.rows);
    to.quad(params.project_heads_tail.rows);
    to.quad(params.project_out.rows);
    to.quad(params.project_out_tail.rows);
    to.quad(target.schedule.layout.tile_kv);
    to.quad(params.attend.rows);  // tile_q
    to.quad(params.attend_narrow.rows);
    to.quad(params.attend_single.rows);
    to.quad(target.schedule.layout.split_kv);
    for (int kernel = 0; kernel < ATTNC_KERNEL_COUNT; ++kernel) {
        const PlannedKernel* planned = find_kernel(target.kernels, kernel);
        if (planned == nullptr) {
            for (int field = 0; field < 4; ++field) to.quad(0);
            continue;
        }
        const KernelInfo& info = planned->compiled.info;
        to.quad(planned->job.symbol + "_argv");
        to.quad(arguments_label(index, kernel));
        to.quad(static_cast<int64_t>(info.arguments.size()));
        to.quad(info.scratch_bytes);
    }
}

constexpr const char* kDeviceLabel = ".Lattnc_device";

void write_library(Assembly& to, const LibraryPlan& plan, size_t manifest_bytes) {
    int64_t hash = 0;
    std::memcpy(&hash, &plan.hash, sizeof hash);
    to.line(".globl " + plan.symbol);
    to.line(".hidden " + plan.symbol);
    to.line(fmt::format(".type {},@object", plan.symbol));
    to.line(fmt::format(".size {},{}", plan.symbol, sizeof(attnc_library)));
    to.label(plan.symbol);
    to.quad(ATTNC_ABI_VERSION);
    to.quad(hash);
    to.quad(".Lattnc_name");
    to.quad(".Lattnc_problem");
    const Config& config = plan.config;
    for (int64_t field :
         {config.d_model, config.num_heads, config.num_kv_heads, config.head_dim, config.v_head_dim,
          config.k_dim, config.v_dim, config_flags(config), config.page_size}) {
        to.quad(field);
    }
    to.quad(static_cast<int64_t>(plan.targets.size()));
    to.quad(".Lattnc_targets");
    to.quad(".Lattnc_manifest");
    to.quad(static_cast<int64_t>(manifest_bytes));
    to.quad(plan.device ? std::string(kDeviceLabel) : "0");
}

// ---- A device

std::string device_arguments_label(int kernel) { return fmt::format(".Lattnc_device_arguments_{}", kernel); }
std::string images_label(int kernel) { return fmt::format(".Lattnc_device_images_{}", kernel); }
std::string ptx_label(int kernel) { return fmt::format(".Lattnc_device_ptx_{}", kernel); }
std::string cubin_label(int kernel, int architecture) {
    return fmt::format(".Lattnc_device_cubin_{}_{}", kernel, architecture);
}

void write_device_code(Assembly& to, const PlannedDevice& device) {
    to.string(".Lattnc_device_name", device.target.name);
    to.align();
    for (const PlannedKernel& kernel : device.kernels) {
        to.label(device_arguments_label(kernel.kernel));
        for (const std::string& name : kernel.compiled.info.arguments) to.quad(device_argument_by_name(name));
    }
    for (const PlannedKernel& kernel : device.kernels) {
        for (const Cubin& cubin : kernel.compiled.cubins) {
            to.align();
            to.file(cubin_label(kernel.kernel, cubin.architecture), cubin.file);
        }
        to.file(ptx_label(kernel.kernel), device_code_file(kernel.compiled.object));
        to.line(".byte 0");
    }
}

void write_device_images(Assembly& to, const PlannedDevice& device) {
    for (const PlannedKernel& kernel : device.kernels) {
        to.label(images_label(kernel.kernel));
        for (const Cubin& cubin : kernel.compiled.cubins) {
            to.quad(cubin.architecture);
            to.quad(cubin_label(kernel.kernel, cubin.architecture));
            to.quad(cubin.bytes);
        }
        to.quad(0);
        to.quad(ptx_label(kernel.kernel));
        to.quad(kernel.compiled.info.device_code_bytes);
    }
}

void write_device_layout(Assembly& to, const CudaSchedule& schedule) {
    constexpr int64_t kRowsOfThread = 4;
    const CudaParams& params = schedule.params;
    to.quad(schedule.layout.panel);
    to.quad(schedule.layout.out_panel);
    to.quad(params.project_heads.depth);
    to.quad(params.project_out.depth);
    to.quad(schedule.layout.tile_kv);
    to.quad(schedule.layout.split_kv);
    to.quad(kRowsOfThread * params.attend.threads_y);         // tile_q
    to.quad(kRowsOfThread * params.attend_decode.threads_y);  // decode_rows
}

void write_device(Assembly& to, const PlannedDevice& device) {
    write_device_images(to, device);
    to.label(kDeviceLabel);
    to.quad(".Lattnc_device_name");
    to.quad("attnc_abi1_cuda");
    write_device_layout(to, device.schedule);
    for (int kernel = 0; kernel < ATTNC_DEVICE_KERNEL_COUNT; ++kernel) {
        const PlannedKernel* planned = find_kernel(device.kernels, kernel);
        if (planned == nullptr) {
            for (int field = 0; field < 5; ++field) to.quad(0);
            continue;
        }
        to.quad(planned->job.symbol + "_argv");
        to.quad(device_arguments_label(kernel));
        to.quad(static_cast<int64_t>(planned->compiled.info.arguments.size()));
        to.quad(images_label(kernel));
        to.quad(static_cast<int64_t>(planned->compiled.cubins.size()) + 1);
    }
}

}  // namespace

std::string table_assembly(const LibraryPlan& plan, const std::string& manifest) {
    Assembly to;
    to.section(kManifestSection, "a");
    to.string(".Lattnc_manifest", manifest);
    to.section(".rodata.attnc_table", "a");
    to.string(".Lattnc_name", plan.name);
    to.string(".Lattnc_problem", plan.problem);
    for (size_t t = 0; t < plan.targets.size(); ++t) {
        to.string(fmt::format(".Lattnc_target_name_{}", t), plan.targets[t].name);
    }
    to.align();
    write_argument_lists(to, plan);
    if (plan.device) {
        to.section(".rodata.attnc_device", "a");
        write_device_code(to, *plan.device);
    }

    to.section(".data.rel.ro.attnc_table", "aw");  // pointers: filled in by the loader, then read-only
    to.align();
    to.label(".Lattnc_targets");
    for (size_t t = 0; t < plan.targets.size(); ++t) write_target(to, plan, t);
    if (plan.device) write_device(to, *plan.device);
    write_library(to, plan, manifest.size());
    to.section(".note.GNU-stack", "");
    return to.text();
}

}  // namespace attnc
