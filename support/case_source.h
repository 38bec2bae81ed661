// A case file while it is read: attributes and tensors, what was taken of them, and the memory of the views that are
// made. What nobody took is unknown, and refused.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "support/safetensors.h"

namespace attnc {

class CaseSource {
public:
    // A tensor as floats, stored or generated.
    struct Tensor {
        std::vector<int64_t> shape;
        std::vector<float> values;
    };

    explicit CaseSource(const std::string& path) : file_(path), attributes_(file_.metadata()) {}

    // Throws CaseError: "FILE: what".
    [[noreturn]] void fail(const std::string& what) const;

    // Attributes. Each is taken, there or not; text that doesn't fit is an error.
    bool has_attribute(const std::string& name) const { return attributes_.contains(name); }
    std::string take(const std::string& name, const std::string& otherwise);
    bool take_flag(const std::string& name, bool otherwise);
    double take_number(const std::string& name, double otherwise);
    double take_number(const std::string& name);  // it must be there
    int64_t take_size(const std::string& name, int64_t otherwise);
    int64_t take_integer(const std::string& name, int64_t otherwise);
    // One of the names, as its index.
    size_t take_choice(const std::string& name, std::initializer_list<const char*> names, size_t otherwise);

    // Tensors by role. "gen.ROLE" stands for one to generate.
    bool has(const std::string& role) const;
    std::vector<int64_t> shape(const std::string& role) const;  // without taking it
    bool is_boolean(const std::string& role) const;
    Tensor take_tensor(const std::string& role);
    std::vector<double> take_f64(const std::string& role);
    std::vector<int64_t> take_i64(const std::string& role, const std::vector<int64_t>& shape);
    void take_role(const std::string& role) { taken_roles_.insert(role); }

    // A view of values that it keeps alive, as it does `memory`.
    template <typename T>
    attnc_tensor own(attnc_dtype dtype, std::vector<T> values, const std::vector<int64_t>& shape);
    // The role's tensor, of exactly this shape.
    attnc_tensor view(const std::string& role, const std::vector<int64_t>& shape);
    attnc_tensor view_if_there(const std::string& role, const std::vector<int64_t>& shape);
    attnc_tensor integers_if_there(const std::string& role, const std::vector<int64_t>& shape);
    // As bytes, 1 where not zero.
    attnc_tensor byte_mask(const Tensor& tensor, const std::vector<int64_t>& shape);
    attnc_tensor byte_mask_if_there(const std::string& role, const std::vector<int64_t>& shape);

    // Refuses what was not taken. `prefixes` begin attributes that are information.
    void refuse_rest(const std::set<std::string, std::less<>>& information,
                     std::initializer_list<const char*> prefixes) const;

    std::vector<std::shared_ptr<void>> memory;

private:
    double number(const std::string& name, const std::string& text) const;
    Tensor generate(const std::string& role, const std::string& text);

    SafetensorsFile file_;
    const std::map<std::string, std::string>& attributes_;
    std::set<std::string, std::less<>> taken_, taken_roles_;
};

template <typename T>
attnc_tensor CaseSource::own(attnc_dtype dtype, std::vector<T> values, const std::vector<int64_t>& shape) {
    auto owned = std::make_shared<std::vector<T>>(std::move(values));
    if (owned->empty()) owned->reserve(1);  // a pointer that is not null
    attnc_tensor view = {};
    view.data = owned->data();
    view.dtype = dtype;
    view.rank = static_cast<int32_t>(shape.size());
    int64_t stride = 1;
    for (size_t n = shape.size(); n-- > 0;) {
        view.extent[n] = shape[n];
        view.stride[n] = stride;
        stride *= shape[n];
    }
    memory.push_back(std::move(owned));
    return view;
}

}  // namespace attnc
