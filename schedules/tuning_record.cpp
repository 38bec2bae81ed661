#include "schedules/tuning_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "stages/device_kernels.h"

namespace attnc {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr size_t kLongestLine = 1 << 20;  // a record has some 5 KiB; one with a thousand sizes 100 KiB
constexpr int kDeepest = 4;               // levels of objects and arrays
constexpr size_t kLongestText = 256;
constexpr size_t kMostSizes = 1000;
constexpr int64_t kMostCpus = 1 << 16;
constexpr int64_t kMostCacheBytes = int64_t{1} << 40;
constexpr int64_t kMostSamples = 1'000'000'000;
constexpr int64_t kMostOfField = 1 << 20;             // of a schedule: no rule allows as much
constexpr int64_t kMostAssembled = int64_t{1} << 32;  // registers and bytes of a kernel
constexpr double kMostTime = 1e9;                     // also of a spread and of a probe
constexpr int kDigits = 5;

[[noreturn]] void fail(const std::string& text) { throw RecordError(text); }

// ---- JSON text to values, each object's fields by name

// A parsed object has lost its duplicate fields, and a hostile one may nest to any depth: both are seen while parsing.
class Guard {
public:
    bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
        if (depth > kDeepest) fail("it is nested too deeply");
        if (event == Json::parse_event_t::object_start) {
            names_.resize(static_cast<size_t>(depth) + 1);
            names_[static_cast<size_t>(depth)].clear();
        }
        if (event == Json::parse_event_t::key) {
            const auto name = parsed.get<std::string>();
            if (!names_[static_cast<size_t>(depth) - 1].insert(name).second)
                fail(fmt::format("field {} is there twice", in_quotes(name)));
        }
        return true;
    }

private:
    std::vector<std::set<std::string>> names_;  // of the object that is open at each depth
};

Json parse_json(std::string_view line) {
    if (line.size() > kLongestLine) {
        fail(fmt::format("the line has {} bytes, a record has at most {}", line.size(), kLongestLine));
    }
    try {
        Guard guard;
        return Json::parse(line, [&](int depth, Json::parse_event_t event, const Json& parsed) {
            return guard(depth, event, parsed);
        });
    } catch (const Json::parse_error& error) {
        const bool utf8 = std::string_view(error.what()).find("ill-formed UTF-8") != std::string_view::npos;
        if (utf8) fail(fmt::format("it is not UTF-8 at byte {}", error.byte));
        if (error.byte > line.size()) fail("it ends early");
        fail(fmt::format("it is not JSON at byte {}", error.byte));
    } catch (const Json::out_of_range&) {
        fail("it has a number that is out of range");
    }
}

// An object of which every field is asked for, and which has no others.
class Object {
public:
    // `where` is the path to the object, with a dot at its end where it has one; `writer` goes behind complaints that
    // another version's records would cause.
    Object(const Json& json, std::string where, std::string writer = "")
        : json_(json), where_(std::move(where)), writer_(std::move(writer)) {
        if (!json.is_object()) {
            fail(where_.empty() ? "it is not an object"
                                : fmt::format("{} is not an object", where_.substr(0, where_.size() - 1)));
        }
    }

