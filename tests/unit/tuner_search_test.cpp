// The search and its driver, on machines that are made up: noise, spikes, lucky measurements, crashes, a clock that jumps.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "support/random.h"
#include "tuner/run_search.h"
#include "tuner/search.h"

namespace attnc {
namespace {

using Points = std::vector<SearchPoint>;

double uniform(Random& random) { return static_cast<double>(random.bits() >> 11) * 0x1p-53; }

double normal(Random& random) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform(random);
    return sum;
}

constexpr int64_t kLargest = 15;

// A valley with its floor at (11, 4) and some roughness; points on one line don't compile.
double true_time(const SearchPoint& p) {
    const double dx = static_cast<double>(p[0]) - 11, dy = static_cast<double>(p[1]) - 4;
    const double rough = 0.01 * static_cast<double>((p[0] * 7 + p[1] * 13) % 5);
    return 1 + 0.015 * dx * dx + 0.03 * dy * dy + 0.01 * dx * dy + rough;
}
bool fails(const SearchPoint& p) { return p[0] == 7 && p[1] != 2; }

double least_time() {
    double least = 1e9;
    for (int64_t x = 0; x <= kLargest; ++x) {
        for (int64_t y = 0; y <= kLargest; ++y) {
            if (!fails({x, y})) least = std::min(least, true_time({x, y}));
        }
    }
    return least;
}

Points neighbours_of(const SearchPoint& p) {
    Points points;
    for (int64_t dx = -1; dx <= 1; ++dx) {
        for (int64_t dy = -1; dy <= 1; ++dy) {
            const SearchPoint q = {p[0] + dx, p[1] + dy};
            if (q != p && std::min(q[0], q[1]) >= 0 && std::max(q[0], q[1]) <= kLargest) points.push_back(q);
        }
    }
    return points;
}

struct Noise {
    double deviation = 0.02;  // of a round
    double spikes = 0.05;     // rounds that take several times as long
    double lucky = 0;         // trials that are all through 15 % too fast
    double slow_after = 1e9;  // rounds, after which the machine is half as fast
    double unseen = 0.02;     // differences that this leaves open
};

// Measures by the true times and noise; counts what it did.
class Bench {
public:
    Bench(uint64_t seed, const Noise& noise) : random_(seed), noise_(noise) {}

