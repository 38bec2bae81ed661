// The points that a search of schedules may try: for each part of a schedule the fields that belong together, the values
// that each may take, and of their combinations those that check_schedule accepts. No rule is stated here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/cpu_params.h"
#include "stages/config.h"

namespace attnc {

// What is searched by itself: the fields of a kernel, with those of its tail, and the Layout field that no other part's
// code or speed hangs on.
struct SearchPart {
    std::string name;          // the kernel that leads: "project_heads"
    std::vector<int> kernels;  // ATTNC_KERNEL_* that run by these fields
    std::string layout_field;  // "panel"; empty: none
    std::vector<std::string> fields;
    bool optional = false;  // the target may do without the kernel: rows 0
};

// The parts of a library, in an order in which each finds those before it settled.
std::vector<SearchPart> search_parts(const Config& config);

struct SearchField {
    std::string name;             // of the schedule's text: "attend.key_rows"
    std::vector<int64_t> values;  // ascending; that it may take if the others allow it
};

// A value for each of a space's fields, in their order: Layout first.
using SearchPoint = std::vector<int64_t>;

class SearchSpace {
public:
    // Fields of other parts keep the values of `base`, which is valid. `sizes` leave out values that none of them can tell
    // apart; empty: none is left out.
    SearchSpace(const Config& config, std::string_view target, const SearchPart& part,
                const CpuSchedule& base, const std::vector<Sizes>& sizes);

    const SearchPart& part() const { return part_; }
    const std::vector<SearchField>& fields() const { return fields_; }

    SearchSpace(const SearchSpace&) = delete;
    SearchSpace& operator=(const SearchSpace&) = delete;

    SearchPoint point_of(const CpuSchedule& schedule) const;
    CpuSchedule schedule(const SearchPoint& point) const;  // the base with the point's values
    std::string text(const SearchPoint& point) const;      // "panel:64,project_heads.rows:6"

    // Why the point is not one; empty if it is.
    std::string fault(const SearchPoint& point) const;

    // Every valid point, in ascending order of the fields.
    const std::vector<SearchPoint>& points() const;

    // Valid points that differ by the least step: one field up or down to its next value, or, where that is no valid point,
    // with one other field moved as little as makes it one; then to the value after that. Never the point itself.
    std::vector<SearchPoint> neighbours(const SearchPoint& point) const;

private:
    std::string fault_of(const CpuSchedule& base, const SearchPoint& point) const;
    bool starts_a_point(const SearchPoint& prefix) const;
    void extend(SearchPoint& prefix) const;
    bool is_absent(const SearchPoint& point) const;
    int64_t least(size_t field) const;
    void leave_out_columns();
    void add_field(const std::string& name, std::vector<int64_t> values);
    void add_repaired(const SearchPoint& moved, size_t field, std::vector<SearchPoint>& found) const;

    Config config_;
    std::string target_;
    SearchPart part_;
    CpuSchedule base_;
    CpuSchedule
        alone_;  // the base without the optional kernels of other parts, which bound this part's rows from below
    std::vector<SearchField> fields_;
    size_t rows_ = 0;  // index of the field that is 0 where the kernel is absent
    mutable std::vector<SearchPoint> points_;
    // A schedule to try points in, and where the fields lie in it.
    mutable CpuSchedule tried_;
    std::vector<int64_t*> places_;
};

}  // namespace attnc
