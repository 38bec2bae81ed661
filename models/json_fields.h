// Fields of JSON files that describe models: read with the type that is wanted, or refused by their name.
//
// Every function throws ConfigError with one line that names the field; whoever knows the file puts its name before.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stages/config.h"

namespace attnc {

using Json = nlohmann::json;

// The object that a file holds. Limited to 16 MiB and 64 levels, so that no file can take the program's memory or
// its stack.
Json read_json_object(const std::string& file);

// null where the field is absent or null, as these files write "not given".
const Json* find_field(const Json& object, const std::string& field);

// A whole number >= 1. `absent` is what a missing or null field stands for; without it the field must be there.
int64_t read_size(const Json& object, const std::string& field, std::optional<int64_t> absent = std::nullopt);
// The first of several spellings that is there.
int64_t read_size_of(const Json& object, std::initializer_list<const char*> fields);

bool read_flag(const Json& object, const std::string& field, bool absent);

// A finite number greater than 0.
double read_positive(const Json& object, const std::string& field,
                     std::optional<double> absent = std::nullopt);

std::string read_text(const Json& object, const std::string& field,
                      std::optional<std::string> absent = std::nullopt);

// Lists; a field that isn't there is an empty one.
std::vector<std::string> read_texts(const Json& object, const std::string& field);
std::vector<double> read_positives(const Json& object, const std::string& field);

// An object inside of another.
const Json& read_section(const Json& object, const std::string& field);

// "a, b, c".
std::string joined(const std::vector<std::string>& items);

}  // namespace attnc
