// A case file's call on a library, held against the results in the file.
#pragma once

#include <string>

#include "runtime/attnc.h"
#include "support/case_file.h"

namespace attnc {

// "" if every result of the file that a library gives is within the file's tolerance, else what is outside. Throws
// std::runtime_error with the runtime's sentence.
std::string check_case(const CaseFile& file, const attnc_library* library, const std::string& target);

}  // namespace attnc
