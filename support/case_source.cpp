#include "support/case_source.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "support/case_file.h"
#include "support/random.h"

namespace attnc {

void CaseSource::fail(const std::string& what) const { throw CaseError(file_.path() + ": " + what); }

std::string CaseSource::take(const std::string& name, const std::string& otherwise) {
    taken_.insert(name);
    const auto found = attributes_.find(name);
    return found == attributes_.end() ? otherwise : found->second;
}

bool CaseSource::take_flag(const std::string& name, bool otherwise) {
    const std::string text = take(name, otherwise ? "true" : "false");
    if (text != "true" && text != "false")
        fail("attribute " + name + " is '" + text + "', wanted true or false");
    return text == "true";
}

double CaseSource::number(const std::string& name, const std::string& text) const {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') fail("attribute " + name + " is '" + text + "', wanted a number");
    return value;
}

double CaseSource::take_number(const std::string& name, double otherwise) {
    return has_attribute(name) ? take_number(name) : (take(name, ""), otherwise);
}

double CaseSource::take_number(const std::string& name) { return number(name, take(name, "")); }

int64_t CaseSource::take_integer(const std::string& name, int64_t otherwise) {
    const std::string text = take(name, std::to_string(otherwise));
    const double value = number(name, text);
    if (value != std::floor(value) || std::fabs(value) > 0x1p31)
        fail("attribute " + name + " is '" + text + "', wanted a whole number");
    return static_cast<int64_t>(value);
}

int64_t CaseSource::take_size(const std::string& name, int64_t otherwise) {
    const std::string text = take(name, std::to_string(otherwise));
    const double value = number(name, text);
    if (value != std::floor(value) || value < 0 || value > 0x1p31) {
        fail("attribute " + name + " is '" + text + "', wanted a size");
    }
    return static_cast<int64_t>(value);
}

size_t CaseSource::take_choice(const std::string& name, std::initializer_list<const char*> names,
                               size_t otherwise) {
    const std::string text = take(name, *(names.begin() + otherwise));
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end()) fail("unknown " + name + " '" + text + "'");
    return static_cast<size_t>(found - names.begin());
}

bool CaseSource::has(const std::string& role) const {
    return file_.find(role) != nullptr || attributes_.contains("gen." + role);
}

// "seed=N amp=A shape=2,3" or "const=C shape=2,3".
CaseSource::Tensor CaseSource::generate(const std::string& role, const std::string& text) {
    std::map<std::string, std::string> fields;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        if (equals == std::string::npos)
            fail("attribute gen." + role + " has '" + word + "', wanted name=value");
        if (!fields.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
            fail("attribute gen." + role + " has '" + word.substr(0, equals) + "' twice");
        }
    }
    Tensor tensor;
    int64_t count = 1;
    std::istringstream extents(fields["shape"]);
    for (std::string extent; std::getline(extents, extent, ',');) {
        tensor.shape.push_back(static_cast<int64_t>(number("gen." + role, extent)));
        if (tensor.shape.back() < 0 || __builtin_mul_overflow(count, tensor.shape.back(), &count) ||
            count > int64_t{1} << 31) {
            fail("attribute gen." + role + " has shape " + fields["shape"]);
        }
    }
    if (fields.size() == 3 && fields.contains("seed") && fields.contains("amp")) {
        const uint64_t seed = std::strtoull(fields["seed"].c_str(), nullptr, 10);
        tensor.values = generated(count, seed, static_cast<float>(number("gen." + role, fields["amp"])));
    } else if (fields.size() == 2 && fields.contains("const")) {
        tensor.values.assign(static_cast<size_t>(count),
                             static_cast<float>(number("gen." + role, fields["const"])));
    } else {
        fail("attribute gen." + role + " is '" + text + "', wanted seed, amp and shape, or const and shape");
    }
    return tensor;
}

std::vector<int64_t> CaseSource::shape(const std::string& role) const {
    const StoredTensor* stored = file_.find(role);
    if (stored == nullptr) fail("role '" + role + "' is missing");
    return stored->shape;
}

bool CaseSource::is_boolean(const std::string& role) const {
    return file_.at(role).type == StoredType::kBool;
}

CaseSource::Tensor CaseSource::take_tensor(const std::string& role) {
    const StoredTensor* stored = file_.find(role);
    take_role(role);
    const std::string generator = take("gen." + role, "");
    if ((stored != nullptr) == !generator.empty()) {
        fail("role '" + role + "' is " + (stored != nullptr ? "both stored and generated" : "missing"));
    }
    if (!generator.empty()) return generate(role, generator);
    Tensor tensor{stored->shape, {}};
    for (const double value : file_.to_f64(*stored)) tensor.values.push_back(static_cast<float>(value));
    return tensor;
}

std::vector<double> CaseSource::take_f64(const std::string& role) {
    take_role(role);
    return file_.to_f64(file_.at(role));
}

std::vector<int64_t> CaseSource::take_i64(const std::string& role, const std::vector<int64_t>& shape) {
    take_role(role);
    const StoredTensor& stored = file_.at(role);
    if (stored.shape != shape) fail("role '" + role + "' has another shape");
    return file_.to_i64(stored);
}

attnc_tensor CaseSource::view(const std::string& role, const std::vector<int64_t>& shape) {
    Tensor tensor = take_tensor(role);
    if (tensor.shape != shape) fail("role '" + role + "' has another shape than the attributes say");
    return own(ATTNC_F32, std::move(tensor.values), shape);
}

attnc_tensor CaseSource::view_if_there(const std::string& role, const std::vector<int64_t>& shape) {
    return has(role) ? view(role, shape) : attnc_tensor{};
}

attnc_tensor CaseSource::integers_if_there(const std::string& role, const std::vector<int64_t>& shape) {
    return has(role) ? own(ATTNC_I64, take_i64(role, shape), shape) : attnc_tensor{};
}

attnc_tensor CaseSource::byte_mask(const Tensor& tensor, const std::vector<int64_t>& shape) {
    std::vector<uint8_t> bytes;
    bytes.reserve(tensor.values.size());
    for (const float value : tensor.values) bytes.push_back(value != 0 ? 1 : 0);
    return own(ATTNC_U8, std::move(bytes), shape);
}

attnc_tensor CaseSource::byte_mask_if_there(const std::string& role, const std::vector<int64_t>& shape) {
    if (!has(role)) return {};
    const Tensor tensor = take_tensor(role);
    if (tensor.shape != shape) fail("role '" + role + "' has another shape than the attributes say");
    return byte_mask(tensor, shape);
}

void CaseSource::refuse_rest(const std::set<std::string, std::less<>>& information,
                             std::initializer_list<const char*> prefixes) const {
    for (const auto& [name, value] : attributes_) {
        const bool known = information.contains(name) || taken_.contains(name) ||
                           std::any_of(prefixes.begin(), prefixes.end(), [&name = name](const char* prefix) {
                               return name.starts_with(prefix);
                           });
        if (!known) fail("unknown attribute '" + name + "'");
    }
    for (const StoredTensor& tensor : file_.tensors()) {
        if (!taken_roles_.contains(tensor.name)) fail("unknown role '" + tensor.name + "'");
    }
}

}  // namespace attnc
