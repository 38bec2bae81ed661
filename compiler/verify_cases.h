// Case files one after another: the library that each asks for is built, and run on every instruction set.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compiler/build.h"
#include "compiler/installation.h"
#include "compiler/verify_case.h"
#include "compiler/verify_outcome.h"

namespace attnc {

struct CaseRequest {
    std::vector<std::string> folders;    // of *.safetensors, or single files
    std::vector<std::string> names;      // file names without .safetensors; empty: all
    std::vector<std::string> targets;    // empty: the usual CPU set
    std::filesystem::path kernel_cache;  // empty: none beyond this run
    BuildTuning tuning;                  // of the libraries' schedules
    Installation installation;           // of attnc; installation_of(path of the command)
    // What a case comes to on a target: "" or what is wrong.
    std::function<std::string(const CaseFile&, const attnc_library*, const std::string& target)> check =
        check_case;
};

// Prints what isn't well as it goes. A file that can't be read, a library that can't be built and a crash are failures of
// their case, and the others go on. Throws std::runtime_error for a folder without case files, a name that no file has.
// `scratch` is a folder for this run's own files.
std::vector<Outcome> verify_cases(const CaseRequest& request, const std::filesystem::path& scratch);

}  // namespace attnc
