#include "schedules/tuning_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/tuning_example.h"

namespace attnc {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TuningRecord example() { return test::example_record(); }

// The complaint about a device's record with one value put in another's place, or taken away.
std::string device_error_with(const std::string& path, const Json& value) {
    Json json = Json::parse(to_json_line(test::device_record()));
    json[Json::json_pointer(path)] = value;
    try {
        parse_record(json.dump());
    } catch (const RecordError& error) {
        return error.what();
    }
    return "no error";
}

Json example_json() { return Json::parse(to_json_line(example())); }

std::string error_of(const std::string& line) {
    try {
        parse_record(line);
    } catch (const RecordError& error) {
        return error.what();
    }
    return "no error";
}

// The complaint about the example with one value put in another's place, by its path.
std::string error_with(const std::string& path, const Json& value) {
    Json json = example_json();
    json[Json::json_pointer(path)] = value;
    return error_of(json.dump());
}

std::string error_without(const std::string& parent, const std::string& name) {
    Json json = example_json();
    json[Json::json_pointer(parent)].erase(name);
    return error_of(json.dump());
}

TEST(TuningRecord, ParsingUndoesPrinting) {
    EXPECT_EQ(parse_record(to_json_line(example())), example());
    for (const char* target : kCpuTargets) {
        TuningRecord other = example();
        other.target = target;
        other.config = parse_config("d2048_h32_kv4_f32_causal_rope_cache_page64");
        other.schedule = default_schedule(other.config, target);
        other.calls.clear();
        other.kernels.clear();
        EXPECT_EQ(parse_record(to_json_line(other)), other) << target;
    }
}

TEST(TuningRecord, IsOneLineWhoseFieldsHaveTheirNames) {
    const std::string line = to_json_line(example());
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_THAT(line,
                StartsWith(R"({"format":1,"config":"d512_h8_f32","target":"x86-64-linux-avx2-fma-f16c",)"
                           R"("sizes":["b1_q128_kv128","b32_q50_kv50"],"threads":2,"machine":{"cpu":)"));
    EXPECT_THAT(line, HasSubstr(R"("layout":{"panel":)"));
    EXPECT_THAT(line, HasSubstr(R"("attend_decode":{"rows":4,"keys":2,)"));
    EXPECT_THAT(line, HasSubstr(R"("attend_merge":{"object":"0123456789abcdef0123456789abcdef"})"));
}

TEST(TuningRecord, KeepsFiveDigitsOfWhatWasMeasured) {
    TuningRecord record = example();
    record.calls["b1_q128_kv128"].ms = 1.0 / 3;
    const std::string line = to_json_line(record);
    EXPECT_THAT(line, HasSubstr(R"("ms":0.33333,)"));
    EXPECT_EQ(to_json_line(parse_record(line)), line);
}

TEST(TuningRecord, SortsItsSizesByNumber) {
    TuningRecord record = example();
    record.calls.clear();
    record.sizes = {parse_sizes("b32_q50_kv50"), parse_sizes("b4_q8_kv8"), parse_sizes("b4_q8_kv8")};
    sort_sizes(record.sizes);
    ASSERT_EQ(record.sizes.size(), 2U);
    EXPECT_EQ(to_string(record.sizes[0]), "b4_q8_kv8");
    Json json = Json::parse(to_json_line(record));
    json["sizes"] = {"b32_q50_kv50", "b4_q8_kv8"};
    EXPECT_EQ(parse_record(json.dump()), record);
}

TEST(TuningRecord, OfAMachineWhoseNameIsNotUtf8CanBeRead) {
    TuningRecord record = example();
    record.machine.cpu = "odd \xff CPU";
    EXPECT_EQ(parse_record(to_json_line(record)).machine.cpu, "odd \xef\xbf\xbd CPU");
}

TEST(TuningRecord, IsNotWrittenWhenItCouldNotBeRead) {
    TuningRecord record = example();
    record.sizes.clear();
    EXPECT_THROW(to_json_line(record), RecordError);
    record = example();
    record.calls["b1_q128_kv128"].ms = -1;
    EXPECT_THROW(to_json_line(record), RecordError);
}

TEST(TuningRecord, RefusesWhatIsNoJsonObject) {
    EXPECT_EQ(error_of(""), "it ends early");
    EXPECT_EQ(error_of("{\"format\":1"), "it ends early");
    EXPECT_EQ(error_of("{\"format\":x}"), "it is not JSON at byte 11");
    EXPECT_EQ(error_of("{} {}"), "it is not JSON at byte 4");
    EXPECT_EQ(error_of("[]"), "it is not an object");
    EXPECT_EQ(error_of("17"), "it is not an object");
    EXPECT_EQ(error_of("{\"format\":\"\xff\"}"), "it is not UTF-8 at byte 12");
    EXPECT_EQ(error_of("{\"format\":1e999}"), "it has a number that is out of range");
    EXPECT_EQ(error_of(std::string(100'000, '[')), "it is nested too deeply");
    EXPECT_EQ(error_of(std::string(2'000'000, ' ')),
              "the line has 2000000 bytes, a record has at most 1048576");
    EXPECT_EQ(error_of("{\"format\":1,\"format\":1}"), "field 'format' is there twice");
    EXPECT_EQ(error_of("{\"machine\":{\"cpu\":1},\"layout\":{\"cpu\":1,\"cpu\":1}}"),
              "field 'cpu' is there twice");
}

TEST(TuningRecord, RefusesOtherVersionsWithTheirName) {
    EXPECT_EQ(error_with("/format", 2),
              "it has format 2 (written by attnc '0.1.0'), this attnc reads format 1");
    EXPECT_EQ(error_with("/extra", 1), "extra is unknown (written by attnc '0.1.0')");
    EXPECT_EQ(error_with("/params/attend/un roll", 1),
              "params.attend.'un roll' is unknown (written by attnc '0.1.0')");
    EXPECT_EQ(error_with("/params/attend_fast", Json::object()),
              "params.attend_fast is unknown (written by attnc '0.1.0')");
    EXPECT_EQ(error_with("/kernels/attend_fast", Json::object()),
              "kernels.attend_fast is unknown (written by attnc '0.1.0')");
    EXPECT_EQ(error_without("/params/attend", "rows"),
              "params.attend.rows is missing (written by attnc '0.1.0')");
    EXPECT_EQ(error_without("/params", "attend"), "params.attend is missing (written by attnc '0.1.0')");
    EXPECT_EQ(error_without("/layout", "panel"), "layout.panel is missing (written by attnc '0.1.0')");
    EXPECT_EQ(error_without("", "versions"), "versions is missing");
}

TEST(TuningRecord, RefusesEveryFieldThatIsMissing) {
    const Json json = example_json();
    for (const auto& [name, value] : json.items()) {
        EXPECT_THAT(error_without("", name), StartsWith(name + " is missing"));
    }
}

TEST(TuningRecord, RefusesWrongTypes) {
    EXPECT_EQ(error_with("/threads", "2"), "threads is not a whole number");
    EXPECT_EQ(error_with("/threads", 2.0), "threads is not a whole number");
    EXPECT_EQ(error_with("/layout/panel", Json()), "layout.panel is not a whole number");
    EXPECT_EQ(error_with("/machine", "fast"), "machine is not an object");
    EXPECT_EQ(error_with("/params/attend", 3), "params.attend is not an object");
    EXPECT_EQ(error_with("/date", 20260301), "date is not a text");
    EXPECT_EQ(error_with("/sizes", "b1_q1_kv1"), "sizes is not a list of at least one");
    EXPECT_EQ(error_with("/sizes", Json::array({1})), "sizes has an entry that is not a text");
    EXPECT_EQ(error_with("/calls/b1_q128_kv128/ms", "fast"), "calls.b1_q128_kv128.ms is not a number");
    EXPECT_EQ(error_with("/kernels/attend", 1), "kernels.attend is not an object");
}

TEST(TuningRecord, RefusesNumbersOutsideTheirRange) {
    EXPECT_EQ(error_with("/layout/panel", 18446744073709551615U),
              "layout.panel 18446744073709551615 is outside 0..1048576");
    EXPECT_EQ(error_with("/layout/panel", -1), "layout.panel -1 is outside 0..1048576");
    EXPECT_EQ(error_with("/threads", 0), "threads 0 is outside 1..65536");
    EXPECT_EQ(error_with("/kernels/attend/samples", 0), "kernels.attend.samples 0 is outside 1..1000000000");
    EXPECT_EQ(error_with("/kernels/attend/seconds", 0), "kernels.attend.seconds is 0");
    EXPECT_EQ(error_with("/kernels/attend/spread", -0.5), "kernels.attend.spread -0.5 is outside 0..1e+09");
    EXPECT_EQ(error_with("/calls/b1_q128_kv128/ms", 1e300),
              "calls.b1_q128_kv128.ms 1e+300 is outside 0..1e+09");
    EXPECT_EQ(error_without("/kernels/attend", "spread"),
              "kernels.attend.spread is missing (written by attnc '0.1.0')");
}

TEST(TuningRecord, RefusesTextsOfAnotherForm) {
    EXPECT_EQ(error_with("/config", "d500_h12_f32"), "config: d_model 500 is not divisible by num_heads 12");
    EXPECT_EQ(error_with("/config", "d512_h8_kv8_f32"), "config 'd512_h8_kv8_f32' is written 'd512_h8_f32'");
    EXPECT_EQ(error_with("/sizes", Json::array({"b1_q1"})), "sizes 'b1_q1' is written 'b1_q1_kv1'");
    EXPECT_EQ(error_with("/sizes", Json::array({"b1_q0_kv1"})), "sizes 'b1_q0_kv1' has no rows");
    EXPECT_EQ(error_with("/sizes", Json::array({"b1_q1_kv1", "b1_q1_kv1"})), "sizes has an entry twice");
    EXPECT_EQ(error_with("/calls/b1_q1_kv1", Json::object()), "calls.b1_q1_kv1 is not one of its sizes");
    EXPECT_EQ(error_with("/target", "arm-64-linux"),
              "target 'arm-64-linux' is not one of an x86-64 CPU, nor cuda or cuda-sm_80");
    EXPECT_EQ(error_with("/target", "x86-64-linux-\n"), "target has a control character: 'x86-64-linux-?'");
    EXPECT_EQ(error_with("/target", "x86-64-linux avx2"),
              "target 'x86-64-linux avx2' is not one of an x86-64 CPU, nor cuda or cuda-sm_80");
    EXPECT_EQ(error_with("/machine/cpu", ""), "machine.cpu is empty");
    EXPECT_EQ(error_with("/machine/cpu", std::string(257, 'x')), "machine.cpu is longer than 256 bytes");
    EXPECT_EQ(error_with("/effort", "heroic"),
              "effort 'heroic' is not one of estimate, quick, measure, patient");
    EXPECT_EQ(error_with("/kernels/attend/object", "abc"),
              "kernels.attend.object 'abc' is not a hash of 32 digits");
    for (const char* date :
         {"yesterday", "2026-13-01T12:00:00Z", "2026-03-01 12:00:00Z", "2026-03-01T24:00:00Z"}) {
        EXPECT_EQ(error_with("/date", date),
                  "date '" + std::string(date) + "' is not of the form 2026-03-01T12:00:00Z");
    }
}

TEST(DeviceRecord, ParsingUndoesPrinting) {
    for (const char* target : {"cuda", "cuda-sm_80", "cuda-sm_121"}) {
        const TuningRecord record = test::device_record(target);
        EXPECT_EQ(parse_record(to_json_line(record)), record) << target;
    }
    TuningRecord other = test::device_record();
    other.cuda_schedule->layout.panel = 64;
    other.cuda_schedule->params.attend_probs.register_state = 0;
    EXPECT_EQ(parse_record(to_json_line(other)), other);
    EXPECT_NE(to_json_line(other), to_json_line(test::device_record()));
}

TEST(DeviceRecord, HasItsFieldsByNameAndNoTimes) {
    const std::string line = to_json_line(test::device_record());
    EXPECT_THAT(line, HasSubstr(R"("layout":{"panel":128,"out_panel":128,"threads_x":8,)"));
    EXPECT_THAT(line, HasSubstr(R"("attend_decode":{"threads_y":4,)"));
    EXPECT_THAT(line,
                HasSubstr(R"("kernels":{"attend":{"object":"0123456789abcdef0123456789abcdef","assembled":)"
                          R"({"registers":168,"spill_bytes":0,"stack_bytes":0,"shared_bytes":25600}},)"
                          R"("attend_guarded":{"object":"0123456789abcdef0123456789abcdef"}},"calls":{})"));
}

TEST(DeviceRecord, IsRefusedWithWhatIsAnothersOrMissing) {
    EXPECT_EQ(device_error_with("/target", "cuda-sm_81"),
              "target 'cuda-sm_81' is not one of an x86-64 CPU, nor cuda or cuda-sm_80");
    EXPECT_EQ(device_error_with("/target", "x86-64-linux-cuda"),
              "target 'x86-64-linux-cuda' is not one of an x86-64 CPU, nor cuda or cuda-sm_80");
    EXPECT_EQ(device_error_with("/target", "x86-64-linux"),
              "params.project_heads.rows is missing (written by attnc '0.1.0')");
    EXPECT_EQ(device_error_with("/layout/rows", 1), "layout.rows is unknown (written by attnc '0.1.0')");
    EXPECT_EQ(device_error_with("/layout/threads_x", -1), "layout.threads_x -1 is outside 0..1048576");
    EXPECT_EQ(device_error_with("/kernels/attend_narrow", Json::object()),
              "kernels.attend_narrow is unknown (written by attnc '0.1.0')");
    EXPECT_EQ(device_error_with("/kernels/attend/assembled", 1), "kernels.attend.assembled is not an object");
    EXPECT_EQ(device_error_with("/kernels/attend/assembled/registers", 0),
              "kernels.attend.assembled.registers 0 is outside 1..4294967296");
    EXPECT_EQ(device_error_with("/kernels/attend/assembled/warps", 1),
              "kernels.attend.assembled.warps is unknown (written by attnc '0.1.0')");
    EXPECT_EQ(device_error_with("/kernels/attend/assembled", Json::object()),
              "kernels.attend.assembled.registers is missing (written by attnc '0.1.0')");
    EXPECT_EQ(device_error_with("/kernels/attend/seconds", 1),
              "kernels.attend.spread is missing (written by attnc '0.1.0')");
    // A CPU's kernel has no assembler's account.
    Json json = example_json();
    json["kernels"]["attend_merge"]["assembled"] = Json::object();
    EXPECT_EQ(error_of(json.dump()), "kernels.attend_merge.seconds is missing (written by attnc '0.1.0')");
}

TEST(DeviceRecord, IsNotWrittenWithAnothersSchedule) {
    TuningRecord record = test::device_record();
    record.cuda_schedule.reset();
    EXPECT_THROW(to_json_line(record), RecordError);
    record = example();
    record.cuda_schedule = CudaSchedule{};
    EXPECT_THROW(to_json_line(record), RecordError);
}

TEST(RecordKey, IsTheSameForWhateverMayReplaceOneAnother) {
    TuningRecord other = example();
    other.schedule.layout.tile_kv = 512;
    other.calls.clear();
    other.kernels.clear();
    other.date = "2027-03-01T12:00:00Z";
    other.effort = "patient";
    other.attnc = "0.2.0";
    EXPECT_EQ(record_key(other), record_key(example()));
}

TEST(RecordKey, TellsApartWhateverMayStandTogether) {
    const auto changed = [](const std::function<void(TuningRecord&)>& change) {
        TuningRecord other = example();
        change(other);
        return record_key(other) != record_key(example());
    };
    EXPECT_TRUE(changed([](TuningRecord& r) { r.config = parse_config("d512_h8_f32_causal"); }));
    EXPECT_TRUE(changed([](TuningRecord& r) { r.sizes.pop_back(); }));
    EXPECT_TRUE(changed([](TuningRecord& r) { r.target = "x86-64-linux"; }));
    EXPECT_TRUE(changed([](TuningRecord& r) { r.machine.cpu = "Another"; }));
    EXPECT_TRUE(changed([](TuningRecord& r) { r.machine.cpus = 8; }));
    EXPECT_TRUE(changed([](TuningRecord& r) { r.machine.l2_bytes = 1; }));
    EXPECT_TRUE(changed([](TuningRecord& r) { r.threads = 1; }));
}

}  // namespace
}  // namespace attnc
