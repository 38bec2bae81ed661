#include "compiler/load_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "compiler/elf_file.h"
#include "compiler/files.h"
#include "compiler/subprocess.h"
#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSymbolPrefix = "attnc_lib_";
constexpr const char* kGetter = "attnc_loaded_library";
constexpr std::chrono::seconds kTimeLimit{120};

// Name of the one symbol of a library's archive.
std::string library_symbol(const fs::path& archive) {
    const std::string bytes = read_file(archive);
    try {
        for (const ArchiveMember& member : archive_members(bytes)) {
            const ElfObject object(member.contents);
            for (const ElfSymbol& symbol : object.symbols()) {
                if (symbol.global && symbol.defined && symbol.name.starts_with(kSymbolPrefix)) {
                    return std::string(symbol.name);
                }
            }
        }
    } catch (const std::runtime_error&) {  // no archive, or one of other things: said below
    }
    throw std::runtime_error(fmt::format("{} is not a library of attnc", archive.string()));
}

// The symbol is hidden, so a function inside the shared object hands it out.
void link(const fs::path& archive, const Installation& installation, const fs::path& folder,
          const fs::path& shared) {
    const std::string cc = find_program("cc");
    if (cc.empty())
        throw std::runtime_error("cc not found on PATH: running a library needs a C compiler to link it");
    const std::string symbol = library_symbol(archive);
    const fs::path source = folder / "getter.c";
    write_file(source, fmt::format("extern const char {0}[];\n"
                                   "const void *{1}(void);\n"
                                   "const void *{1}(void) {{ return {0}; }}\n",
                                   symbol, kGetter));
    const ProcessResult result =
        run_process({cc, "-shared", "-fPIC", "-O1", "-o", shared.string(), source.string(), archive.string(),
                     installation.runtime_archive.string(), "-pthread"},
                    kTimeLimit);
    if (!result.succeeded()) {
        std::string reason = last_line(result.output);
        if (reason.empty()) reason = describe_failure(result, kTimeLimit);
        throw std::runtime_error(fmt::format("cannot link {}: {}", archive.string(), reason));
    }
}

}  // namespace

void link_library(const fs::path& archive, const Installation& installation, const fs::path& shared) {
    const TemporaryFolder folder(system_temporary_folder());
    link(archive, installation, folder.path(), shared);
}

LoadedLibrary LoadedLibrary::open(const fs::path& shared) {
    LoadedLibrary library;
    library.open_shared(shared, shared);
    return library;
}

LoadedLibrary::LoadedLibrary(const fs::path& archive, const Installation& installation) {
    const TemporaryFolder folder(system_temporary_folder());
    const fs::path shared = folder.path() / "library.so";
    link(archive, installation, folder.path(), shared);
    open_shared(shared, archive);
}

void LoadedLibrary::open_shared(const fs::path& shared, const fs::path& named) {
    handle_ = ::dlopen(shared.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr)
        throw std::runtime_error(fmt::format("cannot load {}: {}", named.string(), ::dlerror()));
    auto* getter = reinterpret_cast<const attnc_library* (*)()>(::dlsym(handle_, kGetter));
    if (getter == nullptr) {
        ::dlclose(std::exchange(handle_, nullptr));
        throw std::runtime_error(fmt::format("cannot load {}: no {}", named.string(), kGetter));
    }
    library_ = getter();
    if (const int64_t abi = library_->abi_version; abi != ATTNC_ABI_VERSION) {
        ::dlclose(std::exchange(handle_, nullptr));
        throw std::runtime_error(
            fmt::format("{} has ABI {}, this attnc runs {}", named.string(), abi, ATTNC_ABI_VERSION));
    }
}

LoadedLibrary::LoadedLibrary(LoadedLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), library_(std::exchange(other.library_, nullptr)) {}

LoadedLibrary& LoadedLibrary::operator=(LoadedLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(library_, other.library_);
    return *this;
}

LoadedLibrary::~LoadedLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
}

}  // namespace attnc
