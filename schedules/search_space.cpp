#include "schedules/search_space.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

std::vector<int64_t> range(int64_t first, int64_t last, int64_t step) {
    std::vector<int64_t> values;
    for (int64_t value = first; value <= last; value += step) values.push_back(value);
    return values;
}

std::vector<int64_t> powers(int64_t first, int64_t last) {
    std::vector<int64_t> values;
    for (int64_t value = first; value <= last; value *= 2) values.push_back(value);
    return values;
}

// Queries of a tile of attention: whole vectors of 16, as a tile computes them whether they are there or not, and below
// that some that leave lanes idle but waste fewer rows.
std::vector<int64_t> query_rows() {
    std::vector<int64_t> values = {1, 2, 4, 8, 12};
    for (const int64_t rows : range(16, 128, 16)) values.push_back(rows);
    return values;
}

// Values worth a try. What of them is valid, and beside what, is for check_schedule.
std::vector<int64_t> values_of(std::string_view field, int64_t lanes) {
    const std::string_view own = field.substr(field.rfind('.') + 1);
    if (field == "panel" || field == "out_panel") return range(16, 512, 16);
    if (field == "tile_kv") return powers(256, 8192);
    if (field == "split_kv") return powers(64, 2048);
    if (own == "q_vectors") return range(1, 8, 1);
    if (own == "key_rows" || own == "tail_rows") return range(1, 24, 1);
    if (own == "context_rows") return {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    if (own == "context_columns" || own == "columns" || own == "single_columns")
        return range(lanes, 512, lanes);
    if (field.starts_with("attend_decode.")) return powers(1, 16);
    if (field.starts_with("attend")) return query_rows();
    return range(field.find("_tail.") == std::string_view::npos ? 1 : 0, 32, 1);
}

int64_t field_value(const CpuSchedule& schedule, std::string_view name) {
    const int64_t* field = field_of(schedule, name);
    if (field == nullptr) throw std::logic_error("no schedule field " + std::string(name));
    return *field;
}

std::vector<std::string> fields_of_attend(const std::string& kernel) {
    std::vector<std::string> fields;
    for (const char* field :
         {"q_vectors", "rows", "key_rows", "tail_rows", "context_rows", "context_columns"})
        fields.push_back(kernel + "." + field);
    return fields;
}

// A tile of more keys than any call has is a tile of all of them.
void leave_out_longer(std::vector<int64_t>& values, const std::vector<Sizes>& sizes, int64_t own) {
    if (sizes.empty()) return;
    int64_t longest = 0;
    for (const Sizes& size : sizes) longest = std::max(longest, size.seq_kv);
    std::erase_if(values, [&](int64_t value) { return value >= longest && value != own; });
    if (own >= longest) return;
    values.push_back(static_cast<int64_t>(std::max<int64_t>(16, (longest + 15) / 16 * 16)));
}

}  // namespace

std::vector<SearchPart> search_parts(const Config& config) {
    std::vector<SearchPart> parts;
    if (config.in_proj) {
        parts.push_back({"project_heads",
                         {ATTNC_KERNEL_PROJECT_HEADS, ATTNC_KERNEL_PROJECT_HEADS_TAIL},
                         "panel",
                         {"project_heads.rows", "project_heads_tail.rows"}});
    }
    if (config.out_proj) {
        parts.push_back({"project_out",
                         {ATTNC_KERNEL_PROJECT_OUT, ATTNC_KERNEL_PROJECT_OUT_TAIL},
                         "out_panel",
                         {"project_out.rows", "project_out_tail.rows"}});
    }
    parts.push_back({"attend", {ATTNC_KERNEL_ATTEND}, "tile_kv", fields_of_attend("attend")});
    parts.push_back(
        {"attend_narrow", {ATTNC_KERNEL_ATTEND_NARROW}, "", fields_of_attend("attend_narrow"), true});
    parts.push_back(
        {"attend_single", {ATTNC_KERNEL_ATTEND_SINGLE}, "", fields_of_attend("attend_single"), true});
    const std::vector<int> kernels = kernels_of(config);
    const auto has = [&](int kernel) {
        return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
    };
    if (has(ATTNC_KERNEL_ATTEND_MASKED))
        parts.push_back(
            {"attend_masked", {ATTNC_KERNEL_ATTEND_MASKED}, "", fields_of_attend("attend_masked")});
    parts.push_back(
        {"attend_guarded", {ATTNC_KERNEL_ATTEND_GUARDED}, "", fields_of_attend("attend_guarded")});
    if (has(ATTNC_KERNEL_ATTEND_PROBS)) {
        parts.push_back({"attend_probs",
                         {ATTNC_KERNEL_ATTEND_PROBS, ATTNC_KERNEL_ATTEND_SCORES},
                         "",
                         fields_of_attend("attend_probs")});
    }
    if (has(ATTNC_KERNEL_ATTEND_DECODE)) {
        parts.push_back({"attend_decode",
                         {ATTNC_KERNEL_ATTEND_DECODE},
                         "split_kv",
                         {"attend_decode.rows", "attend_decode.keys", "attend_decode.columns",
                          "attend_decode.single_columns"}});
    }
    return parts;
}

