#include "support/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

namespace attnc {
namespace {

struct TypeRow {
    StoredType type;
    const char* name;
    int64_t bytes;
};
constexpr std::array<TypeRow, 10> kTypes = {{
    {StoredType::kF64, "F64", 8},
    {StoredType::kF32, "F32", 4},
    {StoredType::kF16, "F16", 2},
    {StoredType::kBF16, "BF16", 2},
    {StoredType::kI64, "I64", 8},
    {StoredType::kI32, "I32", 4},
    {StoredType::kI16, "I16", 2},
    {StoredType::kI8, "I8", 1},
    {StoredType::kU8, "U8", 1},
    {StoredType::kBool, "BOOL", 1},
}};

}  // namespace

const char* stored_type_name(StoredType type) { return kTypes.at(static_cast<size_t>(type)).name; }
int64_t stored_type_bytes(StoredType type) { return kTypes.at(static_cast<size_t>(type)).bytes; }

namespace safetensors {
namespace {

constexpr size_t kMaxRank = 32;

// A tensor as far as the header has told it.
struct RawEntry {
    std::string name;
    std::optional<StoredType> type;
    std::optional<std::vector<int64_t>> shape;
    std::optional<std::vector<int64_t>> offsets;
};

// Takes the header as events, so that duplicate keys are seen (a parsed object has lost them) and nesting
// deeper than the format's three levels stops at once. Every refusal sets `error` and returns false, which
// ends the parse.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
public:
    std::vector<RawEntry> entries;
    std::map<std::string, std::string> metadata;
    std::string error;

    bool start_object(size_t) override {
        switch (state_) {
            case State::kStart:
                state_ = State::kTop;
                return true;
            case State::kEntryValue:
                entries.push_back({.name = key_});
                state_ = State::kEntry;
                return true;
            case State::kMetadataValue:
                state_ = State::kMetadata;
                return true;
            default:
                return unexpected("an object");
        }
    }

    bool key(string_t& name) override {
        switch (state_) {
            case State::kTop:
                if (!top_keys_.insert(name).second) return refuse("duplicate key " + in_quotes(name));
                key_ = name;
                state_ = name == kMetadataKey ? State::kMetadataValue : State::kEntryValue;
                return true;
            case State::kMetadata:
                if (metadata.contains(name))
                    return refuse("duplicate key " + in_quotes(name) + " in " + kMetadataKey);
                key_ = name;
                state_ = State::kMetadataText;
                return true;
            default:  // kEntry: the only other object
                return field_key(name);
        }
    }

    bool end_object() override {
        if (state_ == State::kEntry) {
            const RawEntry& entry = entries.back();
            if (!entry.type) return refuse("tensor " + in_quotes(entry.name) + " has no dtype");
            if (!entry.shape) return refuse("tensor " + in_quotes(entry.name) + " has no shape");
            if (!entry.offsets) return refuse("tensor " + in_quotes(entry.name) + " has no data_offsets");
        }
        state_ = state_ == State::kTop ? State::kEnd : State::kTop;
        return true;
    }

    bool string(string_t& text) override {
        if (state_ == State::kMetadataText) {
            metadata[key_] = text;
            state_ = State::kMetadata;
            return true;
        }
        if (state_ != State::kType) return unexpected("text");
        const auto* row =
            std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& r) { return text == r.name; });
        if (row == kTypes.end()) {
            return refuse("tensor " + in_quotes(entries.back().name) + " has unknown dtype " +
                          in_quotes(text));
        }
        entries.back().type = row->type;
        state_ = State::kEntry;
        return true;
    }

    bool start_array(size_t) override {
        if (state_ != State::kShape && state_ != State::kOffsets) return unexpected("an array");
        state_ = state_ == State::kShape ? State::kShapeItems : State::kOffsetItems;
        return true;
    }

    bool number_unsigned(number_unsigned_t value) override {
        if (state_ != State::kShapeItems && state_ != State::kOffsetItems) return unexpected("a number");
        const bool is_shape = state_ == State::kShapeItems;
        std::vector<int64_t>& items = is_shape ? *entries.back().shape : *entries.back().offsets;
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            return refuse("tensor " + in_quotes(entries.back().name) + " has number " +
                          std::to_string(value) + ", beyond 64-bit signed");
        }
        if (items.size() >= (is_shape ? kMaxRank : 2)) {
            return refuse("tensor " + in_quotes(entries.back().name) +
                          (is_shape ? " has more than 32 dimensions" : " has more than two data_offsets"));
        }
        items.push_back(static_cast<int64_t>(value));
        return true;
    }

    bool end_array() override {
        if (state_ == State::kOffsetItems && entries.back().offsets->size() != 2) {
            return refuse("tensor " + in_quotes(entries.back().name) + " has " +
                          std::to_string(entries.back().offsets->size()) + " data_offsets, wanted 2");
        }
        state_ = State::kEntry;
        return true;
    }

    bool null() override { return unexpected("null"); }
    bool boolean(bool) override { return unexpected("a boolean"); }
    bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
    bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
    bool binary(binary_t&) override { return unexpected("binary data"); }
    bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
        return refuse("header is not valid JSON at byte " + std::to_string(position));
    }