    TrialResult measure(const Trial& trial) {
        ++trials;
        if (fails(trial.candidate)) return {{}, "does not compile"};
        constexpr int kRounds[] = {9, 21, 51};
        const double luck = random_.chance(noise_.lucky) ? 0.85 : 1;
        std::vector<double> times, other;
        for (int i = 0; i < kRounds[trial.level]; ++i) {
            times.push_back(once(luck * true_time(trial.candidate)));
            other.push_back(once(true_time(trial.incumbent)));
        }
        return {paired_ratio(times, other), ""};
    }
    int64_t trials = 0;

private:
    double once(double time) {
        rounds_ += 0.5;
        const double machine = rounds_ > noise_.slow_after ? 2 : 1;
        const double spike = random_.chance(noise_.spikes) ? 2 + 8 * uniform(random_) : 1;
        return machine * time * spike * std::exp(noise_.deviation * normal(random_));
    }
    Random random_;
    Noise noise_;
    double rounds_ = 0;
};

Points first_points(uint64_t seed, size_t count = 16) {
    Random random(seed);
    Points points;
    for (size_t i = 0; i < count; ++i)
        points.push_back({random.between(0, kLargest), random.between(0, kLargest)});
    return points;
}

SearchPoint run(Search& search, Bench& bench) {
    while (const std::optional<Trial> trial = search.next()) search.tell(trial->id, bench.measure(*trial));
    EXPECT_TRUE(search.finished());
    return search.best();
}

class Machine : public testing::TestWithParam<Noise> {};

TEST_P(Machine, FindsTheBestWithinNoise) {
    std::vector<double> excess;
    for (uint64_t seed = 0; seed < 100; ++seed) {
        Search search({0, 15}, first_points(seed), neighbours_of, {});
        Bench bench(seed + 1000, GetParam());
        excess.push_back(true_time(run(search, bench)) / least_time());
        EXPECT_LE(bench.trials, 150);
    }
    std::sort(excess.begin(), excess.end());
    EXPECT_LT(excess[50], 1 + GetParam().unseen);
    EXPECT_LT(excess[90], 1 + 3 * GetParam().unseen);
}

// From a good start as from a bad one.
TEST_P(Machine, NeverEndsWorseThanItStarted) {
    const Points starts = {{11, 4}, {10, 4}, {12, 3}, {3, 3}, {15, 15}};
    for (uint64_t seed = 0; seed < 60; ++seed) {
        for (const SearchPoint& start : starts) {
            Search search(start, first_points(seed), neighbours_of, {});
            Bench bench(seed + 2000, GetParam());
            const SearchPoint best = run(search, bench);
            EXPECT_LE(true_time(best), true_time(start)) << "seed " << seed;
            EXPECT_LE(search.best_ratio(), 1);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Of, Machine,
                         testing::Values(Noise{}, Noise{.deviation = 0.05, .spikes = 0.2, .unseen = 0.05},
                                         Noise{.lucky = 0.02}, Noise{.slow_after = 300}));

TEST(Search, KnowsHowMuchBetterItsBestIs) {
    Search search({0, 15}, first_points(3), neighbours_of, {});
    Bench bench(4, {});
    const SearchPoint best = run(search, bench);
    EXPECT_NEAR(search.best_ratio(), true_time(best) / true_time({0, 15}), 0.03);
}

TEST(Search, ReplacesNothingWithinNoise) {
    // Everything takes the same time.
    for (uint64_t seed = 0; seed < 100; ++seed) {
        Search search({5, 5}, first_points(seed), neighbours_of, {});
        Random random(seed);
        while (const std::optional<Trial> trial = search.next()) {
            std::vector<double> times, other;
            for (int i = 0; i < 15; ++i) {
                times.push_back(std::exp(0.03 * normal(random)));
                other.push_back(std::exp(0.03 * normal(random)));
            }
            search.tell(trial->id, {paired_ratio(times, other), ""});
        }
        EXPECT_EQ(search.best(), (SearchPoint{5, 5})) << "seed " << seed;
    }
}

TEST(Search, DoesNotTakeWhatIsBetterByLessThanTwoBuildsDiffer) {
    Search search({0, 0}, {{1, 1}}, [](const SearchPoint&) { return Points{}; }, {.margin = 0.01});
    while (const std::optional<Trial> trial = search.next())
        search.tell(trial->id, {{0.994, 0.993, 0.995, 50}, ""});
    EXPECT_EQ(search.best(), (SearchPoint{0, 0}));
}

TEST(Search, NeedsASecondMeasurementFromTheStart) {
    Search search({0, 0}, {{1, 1}}, [](const SearchPoint&) { return Points{}; }, {});
    std::vector<int> repeats;
    while (const std::optional<Trial> trial = search.next()) {
        repeats.push_back(trial->repeat);
        const double ratio = trial->repeat == 0 ? 0.8 : 1.0;  // lucky at first
        search.tell(trial->id, {{ratio, ratio * 0.99, ratio * 1.01, 50}, ""});
    }
    EXPECT_EQ(repeats, (std::vector<int>{0, 0, 0, 1}));
    EXPECT_EQ(search.best(), (SearchPoint{0, 0}));
}

TEST(Search, DropsWhatIsClearlyWorseAtOnce) {
    Search search({0, 0}, {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}},
                  [](const SearchPoint&) { return Points{}; }, {});
    std::vector<int64_t> later;
    while (const std::optional<Trial> trial = search.next()) {
        if (trial->level > 0) later.push_back(trial->candidate[0]);
        const double ratio = trial->candidate[0] == 3 ? 0.7 : 1.5;
        search.tell(trial->id, {{ratio, ratio * 0.95, ratio * 1.05, 9}, ""});
    }
    EXPECT_EQ(later, (std::vector<int64_t>{3, 3, 3}));
    EXPECT_EQ(search.best(), (SearchPoint{3, 3}));
}

// ---- Controls: how good the best of a list is beside an incumbent that stays

Search control_of(const SearchPoint& incumbent, const Points& points) {
    return {incumbent, points, neighbours_of, {.control = true}};
}

TEST_P(Machine, AControlFindsTheBestOfItsListAndHowGoodItIs) {
    std::vector<double> excess, error;
    for (uint64_t seed = 0; seed < 100; ++seed) {
        const Points points = first_points(seed, 40);
        const SearchPoint incumbent = {10, 4};
        Search control = control_of(incumbent, points);
        Bench bench(seed + 3000, GetParam());
        EXPECT_EQ(run(control, bench), incumbent);
        EXPECT_LE(bench.trials, 40 + 14 + 5 + 3);
        ASSERT_TRUE(control.challenger().has_value());
        double least = 1e9;
        for (const SearchPoint& point : points) {
            if (point != incumbent && !fails(point)) least = std::min(least, true_time(point));
        }
        const auto& [best, ratio] = *control.challenger();
        excess.push_back(true_time(best) / least);
        error.push_back(std::fabs(ratio.median * true_time(incumbent) / true_time(best) - 1));
    }
    std::sort(excess.begin(), excess.end());
    std::sort(error.begin(), error.end());
    EXPECT_LT(excess[50], 1 + GetParam().unseen);
    EXPECT_LT(excess[90], 1 + 3 * GetParam().unseen);
    EXPECT_LT(error[90], 0.02 + GetParam().unseen);
}

TEST(Control, OfABetterPointSaysSoAndKeepsTheIncumbent) {
    Search control = control_of({0, 15}, {{1, 1}, {11, 4}, {3, 3}});
    Bench bench(1, {});
    EXPECT_EQ(run(control, bench), (SearchPoint{0, 15}));
    EXPECT_EQ(control.best_ratio(), 1);
    EXPECT_EQ(control.challenger()->point, (SearchPoint{11, 4}));
    EXPECT_TRUE(surely_below(control.challenger()->ratio, 0.5));
}

// Its ratio is of a measurement of its own: that of the level that chose it is the luckiest of many.
TEST(Control, TellsARatioThatDidNotChooseThePoint) {
    Search control = control_of({0, 0}, {{1, 1}, {2, 2}});
    while (const std::optional<Trial> trial = control.next()) {
        const double ratio = trial->repeat > 0 ? 1.1 : trial->candidate[0] == 1 ? 0.9 : 1.2;
        control.tell(trial->id, {{ratio, ratio * 0.99, ratio * 1.01, 50}, ""});
    }
    EXPECT_EQ(control.challenger()->point, (SearchPoint{1, 1}));
    EXPECT_EQ(control.challenger()->ratio.median, 1.1);
}

TEST(Control, TimesWhatIsHopelessNoLonger) {
    Search control = control_of({0, 0}, {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}});
    std::vector<int64_t> later;
    while (const std::optional<Trial> trial = control.next()) {
        if (trial->level > 0) later.push_back(trial->candidate[0]);
        // All overlap, so that only the incumbent tells them apart.
        const double low = trial->candidate[0] == 3 ? 1.1 : 1.2;
        control.tell(trial->id, {{1.5, low, 2, 9}, ""});
    }
    EXPECT_EQ(later, (std::vector<int64_t>{3, 3, 3}));
}

TEST(Control, OfNothingButHopelessPointsStillNamesTheBest) {
    Search control = control_of({0, 0}, {{1, 1}, {2, 2}, {3, 3}});
    std::vector<std::pair<int64_t, int>> trials;
    while (const std::optional<Trial> trial = control.next()) {
        trials.emplace_back(trial->candidate[0], trial->repeat);
        const double ratio = 2 + static_cast<double>(trial->candidate[0] % 3);
        control.tell(trial->id, {{ratio, ratio * 0.99, ratio * 1.01, 9}, ""});
    }
    EXPECT_EQ(trials, (std::vector<std::pair<int64_t, int>>{{1, 0}, {2, 0}, {3, 0}, {3, 1}}));
    EXPECT_EQ(control.challenger()->point, (SearchPoint{3, 3}));
    EXPECT_EQ(control.challenger()->ratio.median, 2);
}

// Results are held against float64 once more before a point counts.
TEST(Control, TakesTheNextWhereTheBestTurnsOutToBeWrong) {
    Search control = control_of({0, 0}, {{1, 1}, {2, 2}});
    while (const std::optional<Trial> trial = control.next()) {
        const double ratio = trial->candidate[0] == 1 ? 1 : 1.001;
        if (trial->repeat > 0 && trial->candidate[0] == 1) {
            control.tell(trial->id, {{}, "wrong result"});
        } else {
            control.tell(trial->id, {{ratio, ratio * 0.99, ratio * 1.01, 50}, ""});
        }
    }
    EXPECT_EQ(control.challenger()->point, (SearchPoint{2, 2}));
}

TEST(Control, HasNoBestWhereEverythingFails) {
    for (const Points& points : {Points{}, Points{{7, 1}, {7, 3}}}) {
        Search control = control_of({5, 5}, points);
        Bench bench(1, {});
        EXPECT_EQ(run(control, bench), (SearchPoint{5, 5}));
        EXPECT_FALSE(control.challenger().has_value());
    }
}

TEST(Control, KnowsHowManyTrialsAreLeft) {
    Search control = control_of({0, 15}, first_points(5, 27));
    const int64_t expected = control.expected();
    Bench bench(1, {.spikes = 0});
    run(control, bench);
    EXPECT_LE(control.trials(), expected);
    EXPECT_EQ(control.expected(), 0);
}

TEST(Search, IsOverWhereEveryCandidateFails) {
    Search search({5, 5}, first_points(1), neighbours_of, {});
    while (const std::optional<Trial> trial = search.next()) search.tell(trial->id, {{}, "crashed"});
    EXPECT_TRUE(search.finished());
    EXPECT_EQ(search.best(), (SearchPoint{5, 5}));
    EXPECT_EQ(search.best_ratio(), 1);
}

TEST(Search, OfNothingIsFinished) {
    Search search({5, 5}, {}, [](const SearchPoint&) { return Points{}; }, {});
    EXPECT_TRUE(search.finished());
    EXPECT_EQ(search.next(), std::nullopt);
    EXPECT_EQ(search.expected(), 0);
}

TEST(Search, MeasuresNoPointOfALevelTwice) {
    Search search({0, 15}, first_points(2, 40), neighbours_of, {});
    Bench bench(3, {});
    std::set<std::pair<SearchPoint, int>> seen;
    while (const std::optional<Trial> trial = search.next()) {
        EXPECT_TRUE(seen.insert({trial->candidate, 2 * trial->level + trial->repeat}).second);
        search.tell(trial->id, bench.measure(*trial));
    }
}

// Several at a time, told in another order, as ranks of a cluster do.
TEST(Search, TakesAnswersInAnyOrder) {
    Search ordered({0, 15}, first_points(2), neighbours_of, {}),
        mixed({0, 15}, first_points(2), neighbours_of, {});
    const auto exact = [](const Trial& trial) -> TrialResult {
        if (fails(trial.candidate)) return {{}, "does not compile"};
        const double ratio = true_time(trial.candidate) / true_time(trial.incumbent);
        return {{ratio, ratio * 0.999, ratio * 1.001, 50}, ""};
    };
    while (const std::optional<Trial> trial = ordered.next()) ordered.tell(trial->id, exact(*trial));
    Random random(1);
    std::vector<Trial> waiting;
    while (!mixed.finished()) {
        while (waiting.size() < 4) {
            const std::optional<Trial> trial = mixed.next();
            if (!trial) break;
            waiting.push_back(*trial);
        }
        ASSERT_FALSE(waiting.empty());
        const auto at = random.between(0, static_cast<int64_t>(waiting.size()) - 1);
        mixed.tell(waiting[static_cast<size_t>(at)].id, exact(waiting[static_cast<size_t>(at)]));
        waiting.erase(waiting.begin() + at);
    }
    EXPECT_EQ(ordered.best(), mixed.best());
    EXPECT_EQ(ordered.trials(), mixed.trials());
}

TEST(Search, SaysWhatItWillAskForNext) {
    Search search({0, 15}, {{1, 1}, {2, 2}, {3, 3}}, neighbours_of, {});
    EXPECT_EQ(search.ahead(2), (Points{{1, 1}, {2, 2}}));
    EXPECT_EQ(search.next()->candidate, (SearchPoint{1, 1}));
    EXPECT_EQ(search.ahead(5), (Points{{2, 2}, {3, 3}}));
    EXPECT_GT(search.expected(), 3);
    EXPECT_THROW(search.tell(1, {}), std::logic_error);
    EXPECT_THROW(search.tell(77, {}), std::logic_error);
}

// ---- The driver

class File {
public:
    File() : path_(testing::TempDir() + "attnc-journal-" + std::to_string(::getpid())) {
        ::unlink(path_.c_str());
    }
    ~File() { ::unlink(path_.c_str()); }
    const std::string& path() const { return path_; }
    std::string contents() const {
        std::ifstream file(path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void append(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }

private:
    std::string path_;
};

struct Stopped {};

SearchDriver driver_of(Bench& bench, int64_t stop_after) {
    SearchDriver driver;
    driver.key = [](const Trial& trial) {
        return std::to_string(trial.candidate[0]) + "," + std::to_string(trial.candidate[1]) + " for " +
               std::to_string(trial.incumbent[0]) + "," + std::to_string(trial.incumbent[1]) + " at " +
               std::to_string(trial.level) + "." + std::to_string(trial.repeat);
    };
    driver.measure = [&bench, stop_after](const Trial& trial) {
        if (bench.trials == stop_after) throw Stopped();  // as a killed process: in the middle of a trial
        return bench.measure(trial);
    };
    return driver;
}

Deadline no_limit() {
    return Deadline([] { return 0.0; }, -1);
}

TEST(Journal, LetsASearchGoOnWithoutMeasuringAnythingAgain) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        const File file;
        Random random(seed);
        int64_t measured = 0;
        std::set<std::string> keys;
        for (bool finished = false; !finished;) {
            Journal journal(file.path());
            Search search({0, 15}, first_points(seed), neighbours_of, {});
            Bench bench(seed, {});
            SearchDriver driver = driver_of(bench, random.between(1, 25));
            const auto measure = driver.measure;
            driver.measure = [&](const Trial& trial) {
                const TrialResult result = measure(trial);
                EXPECT_TRUE(keys.insert(driver.key(trial)).second) << "measured again";
                return result;
            };
            Deadline deadline = no_limit();
            try {
                finished = run_search(search, journal, driver, deadline);
            } catch (const Stopped&) {
            }
            measured += bench.trials;
            ASSERT_EQ(static_cast<int64_t>(journal.size()), measured);
            if (!finished) file.append("{\"trial\":\"cut in the mid");  // what a killed process leaves
        }
        // The search that reads everything from the journal ends at the same point, without a measurement.
        Journal journal(file.path());
        Search again({0, 15}, first_points(seed), neighbours_of, {});
        Bench idle(seed, {});
        Deadline deadline = no_limit();
        EXPECT_TRUE(run_search(again, journal, driver_of(idle, 0), deadline));
        EXPECT_EQ(idle.trials, 0);
    }
}

TEST(Journal, GivesLinesThatAnotherOneTakes) {
    const File file;
    Journal journal(file.path());
    const TrialResult result = {
        paired_ratio(std::vector<double>{2.0}, std::vector<double>{1.0}), "", {1e-3, 0.1, 0.5}};
    journal.add("a one", result);
    journal.add("a two", {{}, "it crashed"});
    journal.add("b one", result);
    const std::vector<std::string> lines = journal.lines("a ");
    ASSERT_EQ(lines.size(), 2U);
    const JournalEntry one = parse_journal_line(lines[0]), two = parse_journal_line(lines[1]);
    EXPECT_EQ(one.key, "a one");
    EXPECT_EQ(one.result.ratio.median, 2);
    EXPECT_EQ(one.result.candidate.seconds, 1e-3);
    EXPECT_EQ(two.key + ": " + two.result.fault, "a two: it crashed");
    EXPECT_EQ(journal.lines("").size(), 3U);
    EXPECT_TRUE(journal.lines("c").empty());
    EXPECT_THROW(parse_journal_line("{\"trial\":\"a\",\"ratio\":-1,\"samples\":1}"), std::runtime_error);
}

TEST(Journal, KeepsIntervalsWithoutAnEnd) {
    const File file;
    Journal(file.path()).add("a", {paired_ratio(std::vector<double>{2.0}, std::vector<double>{1.0}), ""});
    const std::optional<TrialResult> found = Journal(file.path()).find("a");
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->ratio.median, 2);
    EXPECT_EQ(found->ratio.low, 0);
    EXPECT_TRUE(std::isinf(found->ratio.high));
    EXPECT_FALSE(Journal(file.path()).find("b").has_value());
}

