#include "compiler/tune_control_here.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "compiler/files.h"
#include "compiler/machine.h"
#include "compiler/own_target.h"
#include "compiler/subprocess.h"
#include "compiler/tree.h"
#include "compiler/tune_display.h"
#include "compiler/tune_here.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

std::string outcome(const ControlResult& result) {
    std::string text =
        fmt::format("  {}: {} points in {}", result.part, result.tried, duration_text(result.seconds));
    if (result.known > 0)
        text += fmt::format(", {} of {} measurements made before", result.known, result.trials);
    if (result.failed > 0) text += fmt::format(", {} failed", result.failed);
    if (!result.finished) text += ", time is up";
    if (!result.ratio) return text;
    return text + fmt::format("; the best takes {:.3f} of the incumbent's time ({:.3f} to {:.3f}): {}",
                              result.ratio->median, result.ratio->low, result.ratio->high, result.best);
}

ControlListener listener_of(TuneDisplay& display) {
    return {.part_begins = [&](const TunedPart& part,
                               const std::string& schedule) { display.begin(part, schedule); },
            .part_skipped = [&](const TunedPart& part, const std::string& why) { display.skip(part, why); },
            .trial = [&](const TuneEvent& event) { display.trial(event); },
            .part_ends = [&](const ControlResult& result) { display.line(outcome(result)); }};
}

ControlledLayer control_layer(const TunedLayer& layer, const std::string& target, const ControlHere& setup,
                              Journal& journal, Deadline& deadline) {
    const TuneOptions& options = setup.options;
    const Machine machine = this_machine();
    const TuneStart start = start_of(layer, target, machine, options, setup.database);
    const TemporaryFolder folder(system_temporary_folder());
    const TuneBench bench =
        bench_here({.config = layer.config,
                    .target = target,
                    .threads = options.threads,
                    .machine = machine,
                    .effort = setup.effort,
                    .seed = options.seed,
                    .journal = &journal,
                    .installation = own_installation(),
                    .cache = setup.kernel_cache.empty() ? folder.path() / "kernels" : setup.kernel_cache,
                    .folder = folder.path()});
    TuneDisplay display;
    display.line(fmt::format("{} on {}, {} thread{}, {}", name_of(layer), target, options.threads,
                             options.threads == 1 ? "" : "s",
                             setup.random > 0 ? fmt::format("beside {} random points", setup.random)
                                              : setup.effort.name + " from a detuned start"));
    display.line(fmt::format("  incumbent: {}", start.origin));
    return {.config = layer.config,
            .origin = start.origin,
            .results = run_control({.config = layer.config,
                                    .sizes = layer.sizes,
                                    .target = target,
                                    .threads = options.threads,
                                    .machine = machine,
                                    .schedule = start.schedule,
                                    .kernels = options.kernels,
                                    .random = setup.random,
                                    .seed = options.seed,
                                    .effort = setup.effort,
                                    .version = kVersion},
                                   bench, journal, listener_of(display), deadline)};
}

}  // namespace

ControlReport control_here(const ControlHere& setup, Deadline& deadline) {
    const std::unique_ptr<Journal> journal =
        setup.journal.empty() ? std::make_unique<Journal>() : std::make_unique<Journal>(setup.journal);
    ControlReport report = {.target = own_target(setup.options.target),
                            .threads = setup.options.threads,
                            .random = setup.random,
                            .seed = setup.options.seed,
                            .effort = setup.effort.name,
                            .layers = {}};
    for (size_t i = 0; i < setup.layers.size(); ++i) {
        const double share = deadline.left() / static_cast<double>(setup.layers.size() - i);
        Deadline own(steady_seconds, std::isfinite(share) ? share : -1);
        report.layers.push_back(control_layer(setup.layers[i], report.target, setup, *journal, own));
    }
    return report;
}

}  // namespace attnc
