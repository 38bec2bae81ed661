#include "schedules/tuning_database.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/tuning_example.h"

namespace attnc {
namespace {

using Added = TuningDatabase::Added;
using test::example_record;
using test::measured_record;

std::string error_of(const std::string& text) {
    try {
        parse_database(text, "my.jsonl");
    } catch (const DatabaseError& error) {
        return error.what();
    }
    return "no error";
}

TuningRecord changed(TuningRecord record, const std::function<void(TuningRecord&)>& change) {
    change(record);
    return record;
}

std::string line_of(const TuningRecord& record) { return to_json_line(record) + "\n"; }

TEST(TuningDatabase, ReadsWhatItWrites) {
    TuningDatabase database;
    database.add(example_record());
    database.add(changed(example_record(), [](TuningRecord& r) { r.target = "x86-64-linux"; }));
    const TuningDatabase read = parse_database(database.text(), "x");
    EXPECT_EQ(read.records(), database.records());
    EXPECT_EQ(read.text(), database.text());
    EXPECT_EQ(parse_database("", "x").size(), 0U);
}

TEST(TuningDatabase, IsSortedWhateverTheOrderOfItsRecords) {
    std::vector<TuningRecord> records;
    for (const char* config : {"d512_h8_f32", "d384_h12_f32", "d512_h8_f32_causal"}) {
        for (const char* target : kCpuTargets) {
            records.push_back(changed(example_record(), [&](TuningRecord& r) {
                r.config = parse_config(config);
                r.target = target;
            }));
        }
    }
    TuningDatabase forwards, backwards;
    for (const TuningRecord& record : records) forwards.add(record);
    std::reverse(records.begin(), records.end());
    for (const TuningRecord& record : records) backwards.add(record);
    EXPECT_EQ(forwards.text(), backwards.text());
    std::vector<std::string> keys;
    for (const TuningRecord& record : forwards.records()) keys.push_back(record_key(record));
    EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
}

TEST(TuningDatabase, TakesEmptyLinesAndAnUnfinishedLastOne) {
    const std::string line = to_json_line(example_record());
    EXPECT_EQ(parse_database("\n" + line + "\r\n \n\n", "x").size(), 1U);
    EXPECT_EQ(parse_database(line, "x").size(), 1U);
}

TEST(TuningDatabase, IsReadAsAWholeOrNotAtAll) {
    const std::string good = line_of(example_record());
    EXPECT_EQ(error_of(good + "\n" + good.substr(0, good.size() / 2)), "my.jsonl:3: it ends early");
    EXPECT_EQ(error_of(good + "<<<<<<< HEAD\n" + good), "my.jsonl:2: it is not JSON at byte 1");
    EXPECT_EQ(error_of(good + std::string("\0\n", 2)), "my.jsonl:2: it is not JSON at byte 1");
    EXPECT_EQ(error_of(std::string(kLargestDatabase + 1, '\n')),
              "my.jsonl has 67108865 bytes, a database has at most 67108864");
}

TEST(TuningDatabase, KeepsTheBetterOfTwoRecordsOfOneKey) {
    TuningDatabase database;
    EXPECT_EQ(database.add(measured_record(2)), Added::kNew);
    EXPECT_EQ(database.add(measured_record(3)), Added::kKept);
    EXPECT_EQ(database.add(measured_record(2)), Added::kKept);
    EXPECT_EQ(database.add(measured_record(1)), Added::kReplaced);
    ASSERT_EQ(database.size(), 1U);
    EXPECT_EQ(database.records()[0], measured_record(1));
    // The same of lines that two branches left in one file.
    EXPECT_EQ(parse_database(line_of(measured_record(1)) + line_of(measured_record(3)), "x").records(),
              database.records());
}

TEST(TuningDatabase, RemovesByKey) {
    TuningDatabase database;
    database.add(example_record());
    EXPECT_FALSE(database.erase("another"));
    EXPECT_TRUE(database.erase(record_key(example_record())));
    EXPECT_EQ(database.text(), "");
}

TEST(BetterRecord, IsTheFasterOneBesideItsProbe) {
    EXPECT_TRUE(is_better(measured_record(1), measured_record(2)));
    // Half the machine for 1.5 times as long is the better time.
    const TuningRecord slow_day = changed(measured_record(3), [](TuningRecord& r) {
        for (auto& [sizes, call] : r.calls) call.probe_gflops = 50;
    });
    EXPECT_TRUE(is_better(slow_day, measured_record(2)));
    EXPECT_DOUBLE_EQ(cost_of(measured_record(2)), 0.2);
}

TEST(BetterRecord, IsAMeasuredOneBeforeANewerOne) {
    const TuningRecord newer = changed(example_record(), [](TuningRecord& r) { r.attnc = "9.0.0"; });
    EXPECT_FALSE(is_measured(newer));  // one of its two sizes
    EXPECT_TRUE(is_better(measured_record(1000), newer));
}

TEST(BetterRecord, IsOneOfTheNewerCompilerBeforeAFasterOne) {
    const auto of_version = [](const char* attnc, const char* halide, double ms) {
        return changed(measured_record(ms), [&](TuningRecord& r) { r.attnc = attnc, r.halide = halide; });
    };
    EXPECT_TRUE(is_better(of_version("0.10.0", "21.0.0", 2), of_version("0.9.1", "21.0.0", 1)));
    EXPECT_TRUE(is_better(of_version("1.0", "22.0.0", 2), of_version("1.0", "21.9.0", 1)));
    EXPECT_FALSE(is_better(of_version("1.0", "21.0.0", 2), of_version("1.0", "21.0.0", 1)));
    EXPECT_TRUE(is_better(of_version("1.0.1", "21.0.0", 2), of_version("1.0-local", "21.0.0", 1)));
    EXPECT_TRUE(is_better(of_version("99999999999999999999", "21", 2), of_version("0.1", "21", 1)));
}

TEST(BetterRecord, IsTheLaterOneOfTwoThatAreAsFast) {
    const TuningRecord later =
        changed(measured_record(1), [](TuningRecord& r) { r.date = "2027-03-01T12:00:00Z"; });
    EXPECT_TRUE(is_better(later, measured_record(1)));
}

// Whichever comes first, and however files are joined, the same one stays.
TEST(BetterRecord, IsATotalOrder) {
    std::vector<TuningRecord> records = {example_record()};
    for (const double ms : {1.0, 2.0}) {
        for (const char* version : {"0.1.0", "0.2.0"}) {
            for (const char* effort : kEfforts) {
                records.push_back(changed(measured_record(ms), [&](TuningRecord& r) {
                    r.attnc = version;
                    r.effort = effort;
                }));
            }
        }
    }
    std::sort(records.begin(), records.end(), is_better);
    for (size_t i = 0; i < records.size(); ++i) {
        for (size_t j = 0; j < records.size(); ++j) {
            EXPECT_EQ(is_better(records[i], records[j]), i < j) << i << " " << j;
        }
    }
}

}  // namespace
}  // namespace attnc
