// Where the parts of attnc that a build needs lie: the command itself (workers are the command run again), the runtime
// archive and its headers, records and grid of the tuner. The build tree and an installed tree have the same shape, so both are found the same way:
// relative to the executable, wherever the tree was moved.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attnc {

struct Installation {
    std::filesystem::path command;          // the attnc executable
    std::filesystem::path runtime_archive;  // libattnc_runtime.a
    std::filesystem::path include_folder;   // holds attnc.h and attnc.hpp
    std::filesystem::path runner;           // of attnc tune --export, an object
    std::filesystem::path mpi_module;       // of attnc tune --mpi; need not be there
    std::filesystem::path records_folder;   // shipped tuning records, *.jsonl; need not be there
    std::filesystem::path shapes_folder;    // the benchmark grid, *.txt; need not be there
};

// The headers that a program with a generated library includes, by name in include_folder.
std::vector<std::string> runtime_headers();

// The tree that `command` belongs to. Throws std::runtime_error naming the file that is missing.
Installation installation_of(const std::filesystem::path& command);

// The tree of the running executable, which must be attnc.
Installation own_installation();

}  // namespace attnc
