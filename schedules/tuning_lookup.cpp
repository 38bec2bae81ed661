#include "schedules/tuning_lookup.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "schedules/tuning_database.h"

namespace attnc {

namespace {

// Weights of the distances, where one doubling of queries or keys is 1.
constexpr double kBatchWeight = 0.25;   // items are attended one after another
constexpr double kExtraSizes = 0.1;     // tuned for, but not wanted
constexpr double kHeadsWeight = 0.5;    // of the number of heads
constexpr double kOptionWeight = 0.25;  // of each option that differs
constexpr double kUnknownCache = 1;
constexpr double kOtherVendor = 4;  // another core altogether
constexpr double kOtherModel = 1;   // likely the same core with other caches or clock

double doublings(int64_t a, int64_t b) {
    return std::abs(std::log2(static_cast<double>(a + 1) / static_cast<double>(b + 1)));
}

double call_distance(const Sizes& a, const Sizes& b) {
    return doublings(a.seq_q, b.seq_q) + doublings(a.seq_kv, b.seq_kv) +
           kBatchWeight * doublings(a.batch, b.batch);
}

// Mean over `from` of the way to the nearest of `to`.
double mean_distance(const std::vector<Sizes>& from, const std::vector<Sizes>& to) {
    double sum = 0;
    for (const Sizes& a : from) {
        double nearest = call_distance(a, to.front());
        for (const Sizes& b : to) nearest = std::min(nearest, call_distance(a, b));
        sum += nearest;
    }
    return sum / static_cast<double>(from.size());
}

double cache_distance(int64_t a, int64_t b) {
    if (a == b) return 0;
    return a == 0 || b == 0 ? kUnknownCache : doublings(a, b);
}

std::string_view vendor(std::string_view cpu) { return cpu.substr(0, cpu.find(' ')); }

// ---- Steps

using Filter = std::function<bool(const RecordSource&, const TuningRecord&)>;

// What is asked for, of a CPU or of a device.
struct Asked {
    const Config& config;
    const std::vector<Sizes>& sizes;
    std::vector<std::string> targets;  // of which a record may be, the ones before the others
    std::function<double(const Machine&)> machine_distance;
    std::function<bool(const Machine&)> is_this_machine;
    std::function<std::string(const TuningRecord&)> refusal;  // empty: its schedule is valid
};

struct Candidate {
    const RecordSource* source;
    const TuningRecord* record;
    size_t target;  // its place among those asked for
    double distance;
    size_t position;  // of the source
};

// Before the others: of the first target, the nearest, of the source that is asked first, of the fewest threads, the best.
bool comes_before(const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& c) {
        return std::tuple(c.target, c.distance, c.position, c.record->threads);
    };
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return is_better(*a.record, *b.record);
}

std::vector<Candidate> candidates(const Asked& asked, const std::vector<RecordSource>& sources,
                                  const Filter& filter) {
    std::vector<Candidate> found;
    for (size_t i = 0; i < sources.size(); ++i) {
        for (const TuningRecord& record : sources[i].records) {
            const auto of_config = config_distance(asked.config, record.config);
            const auto target = std::find(asked.targets.begin(), asked.targets.end(), record.target);
            if (target == asked.targets.end() || !of_config || !filter(sources[i], record)) continue;
            found.push_back({&sources[i], &record, static_cast<size_t>(target - asked.targets.begin()),
                             *of_config + asked.machine_distance(record.machine) +
                                 sizes_distance(asked.sizes, record.sizes),
                             i});
        }
    }
    std::sort(found.begin(), found.end(), comes_before);
    return found;
}

// Steps to a record, if there is one.
class Lookup {
public:
    Lookup(const Asked& asked, const std::vector<RecordSource>& sources) : asked_(asked), sources_(sources) {}

    FoundRecord run() {
        search();
        if (!found_.record) found_.steps.push_back({"built-in default", "always there", true});
        return std::move(found_);
    }

private:
    void search() {
        const std::string none_of_config = fmt::format("no record of {}", to_string(asked_.config));
        const auto of_config = [&](const TuningRecord& record) { return record.config == asked_.config; };
        for (const auto& [origin, name, absent] :
             {std::tuple{RecordOrigin::kOption, "--db", "not given"},
              std::tuple{RecordOrigin::kProject, "project", "it has none"}}) {
            bool is_there = false;
            for (const RecordSource& file : sources_) {
                if (file.origin != origin) continue;
                is_there = true;
                const auto of_file = [&](const RecordSource& source, const TuningRecord& record) {
                    return &source == &file && of_config(record);
                };
                if (ask(fmt::format("{} {}", name, file.file), none_of_config, of_file)) return;
            }
            if (!is_there) found_.steps.push_back({name, absent, false});
        }
        const auto of_this_machine = [&](const RecordSource& source, const TuningRecord& record) {
            return source.origin == RecordOrigin::kShipped && of_config(record) &&
                   asked_.is_this_machine(record.machine);
        };
        if (ask("shipped, this machine", none_of_config, of_this_machine)) return;
        const auto any = [](const RecordSource&, const TuningRecord&) { return true; };
        ask("nearest machine, sizes and layer",
            fmt::format("no record of heads of {} and {} features", asked_.config.head_dim,
                        asked_.config.v_head_dim),
            any);
    }

