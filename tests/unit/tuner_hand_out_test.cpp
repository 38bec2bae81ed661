// Who works on what, and on which cores.
#include <gtest/gtest.h>

#include <set>

#include "support/random.h"
#include "tuner/hand_out.h"

namespace attnc {
namespace {

std::vector<Core> cores(int first, int count, int siblings = 1) {
    std::vector<Core> all;
    for (int core = 0; core < count; ++core) {
        all.emplace_back();
        for (int thread = 0; thread < siblings; ++thread) all.back().push_back(first + core + 100 * thread);
    }
    return all;
}

TEST(HandOut, RanksOfAHostNeverShareACore) {
    HandOut hand_out(4, 1);
    for (const int rank : {1, 2, 3}) hand_out.join(rank, "a", cores(0, 8, 2));
    std::set<int> seen;
    for (const int rank : {1, 2, 3}) {
        const auto given = hand_out.next(rank);
        ASSERT_TRUE(given);
        EXPECT_EQ(given->cpus.size(), 4U) << "two of eight cores, with their siblings";
        for (const int cpu : given->cpus) EXPECT_TRUE(seen.insert(cpu).second) << cpu;
        EXPECT_EQ(given->work, static_cast<size_t>(rank - 1));
        EXPECT_FALSE(hand_out.next(rank)) << "it has one already";
    }
}

TEST(HandOut, HostsAreApart) {
    HandOut hand_out(2, 1);
    hand_out.join(1, "a", cores(0, 1));
    hand_out.join(2, "b", cores(0, 1));
    EXPECT_TRUE(hand_out.next(1));
    EXPECT_TRUE(hand_out.next(2));
}

TEST(HandOut, WhoHasNoCoreOfItsOwnStaysInReserve) {
    HandOut hand_out(3, 2);
    hand_out.join(1, "a", cores(0, 3));
    hand_out.join(2, "a", cores(0, 3));
    const auto first = hand_out.next(1);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->cpus, (std::vector<int>{0, 1}));
    EXPECT_FALSE(hand_out.next(2)) << "one core is left, two are needed";
    // The reserve takes the place of one that is lost, and its work first.
    EXPECT_TRUE(hand_out.leave(1));
    const auto again = hand_out.next(2);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->work, first->work);
}

TEST(HandOut, RanksThatAreBoundToOneCoreTakeTurns) {
    HandOut hand_out(2, 4);
    hand_out.join(1, "a", cores(5, 1));
    hand_out.join(2, "a", cores(5, 1));
    const auto first = hand_out.next(1);
    ASSERT_TRUE(first) << "fewer cores than threads are better than none";
    EXPECT_EQ(first->cpus, std::vector<int>{5});
    EXPECT_FALSE(hand_out.next(2));
    hand_out.done(1);
    EXPECT_TRUE(hand_out.next(2));
    hand_out.done(2);
    EXPECT_EQ(hand_out.left(), 0U);
}

TEST(HandOut, AWorkThatIsLostAgainAndAgainIsGivenUp) {
    HandOut hand_out(2, 1);
    hand_out.join(1, "a", cores(0, 1));
    for (int attempt = 1; attempt <= HandOut::kMostAttempts; ++attempt) {
        EXPECT_EQ(hand_out.next(1)->work, 0U);
        EXPECT_EQ(hand_out.give_back(1), attempt < HandOut::kMostAttempts);
    }
    EXPECT_EQ(hand_out.next(1)->work, 1U);
    EXPECT_EQ(hand_out.left(), 1U);
    hand_out.done(1);
    EXPECT_EQ(hand_out.left(), 0U);
}

// Whatever happens in whatever order: each work is at one rank at a time, cores are never shared, and all ends.
TEST(HandOut, EveryWorkIsDoneOnceHoweverRanksCome) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        Random random(seed);
        const auto works = static_cast<size_t>(random.between(1, 12));
        HandOut hand_out(works, static_cast<size_t>(random.between(1, 3)));
        const auto ranks = static_cast<int>(random.between(1, 6));
        std::set<int> alive;
        for (int rank = 1; rank <= ranks; ++rank) {
            hand_out.join(rank, random.chance(0.5) ? "a" : "b",
                          cores(0, static_cast<int>(random.between(1, 4))));
            alive.insert(rank);
        }
        std::multiset<size_t> finished;
        for (int step = 0; step < 10000 && hand_out.left() > 0; ++step) {
            std::set<size_t> at_hand;
            for (const int rank : alive) {
                hand_out.next(rank);
                if (const auto work = hand_out.work_of(rank)) {
                    EXPECT_TRUE(at_hand.insert(*work).second) << "seed " << seed;
                }
            }
            const int rank =
                *std::next(alive.begin(), random.between(0, static_cast<int64_t>(alive.size()) - 1));
            const std::optional<size_t> work = hand_out.work_of(rank);
            if (alive.size() > 1 && random.chance(0.1)) {
                if (!hand_out.leave(rank)) finished.insert(*work);
                alive.erase(rank);
            } else if (work && random.chance(0.3)) {
                if (!hand_out.give_back(rank)) finished.insert(*work);
            } else if (work) {
                hand_out.done(rank);
                finished.insert(*work);
            }
        }
        EXPECT_EQ(hand_out.left(), 0U) << "seed " << seed;
        EXPECT_EQ(finished.size(), works) << "seed " << seed;
        EXPECT_EQ(std::set<size_t>(finished.begin(), finished.end()).size(), works) << "seed " << seed;
    }
}

}  // namespace
}  // namespace attnc
