#include "compiler/tune_control.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "compiler/interrupt.h"
#include "compiler/tune_trials.h"
#include "tuner/control_points.h"

namespace attnc {

namespace {

class Control {
public:
    Control(const ControlRequest& request, const TuneBench& bench, Journal& journal,
            const ControlListener& listener)
        : request_(request),
          bench_(bench),
          journal_(journal),
          listener_(listener),
          trials_({request.config, request.target, request.threads, request.machine}, bench) {}

    ControlResult of_part(const TunedPart& part, Deadline& deadline);

private:
    void draw(const TunedPart& part, const SearchSpace& space, Deadline& deadline, ControlResult& result);
    void search(const TunedPart& part, const SearchSpace& space, Deadline& deadline, ControlResult& result);
    void tell(const TuneEvent& event, ControlResult& result);

    const ControlRequest& request_;
    const TuneBench& bench_;
    Journal& journal_;
    const ControlListener& listener_;
    Trials trials_;
};

void Control::tell(const TuneEvent& event, ControlResult& result) {
    ++result.trials;
    result.known += event.from_journal ? 1 : 0;
    result.failed += event.result.fault.empty() ? 0 : 1;
    if (listener_.trial) listener_.trial(event);
}

void Control::draw(const TunedPart& part, const SearchSpace& space, Deadline& deadline,
                   ControlResult& result) {
    const SearchPoint own = space.point_of(request_.schedule);
    std::vector<SearchPoint> points = space.points();
    std::erase_if(points, [&](const SearchPoint& point) { return !bench_.has(space.schedule(point)); });
    Search search(own, drawn_points(points, own, request_.random, request_.seed),
                  [](const SearchPoint&) { return std::vector<SearchPoint>{}; },
                  {.control = true, .hopeless = kGiveUpAbove});
    std::set<SearchPoint> tried;
    double best = std::numeric_limits<double>::infinity();
    int level = 0;
    SearchDriver driver;
    driver.key = [&](const Trial& trial) { return trials_.key(part, space, trial); };
    driver.measure = [&](const Trial& trial) { return trials_.measure(part, space, trial); };
    driver.prepare = [&](const std::vector<SearchPoint>& next) { bench_.prepare(schedules_of(space, next)); };
    driver.told = [&](const Search& at, const Trial& trial, const TrialResult& measured, bool known) {
        tried.insert(trial.candidate);
        if (trial.level > level) best = std::numeric_limits<double>::infinity(), level = trial.level;
        if (measured.fault.empty()) best = std::min(best, measured.ratio.median);
        tell({part.part.name, space.text(trial.candidate), trial.level, trial.repeat, measured, 1,
              std::isfinite(best) ? best : 1, false, known, at.trials(), at.expected(), deadline.left()},
             result);
    };
    result.finished = run_search(search, journal_, driver, deadline);
    bench_.prepare({});
    result.tried = static_cast<int64_t>(tried.size());
    if (!search.challenger()) return;
    result.best = space.text(search.challenger()->point);
    result.ratio = search.challenger()->ratio;
}

// The search is the one that `attnc tune` would do; what it found is then held against the schedule, other parts being equal.
void Control::search(const TunedPart& part, const SearchSpace& space, Deadline& deadline,
                     ControlResult& result) {
    const SearchPoint own = space.point_of(request_.schedule);
    const TuneRequest request = {.config = request_.config,
                                 .sizes = request_.sizes,
                                 .target = request_.target,
                                 .threads = request_.threads,
                                 .machine = request_.machine,
                                 .start = space.schedule(detuned_point(space, own)),
                                 .effort = request_.effort,
                                 .kernels = {part.part.name},
                                 .version = request_.version};
    std::set<std::string> tried;
    TuneListener listener;
    listener.trial = [&](const TuneEvent& event) {
        tried.insert(event.candidate);
        tell(event, result);
    };
    const double begin = steady_seconds();
    const TuneResult found = tune(request, bench_, journal_, listener, deadline);
    result.seconds = steady_seconds() - begin;
    result.finished = !deadline.passed();
    result.tried = static_cast<int64_t>(tried.size());
    const Trial last = {.id = 0,
                        .candidate = space.point_of(found.record.schedule),
                        .incumbent = own,
                        .level = request_.effort.search.levels - 1,
                        .repeat = 1};
    result.best = space.text(last.candidate);
    const TrialResult measured = trials_.measure(part, space, last);
    if (measured.fault.empty()) {
        result.ratio = measured.ratio;
    } else {
        ++result.failed;
    }
}

ControlResult Control::of_part(const TunedPart& part, Deadline& deadline) {
    const SearchSpace space(request_.config, request_.target, part.part, request_.schedule, part.sizes);
    const SearchPoint own = space.point_of(request_.schedule);
    const auto& points = space.points();
    ControlResult result = {.part = part.part.name,
                            .sizes = part.sizes,
                            .points = std::ssize(points) - std::count(points.begin(), points.end(), own),
                            .schedule = space.text(own),
                            .best = "",
                            .ratio = {}};
    if (listener_.part_begins) listener_.part_begins(part, result.schedule);
    const double begin = steady_seconds();
    if (request_.random > 0) {
        draw(part, space, deadline, result);
        result.seconds = steady_seconds() - begin;
    } else {
        search(part, space, deadline, result);
    }
    if (listener_.part_ends) listener_.part_ends(result);
    return result;
}

}  // namespace

std::vector<ControlResult> run_control(const ControlRequest& request, const TuneBench& bench,
                                       Journal& journal, const ControlListener& listener,
                                       Deadline& deadline) {
    Control control(request, bench, journal, listener);
    std::vector<ControlResult> results;
    std::vector<TunedPart> parts;
    for (const TunedPart& part :
         tuned_parts(request.config, request.target, request.sizes, request.schedule)) {
        if (!is_asked_for(part, request.kernels)) continue;
        if (part.not_tuned.empty()) {
            parts.push_back(part);
        } else if (listener.part_skipped) {
            listener.part_skipped(part, part.not_tuned);
        }
    }
    for (size_t i = 0; i < parts.size(); ++i) {
        check_interrupt();
        const double share = deadline.left() / static_cast<double>(parts.size() - i);
        Deadline own(steady_seconds, std::isfinite(share) ? share : -1);
        results.push_back(control.of_part(parts[i], own));
    }
    return results;
}

}  // namespace attnc
