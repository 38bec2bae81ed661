#include "compiler/tune_control_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "compiler/tune_efforts.h"
#include "schedules/tuning_lookup.h"

namespace attnc {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 8;
using Row = std::array<std::string, kColumns>;

// What two builds of one code may differ by.
double build_margin() { return SearchOptions{}.margin; }

Row row_of(const Config& config, const ControlResult& result) {
    Row row = {to_string(config),
               result.part,
               fmt::format("{} of {}", result.tried, result.points),
               duration_text(result.seconds) + (result.finished ? "" : ", up"),
               "-",
               "-",
               faster(result),
               describe_sizes(result.sizes)};
    if (result.ratio) {
        row[4] = fmt::format("{:.3f}", result.ratio->median);
        row[5] = fmt::format("{:.3f} to {:.3f}", result.ratio->low, result.ratio->high);
    }
    return row;
}

template <typename Visit>
void for_each_result(const ControlReport& report, const Visit& visit) {
    for (const ControlledLayer& layer : report.layers) {
        for (const ControlResult& result : layer.results) visit(layer, result);
    }
}

Json json_of(const ControlledLayer& layer, const ControlResult& result) {
    std::vector<std::string> sizes;
    sizes.reserve(result.sizes.size());
    for (const Sizes& size : result.sizes) sizes.push_back(to_string(size));
    Json json = {{"config", to_string(layer.config)},
                 {"origin", layer.origin},
                 {"kernel", result.part},
                 {"sizes", sizes},
                 {"schedule", result.schedule},
                 {"points", result.points},
                 {"tried", result.tried},
                 {"trials", result.trials},
                 {"measured_before", result.known},
                 {"failed", result.failed},
                 {"seconds", result.seconds},
                 {"finished", result.finished},
                 {"best", nullptr},
                 {"ratio", nullptr},
                 {"faster", faster(result)}};
    if (!result.ratio) return json;
    json["best"] = result.best;
    // JSON has no infinity: an interval without an end has none.
    json["ratio"] = {{"median", result.ratio->median}, {"low", result.ratio->low}, {"high", nullptr}};
    if (std::isfinite(result.ratio->high)) json["ratio"]["high"] = result.ratio->high;
    json["ratio"]["samples"] = result.ratio->samples;
    return json;
}

std::string kernels(size_t count) { return fmt::format("{} kernel{}", count, count == 1 ? "" : "s"); }

}  // namespace

double allowed_excess(const std::string& effort) { return 1 + (effort == "quick" ? 0.05 : build_margin()); }

std::string faster(const ControlResult& result) {
    if (!result.ratio) return "-";
    if (surely_below(*result.ratio, 1 - build_margin())) return "other";
    return surely_above(*result.ratio, 1 + build_margin()) ? "incumbent" : "even";
}

std::string control_table(const ControlReport& report) {
    std::vector<Row> rows = {{"layer", "kernel", "points", "time", "best", "interval", "faster", "sizes"}};
    for_each_result(report, [&](const ControlledLayer& layer, const ControlResult& result) {
        rows.push_back(row_of(layer.config, result));
    });
    std::array<size_t, kColumns> widths = {};
    for (const Row& row : rows) {
        for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const Row& row : rows) {
        for (size_t i = 0; i + 1 < kColumns; ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
        text += row[kColumns - 1] + "\n";
    }
    return text;
}

std::string control_json(const ControlReport& report) {
    Json json = {{"target", report.target}, {"threads", report.threads}};
    if (report.random > 0) {
        json["random"] = report.random, json["seed"] = report.seed;
    } else {
        json["effort"] = report.effort, json["allowed"] = allowed_excess(report.effort);
    }
    json["kernels"] = Json::array();
    for_each_result(report, [&](const ControlledLayer& layer, const ControlResult& result) {
        json["kernels"].push_back(json_of(layer, result));
    });
    return json.dump(2) + "\n";
}

std::string control_fault(const ControlReport& report) {
    size_t faster_found = 0, slower_found = 0, unknown = 0;
    for_each_result(report, [&](const ControlledLayer&, const ControlResult& result) {
        faster_found += faster(result) == "other" ? 1 : 0;
        const bool behind = result.ratio && surely_above(*result.ratio, allowed_excess(report.effort));
        slower_found += behind ? 1 : 0;
        // A search has no end but its time.
        unknown += (report.random > 0 && !result.finished) || (result.points > 0 && !result.ratio) ? 1 : 0;
    });
    if (report.random > 0 && faster_found > 0) {
        return fmt::format("of {} a point drawn at random is faster than what builds take",
                           kernels(faster_found));
    }
    if (report.random == 0 && slower_found > 0) {
        return fmt::format("of {} the search ends more than {:.1f} % above what builds take",
                           kernels(slower_found), 100 * (allowed_excess(report.effort) - 1));
    }
    if (unknown > 0) return fmt::format("{} not measured to the end", kernels(unknown));
    return "";
}

}  // namespace attnc
