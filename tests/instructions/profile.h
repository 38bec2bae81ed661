// What callgrind writes down.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace attnc::test {

// One dump: what it was made for, and the instructions of each object file's own code by the file's last name.
struct Profile {
    std::string trigger;
    std::map<std::string, int64_t> instructions;
};

// Reads a dump with uncompressed names. Throws std::runtime_error for one of another kind.
Profile parse_profile(std::string_view text);

}  // namespace attnc::test
