#include "compiler/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "compiler/files.h"
#include "compiler/svg_plot.h"
#include "schedules/tuning_lookup.h"

namespace attnc {

namespace {

constexpr const char* kStyle = R"(
body { font: 15px/1.45 system-ui, sans-serif; color: #212529; margin: 0 auto; padding: 1.5rem; max-width: 1000px; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .3rem; } h3 { margin: 1.4rem 0 .2rem; }
p { margin: .3rem 0 .6rem; color: #495057; } code { font-size: .9em; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid #e9ecef; text-align: right; } th:first-child, td:first-child { text-align: left; }
.plot { max-width: 100%; height: auto; } .small { display: inline-block; vertical-align: top; }
.tick { font-size: 11px; fill: #495057; } .label { font-size: 12px; fill: #212529; }
.grid { stroke: #e9ecef; } .one { stroke: #868e96; stroke-dasharray: 4 3; } .best { fill: none; stroke: #2b8a3e; stroke-width: 2; }
.mark line { stroke: #adb5bd; } .level0 circle { fill: #74c0fc; } .level1 circle { fill: #1c7ed6; } .level2 circle { fill: #1864ab; }
.taken circle { fill: #2b8a3e; } .failed circle { fill: #c92a2a; }
)";

std::string paragraph(const std::string& text) { return fmt::format("<p>{}</p>", html_escaped(text)); }

// Of a trial's candidate over the part's start.
double ratio_of(const TuneEvent& event) { return event.incumbent_ratio * event.result.ratio.median; }

std::string describe(const TuneEvent& event) {
    if (!event.result.fault.empty()) return fmt::format("{}: {}", event.candidate, event.result.fault);
    return fmt::format(
        "{}: {:.3f} of the start's time, against the incumbent {:.3f} ({:.3f} to {:.3f}), {} rounds",
        event.candidate, ratio_of(event), event.result.ratio.median, event.result.ratio.low,
        event.result.ratio.high, event.result.ratio.samples);
}

std::string trials_plot(const ReportPart& part, const std::string& id) {
    RatioPlot plot = {.id = id, .x_label = "trial", .y_label = "time over the start's"};
    for (size_t i = 0; i < part.events.size(); ++i) {
        const TuneEvent& event = part.events[i];
        const auto x = static_cast<double>(i);
        PlotPoint point = {.x = x, .title = describe(event)};
        if (!event.result.fault.empty()) {
            point.y = 1, point.kind = "failed";
        } else {
            point.y = ratio_of(event);
            point.low = event.incumbent_ratio * event.result.ratio.low;
            point.high = event.incumbent_ratio * event.result.ratio.high;
            if (!std::isfinite(point.high)) point.low = 0;
            point.kind = event.improved ? "taken" : fmt::format("level{}", event.level);
        }
        plot.points.push_back(point);
        plot.steps.emplace_back(x, event.best_ratio);
    }
    return to_svg(plot);
}

// "panel:64,project_heads.rows:6" by field.
std::vector<std::pair<std::string, int64_t>> fields_in(const std::string& text) {
    std::vector<std::pair<std::string, int64_t>> fields;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string field = text.substr(begin, end - begin);
        const size_t colon = field.find(':');
        fields.emplace_back(field.substr(0, colon), std::stoll(field.substr(colon + 1)));
        begin = end + 1;
    }
    return fields;
}

// For each field the best time that any candidate had with each of its values: flat where the field didn't matter.
std::string marginal_plots(const ReportPart& part, const std::string& id) {
    std::vector<std::string> order;
    std::map<std::string, std::map<int64_t, const TuneEvent*>> best;
    for (const TuneEvent& event : part.events) {
        if (!event.result.fault.empty()) continue;
        for (const auto& [field, value] : fields_in(event.candidate)) {
            if (!best.contains(field)) order.push_back(field);
            const TuneEvent*& known = best[field][value];
            if (known == nullptr || ratio_of(event) < ratio_of(*known)) known = &event;
        }
    }
    std::string html;
    for (const std::string& field : order) {
        if (best[field].size() < 2) continue;
        RatioPlot plot = {.id = fmt::format("{}-{}", id, html.size()),
                          .x_label = field,
                          .y_label = "best",
                          .width = 300,
                          .height = 200};
        for (const auto& [value, event] : best[field]) {
            plot.points.push_back({.x = static_cast<double>(plot.places.size()),
                                   .y = ratio_of(*event),
                                   .kind = fmt::format("level{}", event->level),
                                   .title = describe(*event)});
            plot.places.push_back(fmt::format("{}", value));
        }
        html += "<span class=\"small\">" + to_svg(plot) + "</span>";
    }
    return html;
}

std::string part_section(const ReportPart& part, const std::string& id) {
    std::string html = fmt::format("<h3>{}</h3>", html_escaped(part.name));
    html += fmt::format("<p>From <code>{}</code> to <code>{}</code>: {:.3f} of the time{}.</p>",
                        html_escaped(part.start), html_escaped(part.best), part.ratio,
                        part.finished ? "" : "; the time was up");
    if (part.events.empty()) return html;
    html += trials_plot(part, id + "-trials");
    const std::string marginal = marginal_plots(part, id + "-field");
    if (!marginal.empty()) html += paragraph("The best time with each value of a field:") + marginal;
    return html;
}

std::string row(const std::vector<std::string>& cells, const char* tag) {
    std::string html = "<tr>";
    for (const std::string& cell : cells) html += fmt::format("<{0}>{1}</{0}>", tag, html_escaped(cell));
    return html + "</tr>";
}

std::string calls_table(const ReportLayer& layer, const OtherTimes& others) {
    const TuningRecord& record = layer.result.record;
    std::string html = "<table class=\"calls\">" +
                       row({"call", "ms", "default's time over it", "start's time over it", "of peak"}, "th");
    for (const auto& [sizes, times] : layer.result.calls) {
        html += row({to_string(record.config) + ":" + sizes, fmt::format("{:.4f}", times.seconds * 1e3),
                     fmt::format("{:.3f}", 1 / times.over_default.median),
                     fmt::format("{:.3f}", 1 / times.over_start.median), fmt::format("{:.2f}", times.peak)},
                    "td");
        const auto found = others.find(to_string(record.config) + ":" + sizes);
        if (found == others.end()) continue;
        // Those ran beside attnc by its default, in another process and maybe on another day: what is compared are ratios.
        for (const OtherTime& other : found->second) {
            const double over_tuned = other.ms / other.attnc_ms / times.over_default.median;
            html += row({"— " + other.name, fmt::format("{:.4f}", over_tuned * times.seconds * 1e3),
                         fmt::format("{:.3f} times as long", over_tuned), "", ""},
                        "td");
        }
    }
    return html + "</table>";
}

std::string layer_section(const ReportLayer& layer, const OtherTimes& others, size_t number) {
    const TuningRecord& record = layer.result.record;
    std::string html = fmt::format("<h2>{} at {}</h2>", html_escaped(to_string(record.config)),
                                   html_escaped(describe_sizes(record.sizes)));
    html += paragraph(fmt::format("{}, {} thread{}, {}; start: {}", record.target, record.threads,
                                  record.threads == 1 ? "" : "s", record.effort, layer.origin));
    if (!layer.result.calls.empty()) html += calls_table(layer, others);
    for (size_t i = 0; i < layer.parts.size(); ++i)
        html += part_section(layer.parts[i], fmt::format("part{}-{}", number, i));
    return html;
}

}  // namespace

OtherTimes autoscheduler_times(const std::filesystem::path& results, int threads) {
    using Json = nlohmann::json;
    OtherTimes times;
    try {
        const Json read = Json::parse(read_file(results));
        for (const Json& measured : read.at("rows")) {
            if (measured.at("threads").get<int>() != threads || !measured.contains("entries")) continue;
            const Json& entries = measured.at("entries");
            if (!entries.contains("attnc") || !entries.at("attnc").contains("ms_best")) continue;
            for (const auto& [name, entry] : entries.items()) {
                if (!name.starts_with("halide_") || !entry.contains("ms_best")) continue;
                times[measured.at("shape").get<std::string>()].push_back(
                    {"Halide's " + name.substr(7), entry.at("ms_best").get<double>(),
                     entries.at("attnc").at("ms_best").get<double>()});
            }
        }
    } catch (const Json::exception& error) {
        throw std::runtime_error(
            fmt::format("{} has no results of scripts/bench: {}", results.string(), error.what()));
    }
    return times;
}

std::string report_page(const std::vector<ReportLayer>& layers, const OtherTimes& others) {
    std::string html = fmt::format(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>attnc tune</title>"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><link rel=\"icon\" "
        "href=\"data:,\">"
        "<style>{}</style></head><body><h1>attnc tune</h1>",
        kStyle);
    if (!layers.empty()) {
        const TuningRecord& record = layers.front().result.record;
        html += paragraph(fmt::format("{}, {} CPUs; {}; attnc {}, Halide {}, LLVM {}", record.machine.cpu,
                                      record.machine.cpus, record.date, record.attnc, record.halide,
                                      record.llvm));
    }
    html += paragraph(
        "Each mark is a trial: a candidate's time over the start's, by the median of rounds in which it took "
        "turns with the "
        "incumbent, with the interval that holds the median. Darker ones were measured for longer; green "
        "ones became the "
        "incumbent; red ones failed. The line is the best so far.");
    for (size_t i = 0; i < layers.size(); ++i) html += layer_section(layers[i], others, i);
    return html + "</body></html>\n";
}

}  // namespace attnc
