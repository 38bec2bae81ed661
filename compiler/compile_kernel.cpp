#include "compiler/compile_kernel.h"

#include <Halide.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <system_error>

#include "compiler/assembly.h"
#include "compiler/device_code.h"
#include "compiler/elf_file.h"
#include "compiler/files.h"
#include "compiler/hash.h"
#include "compiler/heap_bytes.h"
#include "compiler/stack_bytes.h"

extern char** environ;

namespace attnc {

namespace {

namespace fs = std::filesystem;

// Halide's messages as exceptions, warnings included: "guaranteed to fail an assertion at runtime" is one of them.
class Reporter : public Halide::CompileTimeErrorReporter {
public:
    // A twin for OpenCL does without the checks inside of kernels, which CUDA's traps make.
    void warning(const char* message) override {
        const std::string line = one_line(message);
        if (line.find("Ignoring assertion inside OpenCL kernel") != std::string::npos) return;
        throw std::runtime_error(line);
    }
    [[noreturn]] void error(const char* message) override { throw std::runtime_error(one_line(message)); }

private:
    static std::string one_line(const char* message) {
        std::string line;
        for (const char* c = message; *c != '\0'; ++c) {
            bool space = *c == '\n' || *c == ' ' || *c == '\t';
            if (!space) line += *c;
            if (space && !line.empty() && line.back() != ' ') line += ' ';
        }
        while (!line.empty() && line.back() == ' ') line.pop_back();
        return line;
    }
};

// HL_... variables change what Halide and its LLVM do; a library must not depend on them.
void clear_halide_environment() {
    std::vector<std::string> names;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        std::string_view text = *variable;
        if (text.starts_with("HL_")) names.emplace_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : names) ::unsetenv(name.c_str());
}

// The generator's module with the argv entry and without metadata, which Halide's own build_module would add.
Halide::Module build_module(const KernelJob& job) {
    using namespace Halide::Internal;
    Halide::Target target = Halide::Target(job.target)
                                .with_feature(Halide::Target::NoRuntime)
                                .with_feature(Halide::Target::UserContext)
                                .with_feature(Halide::Target::NoBoundsQuery);
    if (!job.checked && !is_device_target(job.target)) target.set_feature(Halide::Target::NoAsserts);
    AbstractGeneratorPtr generator = GeneratorRegistry::create(job.kernel, Halide::GeneratorContext(target));
    if (generator == nullptr) throw std::runtime_error(fmt::format("no generator '{}'", job.kernel));
    generator->set_generatorparam_value("config", job.config);
    generator->set_generatorparam_value("schedule", job.schedule);

    Halide::Pipeline pipeline = generator->build_pipeline();
    std::vector<Halide::Argument> arguments;
    for (const AbstractGenerator::ArgInfo& info : generator->arginfos()) {
        if (info.dir != ArgInfoDirection::Input) continue;
        for (const Halide::Parameter& p : generator->input_parameter(info.name)) {
            arguments.emplace_back(
                p.name(), p.is_buffer() ? Halide::Argument::InputBuffer : Halide::Argument::InputScalar,
                p.type(), p.dimensions(), p.get_argument_estimates());
        }
    }
    return pipeline.compile_to_module(arguments, job.symbol, target, Halide::LinkageType::ExternalPlusArgv);
}

const Halide::Internal::LoweredFunc& entry(const Halide::Module& module, const KernelJob& job) {
    for (const Halide::Internal::LoweredFunc& function : module.functions()) {
        if (function.name == job.symbol) return function;
    }
    throw std::runtime_error(fmt::format("the module has no function {}", job.symbol));
}

std::vector<std::string> argument_names(const Halide::Internal::LoweredFunc& function, bool device) {
    std::vector<std::string> names;
    for (const Halide::Internal::LoweredArgument& argument : function.args) {
        if ((device ? device_argument_by_name(argument.name) : argument_by_name(argument.name)) < 0) {
            throw std::runtime_error(fmt::format("argument '{}' is not in {}", argument.name,
                                                 device ? "ATTNC_DEVICE_ARGUMENTS" : "ATTNC_ARGUMENTS"));
        }
        names.push_back(argument.name);
    }
    return names;
}

// An object of a library defines its function and the argv entry, and needs nothing but the runtime's hooks. Anything
// else that it defined would be shared between the instruction sets that are joined.
void check_symbols(const ElfObject& object, const KernelJob& job) {
    for (const ElfSymbol& symbol : object.symbols()) {
        if (!symbol.global || symbol.name.empty()) continue;
        if (symbol.name == "halide_do_par_for" || symbol.name == "halide_do_parallel_tasks") {
            throw std::runtime_error("has a parallel loop: a CPU kernel works on the slice that it is given");
        }
        bool expected = symbol.defined ? symbol.name == job.symbol || symbol.name == job.symbol + "_argv"
                                       : is_allowed_undefined(symbol.name, is_device_target(job.target));
        if (!expected) {
            throw std::runtime_error(
                fmt::format("{} the symbol {}", symbol.defined ? "defines" : "calls", symbol.name));
        }
    }
}

void write_emitted(const Halide::Module& module, const fs::path& prefix, const Emit& emit) {
    std::map<Halide::OutputFileType, std::string> files;
    if (emit.assembly) write_file(prefix.string() + ".s", assembly_of(module, prefix));
    if (emit.stmt) files[Halide::OutputFileType::stmt] = prefix.string() + ".stmt";
    if (emit.llvm) files[Halide::OutputFileType::llvm_assembly] = prefix.string() + ".ll";
    if (!files.empty()) module.compile(files);
}

}  // namespace

