// The manifest: what a library holds and what it was made from, as JSON. It lies in the archive and beside it.
#pragma once

#include <filesystem>
#include <string>

#include "compiler/library_plan.h"

namespace attnc {

// Of a plan whose kernels are compiled. Ends in a newline.
std::string manifest_json(const LibraryPlan& plan);

// Section of a library's object that holds its manifest, zero-terminated.
constexpr const char* kManifestSection = ".rodata.attnc_manifest";

// From lib<name>.a or <name>.json. Throws std::runtime_error: "x is neither a library nor a manifest of attnc".
std::string load_manifest(const std::filesystem::path& path);

// What a person wants to know of a manifest, as text. Throws std::runtime_error if something is missing.
std::string describe_manifest(const std::string& json);

}  // namespace attnc