    Object object(const std::string& name) { return {value(name), where_ + name + ".", writer_}; }
    const Json& value(const std::string& name) {
        const auto found = json_.find(name);
        if (found == json_.end()) fail(fmt::format("{}{} is missing{}", where_, name, writer_));
        asked_.insert(name);
        return *found;
    }
    int64_t integer(const std::string& name, int64_t low, int64_t high) {
        const Json& json = value(name);
        if (!json.is_number_integer()) fail(fmt::format("{}{} is not a whole number", where_, name));
        const bool wraps =
            json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
        if (wraps || json.get<int64_t>() < low || json.get<int64_t>() > high)
            fail(fmt::format("{}{} {} is outside {}..{}", where_, name, json.dump(), low, high));
        return json.get<int64_t>();
    }
    double number(const std::string& name) {
        const Json& json = value(name);
        if (!json.is_number()) fail(fmt::format("{}{} is not a number", where_, name));
        const auto number = json.get<double>();
        if (!(number >= 0 && number <= kMostTime))
            fail(fmt::format("{}{} {} is outside 0..{:g}", where_, name, json.dump(), kMostTime));
        return number;
    }
    double positive(const std::string& name) {
        const double number = this->number(name);
        if (number == 0) fail(fmt::format("{}{} is 0", where_, name));
        return number;
    }
    std::string text(const std::string& name) {
        const Json& json = value(name);
        if (!json.is_string()) fail(fmt::format("{}{} is not a text", where_, name));
        auto text = json.get<std::string>();
        if (text.empty()) fail(fmt::format("{}{} is empty", where_, name));
        if (text.size() > kLongestText)
            fail(fmt::format("{}{} is longer than {} bytes", where_, name, kLongestText));
        const auto control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
        if (std::any_of(text.begin(), text.end(), control))
            fail(fmt::format("{}{} has a control character: {}", where_, name, in_quotes(text)));
        return text;
    }
    bool has(const std::string& name) const { return json_.contains(name); }
    void finish() const {
        for (const auto& [name, value] : json_.items()) {
            if (!asked_.contains(name)) fail(fmt::format("{}{} is unknown{}", where_, shown(name), writer_));
        }
    }
    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const auto& [name, value] : json_.items()) names.push_back(name);
        return names;
    }
    // The name of a field that may be any text, for a message.
    static std::string shown(const std::string& name) {
        const std::string quoted = in_quotes(name);
        const bool plain = quoted == "'" + name + "'" && !name.empty() && name.find(' ') == std::string::npos;
        return plain ? name : quoted;
    }

private:
    const Json& json_;
    std::string where_, writer_;
    std::set<std::string> asked_;
};

// ---- Texts of one form

template <class Parse>
auto parse_canonical(const std::string& field, const std::string& text, const Parse& parse) {
    try {
        auto value = parse(text);
        if (to_string(value) != text)
            fail(fmt::format("{} '{}' is written '{}'", field, text, to_string(value)));
        return value;
    } catch (const ConfigError& error) {
        fail(fmt::format("{}: {}", field, error.what()));
    }
}

bool has_form(std::string_view text, std::string_view form) {  // '0': a digit
    return std::equal(text.begin(), text.end(), form.begin(), form.end(),
                      [](char c, char wanted) { return wanted == '0' ? c >= '0' && c <= '9' : c == wanted; });
}

std::string read_date(Object& root) {
    std::string date = root.text("date");
    const auto within = [&](size_t begin, int low, int high) {
        const int value = (date[begin] - '0') * 10 + (date[begin + 1] - '0');
        return value >= low && value <= high;
    };
    const bool good = has_form(date, "0000-00-00T00:00:00Z") && within(5, 1, 12) && within(8, 1, 31) &&
                      within(11, 0, 23) && within(14, 0, 59) && within(17, 0, 60);
    if (!good) fail(fmt::format("date {} is not of the form 2026-03-01T12:00:00Z", in_quotes(date)));
    return date;
}

std::string read_target(Object& root) {
    std::string target = root.text("target");
    if (cuda_target_architecture(target)) return target;
    try {
        vector_unit(target);
    } catch (const ConfigError&) {
        fail(fmt::format("target {} is not one of an x86-64 CPU, nor cuda or cuda-sm_80", in_quotes(target)));
    }
    const auto good = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    };
    if (!std::all_of(target.begin(), target.end(), good)) {
        fail(fmt::format("target {} is not one of an x86-64 CPU, nor cuda or cuda-sm_80", in_quotes(target)));
    }
    return target;
}