TEST(Journal, KeepsWhatCallsTook) {
    const File file;
    Journal(file.path()).add("a", {{2, 1, 3, 9}, "", {0.5, 0.01, 0.9}, {0.25, 0, 0.8}});
    const TrialResult found = *Journal(file.path()).find("a");
    EXPECT_EQ(found.candidate.seconds, 0.5);
    EXPECT_EQ(found.candidate.spread, 0.01);
    EXPECT_EQ(found.incumbent.peak, 0.8);
}

TEST(Journal, KeepsWhoseCallsWereTimed) {
    const File file;
    Journal(file.path()).add("a", {.ratio = {2, 1, 3, 9}, .fault = "", .layer = "d512_h8_f32"});
    EXPECT_EQ(Journal(file.path()).find("a")->layer, "d512_h8_f32");
}

TEST(Journal, KeepsWhatAnAnalysisSaidBesideTrials) {
    const File file;
    Journal(file.path()).add_cycles("a", 0.53125);
    Journal journal(file.path());
    EXPECT_EQ(journal.find_cycles("a"), 0.53125);
    EXPECT_FALSE(journal.find("a").has_value());
    EXPECT_FALSE(journal.find_cycles("b").has_value());
    journal.add("b", {{2, 1, 3, 9}, ""});
    EXPECT_FALSE(journal.find_cycles("b").has_value());
    Journal other;
    for (const std::string& line : journal.lines("")) EXPECT_TRUE(other.take(parse_journal_line(line)));
    EXPECT_EQ(other.find_cycles("a"), 0.53125);
    EXPECT_FALSE(other.take({.key = "a", .cycles = 2}));
    EXPECT_EQ(other.find_cycles("a"), 0.53125);
    EXPECT_THROW(parse_journal_line("{\"loops\":\"a\",\"cycles\":0}"), std::runtime_error);
    EXPECT_THROW(parse_journal_line("{\"loops\":\"a\"}"), std::exception);
}

