#include "compiler/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "compiler/elf_file.h"
#include "compiler/files.h"
#include "compiler/kernel_forms.h"
#include "compiler/record_check.h"
#include "compiler/targets.h"
#include "compiler/tree.h"
#include "runtime/kernel_abi.h"

namespace attnc {

using Json = nlohmann::ordered_json;

namespace {

Json config_json(const Config& config) {
    return {{"d_model", config.d_model},
            {"num_heads", config.num_heads},
            {"num_kv_heads", config.num_kv_heads},
            {"head_dim", config.head_dim},
            {"v_head_dim", config.v_head_dim},
            {"k_dim", config.k_dim},
            {"v_dim", config.v_dim},
            {"dtype", "f32"},
            {"in_proj", config.in_proj},
            {"out_proj", config.out_proj},
            {"causal", config.causal},
            {"masks", config.masks},
            {"probs", config.probs},
            {"bias_kv", config.bias_kv},
            {"zero_attn", config.zero_attn},
            {"sink", config.sink},
            {"alibi", config.alibi},
            {"softcap", config.softcap},
            {"qk_norm", config.qk_norm},
            {"rotary", config.rotary == Rotary::kNone   ? "none"
                       : config.rotary == Rotary::kHalf ? "half"
                                                        : "pairs"},
            {"cache", config.cache},
            {"page_size", config.page_size},
            {"scores", config.scores}};
}

Json kernel_json(const PlannedKernel& kernel) {
    const KernelInfo& info = kernel.compiled.info;
    return {{"name", kernel.job.kernel},           {"config", kernel.job.config},
            {"arguments", info.arguments},         {"code_bytes", info.code_bytes},
            {"scratch_bytes", info.scratch_bytes}, {"stack_bytes", info.stack_bytes}};
}

const char* origin_name(RecordOrigin origin) {
    switch (origin) {
        case RecordOrigin::kOption:
            return "--db";
        case RecordOrigin::kProject:
            return "project";
        case RecordOrigin::kShipped:
            return "shipped";
    }
    return "";
}

Json sizes_json(const std::vector<Sizes>& sizes) {
    Json json = Json::array();
    for (const Sizes& entry : sizes) json.push_back(to_string(entry));
    return json;
}

// Nothing here depends on where files lie.
template <class Planned>
Json record_json(const Planned& planned, const Config& config) {
    if (!planned.found.record) return nullptr;
    const TuningRecord& record = *planned.found.record;
    const CheckedRecord checked = compare_objects(planned, config);
    Json json = {{"origin", origin_name(planned.found.origin)},
                 {"file", planned.found.file},
                 {"config", to_string(record.config)},
                 {"tuned_for", sizes_json(record.sizes)}};
    if (is_of_device(record)) {
        json["target"] = record.target;
        json["device"] = record.machine.cpu;
    } else {
        json["cpu"] = record.machine.cpu;
        json["threads"] = record.threads;
    }
    json["effort"] = record.effort;
    json["date"] = record.date;
    json["attnc"] = record.attnc;
    json["state"] = state_name(checked.state);
    json["reason"] = checked.reason;
    return json;
}

// Which kernels take which rows: in general, and at the sizes that are named.
Json forms_json(const PlannedTarget& target, const LibraryPlan& plan) {
    Json general = Json::array();
    for (const KernelForm& form : kernel_forms(plan.config, target.schedule)) {
        general.push_back({{"kernel", form.kernel}, {"takes", form.takes}});
    }
    std::vector<Sizes> sizes = plan.tuned_for;
    if (target.found.record) {
        const std::vector<Sizes>& tuned = target.found.record->sizes;
        sizes.insert(sizes.end(), tuned.begin(), tuned.end());
        sort_sizes(sizes);
    }
    Json at = Json::object();
    for (const Sizes& entry : sizes) at[to_string(entry)] = attention_at(plan.config, target.schedule, entry);
    return {{"general", general}, {"attention_at", at}};
}

Json target_json(const PlannedTarget& target, const LibraryPlan& plan) {
    const Layout& layout = target.schedule.layout;
    Json kernels = Json::array();
    for (const PlannedKernel& kernel : target.kernels) kernels.push_back(kernel_json(kernel));
    return {{"name", target.name},
            {"cpu_features", feature_names(target.features)},
            {"layout",
             {{"panel", layout.panel},
              {"out_panel", layout.out_panel},
              {"tile_kv", layout.tile_kv},
              {"split_kv", layout.split_kv}}},
            {"schedule", to_string(target.schedule)},
            {"schedule_origin", target.schedule_origin},
            {"record", record_json(target, plan.config)},
            {"forms", forms_json(target, plan)},
            {"kernels", kernels}};
}

Json device_layout_json(const CudaLayout& layout) {
    return {{"panel", layout.panel},
            {"out_panel", layout.out_panel},
            {"threads_x", layout.threads_x},
            {"tile_kv", layout.tile_kv},
            {"split_kv", layout.split_kv}};
}

Json device_kernel_json(const PlannedKernel& kernel) {
    Json cubins = Json::object();
    for (const Cubin& cubin : kernel.compiled.cubins)
        cubins[fmt::format("sm_{}", cubin.architecture)] = cubin.bytes;
    const KernelInfo& info = kernel.compiled.info;
    return {{"name", kernel.job.kernel},           {"config", kernel.job.config},
            {"arguments", info.arguments},         {"code_bytes", info.code_bytes},
            {"ptx_bytes", info.device_code_bytes}, {"cubin_bytes", cubins}};
}

Json device_json(const PlannedDevice& device, const Config& config, const std::string& ptxas) {
    Json kernels = Json::array(), architectures = Json::array();
    for (const PlannedKernel& kernel : device.kernels) kernels.push_back(device_kernel_json(kernel));
    for (const int architecture : device.target.architectures)
        architectures.push_back(fmt::format("sm_{}", architecture));
    return {{"name", device.target.name},
            {"halide_target", device.target.halide},
            {"cubins", architectures},
            {"ptxas", ptxas.empty() ? Json(nullptr) : Json(ptxas)},
            {"layout", device_layout_json(device.schedule.layout)},
            {"schedule", to_string(device.schedule)},
            {"schedule_origin", device.schedule_origin},
            {"record", record_json(device, config)},
            {"kernels", kernels}};
}

bool is_manifest(const Json& json) {
    return json.is_object() && json.contains("attnc") && json.contains("targets") && json.contains("problem");
}

// The manifest among an archive's members; "" if none has one.
std::string manifest_in_archive(const std::string& bytes) {
    for (const ArchiveMember& member : archive_members(bytes)) {
        std::string_view section = ElfObject(member.contents).section(kManifestSection);
        if (!section.empty()) return std::string(section.substr(0, section.find('\0')));
    }
    return "";
}

std::string joined(const Json& texts) {
    return fmt::format("{}", fmt::join(texts.get<std::vector<std::string>>(), " "));
}

std::string describe_forms(const Json& forms) {
    std::string text;
    for (const Json& form : forms.at("general")) {
        text += fmt::format("  {:<20}{}\n", form.at("kernel").get<std::string>(),
                            form.at("takes").get<std::string>());
    }
    for (const auto& [sizes, kernels] : forms.at("attention_at").items()) {
        text += fmt::format("  at {:<17}{}\n", sizes, joined(kernels));
    }
    return text;
}

// Whether its code is that of the record, if there is one.
std::string record_line(const Json& record) {
    if (record.is_null()) return "";
    const auto reason = record.at("reason").get<std::string>();
    return fmt::format("  record    {}{}{}\n", record.at("state").get<std::string>(),
                       reason.empty() ? "" : ": ", reason);
}

std::string describe_target(const Json& target) {
    std::string text = fmt::format("\n{}\n  schedule  {} ({})\n", target.at("name").get<std::string>(),
                                   target.at("schedule").get<std::string>(),
                                   target.at("schedule_origin").get<std::string>());
    text += record_line(target.at("record"));
    text += describe_forms(target.at("forms"));
    text += fmt::format("  {:<20}{:>10}{:>12}{:>10}\n", "kernel", "code", "scratch", "stack");
    for (const Json& kernel : target.at("kernels")) {
        text += fmt::format("  {:<20}{:>10}{:>12}{:>10}\n", kernel.at("name").get<std::string>(),
                            kernel.at("code_bytes").get<int64_t>(), kernel.at("scratch_bytes").get<int64_t>(),
                            kernel.at("stack_bytes").get<int64_t>());
    }
    return text;
}

std::string describe_device(const Json& device) {
    const Json& cubins = device.at("cubins");
    std::string text =
        fmt::format("\n{}\n  schedule  {} ({})\n{}  code      PTX{}{}\n",
                    device.at("name").get<std::string>(), device.at("schedule").get<std::string>(),
                    device.at("schedule_origin").get<std::string>(), record_line(device.at("record")),
                    cubins.empty() ? "" : "; cubins for ", cubins.empty() ? "" : joined(cubins));
    text += fmt::format("  {:<20}{:>10}{:>10}", "kernel", "host code", "ptx");
    for (const Json& name : cubins) text += fmt::format("{:>10}", name.get<std::string>());
    text += '\n';
    for (const Json& kernel : device.at("kernels")) {
        text += fmt::format("  {:<20}{:>10}{:>10}", kernel.at("name").get<std::string>(),
                            kernel.at("code_bytes").get<int64_t>(), kernel.at("ptx_bytes").get<int64_t>());
        for (const auto& [name, bytes] : kernel.at("cubin_bytes").items())
            text += fmt::format("{:>10}", bytes.get<int64_t>());
        text += '\n';
    }
    return text;
}

}  // namespace

std::string manifest_json(const LibraryPlan& plan) {
    Json targets = Json::array();
    for (const PlannedTarget& target : plan.targets) targets.push_back(target_json(target, plan));
    Json manifest = {
        {"attnc", {{"version", kVersion}, {"abi", ATTNC_ABI_VERSION}}},
        {"halide", plan.versions.halide},
        {"llvm", plan.versions.llvm},
        {"name", plan.name},
        {"problem", plan.problem},
        {"hash", fmt::format("{:016x}", plan.hash)},
        {"config", config_json(plan.config)},
        {"tuned_for", sizes_json(plan.tuned_for)},
        {"targets", targets},
    };
    if (plan.device) manifest["device"] = device_json(*plan.device, plan.config, plan.ptxas);
    return manifest.dump(2) + "\n";
}

std::string load_manifest(const std::filesystem::path& path) {
    const std::string bytes = read_file(path);
    std::string text = bytes;
    try {
        if (bytes.starts_with("!<arch>\n")) text = manifest_in_archive(bytes);
    } catch (const std::runtime_error&) {
        text.clear();  // another archive, or a damaged one
    }
    if (!is_manifest(Json::parse(text, nullptr, /*allow_exceptions=*/false))) {
        throw std::runtime_error(
            fmt::format("{} is neither a library nor a manifest of attnc", path.string()));
    }
    return text;
}

std::string describe_manifest(const std::string& json) {
    try {
        const Json manifest = Json::parse(json);
        std::string text = fmt::format("{}: {}\n", manifest.at("name").get<std::string>(),
                                       manifest.at("problem").get<std::string>());
        for (const auto& [name, value] : manifest.at("config").items()) {
            text += fmt::format("  {:<14}{}\n", name,
                                value.is_string() ? value.get<std::string>() : value.dump());
        }
        text += fmt::format("made by attnc {} (ABI {}) with Halide {} and LLVM {}; hash {}\n",
                            manifest.at("attnc").at("version").get<std::string>(),
                            manifest.at("attnc").at("abi").get<int64_t>(),
                            manifest.at("halide").get<std::string>(), manifest.at("llvm").get<std::string>(),
                            manifest.at("hash").get<std::string>());
        const Json& tuned_for = manifest.at("tuned_for");
        if (!tuned_for.empty()) text += fmt::format("for {}\n", joined(tuned_for));
        for (const Json& target : manifest.at("targets")) text += describe_target(target);
        if (manifest.contains("device")) text += describe_device(manifest.at("device"));
        return text;
    } catch (const Json::exception& error) {
        throw std::runtime_error(fmt::format("damaged manifest: {}", error.what()));
    }
}

}  // namespace attnc