std::string read_effort(Object& root) {
    std::string effort = root.text("effort");
    if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) == std::end(kEfforts))
        fail(fmt::format("effort {} is not one of {}", in_quotes(effort), fmt::join(kEfforts, ", ")));
    return effort;
}

// ---- Parts of a record

std::vector<Sizes> read_sizes(Object& root) {
    const Json& json = root.value("sizes");
    if (!json.is_array() || json.empty()) fail("sizes is not a list of at least one");
    if (json.size() > kMostSizes)
        fail(fmt::format("sizes has {} entries, at most {}", json.size(), kMostSizes));
    std::vector<Sizes> sizes;
    for (const Json& entry : json) {
        if (!entry.is_string()) fail("sizes has an entry that is not a text");
        sizes.push_back(parse_canonical("sizes", entry.get<std::string>(), parse_sizes));
        if (sizes.back().batch == 0 || sizes.back().seq_q == 0)
            fail(fmt::format("sizes '{}' has no rows", to_string(sizes.back())));
    }
    const size_t count = sizes.size();
    sort_sizes(sizes);
    if (sizes.size() != count) fail("sizes has an entry twice");
    return sizes;
}

Machine read_machine(Object object) {
    Machine machine;
    machine.cpu = object.text("cpu");
    machine.cpus = object.integer("cpus", 1, kMostCpus);
    machine.l1d_bytes = object.integer("l1d_bytes", 0, kMostCacheBytes);
    machine.l2_bytes = object.integer("l2_bytes", 0, kMostCacheBytes);
    machine.l3_bytes = object.integer("l3_bytes", 0, kMostCacheBytes);
    object.finish();
    return machine;
}

// "attend.rows": kernel and field; a field of the layout has no kernel.
std::pair<std::string, std::string> split_name(const std::string& name) {
    const size_t dot = name.find('.');
    if (dot == std::string::npos) return {"", name};
    return {name.substr(0, dot), name.substr(dot + 1)};
}

// The fields of a schedule, each asked for once.
class ScheduleObjects {
public:
    ScheduleObjects(Object layout, Object params) : layout_(std::move(layout)), params_(std::move(params)) {}
    int64_t value(const std::string& field) {
        const auto [kernel, name] = split_name(field);
        if (!kernel.empty() && !kernels_.contains(kernel)) kernels_.emplace(kernel, params_.object(kernel));
        Object& object = kernel.empty() ? layout_ : kernels_.at(kernel);
        return object.integer(name, 0, kMostOfField);
    }
    void finish() const {
        layout_.finish();
        params_.finish();
        for (const auto& [name, object] : kernels_) object.finish();
    }

private:
    Object layout_, params_;
    std::map<std::string, Object> kernels_;
};

CpuSchedule read_schedule(ScheduleObjects objects) {
    CpuSchedule schedule;
    for (const ScheduleField& field : fields_of(CpuSchedule{}))
        set_field(schedule, field.name, objects.value(field.name));
    objects.finish();
    return schedule;
}

CudaSchedule read_cuda_schedule(ScheduleObjects objects) {
    CudaSchedule schedule;
    for (const auto& [name, place] : fields_of(schedule)) *place = objects.value(name);
    objects.finish();
    return schedule;
}

std::string read_hash(Object& object, const std::string& kernel) {
    std::string hash = object.text("object");
    const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    if (hash.size() != 32 || !std::all_of(hash.begin(), hash.end(), digit))
        fail(fmt::format("kernels.{}.object {} is not a hash of 32 digits", kernel, in_quotes(hash)));
    return hash;
}

// By the names of a CPU's kernels, or of a device's.
bool is_kernel(const std::string& name, bool device) {
    try {
        device ? device_kernel_by_name(name) : kernel_by_name(name);
        return true;
    } catch (const ConfigError&) {
        return false;
    }
}

