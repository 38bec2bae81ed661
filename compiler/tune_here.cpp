#include "compiler/tune_here.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "compiler/files.h"
#include "compiler/load_library.h"
#include "compiler/subprocess.h"
#include "compiler/tune_builder.h"
#include "compiler/tune_first.h"
#include "compiler/tune_session.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kMeasureTimeLimit{300};

// Cores that nothing is measured on; none: candidates are built between the measurements.
BuilderOptions builder_options(const BenchHere& setup) {
    std::vector<int> cpus = usable_cpus();
    cpus.erase(cpus.begin(), cpus.begin() + std::min<std::ptrdiff_t>(setup.threads, std::ssize(cpus)));
    return {.config = setup.config,
            .target = setup.target,
            .installation = setup.installation,
            .cache = setup.cache,
            .folder = setup.folder,
            .cpus = cpus};
}

MeasureAnswer measure_apart(const BenchHere& setup, const MeasureRequest& request) {
    const fs::path question = setup.folder / "request.json", answer = setup.folder / "answer.json";
    std::error_code ignored;
    fs::remove(answer, ignored);
    write_file(question, to_json(request));
    const ProcessResult result = run_process(
        {setup.installation.command.string(), "measure-candidate", question.string(), answer.string()},
        kMeasureTimeLimit);
    if (result.succeeded()) return parse_measure_answer(read_file(answer));
    std::string reason = last_line(result.output);
    if (reason.starts_with("attnc: ")) reason.erase(0, std::string("attnc: ").size());
    const std::string ended = describe_failure(result, kMeasureTimeLimit);
    return {.fault = reason.empty() ? fmt::format("it ended with {}", ended)
                                    : fmt::format("{} ({})", reason, ended)};
}

std::vector<SearchPoint> first_of(const BenchHere& setup, const CompilerVersions& versions,
                                  const TunedPart& part, const SearchSpace& space, Deadline& deadline) {
    std::mutex mutex;  // of the deadline
    return choose_first({.part = part,
                         .space = space,
                         .config = setup.config,
                         .target = setup.target,
                         .caches = caches_of(setup.machine),
                         .count = setup.effort.first,
                         .analysed = setup.effort.analysed,
                         .seed = setup.seed,
                         .versions = versions,
                         .journal = setup.journal,
                         .workers = {.attnc = setup.installation.command,
                                     .cache = setup.cache,
                                     .folder = setup.folder,
                                     .emit = {},
                                     .jobs = static_cast<int>(usable_cpus().size()),
                                     .progress = {}},
                         .ended = [&] {
                             const std::lock_guard<std::mutex> lock(mutex);
                             return deadline.passed();
                         }});
}

}  // namespace

MeasureAnswer measure_here(const MeasureRequest& request) {
    const LoadedLibrary candidate = LoadedLibrary::open(request.candidate);
    const LoadedLibrary incumbent = LoadedLibrary::open(request.incumbent);
    return measure(request, candidate, incumbent);
}

TuneBench bench_here(const BenchHere& setup) {
    const auto builder = std::make_shared<CandidateBuilder>(builder_options(setup));
    return {.built = [builder](const CpuSchedule& schedule) { return builder->get(schedule); },
            .built_alone = [builder](const CpuSchedule& schedule) { return builder->get_alone(schedule); },
            .prepare = [builder](const std::vector<CpuSchedule>& schedules) { builder->prepare(schedules); },
            .measure = [setup](const MeasureRequest& request) { return measure_apart(setup, request); },
            .first =
                [setup, builder](const TunedPart& part, const SearchSpace& space, Deadline& deadline) {
                    return first_of(setup, builder->versions(), part, space, deadline);
                },
            .has = [](const CpuSchedule&) { return true; },
            .versions = builder->versions()};
}

}  // namespace attnc