TEST(Journal, KeepsWhyACandidateFailed) {
    const File file;
    Journal(file.path()).add("a", {{}, "crashed: \"signal\" 11\n\xff"});
    EXPECT_EQ(Journal(file.path()).find("a")->fault, "crashed: \"signal\" 11\n\xEF\xBF\xBD");
}

TEST(Journal, OfOtherThingsIsRefusedWithFileAndLine) {
    for (const char* bad :
         {"hello\n", "{}\n", "[1,2]\n", "{\"trial\":\"a\",\"ratio\":-1,\"samples\":3}\n",
          "{\"trial\":\"a\",\"ratio\":1e999,\"samples\":3}\n", "{\"trial\":1}\n",
          "{\"trial\":\"a\",\"ratio\":1,\"samples\":0}\n",
          "{\"trial\":\"a\",\"ratio\":1,\"samples\":9,\"candidate\":[-1,0,0]}\n", "\xff\xfe\n",
          "{\"trial\":\"a\",\"fault\":\"\"}\n", "{\"trial\":\"a\",\"ratio\":\"1\",\"samples\":3}\n"}) {
        const File file;
        file.append(std::string("{\"trial\":\"x\",\"ratio\":1,\"samples\":9}\n") + bad);
        try {
            const Journal journal(file.path());
            FAIL() << bad;
        } catch (const std::runtime_error& error) {
            EXPECT_TRUE(std::string(error.what()).starts_with(file.path() + ":2: not a line of a journal ("))
                << error.what();
        }
    }
}

