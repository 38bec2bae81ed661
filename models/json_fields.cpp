#include "models/json_fields.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace attnc {

namespace {

// A configuration with names for 20 000 classes has about 1 MiB, the index of a model of 61 layers with 256 experts
// each about 9 MiB.
constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr int kMaxDepth = 64;

std::string read_text_file(const std::string& file) {
    const auto close = [](FILE* stream) { std::fclose(stream); };
    const std::unique_ptr<FILE, decltype(close)> stream(std::fopen(file.c_str(), "rb"), close);
    if (!stream) throw ConfigError("cannot be read: " + std::string(std::strerror(errno)));
    std::string text;
    char buffer[1 << 14];
    while (const size_t got = std::fread(buffer, 1, sizeof buffer, stream.get())) {
        text.append(buffer, got);
        if (text.size() > kMaxFileBytes) throw ConfigError("longer than 16 MiB, which no configuration is");
    }
    if (std::ferror(stream.get()) != 0)
        throw ConfigError("cannot be read: " + std::string(std::strerror(errno)));
    return text;
}

// A value as one line can show it.
std::string shown(const Json& value) {
    return in_quotes(value.is_structured() ? value.type_name() : value.dump(-1, ' ', true));
}

// The field, or null if it may be absent.
template <class T>
const Json* find_or_throw(const Json& object, const std::string& field, const std::optional<T>& absent) {
    const Json* const value = find_field(object, field);
    if (value == nullptr && !absent) throw ConfigError(field + " is missing");
    return value;
}

}  // namespace

Json read_json_object(const std::string& file) {
    const std::string text = read_text_file(file);
    const auto limit_depth = [](int depth, Json::parse_event_t, const Json&) {
        if (depth > kMaxDepth) throw ConfigError("nested deeper than 64 levels");
        return true;
    };
    Json root;
    try {
        root = Json::parse(text, limit_depth);
    } catch (const Json::parse_error& error) {
        if (error.byte > text.size()) throw ConfigError("ends before its JSON does");
        throw ConfigError("not JSON from byte " + std::to_string(error.byte) + " of " +
                          std::to_string(text.size()) + " on");
    } catch (const Json::exception&) {
        throw ConfigError("holds a number beyond double precision");
    }
    if (!root.is_object()) throw ConfigError("not a JSON object");
    return root;
}

const Json* find_field(const Json& object, const std::string& field) {
    const auto found = object.find(field);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

int64_t read_size(const Json& object, const std::string& field, std::optional<int64_t> absent) {
    const Json* const value = find_or_throw(object, field, absent);
    if (value == nullptr) return *absent;
    if (!value->is_number_integer()) {
        throw ConfigError(field + " is not a whole number but " + shown(*value));
    }
    // Above the range of int64 the parser makes unsigned numbers, and above theirs floating ones.
    const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX};
    if (huge || value->get<int64_t>() < 1)
        throw ConfigError(field + " " + value->dump() + " is not a positive size");
    return value->get<int64_t>();
}

int64_t read_size_of(const Json& object, std::initializer_list<const char*> fields) {
    for (const char* const field : fields) {
        if (find_field(object, field) != nullptr) return read_size(object, field);
    }
    throw ConfigError(std::string(*fields.begin()) + " is missing");
}

bool read_flag(const Json& object, const std::string& field, bool absent) {
    const Json* const value = find_field(object, field);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) throw ConfigError(field + " is neither true nor false");
    return value->get<bool>();
}

double read_positive(const Json& object, const std::string& field, std::optional<double> absent) {
    const Json* const value = find_or_throw(object, field, absent);
    if (value == nullptr) return *absent;
    if (!value->is_number()) throw ConfigError(field + " is not a number but " + shown(*value));
    const auto number = value->get<double>();
    if (!(number > 0)) throw ConfigError(field + " " + value->dump() + " is not greater than 0");
    return number;
}

std::string read_text(const Json& object, const std::string& field, std::optional<std::string> absent) {
    const Json* const value = find_or_throw(object, field, absent);
    if (value == nullptr) return *std::move(absent);
    if (!value->is_string()) throw ConfigError(field + " is not a string");
    return value->get<std::string>();
}

std::vector<std::string> read_texts(const Json& object, const std::string& field) {
    const Json* const list = find_field(object, field);
    if (list == nullptr) return {};
    if (!list->is_array()) throw ConfigError(field + " is not a list");
    std::vector<std::string> texts;
    for (const Json& item : *list) {
        if (!item.is_string()) throw ConfigError(field + " has an entry that is not a string");
        texts.push_back(item.get<std::string>());
    }
    return texts;
}

std::vector<double> read_positives(const Json& object, const std::string& field) {
    const Json* const list = find_field(object, field);
    if (list == nullptr) return {};
    if (!list->is_array()) throw ConfigError(field + " is not a list");
    std::vector<double> numbers;
    for (const Json& item : *list) {
        if (!item.is_number() || !(item.get<double>() > 0))
            throw ConfigError(field + " has an entry that is not a number greater than 0");
        numbers.push_back(item.get<double>());
    }
    return numbers;
}

const Json& read_section(const Json& object, const std::string& field) {
    const Json* const section = find_field(object, field);
    if (section == nullptr) throw ConfigError(field + " is missing");
    if (!section->is_object()) throw ConfigError(field + " is not a JSON object");
    return *section;
}

std::string joined(const std::vector<std::string>& items) {
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
    return text;
}

}  // namespace attnc
