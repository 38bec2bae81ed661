#include "compiler/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "compiler/elf_file.h"
#include "compiler/files.h"
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

Json target_json(const PlannedTarget& target) {
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

std::string describe_target(const Json& target) {
    std::string text =
        fmt::format("\n{}\n  schedule  {} ({})\n  {:<16}{:>10}{:>12}{:>10}\n",
                    target.at("name").get<std::string>(), target.at("schedule").get<std::string>(),
                    target.at("schedule_origin").get<std::string>(), "kernel", "code", "scratch", "stack");
    for (const Json& kernel : target.at("kernels")) {
        text += fmt::format("  {:<16}{:>10}{:>12}{:>10}\n", kernel.at("name").get<std::string>(),
                            kernel.at("code_bytes").get<int64_t>(), kernel.at("scratch_bytes").get<int64_t>(),
                            kernel.at("stack_bytes").get<int64_t>());
    }
    return text;
}

}  // namespace

std::string manifest_json(const LibraryPlan& plan) {
    Json targets = Json::array();
    for (const PlannedTarget& target : plan.targets) targets.push_back(target_json(target));
    const Json manifest = {
        {"attnc", {{"version", kVersion}, {"abi", ATTNC_ABI_VERSION}}},
        {"halide", plan.versions.halide},
        {"llvm", plan.versions.llvm},
        {"name", plan.name},
        {"problem", plan.problem},
        {"hash", fmt::format("{:016x}", plan.hash)},
        {"config", config_json(plan.config)},
        {"targets", targets},
    };
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
        for (const Json& target : manifest.at("targets")) text += describe_target(target);
        return text;
    } catch (const Json::exception& error) {
        throw std::runtime_error(fmt::format("damaged manifest: {}", error.what()));
    }
}

}  // namespace attnc