TEST(Journal, IsSharedByTwo) {
    const File file;
    Journal one(file.path()), two(file.path());
    one.add("a", {{}, "first"});
    two.add("b", {{}, "second"});
    one.add("c", {{}, "third"});
    EXPECT_EQ(Journal(file.path()).size(), 3U);
}

TEST(Journal, WithoutAFileKeepsNothing) {
    Journal journal;
    journal.add("a", {{}, "x"});
    EXPECT_TRUE(journal.find("a").has_value());
}

TEST(Journal, ThatCannotBeOpenedSaysWhy) {
    try {
        const Journal journal("/nowhere/at/all");
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "cannot open /nowhere/at/all: No such file or directory");
    }
}

TEST(Journal, OnAFullDiskFailsAndKeepsWhatItHad) {
    if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
    Journal journal("/dev/full");
    try {
        journal.add("a", {{}, "x"});
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "cannot write /dev/full: No space left on device");
    }
}

TEST(Deadline, IsObeyed) {
    double now = 100;
    Search search({0, 15}, first_points(1, 60), neighbours_of, {});
    Bench bench(1, {});
    SearchDriver driver = driver_of(bench, 1 << 30);
    const auto measure = driver.measure;
    driver.measure = [&](const Trial& trial) {
        now += 1.5;
        return measure(trial);
    };
    Journal journal;
    Deadline deadline([&] { return now; }, 20);
    EXPECT_FALSE(run_search(search, journal, driver, deadline));
    EXPECT_EQ(bench.trials, 14);  // the 14th begins at 19.5
    EXPECT_EQ(deadline.left(), 0);
}

