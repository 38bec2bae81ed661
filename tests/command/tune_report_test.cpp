// The tuner's page: what it draws of a made-up search. tests/bench opens the same page in a browser.
#include "compiler/tune_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "compiler/files.h"
#include "compiler/svg_plot.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tuned_records.h"

namespace attnc::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

size_t count_of(const std::string& text, const std::string& what) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
}

TuneEvent event(const std::string& candidate, double ratio, double best, const std::string& fault = "") {
    TuneEvent event = {.part = "project_out", .candidate = candidate, .best_ratio = best};
    event.result.ratio = {ratio, 0.95 * ratio, 1.05 * ratio, 21};
    event.result.fault = fault;
    event.improved = best == ratio;
    return event;
}

ReportLayer layer() {
    ReportLayer layer;
    layer.origin = "built-in <default>";
    layer.parts.push_back(
        {.name = "project_out",
         .start = "out_panel:16,project_out.rows:1",
         .best = "out_panel:32,project_out.rows:2",
         .ratio = 0.6,
         .events = {event("out_panel:16,project_out.rows:2", 0.8, 1),
                    event("out_panel:32,project_out.rows:1", 1.2, 1),
                    event("out_panel:32,project_out.rows:2", 0.6, 0.6),
                    event("out_panel:48,project_out.rows:2", 0, 0.6, "crashed & <burned>")}});
    layer.parts.back().events[0].result.ratio.high = std::numeric_limits<double>::infinity();
    layer.result.record = small_record(64);
    layer.result.calls["b1_q40_kv40"] = {.seconds = 0.002,
                                         .peak = 0.5,
                                         .over_start = {0.5, 0.4, 0.6, 50},
                                         .over_default = {0.8, 0.7, 0.9, 50}};
    return layer;
}

TEST(Report, DrawsEveryTrialAndTheBest) {
    const std::string page = report_page({layer(), layer()}, {});
    if (const char* kept = std::getenv("ATTNC_TEST_REPORT")) write_file(kept, page);
    const std::string plot = page.substr(page.find("<svg id=\"part1-0-trials\""));
    const std::string trials = plot.substr(0, plot.find("</svg>"));
    EXPECT_EQ(count_of(trials, "<circle"), 4U);
    EXPECT_EQ(count_of(trials, "class=\"mark failed\""), 1U);
    EXPECT_EQ(count_of(trials, "class=\"mark taken\""), 1U);
    EXPECT_EQ(count_of(trials, "class=\"best\""), 1U);
    EXPECT_THAT(trials, HasSubstr("crashed &amp; &lt;burned&gt;"));
    EXPECT_THAT(page, Not(HasSubstr("nan")));
    EXPECT_THAT(page, Not(HasSubstr("inf\"")));
    EXPECT_THAT(page, HasSubstr("built-in &lt;default&gt;"));
}

TEST(Report, ShowsTheBestOfEachValueOfAField) {
    const std::string page = report_page({layer()}, {});
    const std::string fields = page.substr(page.find("id=\"part0-0-field"));
    // Two widths and two numbers of rows; the failed candidate counts for nothing.
    EXPECT_EQ(count_of(fields, "<svg"), 1U);  // after the first
    EXPECT_EQ(count_of(fields, "<circle"), 4U);
    EXPECT_THAT(fields, HasSubstr(">project_out.rows</text>"));
}

TEST(Report, HoldsCallsAgainstDefaultStartAndAutoschedulers) {
    const TestFolder folder;
    const std::string problem = to_string(layer().result.record.config) + ":b1_q40_kv40";
    write_file(folder / "results",
               R"({"rows":[{"shape":")" + problem +
                   R"(","threads":1,"entries":{"attnc":{"ms_best":2},"naive":{"ms_best":9},
                                       "halide_adams2019":{"ms_best":5},"halide_li2018":{"absent":"no"}}},
                                       {"shape":"x","threads":2,"entries":{}}]})");
    const OtherTimes others = autoscheduler_times(folder / "results", 1);
    ASSERT_EQ(others.size(), 1U);
    const std::string page = report_page({layer()}, others);
    EXPECT_THAT(page, HasSubstr("<td>2.0000</td><td>1.250</td><td>2.000</td><td>0.50</td>"));
    // 2.5 times the default's time, which is 1.25 times ours.
    EXPECT_THAT(page, HasSubstr("Halide's adams2019"));
    EXPECT_THAT(page, HasSubstr("3.125 times as long"));
}

TEST(Report, RefusesWhatIsNoResultsFile) {
    const TestFolder folder;
    write_file(folder / "results", "{\"rows\":[{}]}");
    try {
        autoscheduler_times(folder / "results", 1);
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(),
                    StartsWith(folder / "results" + std::string(" has no results of scripts/bench: ")));
    }
}

TEST(RatioPlot, KeepsWhatIsFarOffInsideItsFrame) {
    RatioPlot plot = {.id = "p", .x_label = "x", .y_label = "y", .width = 400, .height = 200};
    plot.points = {{.x = 0, .y = 1000, .kind = "level0"},
                   {.x = 1, .y = 0.5, .low = 0.4, .high = 1e9, .kind = "level0"}};
    const std::string svg = to_svg(plot);
    for (size_t at = svg.find("cy=\""); at != std::string::npos; at = svg.find("cy=\"", at + 1)) {
        const double y = std::stod(svg.substr(at + 4));
        EXPECT_GE(y, 0);
        EXPECT_LE(y, 200);
    }
}

}  // namespace
}  // namespace attnc::test
