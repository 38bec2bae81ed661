#include "compiler/library_writer.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>

#include "compiler/elf_file.h"
#include "compiler/files.h"
#include "compiler/llvm_tools.h"
#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHalidePrefix = "halide_";
constexpr std::string_view kRuntimePrefix = "attnc_abi1_";
constexpr std::string_view kTwinPrefix = "attnc_abi1_opencl_";  // of a program with tests
static_assert(ATTNC_ABI_VERSION == 1, "the prefix of the hooks names the ABI");

std::set<std::string> global_names(const ElfObject& object, bool defined) {
    std::set<std::string> names;
    for (const ElfSymbol& symbol : object.symbols()) {
        if (symbol.global && symbol.defined == defined && !symbol.name.empty()) names.emplace(symbol.name);
    }
    return names;
}

std::set<std::string> defined_in_archive(const fs::path& archive) {
    std::set<std::string> names;
    const std::string bytes = read_file(archive);
    for (const ArchiveMember& member : archive_members(bytes)) {
        names.merge(global_names(ElfObject(member.contents), true));
    }
    return names;
}

// "halide_malloc attnc_abi1_malloc" for every hook that the joined object needs.
std::string renamings(const ElfObject& joined) {
    std::string text;
    for (const std::string& name : global_names(joined, false)) {
        if (!name.starts_with(kHalidePrefix)) continue;
        text += fmt::format("{} {}{}\n", name, kRuntimePrefix, name.substr(kHalidePrefix.size()));
    }
    return text;
}

// One hidden symbol defined; undefined only what the runtime and the C library have.
void check_finished(const ElfObject& object, const LibraryPlan& plan, const fs::path& runtime_archive) {
    const std::set<std::string> hooks = defined_in_archive(runtime_archive);
    for (const std::string& name : global_names(object, true)) {
        if (name != plan.symbol)
            throw std::runtime_error(fmt::format("the library defines the symbol {}", name));
    }
    for (const std::string& name : global_names(object, false)) {
        const bool hook = name.starts_with(kRuntimePrefix);
        if (plan.device && !plan.device->target.is_cuda() && name.starts_with(kTwinPrefix)) continue;
        if (hook ? !hooks.contains(name) : !is_allowed_undefined(name, false)) {
            throw std::runtime_error(
                fmt::format("the library needs {}, which the runtime does not have", name));
        }
    }
}

}  // namespace

void write_archive(const LibraryPlan& plan, const std::string& manifest, const fs::path& archive,
                   const fs::path& folder, const fs::path& runtime_archive) {
    const LlvmTools tools = find_llvm_tools();
    const fs::path table = folder / "table.s";
    const fs::path table_object = folder / "table.o";
    write_file(table, table_assembly(plan, manifest));
    run_tool(
        {tools.mc, "-filetype=obj", "-triple=x86_64-linux-gnu", "-o", table_object.string(), table.string()});

    const fs::path joined = folder / "joined.o";
    std::vector<std::string> join = {tools.lld, "-r", "-o", joined.string(), table_object.string()};
    for (const PlannedTarget& target : plan.targets) {
        for (const PlannedKernel& kernel : target.kernels) join.push_back(kernel.compiled.object.string());
    }
    if (plan.device) {
        for (const PlannedKernel& kernel : plan.device->kernels)
            join.push_back(kernel.compiled.object.string());
    }
    run_tool(join);

    const fs::path names = folder / "renamings";
    const fs::path object = folder / fmt::format("{}.o", plan.name);
    {
        const std::string bytes = read_file(joined);
        write_file(names, renamings(ElfObject(bytes)));
    }
    run_tool({tools.objcopy, "--redefine-syms=" + names.string(), "--keep-global-symbol=" + plan.symbol,
              "--remove-section=.comment", joined.string(), object.string()});
    {
        const std::string bytes = read_file(object);
        check_finished(ElfObject(bytes), plan, runtime_archive);
    }
    std::error_code ignored;
    fs::remove(archive, ignored);  // ar adds to an archive that is there
    run_tool({tools.ar, "rcsD", archive.string(), object.string()});
}

}  // namespace attnc
