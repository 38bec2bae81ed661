// What a verification comes to: one outcome for each call and instruction set, its lines of text, and JSON.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attnc {

struct Outcome {
    enum class Kind { kPassed, kFailed, kSkipped };

    std::string name;    // of the case, or the problem and seed of a random call
    std::string target;  // empty: none was reached
    Kind kind = Kind::kPassed;
    std::string reason;  // of a failure or a skip
    std::string repeat;  // command that repeats a failure
};

// "NAME on TARGET: REASON" and the command that repeats it; "NAME: skipped, REASON"; "" for one that passed.
std::string text_of(const Outcome& outcome);

// One JSON value in a line, and back. Throws std::runtime_error.
std::string to_json(const Outcome& outcome);
Outcome outcome_from_json(const std::string& line);

// Prints "N passed, N failed, N skipped" and writes the outcomes to `json`, if not empty. True if all is well:
// something was compared, and nothing failed.
bool conclude(const std::vector<Outcome>& outcomes, const std::filesystem::path& json);

// For a command line that a user may copy.
std::string shell_quoted(const std::string& text);

}  // namespace attnc
