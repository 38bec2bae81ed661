// A folder for PATH with the tools of a build and no ptxas, to which a test may add its own.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "compiler/llvm_tools.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {

class ToolFolder {
public:
    ToolFolder() {
        const LlvmTools tools = find_llvm_tools();
        for (const std::string& tool : {tools.mc, tools.objcopy, tools.ar, tools.objdump, tools.lld}) {
            std::filesystem::create_symlink(tool, folder_.path() / std::filesystem::path(tool).filename());
        }
    }
    std::map<std::string, std::string> environment() const { return {{"PATH", folder_.path().string()}}; }
    // A shell script that runs as ptxas; $2 is the PTX, $4 the output. What another one made is in the tests' kernel cache under
    // its version.
    void add_ptxas(const std::string& script, const std::string& version = "1.2.3") const {
        const std::filesystem::path file = folder_.path() / "ptxas";
        std::ofstream(file) << "#!/bin/sh\n"
                               "if [ \"$1\" = --version ]; then\n"
                               "  echo 'Cuda compilation tools, release 1.2, V"
                            << version << "'; exit 0\nfi\n"
                            << script << "\n";
        std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    }

private:
    TestFolder folder_;
};

}  // namespace attnc::test