    // Adds a step; true if it had a record.
    bool ask(const std::string& asked, const std::string& nothing, const Filter& filter) {
        std::string refused;
        const std::vector<Candidate> all = candidates(asked_, sources_, filter);
        for (size_t i = 0; i < all.size(); ++i) {
            const std::string reason = asked_.refusal(*all[i].record);
            if (reason.empty()) {
                take(asked, all, i, refused);
                return true;
            }
            refused += fmt::format("{}refused: {} ({})", refused.empty() ? "" : "; ",
                                   describe_record(*all[i].record), reason);
        }
        found_.steps.push_back({asked, refused.empty() ? nothing : refused, false});
        return false;
    }

    void take(const std::string& asked, const std::vector<Candidate>& all, size_t which,
              const std::string& refused) {
        const Candidate& candidate = all[which];
        found_.record = *candidate.record;
        found_.origin = candidate.source->origin;
        found_.file = candidate.source->file;
        std::string outcome = describe_record(*candidate.record);
        if (!refused.empty()) outcome += "; " + refused;
        // The nearest of each other architecture, which has a claim of its own.
        std::string of_target = candidate.record->target;
        for (size_t i = which + 1; i < all.size(); ++i) {
            const TuningRecord& other = *all[i].record;
            if (other.target == of_target) continue;
            of_target = other.target;
            outcome +=
                fmt::format("; passed over: {} for {} (a library has one schedule for a device, that of {})",
                            describe_record(other), other.target, candidate.record->target);
        }
        found_.steps.push_back({asked, outcome, true});
    }

    const Asked& asked_;
    const std::vector<RecordSource>& sources_;
    FoundRecord found_;
};

}  // namespace

bool is_same_machine(const Machine& a, const Machine& b) {
    return a.cpu == b.cpu && a.l1d_bytes == b.l1d_bytes && a.l2_bytes == b.l2_bytes;
}

double machine_distance(const Machine& a, const Machine& b) {
    if (is_same_machine(a, b)) return 0;
    const double names = a.cpu == b.cpu ? 0 : (vendor(a.cpu) == vendor(b.cpu) ? kOtherModel : kOtherVendor);
    return names + cache_distance(a.l1d_bytes, b.l1d_bytes) + cache_distance(a.l2_bytes, b.l2_bytes);
}

double sizes_distance(const std::vector<Sizes>& wanted, const std::vector<Sizes>& tuned) {
    if (wanted.empty()) return 0;
    return mean_distance(wanted, tuned) + kExtraSizes * mean_distance(tuned, wanted);
}

std::optional<double> config_distance(const Config& a, const Config& b) {
    if (padded_head(a.head_dim) != padded_head(b.head_dim)) return std::nullopt;
    if (padded_head(a.v_head_dim) != padded_head(b.v_head_dim)) return std::nullopt;
    const auto options = std::popcount(static_cast<uint64_t>(config_flags(a) ^ config_flags(b)));
    return doublings(a.d_model, b.d_model) + doublings(a.k_dim, b.k_dim) + doublings(a.v_dim, b.v_dim) +
           kHeadsWeight * (doublings(a.num_heads, b.num_heads) + doublings(a.num_kv_heads, b.num_kv_heads)) +
           kOptionWeight * (options + int{a.page_size != b.page_size} + int{a.head_dim != b.head_dim} +
                            int{a.v_head_dim != b.v_head_dim});
}

std::string describe_sizes(const std::vector<Sizes>& sizes) {
    std::string text;
    for (const Sizes& entry : sizes) text += (text.empty() ? "" : " ") + to_string(entry);
    return text;
}

std::string describe_record(const TuningRecord& record) {
    const std::string threads =
        is_of_device(record) ? ""
                             : fmt::format(", {} thread{}", record.threads, record.threads == 1 ? "" : "s");
    return fmt::format("{} at {} on {}{}, {}, {}", to_string(record.config), describe_sizes(record.sizes),
                       record.machine.cpu, threads, record.effort, record.date.substr(0, 10));
}

FoundSchedule look_up(const LookupRequest& request, const std::vector<RecordSource>& sources) {
    const Asked asked = {
        .config = request.config,
        .sizes = request.sizes,
        .targets = {request.target},
        .machine_distance = [&](const Machine& other) { return machine_distance(request.machine, other); },
        .is_this_machine = [&](const Machine& other) { return is_same_machine(request.machine, other); },
        .refusal =
            [&](const TuningRecord& record) {
                try {
                    check_schedule(record.schedule, request.config, request.target);
                    return std::string();
                } catch (const ConfigError& error) {
                    return std::string(error.what());
                }
            }};
    FoundSchedule found = {Lookup(asked, sources).run(), {}};
    found.schedule = found.record ? found.record->schedule : default_schedule(request.config, request.target);
    return found;
}

FoundCudaSchedule look_up_device(const DeviceLookupRequest& request,
                                 const std::vector<RecordSource>& sources) {
    std::vector<std::string> targets = {cuda_target(kNoArchitecture)};
    for (const int architecture : request.architectures)
        targets.insert(targets.begin(), cuda_target(architecture));
    const Asked asked = {.config = request.config,
                         .sizes = request.sizes,
                         .targets = targets,
                         .machine_distance = [](const Machine&) { return 0.0; },
                         .is_this_machine = [](const Machine&) { return true; },
                         .refusal =
                             [&](const TuningRecord& record) {
                                 return cuda_schedule_fault(*record.cuda_schedule, request.config,
                                                            request.architectures);
                             }};
    FoundCudaSchedule found = {Lookup(asked, sources).run(), {}};
    found.schedule = found.record ? *found.record->cuda_schedule : default_cuda_schedule(request.config);
    return found;
}

}  // namespace attnc