SearchSpace::SearchSpace(const Config& config, std::string_view target, const SearchPart& part,
                         const CpuSchedule& base, const std::vector<Sizes>& sizes)
    : config_(config), target_(target), part_(part), base_(base), alone_(base) {
    for (const char* kernel : {"project_heads_tail", "project_out_tail", "attend_narrow", "attend_single"})
        set_field(alone_, std::string(kernel) + ".rows", 0);
    const int64_t lanes = vector_unit(target).lanes;
    if (!part.layout_field.empty()) {
        std::vector<int64_t> values = values_of(part.layout_field, lanes);
        const bool of_keys = part.layout_field == "tile_kv" || part.layout_field == "split_kv";
        if (of_keys) leave_out_longer(values, sizes, field_value(base, part.layout_field));
        add_field(part.layout_field, values);
    }
    for (const std::string& field : part.fields) {
        std::vector<int64_t> values = values_of(field, lanes);
        if (field.ends_with(".rows")) {
            rows_ = fields_.size();
            if (part.optional) values.push_back(0);
        }
        add_field(field, values);
    }
    leave_out_columns();
}

// The base's own value is always among those of a field.
void SearchSpace::add_field(const std::string& name, std::vector<int64_t> values) {
    values.push_back(field_value(base_, name));
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    fields_.push_back({name, values});
    places_.push_back(field_of(tried_, name));
}

SearchPoint SearchSpace::point_of(const CpuSchedule& schedule) const {
    SearchPoint point;
    for (const SearchField& field : fields_) point.push_back(field_value(schedule, field.name));
    return point;
}

CpuSchedule SearchSpace::schedule(const SearchPoint& point) const {
    CpuSchedule schedule = base_;
    for (size_t i = 0; i < fields_.size(); ++i) set_field(schedule, fields_[i].name, point[i]);
    return schedule;
}

std::string SearchSpace::text(const SearchPoint& point) const {
    std::string text;
    for (size_t i = 0; i < fields_.size(); ++i)
        text += (i == 0 ? "" : ",") + fields_[i].name + ":" + std::to_string(point[i]);
    return text;
}

// Without the kernel its other fields say nothing: the base's stand for all.
bool SearchSpace::is_absent(const SearchPoint& point) const { return part_.optional && point[rows_] == 0; }

std::string SearchSpace::fault(const SearchPoint& point) const {
    if (point.size() != fields_.size()) return "a point of another space";
    if (is_absent(point)) {
        SearchPoint canonical = point_of(base_);
        canonical[rows_] = 0;
        if (point != canonical) return part_.name + ".rows 0 leaves the other fields as they are";
    }
    return fault_of(base_, point);
}

