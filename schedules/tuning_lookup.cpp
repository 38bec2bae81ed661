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

struct Candidate {
    const RecordSource* source;
    const TuningRecord* record;
    double distance;
    size_t position;  // of the source
};

// Before the others: the nearest, of the source that is asked first, of the fewest threads, the best.
bool comes_before(const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& c) {
        return std::tuple(c.distance, c.position, c.record->threads);
    };
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return is_better(*a.record, *b.record);
}

std::vector<Candidate> candidates(const LookupRequest& request, const std::vector<RecordSource>& sources,
                                  const Filter& filter) {
    std::vector<Candidate> found;
    for (size_t i = 0; i < sources.size(); ++i) {
        for (const TuningRecord& record : sources[i].records) {
            const auto of_config = config_distance(request.config, record.config);
            if (record.target != request.target || !of_config || !filter(sources[i], record)) continue;
            found.push_back({&sources[i], &record,
                             *of_config + machine_distance(request.machine, record.machine) +
                                 sizes_distance(request.sizes, record.sizes),
                             i});
        }
    }
    std::sort(found.begin(), found.end(), comes_before);
    return found;
}

std::string refusal(const LookupRequest& request, const TuningRecord& record) {
    try {
        check_schedule(record.schedule, request.config, request.target);
        return "";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

class Lookup {
public:
    Lookup(const LookupRequest& request, const std::vector<RecordSource>& sources)
        : request_(request), sources_(sources) {}

    // Adds a step; true if it had a record.
    bool ask(const std::string& asked, const std::string& nothing, const Filter& filter) {
        std::string refused;
        for (const Candidate& candidate : candidates(request_, sources_, filter)) {
            const std::string reason = refusal(request_, *candidate.record);
            if (reason.empty()) {
                take(asked, candidate, refused);
                return true;
            }
            refused += fmt::format("{}refused: {} ({})", refused.empty() ? "" : "; ",
                                   describe_record(*candidate.record), reason);
        }
        note(asked, refused.empty() ? nothing : refused);
        return false;
    }

    void note(const std::string& asked, const std::string& outcome) {
        found_.steps.push_back({asked, outcome, false});
    }

    FoundSchedule finish() {
        if (!found_.record) {
            found_.schedule = default_schedule(request_.config, request_.target);
            found_.steps.push_back({"built-in default", "always there", true});
        }
        return std::move(found_);
    }

private:
    void take(const std::string& asked, const Candidate& candidate, const std::string& refused) {
        found_.record = *candidate.record;
        found_.schedule = candidate.record->schedule;
        found_.origin = candidate.source->origin;
        found_.file = candidate.source->file;
        std::string outcome = describe_record(*candidate.record);
        if (!refused.empty()) outcome += "; " + refused;
        found_.steps.push_back({asked, outcome, true});
    }

    const LookupRequest& request_;
    const std::vector<RecordSource>& sources_;
    FoundSchedule found_;
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
    return fmt::format("{} at {} on {}, {} thread{}, {}, {}", to_string(record.config),
                       describe_sizes(record.sizes), record.machine.cpu, record.threads,
                       record.threads == 1 ? "" : "s", record.effort, record.date.substr(0, 10));
}

FoundSchedule look_up(const LookupRequest& request, const std::vector<RecordSource>& sources) {
    const std::string none_of_config = fmt::format("no record of {}", to_string(request.config));
    const auto of_config = [&](const TuningRecord& record) { return record.config == request.config; };
    Lookup lookup(request, sources);
    for (const auto& [origin, name, absent] :
         {std::tuple{RecordOrigin::kOption, "--db", "not given"},
          std::tuple{RecordOrigin::kProject, "project", "it has none"}}) {
        bool is_there = false;
        for (const RecordSource& asked : sources) {
            if (asked.origin != origin) continue;
            is_there = true;
            const auto of_file = [&](const RecordSource& source, const TuningRecord& record) {
                return &source == &asked && of_config(record);
            };
            if (lookup.ask(fmt::format("{} {}", name, asked.file), none_of_config, of_file))
                return lookup.finish();
        }
        if (!is_there) lookup.note(name, absent);
    }
    const auto of_this_machine = [&](const RecordSource& source, const TuningRecord& record) {
        return source.origin == RecordOrigin::kShipped && of_config(record) &&
               is_same_machine(record.machine, request.machine);
    };
    if (lookup.ask("shipped, this machine", none_of_config, of_this_machine)) return lookup.finish();
    const auto any = [](const RecordSource&, const TuningRecord&) { return true; };
    lookup.ask("nearest machine, sizes and layer",
               fmt::format("no record of heads of {} and {} features", request.config.head_dim,
                           request.config.v_head_dim),
               any);
    return lookup.finish();
}

}  // namespace attnc