AssembledKernel read_assembled(Object object) {
    AssembledKernel kernel;
    kernel.registers = object.integer("registers", 1, kMostAssembled);
    kernel.spill_bytes = object.integer("spill_bytes", 0, kMostAssembled);
    kernel.stack_bytes = object.integer("stack_bytes", 0, kMostAssembled);
    kernel.shared_bytes = object.integer("shared_bytes", 0, kMostAssembled);
    object.finish();
    return kernel;
}

std::map<std::string, KernelResult> read_kernels(Object object, const std::string& writer, bool device) {
    std::map<std::string, KernelResult> kernels;
    for (const std::string& name : object.names()) {
        if (!is_kernel(name, device))
            fail(fmt::format("kernels.{} is unknown{}", Object::shown(name), writer));
        Object entry = object.object(name);
        KernelResult result;
        result.object_hash = read_hash(entry, name);
        size_t others = entry.names().size() - 1;
        if (device && entry.has("assembled")) {
            result.assembled = read_assembled(entry.object("assembled"));
            --others;
        }
        if (others > 0) {
            result.seconds = entry.positive("seconds");
            result.spread = entry.number("spread");
            result.samples = entry.integer("samples", 1, kMostSamples);
        }
        entry.finish();
        kernels.emplace(name, result);
    }
    return kernels;
}

std::map<std::string, CallResult> read_calls(Object object, const std::vector<Sizes>& sizes) {
    std::map<std::string, CallResult> calls;
    for (const std::string& name : object.names()) {
        const auto tuned = [&](const Sizes& own) { return to_string(own) == name; };
        if (std::none_of(sizes.begin(), sizes.end(), tuned))
            fail(fmt::format("calls.{} is not one of its sizes", Object::shown(name)));
        Object entry = object.object(name);
        CallResult result;
        result.ms = entry.positive("ms");
        result.spread = entry.number("spread");
        result.samples = entry.integer("samples", 1, kMostSamples);
        result.probe_gflops = entry.positive("probe_gflops");
        entry.finish();
        calls.emplace(name, result);
    }
    return calls;
}

// " (written by attnc 0.2.0)", as far as the line says so.
std::string writer_of(const Json& json) {
    const auto versions = json.find("versions");
    if (versions == json.end() || !versions->is_object()) return "";
    const auto attnc = versions->find("attnc");
    if (attnc == versions->end() || !attnc->is_string()) return "";
    return fmt::format(" (written by attnc {})", in_quotes(attnc->get<std::string>()));
}

TuningRecord read_record(const Json& json) {
    const std::string writer = json.is_object() ? writer_of(json) : "";
    Object root(json, "", writer);
    const int64_t format = root.integer("format", 1, INT64_MAX);
    if (format != kFormat)
        fail(fmt::format("it has format {}{}, this attnc reads format {}", format, writer, kFormat));

    TuningRecord record;
    record.config = parse_canonical("config", root.text("config"), parse_config);
    record.sizes = read_sizes(root);
    record.target = read_target(root);
    record.machine = read_machine(root.object("machine"));
    record.threads = root.integer("threads", 1, kMostCpus);
    const bool device = cuda_target_architecture(record.target).has_value();
    ScheduleObjects schedule(root.object("layout"), root.object("params"));
    if (device) {
        record.cuda_schedule = read_cuda_schedule(std::move(schedule));
    } else {
        record.schedule = read_schedule(std::move(schedule));
    }
    record.kernels = read_kernels(root.object("kernels"), writer, device);
    record.calls = read_calls(root.object("calls"), record.sizes);
    Object versions = root.object("versions");
    record.attnc = versions.text("attnc");
    record.halide = versions.text("halide");
    record.llvm = versions.text("llvm");
    versions.finish();
    record.date = read_date(root);
    record.effort = read_effort(root);
    root.finish();
    return record;
}

// ---- Writing

double rounded(double value) {
    if (value == 0 || !std::isfinite(value)) return value;
    return std::stod(fmt::format("{:.{}e}", value, kDigits - 1));
}

