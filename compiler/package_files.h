// The text files that come with a library: what a C, CMake or pkg-config project reads to use it.
#pragma once

#include <string>

#include "compiler/library_plan.h"

namespace attnc {

std::string header_text(const LibraryPlan& plan);        // <name>.h
std::string cmake_config_text(const LibraryPlan& plan);  // <name>Config.cmake
std::string pkg_config_text(const LibraryPlan& plan);    // <name>.pc

}  // namespace attnc
