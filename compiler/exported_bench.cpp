#include "compiler/exported_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>

#include "compiler/files.h"
#include "compiler/run_apart.h"
#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

constexpr unsigned kMeasureTimeLimit = 300;  // seconds

attnc_layout layout_of(const CpuSchedule& schedule) {
    const CpuParams& params = schedule.params;
    return {.panel = schedule.layout.panel,
            .out_panel = schedule.layout.out_panel,
            .tile_rows = params.project_heads.rows,
            .tail_rows = params.project_heads_tail.rows,
            .out_tile_rows = params.project_out.rows,
            .out_tail_rows = params.project_out_tail.rows,
            .tile_kv = schedule.layout.tile_kv,
            .tile_q = params.attend.rows,
            .tile_q_narrow = params.attend_narrow.rows,
            .tile_q_single = params.attend_single.rows,
            .split_kv = schedule.layout.split_kv};
}

// A library's table that is made here; its kernels are others'.
struct Composed {
    attnc_target_entry target = {};
    attnc_library library = {};
    std::map<std::string, std::string> object_hashes;
};

class Bench {
public:
    Bench(const ExportedRun& run, const ExportedLayer& layer, const ExportedData& data)
        : layer_(layer), data_(data), config_(parse_config(layer.config)) {
        start_ = parse_schedule(layer.start, default_schedule(config_, run.target));
        const attnc_layout own = layout_of(start_);
        const attnc_library* library = compose(to_string(start_)).value();
        const attnc_target_entry& linked = data.libraries[first_library()]->targets[0];
        if (std::memcmp(&own, &linked.layout, sizeof own) != 0 || library->abi_version != ATTNC_ABI_VERSION)
            throw std::runtime_error("the runner and its kernels are of different versions");
    }

    BuiltSchedule built(const CpuSchedule& schedule) {
        const std::string text = to_string(schedule);
        if (!compose(text))
            return {.fault = "it takes a kernel that was not exported", .library = {}, .object_hashes = {}};
        return {.fault = {}, .library = text, .object_hashes = composed_.at(text)->object_hashes};
    }
    bool has(const CpuSchedule& schedule) { return compose(to_string(schedule)).has_value(); }
    MeasureAnswer measure(const MeasureRequest& request);
    std::vector<SearchPoint> first(const TunedPart& part, const SearchSpace& space) const;

private:
    const ExportedKernel* find(const std::string& kernel, const std::string& schedule) const;
    std::optional<const attnc_library*> compose(const std::string& text);
    size_t first_library() const;

    const ExportedLayer& layer_;
    const ExportedData& data_;
    Config config_;
    CpuSchedule start_;
    std::map<std::string, std::unique_ptr<Composed>> composed_;
};

const ExportedKernel* Bench::find(const std::string& kernel, const std::string& schedule) const {
    const auto pieces = layer_.kernels.find(kernel);
    if (pieces == layer_.kernels.end()) return nullptr;
    const auto found = pieces->second.find(schedule);
    if (found == pieces->second.end()) return nullptr;
    if (found->second.library < 0 || found->second.library >= data_.library_count)
        throw std::runtime_error(fmt::format("the runner has no library {}", found->second.library));
    return &found->second;
}

// The start's: all of a layer's others came after it.
size_t Bench::first_library() const {
    int64_t first = data_.library_count;
    for (const auto& [kernel, pieces] : layer_.kernels) {
        for (const auto& [schedule, found] : pieces) first = std::min(first, found.library);
    }
    return static_cast<size_t>(first);
}

std::optional<const attnc_library*> Bench::compose(const std::string& text) {
    if (const auto known = composed_.find(text); known != composed_.end()) return &known->second->library;
    const CpuSchedule schedule = parse_schedule(text, start_);
    auto made = std::make_unique<Composed>();
    for (const int kernel : kernels_of(config_)) {
        if (!has_kernel(schedule, kernel)) continue;
        const ExportedKernel* found = find(kernel_name(kernel), to_string(schedule, kernel));
        if (found == nullptr) return {};
        made->target.kernels[kernel] = data_.libraries[found->library]->targets[0].kernels[kernel];
        if (made->target.kernels[kernel].run == nullptr)
            throw std::runtime_error(fmt::format("the runner lacks a kernel {}", kernel_name(kernel)));
        made->object_hashes[kernel_name(kernel)] = found->object_hash;
    }
    const attnc_library* start = data_.libraries[first_library()];
    made->target.name = start->targets[0].name;
    made->target.cpu_features = start->targets[0].cpu_features;
    made->target.layout = layout_of(schedule);
    made->library = *start;
    made->library.target_count = 1;
    made->library.targets = &made->target;
    return &composed_.emplace(text, std::move(made)).first->second->library;
}

// The answer comes through a file, as the other process may end at any moment.
MeasureAnswer Bench::measure(const MeasureRequest& request) {
    const attnc_library* candidate = compose(request.candidate).value();
    const attnc_library* incumbent = compose(request.incumbent).value();
    const TemporaryFolder folder(system_temporary_folder());
    const std::filesystem::path answer = folder.path() / "answer.json";
    try {
        run_apart("it", [&] {
            ::alarm(kMeasureTimeLimit);
            write_file(answer, to_json(attnc::measure(request, candidate, incumbent)));
            return 0;
        });
    } catch (const std::runtime_error& error) {
        return {.fault = error.what()};
    }
    return parse_measure_answer(read_file(answer));
}

// Those that are a schedule together with what was found for the parts before.
std::vector<SearchPoint> Bench::first(const TunedPart& part, const SearchSpace& space) const {
    std::vector<SearchPoint> points;
    const auto exported = layer_.candidates.find(part.part.name);
    if (exported == layer_.candidates.end()) return points;
    for (const std::string& text : exported->second) {
        const SearchPoint point = space.point_of(parse_schedule(text, start_));
        if (space.fault(point).empty()) points.push_back(point);
    }
    return points;
}

}  // namespace

TuneBench exported_bench(const ExportedRun& run, const ExportedLayer& layer, const ExportedData& data) {
    const auto bench = std::make_shared<Bench>(run, layer, data);
    return {.built = [bench](const CpuSchedule& schedule) { return bench->built(schedule); },
            .built_alone = [bench](const CpuSchedule& schedule) { return bench->built(schedule); },
            .prepare = [](const std::vector<CpuSchedule>&) {},
            .measure = [bench](const MeasureRequest& request) { return bench->measure(request); },
            .first = [bench](const TunedPart& part, const SearchSpace& space,
                             Deadline&) { return bench->first(part, space); },
            .has = [bench](const CpuSchedule& schedule) { return bench->has(schedule); },
            .versions = run.versions};
}

}  // namespace attnc
