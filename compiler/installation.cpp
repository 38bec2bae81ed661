#include "compiler/installation.h"

#include <fmt/format.h>

#include <stdexcept>
#include <system_error>

#include "compiler/tree.h"

namespace attnc {

namespace fs = std::filesystem;

std::vector<std::string> runtime_headers() { return {"attnc.h", "attnc.hpp"}; }

Installation installation_of(const fs::path& command) {
    std::error_code error;
    Installation tree;
    tree.command = fs::canonical(command, error);
    if (error) throw std::runtime_error(fmt::format("{} not found", command.string()));
    const fs::path folder = tree.command.parent_path();
    tree.runtime_archive = (folder / kLibraryFolder / "libattnc_runtime.a").lexically_normal();
    tree.include_folder = (folder / kIncludeFolder).lexically_normal();
    tree.runner = (folder / kLibraryFolder / "attnc" / "attnc_runner.o").lexically_normal();
    tree.mpi_module = (folder / kLibraryFolder / "attnc" / "attnc_mpi.so").lexically_normal();
    tree.records_folder = (folder / kDataFolder / "db").lexically_normal();
    tree.shapes_folder = (folder / kDataFolder / "shapes").lexically_normal();
    std::vector<fs::path> needed = {tree.runtime_archive};
    for (const std::string& header : runtime_headers()) needed.push_back(tree.include_folder / header);
    for (const fs::path& file : needed) {
        if (!fs::is_regular_file(file, error)) {
            throw std::runtime_error(fmt::format("attnc is not complete: {} not found", file.string()));
        }
    }
    return tree;
}

Installation own_installation() { return installation_of("/proc/self/exe"); }

}  // namespace attnc