std::string SearchSpace::fault_of(const CpuSchedule& base, const SearchPoint& point) const {
    tried_ = base;
    for (size_t i = 0; i < places_.size(); ++i) *places_[i] = point[i];
    try {
        check_schedule(tried_, config_, target_);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

// The value of a field that asks for least of what fields share. A tail is absent then; rows and keys of a step of
// decoding fill vectors together, so that neither can be least alone.
int64_t SearchSpace::least(size_t field) const {
    const auto& [name, values] = fields_[field];
    if (name == "attend_decode.rows" || name == "attend_decode.keys") return field_value(base_, name);
    const bool absent = values.front() == 0 && !name.ends_with("_tail.rows");
    return absent && values.size() > 1 ? values[1] : values.front();
}

// Columns that no head can be cut into, whatever the other fields are.
void SearchSpace::leave_out_columns() {
    for (size_t i = 0; i < fields_.size(); ++i) {
        if (!fields_[i].name.ends_with("columns")) continue;
        std::vector<int64_t> kept;
        for (const int64_t value : fields_[i].values) {
            SearchPoint point;
            for (size_t other = 0; other < fields_.size(); ++other)
                point.push_back(other == i ? value : least(other));
            const bool own = value == field_value(base_, fields_[i].name);
            if (own || fault_of(alone_, point).empty()) kept.push_back(value);
        }
        fields_[i].values = kept;
    }
}

// With the least value for each further field.
bool SearchSpace::starts_a_point(const SearchPoint& prefix) const {
    if (fields_[prefix.size() - 1].name == "attend_decode.rows") return true;
    SearchPoint point = prefix;
    for (size_t i = prefix.size(); i < fields_.size(); ++i) point.push_back(least(i));
    return fault_of(alone_, point).empty();
}

void SearchSpace::extend(SearchPoint& prefix) const {
    if (prefix.size() == fields_.size()) {
        if (!is_absent(prefix) && fault(prefix).empty()) points_.push_back(prefix);
        return;
    }
    for (const int64_t value : fields_[prefix.size()].values) {
        prefix.push_back(value);
        const bool absent = part_.optional && prefix.size() == rows_ + 1 && value == 0;
        if (!absent && starts_a_point(prefix)) extend(prefix);
        prefix.pop_back();
    }
}

const std::vector<SearchPoint>& SearchSpace::points() const {
    if (!points_.empty()) return points_;
    SearchPoint prefix;
    extend(prefix);
    if (part_.optional) {
        SearchPoint absent = point_of(base_);
        absent[rows_] = 0;
        if (fault(absent).empty()) points_.push_back(absent);
    }
    std::sort(points_.begin(), points_.end());
    return points_;
}

// One other field moved, to the nearest value below or above that makes a point of it.
void SearchSpace::add_repaired(const SearchPoint& moved, size_t field,
                               std::vector<SearchPoint>& found) const {
    for (size_t other = 0; other < fields_.size(); ++other) {
        if (other == field) continue;
        const std::vector<int64_t>& values = fields_[other].values;
        const auto at = std::lower_bound(values.begin(), values.end(), moved[other]) - values.begin();
        for (const int step : {-1, 1}) {
            for (auto i = at + step; i >= 0 && i < static_cast<std::ptrdiff_t>(values.size()); i += step) {
                SearchPoint point = moved;
                point[other] = values[static_cast<size_t>(i)];
                if (!fault(point).empty()) continue;
                found.push_back(point);
                break;
            }
        }
    }
}

std::vector<SearchPoint> SearchSpace::neighbours(const SearchPoint& point) const {
    std::vector<SearchPoint> found;
    for (size_t field = 0; field < fields_.size(); ++field) {
        const std::vector<int64_t>& values = fields_[field].values;
        const auto at = std::lower_bound(values.begin(), values.end(), point[field]) - values.begin();
        for (const int step : {-1, 1}) {
            const size_t before = found.size();
            for (auto next = at + step; next >= 0 && next < static_cast<std::ptrdiff_t>(values.size());
                 next += step) {
                SearchPoint moved = point;
                moved[field] = values[static_cast<size_t>(next)];
                if (fault(moved).empty()) {
                    found.push_back(moved);
                } else {
                    add_repaired(moved, field, found);
                }
                if (found.size() > before) break;
            }
        }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    std::erase(found, point);
    return found;
}

}  // namespace attnc