// Names and values of the schedule's fields.
std::vector<std::pair<std::string, int64_t>> fields_of(const TuningRecord& record) {
    std::vector<std::pair<std::string, int64_t>> fields;
    if (is_of_device(record)) {
        CudaSchedule schedule = *record.cuda_schedule;
        for (const auto& [name, place] : attnc::fields_of(schedule)) fields.emplace_back(name, *place);
    } else {
        for (const ScheduleField& field : attnc::fields_of(record.schedule))
            fields.emplace_back(field.name, field.value);
    }
    return fields;
}

Json schedule_json(const TuningRecord& record, bool layout) {
    Json json = Json::object();
    for (const auto& [field, value] : fields_of(record)) {
        const auto [kernel, name] = split_name(field);
        if (kernel.empty() != layout) continue;
        (layout ? json : json[kernel])[name] = value;
    }
    return json;
}

Json kernels_json(const TuningRecord& record) {
    Json json = Json::object();
    for (const auto& [name, result] : record.kernels) {
        Json& entry = json[name];
        if (result.samples > 0) {
            entry["seconds"] = rounded(result.seconds);
            entry["spread"] = rounded(result.spread);
            entry["samples"] = result.samples;
        }
        entry["object"] = result.object_hash;
        if (result.assembled) {
            entry["assembled"] = {{"registers", result.assembled->registers},
                                  {"spill_bytes", result.assembled->spill_bytes},
                                  {"stack_bytes", result.assembled->stack_bytes},
                                  {"shared_bytes", result.assembled->shared_bytes}};
        }
    }
    return json;
}

Json calls_json(const TuningRecord& record) {
    Json json = Json::object();
    for (const auto& [sizes, result] : record.calls) {
        json[sizes] = {{"ms", rounded(result.ms)},
                       {"spread", rounded(result.spread)},
                       {"samples", result.samples},
                       {"probe_gflops", rounded(result.probe_gflops)}};
    }
    return json;
}

}  // namespace

void sort_sizes(std::vector<Sizes>& sizes) {
    std::sort(sizes.begin(), sizes.end(), [](const Sizes& a, const Sizes& b) {
        return std::tie(a.batch, a.seq_q, a.seq_kv) < std::tie(b.batch, b.seq_q, b.seq_kv);
    });
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
}

std::string record_key(const TuningRecord& record) {
    const Machine& machine = record.machine;
    std::string key =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", to_string(record.config), record.target, machine.cpu,
                    machine.cpus, machine.l1d_bytes, machine.l2_bytes, machine.l3_bytes, record.threads);
    for (const Sizes& sizes : record.sizes) key += to_string(sizes) + "\n";
    return key;
}

std::string to_json_line(const TuningRecord& record) {
    std::vector<std::string> sizes;
    sizes.reserve(record.sizes.size());
    for (const Sizes& entry : record.sizes) sizes.push_back(to_string(entry));
    const Machine& machine = record.machine;
    const Json json = {
        {"format", kFormat},
        {"config", to_string(record.config)},
        {"target", record.target},
        {"sizes", sizes},
        {"threads", record.threads},
        {"machine",
         {{"cpu", machine.cpu},
          {"cpus", machine.cpus},
          {"l1d_bytes", machine.l1d_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes}}},
        {"layout", schedule_json(record, true)},
        {"params", schedule_json(record, false)},
        {"kernels", kernels_json(record)},
        {"calls", calls_json(record)},
        {"versions", {{"attnc", record.attnc}, {"halide", record.halide}, {"llvm", record.llvm}}},
        {"date", record.date},
        {"effort", record.effort},
    };
    // What an operating system calls a CPU need not be UTF-8.
    std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    parse_record(line);
    return line;
}

TuningRecord parse_record(std::string_view line) { return read_record(parse_json(line)); }

}  // namespace attnc