void compile_kernel(const KernelJob& job, const fs::path& prefix, const Emit& emit) {
    static Reporter reporter;
    Halide::set_custom_compile_time_error_reporter(&reporter);
    clear_halide_environment();
#ifdef __SANITIZE_ADDRESS__
    Halide::set_compiler_stack_size(0);  // the sanitizer doesn't follow Halide to a stack of its own
#endif

    Halide::Module module = build_module(job);
    const Halide::Internal::LoweredFunc& function = entry(module, job);
    const bool device = is_device_target(job.target);
    KernelInfo info;
    info.arguments = argument_names(function, device);
    info.scratch_bytes = heap_bytes(function.body);
    if (device) {
        const std::string code = take_device_code(module, job);
        info.device_code_bytes = static_cast<int64_t>(code.size());
        write_file(device_code_file(prefix.string() + ".o"), code);
    }

    const std::string bytes = object_of(module, prefix);
    const ElfObject object(bytes);
    check_symbols(object, job);
    info.code_bytes = static_cast<int64_t>(object.code_bytes());

    write_file(prefix.string() + ".o", bytes);
    info.stack_bytes = stack_bytes(prefix.string() + ".o");
    if (info.stack_bytes > kMaxStackBytes) {
        throw std::runtime_error(
            fmt::format("takes {} bytes of stack, at most {} are allowed", info.stack_bytes, kMaxStackBytes));
    }
    if (emit.any()) write_emitted(module, prefix, emit);
    write_file(prefix.string() + ".json", to_json(info));
}

CompilerVersions compiler_versions() {
    const int llvm = Halide::Internal::get_llvm_version();  // 211 is 21.1
    std::string identity = read_file("/proc/self/exe");     // the generators and schedules are in it
    Dl_info halide = {};
    if (::dladdr(reinterpret_cast<void*>(&Halide::Internal::get_llvm_version), &halide) == 0) {
        throw std::runtime_error("cannot find libHalide.so");
    }
    const auto changed = fs::last_write_time(halide.dli_fname).time_since_epoch().count();
    identity += fmt::format("|{}|{}", fs::file_size(halide.dli_fname), changed);
    return {
        .halide = fmt::format("{}.{}.{}", HALIDE_VERSION_MAJOR, HALIDE_VERSION_MINOR, HALIDE_VERSION_PATCH),
        .llvm = fmt::format("{}.{}", llvm / 10, llvm % 10),
        .identity = hash128_hex(identity)};
}

}  // namespace attnc