TEST(Deadline, CountsNoTimeWhenTheClockJumpsBack) {
    double now = 1000;
    Deadline deadline([&] { return now; }, 10);
    now = 1004;
    EXPECT_EQ(deadline.left(), 6);
    now = -5e9;
    EXPECT_EQ(deadline.left(), 6);
    EXPECT_FALSE(deadline.passed());
    now += 7;
    EXPECT_TRUE(deadline.passed());
}

TEST(Deadline, IsNoneWhereNoneWasGiven) {
    double now = 0;
    Deadline deadline([&] { return now; }, -1);
    now = 1e12;
    EXPECT_FALSE(deadline.passed());
    EXPECT_TRUE(std::isinf(deadline.left()));
}

TEST(Driver, TellsOfEachNewBestAndPreparesWhatComesNext) {
    Search search({0, 15}, first_points(1), neighbours_of, {});
    Bench bench(1, {});
    SearchDriver driver = driver_of(bench, 1 << 30);
    std::vector<double> bests;
    std::set<SearchPoint> prepared;
    driver.improved = [&](const Search& at) { bests.push_back(true_time(at.best())); };
    driver.prepare = [&](const Points& points) {
        prepared.insert(points.begin(), points.end());
        EXPECT_LE(points.size(), 5U);
    };
    driver.told = [&](const Search&, const Trial& trial, const TrialResult&, bool known) {
        EXPECT_TRUE(prepared.contains(trial.candidate));
        EXPECT_FALSE(known);
    };
    Journal journal;
    Deadline deadline = no_limit();
    EXPECT_TRUE(run_search(search, journal, driver, deadline));
    ASSERT_FALSE(bests.empty());
    EXPECT_TRUE(std::is_sorted(bests.rbegin(), bests.rend()));
    EXPECT_EQ(bests.back(), true_time(search.best()));
}

}  // namespace
}  // namespace attnc
