// The guard itself: what it reads, and what it complains about.
#include "tests/instructions/counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/instructions/profile.h"

namespace attnc::test {
namespace {

TEST(StoredCounts, WritingUndoesReading) {
    const std::string text =
        "# a comment\n"
        "       1200       34  d512_h8_f32:b1_q50 causal\n"
        "\n"
        "          5        6  d32_h2_f32:b1_q1\n";
    const std::vector<Count> counts = parse_counts(text);
    ASSERT_EQ(counts.size(), 2U);
    EXPECT_EQ(counts[0].call, "d512_h8_f32:b1_q50 causal");
    EXPECT_EQ(counts[0].kernels, 1200);
    EXPECT_EQ(counts[0].runtime, 34);
    EXPECT_EQ(with_counts(text, counts), text);
}

std::string error_of(std::string_view text) {
    try {
        parse_counts(text);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST(StoredCounts, NamesTheLineThatIsWrong) {
    EXPECT_EQ(error_of("1 2 a\nx 2 b\n"), "counts line 2: 'x' is not a number");
    EXPECT_EQ(error_of("1 -2 a\n"), "counts line 1: '-2' is not a number");
    EXPECT_EQ(error_of("1 2\n"), "counts line 1: no call after the numbers");
}

Count call_of(int64_t kernels, int64_t runtime) { return {"x", kernels, runtime}; }

TEST(InstructionGuard, TwoPercentPass) {
    EXPECT_EQ(complaint(call_of(900, 100), call_of(920, 100), "update"), "");
    EXPECT_EQ(complaint(call_of(900, 100), call_of(880, 100), "update"), "");
}

TEST(InstructionGuard, ARiseNamesBothNumbersAndTheCommand) {
    EXPECT_EQ(complaint(call_of(900, 100), call_of(920, 101), "update"),
              "x takes 1021 instructions (920 in kernels, 101 in the runtime), stored are 1000 (900 and "
              "100): 2.1 % "
              "more; if that is meant, update stores the new number");
}

TEST(InstructionGuard, AFallIsStoredToo) {
    EXPECT_EQ(complaint(call_of(900, 100), call_of(800, 100), "update"),
              "x takes 900 instructions (800 in kernels, 100 in the runtime), stored are 1000 (900 and 100): "
              "10.0 % "
              "less; update stores the better number, so that it stays");
}

TEST(InstructionGuard, ACallWithoutACountFails) {
    EXPECT_EQ(complaint(call_of(0, 0), call_of(5, 0), "update"), "x has no count yet; update stores it");
}

TEST(Profile, CountsAnObjectsOwnInstructionsOnly) {
    const Profile profile = parse_profile(
        "version: 1\ndesc: Trigger: Client Request: d512_h8_f32:b1_q50\npositions: line\nevents: Ir\n"
        "ob=/a/program\nfl=f.cpp\nfn=run\n0 10\ncob=/b/library.so\ncfn=kernel\ncalls=3 0\n0 700\n5 1\n"
        "ob=/b/library.so\nfn=kernel\n0 650\n+1 50\n\ntotals: 711\n");
    EXPECT_EQ(profile.trigger, "d512_h8_f32:b1_q50");
    EXPECT_THAT(profile.instructions,
                testing::ElementsAre(testing::Pair("library.so", 700), testing::Pair("program", 11)));
}

TEST(Profile, OtherTextIsRefused) { EXPECT_THROW(parse_profile("hello\n"), std::runtime_error); }

}  // namespace
}  // namespace attnc::test
