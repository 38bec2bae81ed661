// Databases that were cut, changed or made up: read whole, or refused in one line that names file and line; never a crash,
// and never a record that can't be written again. A sanitizer build of this program checks the "never".
#include "schedules/tuning_database.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "schedules/tuning_lookup.h"
#include "support/random.h"
#include "tests/unit/tuning_example.h"

namespace attnc {
namespace {

constexpr const char* kDeviceTargets[] = {"cuda", "cuda-sm_80", "cuda-sm_90"};

std::string database_text() {
    TuningDatabase database;
    for (const char* target : kCpuTargets) {
        TuningRecord record = test::measured_record(1);
        record.target = target;
        record.schedule = default_schedule(record.config, target);
        database.add(record);
    }
    for (const char* target : kDeviceTargets) database.add(test::device_record(target));
    return database.text();
}

// What a build would do with it.
void use(const TuningDatabase& database) {
    const std::string text = database.text();
    EXPECT_EQ(parse_database(text, "again").text(), text);
    for (const char* target : kCpuTargets) {
        const LookupRequest request = {parse_config("d512_h8_f32"), target, {parse_sizes("b1_q1_kv1")}, {}};
        const FoundSchedule found =
            look_up(request, {{RecordOrigin::kOption, "x.jsonl", database.records()}});
        EXPECT_NO_THROW(check_schedule(found.schedule, request.config, target));
    }
    const DeviceLookupRequest request = {
        parse_config("d512_h8_f32"), {75, 80, 90}, {parse_sizes("b1_q1_kv1")}};
    const FoundCudaSchedule found =
        look_up_device(request, {{RecordOrigin::kOption, "x.jsonl", database.records()}});
    EXPECT_EQ(cuda_schedule_fault(found.schedule, request.config, request.architectures), "");
}

// Whether it was read; the complaint, if any, is one line of the right form.
bool read(const std::string& text) {
    try {
        use(parse_database(text, "x.jsonl"));
        return true;
    } catch (const DatabaseError& error) {
        const std::string line = error.what();
        EXPECT_TRUE(line.starts_with("x.jsonl:")) << line;
        EXPECT_LT(line.size(), 300U) << line;
        const auto odd = [](char c) { return c < ' ' || c > '~'; };
        EXPECT_TRUE(std::none_of(line.begin(), line.end(), odd)) << line;
        return false;
    }
}

TEST(HostileDatabases, CutAnywhereAreRefusedOrWhole) {
    const std::string text = database_text();
    for (size_t length = 0; length < text.size(); length += 7) {
        const std::string cut = text.substr(0, length);
        // At the end of a line it is a shorter database.
        EXPECT_EQ(read(cut),
                  cut.empty() || cut.ends_with("}\n") || (text[length] == '\n' && cut.ends_with("}")))
            << length;
    }
}

TEST(HostileDatabases, WithBytesChangedNeverCrash) {
    const std::string text = database_text();
    int refused = 0;
    constexpr int kTries = 1500;
    for (int seed = 0; seed < kTries; ++seed) {
        Random random(static_cast<uint64_t>(seed));
        std::string changed = text;
        for (int64_t n = random.between(1, 4); n > 0; --n) {
            const auto at = static_cast<size_t>(random.between(0, static_cast<int64_t>(changed.size()) - 1));
            if (random.chance(0.5)) {
                changed[at] = static_cast<char>(random.between(0, 255));
            } else if (random.chance(0.5)) {
                changed.erase(at, static_cast<size_t>(random.between(1, 40)));
            } else {
                changed.insert(at, changed, static_cast<size_t>(random.between(0, 2000)),
                               static_cast<size_t>(random.between(1, 40)));
            }
        }
        if (!read(changed)) ++refused;
    }
    EXPECT_GT(refused, kTries / 2);
}

// Values of every kind in the place of every value.
TEST(HostileDatabases, WithOtherValuesNeverCrash) {
    const std::string lines[] = {to_json_line(test::measured_record(1)), to_json_line(test::device_record())};
    const std::vector<std::string> values = {"0",
                                             "-1",
                                             "1e308",
                                             "-1e-308",
                                             "1e400",
                                             "9223372036854775807",
                                             "9223372036854775808",
                                             "18446744073709551616",
                                             "1048576",
                                             "0.5",
                                             "null",
                                             "true",
                                             "\"\"",
                                             "\"\\u0000\"",
                                             "\"\\ud800\"",
                                             "\"\xc3\x28\"",
                                             "\"" + std::string(100'000, 'x') + "\"",
                                             "[]",
                                             "{}",
                                             "[[[[[[[[]]]]]]]]",
                                             "{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}"};
    for (const std::string& line : lines) {
        for (size_t colon = line.find(':'); colon != std::string::npos; colon = line.find(':', colon + 1)) {
            const size_t end = line.find_first_of(",}", colon);
            for (const std::string& value : values)
                read(line.substr(0, colon + 1) + value + line.substr(end));
        }
    }
}

}  // namespace
}  // namespace attnc