private:
    enum class State {
        kStart,
        kTop,            // in the outer object
        kMetadataValue,  // after "__metadata__":
        kMetadata,       // in it
        kMetadataText,   // after one of its keys
        kEntryValue,     // after a tensor's name
        kEntry,          // in the tensor's object
        kType,           // after "dtype":
        kShape,          // after "shape":
        kShapeItems,     // in its array
        kOffsets,        // after "data_offsets":
        kOffsetItems,    // in its array
        kEnd
    };

    bool refuse(std::string what) {
        if (error.empty()) error = std::move(what);
        return false;
    }

    bool unexpected(const char* got) {
        switch (state_) {
            case State::kStart:
                return refuse(std::string("header is ") + got + ", wanted an object");
            case State::kMetadataValue:
                return refuse(std::string(kMetadataKey) + " is " + got + ", wanted an object");
            case State::kMetadataText:
                return refuse(std::string(kMetadataKey) + " " + in_quotes(key_) + " is " + got +
                              ", wanted text");
            case State::kEntryValue:
                return refuse("tensor " + in_quotes(key_) + " is " + got + ", wanted an object");
            case State::kType:
                return refuse("dtype of tensor " + in_quotes(entries.back().name) + " is " + got +
                              ", wanted text");
            case State::kShape:
            case State::kOffsets:
                return refuse((state_ == State::kShape ? "shape of tensor " : "data_offsets of tensor ") +
                              in_quotes(entries.back().name) + " is " + got + ", wanted an array");
            default:
                return refuse(
                    (state_ == State::kShapeItems ? "shape of tensor " : "data_offsets of tensor ") +
                    in_quotes(entries.back().name) + " holds " + got + ", wanted whole numbers");
        }
    }

    bool field_key(const std::string& name) {
        RawEntry& entry = entries.back();
        bool duplicate = false;
        if (name == "dtype") {
            duplicate = entry.type.has_value();
            state_ = State::kType;
        } else if (name == "shape") {
            duplicate = entry.shape.has_value();
            entry.shape.emplace();
            state_ = State::kShape;
        } else if (name == "data_offsets") {
            duplicate = entry.offsets.has_value();
            entry.offsets.emplace();
            state_ = State::kOffsets;
        } else {
            return refuse("tensor " + in_quotes(entry.name) + " has unknown field " + in_quotes(name));
        }
        if (duplicate)
            return refuse("tensor " + in_quotes(entry.name) + " has field " + in_quotes(name) + " twice");
        return true;
    }

    State state_ = State::kStart;
    std::string key_;
    std::set<std::string> top_keys_;
};

// Offsets agree with type and shape, lie inside the data, and cover it exactly.
void check_offsets(const std::string& path, std::vector<HeaderEntry>& entries, int64_t data_bytes) {
    for (const HeaderEntry& entry : entries) {
        const std::string range = std::to_string(entry.begin) + ".." + std::to_string(entry.end);
        const std::string tensor = "tensor " + in_quotes(entry.name);
        if (entry.begin > entry.end)
            fail(path, tensor + " has data_offsets " + range + ", which end before they begin");
        if (entry.end > data_bytes) {
            fail(path, tensor + " has data_offsets " + range + ", but the file holds " +
                           std::to_string(data_bytes) + " bytes of data");
        }
        const std::optional<int64_t> wanted = checked_bytes(entry.shape, entry.type);
        if (!wanted) fail(path, tensor + " has shape " + shape_text(entry.shape) + ", whose size overflows");
        if (*wanted != entry.end - entry.begin) {
            fail(path, tensor + " has data_offsets " + range + ", but " + stored_type_name(entry.type) +
                           shape_text(entry.shape) + " takes " + std::to_string(*wanted) + " bytes");
        }
    }
    std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    int64_t covered = 0;
    for (const HeaderEntry& entry : entries) {
        if (entry.begin != covered) {
            fail(path,
                 "tensor " + in_quotes(entry.name) + " begins at " + std::to_string(entry.begin) +
                     (entry.begin < covered ? ", inside the tensor that ends at " : ", after a gap from ") +
                     std::to_string(covered));
        }
        covered = entry.end;
    }
    if (covered != data_bytes) {
        fail(path, std::to_string(data_bytes - covered) + " bytes at the end belong to no tensor");
    }
}

}  // namespace

Header parse_header(const std::string& path, std::string_view text, int64_t data_bytes) {
    // The format has the object begin at once; white space may follow it.
    if (!text.starts_with('{')) fail(path, "header does not begin with '{'");
    HeaderReader reader;
    if (!nlohmann::json::sax_parse(text, &reader)) fail(path, reader.error);
    Header header;
    header.metadata = std::move(reader.metadata);
    for (RawEntry& raw : reader.entries) {
        header.entries.push_back(
            {std::move(raw.name), *raw.type, std::move(*raw.shape), raw.offsets->at(0), raw.offsets->at(1)});
    }
    check_offsets(path, header.entries, data_bytes);
    return header;
}

void fail(const std::string& path, const std::string& what) { throw SafetensorsError(path + ": " + what); }

std::string system_reason(int error) { return std::generic_category().message(error); }

std::string in_quotes(std::string_view name) {
    std::string text = "'";
    for (const char c : name.substr(0, 60)) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            constexpr const char* kDigits = "0123456789abcdef";
            text += {'\\', 'x', kDigits[(c >> 4) & 15], kDigits[c & 15]};
        } else {
            text += c;
        }
    }
    return text + (name.size() > 60 ? "...'" : "'");
}

std::string shape_text(std::span<const int64_t> shape) {
    std::string text = "[";
    for (size_t n = 0; n < shape.size(); ++n) text += (n ? "," : "") + std::to_string(shape[n]);
    return text + "]";
}

std::optional<int64_t> checked_bytes(std::span<const int64_t> shape, StoredType type) {
    int64_t bytes = stored_type_bytes(type);
    for (const int64_t extent : shape) {
        if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
    }
    return bytes;
}

}  // namespace safetensors
}  // namespace attnc
