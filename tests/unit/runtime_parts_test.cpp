// Parts of the runtime on their own: text, arena, CPU detection, control word, packing, rows, tensors.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/arena.h"
#include "runtime/attnc.hpp"
#include "runtime/carve.h"
#include "runtime/cpu.h"
#include "runtime/fp_control.h"
#include "runtime/halide_buffer.h"
#include "runtime/nonfinite.h"
#include "runtime/pack.h"
#include "runtime/rows.h"
#include "runtime/text.h"

extern "C" int attnc_abi1_error_param_too_small_i64(void* user_context, const char* param, int64_t value,
                                                    int64_t least);
extern "C" int attnc_abi1_error_bad_dimensions(void* user_context, const char* func, int32_t given,
                                               int32_t wanted);

namespace attnc {
namespace {

std::string text(std::initializer_list<Piece> pieces, size_t capacity = 256) {
    std::vector<char> buffer(capacity, 'x');
    const size_t used = write_text(buffer.data(), capacity, pieces);
    EXPECT_EQ(used, std::strlen(buffer.data()));
    return buffer.data();
}

TEST(Text, JoinsStringsAndNumbers) {
    EXPECT_EQ(text({"key_lengths[", 3, "] is ", int64_t{70}, ", wanted 0 to ", 50}),
              "key_lengths[3] is 70, wanted 0 to 50");
    EXPECT_EQ(text({}), "");
}

TEST(Text, WritesExtremeNumbers) {
    EXPECT_EQ(text({std::numeric_limits<int64_t>::min(), " ", std::numeric_limits<int64_t>::max(), " ", 0,
                    " ", std::numeric_limits<uint64_t>::max(), " ", std::numeric_limits<int>::min()}),
              "-9223372036854775808 9223372036854775807 0 18446744073709551615 -2147483648");
}

TEST(LargePages, LeaveMemoryAsItWas) {
    std::vector<unsigned char> memory(size_t{9} << 20, 7);
    attnc_memory_advise(memory.data() + 1, memory.size() - 1);
    attnc_memory_advise(memory.data(), 100);
    attnc_memory_advise(nullptr, size_t{4} << 20);
    EXPECT_EQ(memory, std::vector<unsigned char>(size_t{9} << 20, 7));
}

TEST(Text, EndsWhatDoesNotFitInDots) {
    EXPECT_EQ(text({"abcdef", 123456}, 10), "abcdef...");
    EXPECT_EQ(text({"abcdefghi"}, 10), "abcdefghi");
}

TEST(Text, FailFillsTheErrorAndToleratesNone) {
    attnc_error error = {};
    EXPECT_EQ(fail(&error, ATTNC_BAD_RANK, {"x is ", 2}), ATTNC_BAD_RANK);
    EXPECT_EQ(error.code, ATTNC_BAD_RANK);
    EXPECT_STREQ(error.text, "x is 2");
    EXPECT_EQ(fail(nullptr, ATTNC_BAD_RANK, {"x"}), ATTNC_BAD_RANK);
}

struct ArenaTest : ::testing::Test {
    alignas(64) unsigned char memory[64 * 20];
    attnc_task task = {};
    void SetUp() override { arena_init(task, memory, sizeof memory); }
};

TEST_F(ArenaTest, GivesAlignedBlocksThatDoNotOverlap) {
    auto* a = static_cast<unsigned char*>(arena_allocate(task, 1));
    auto* b = static_cast<unsigned char*>(arena_allocate(task, 65));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0U);
    EXPECT_EQ(b - a, 128);
    EXPECT_EQ(task.scratch_used, 64 + 64 + 64 + 128);
}

TEST_F(ArenaTest, TakesEverythingBackInAnyOrder) {
    const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const auto& order : orders) {
        void* blocks[3];
        for (void*& block : blocks) block = arena_allocate(task, 100);
        for (const int i : order) arena_free(task, blocks[i]);
        EXPECT_EQ(task.scratch_used, 0);
        EXPECT_EQ(task.scratch_top, -1);
    }
}

TEST_F(ArenaTest, ABlockBelowOneInUseStaysUntilThatGoes) {
    void* below = arena_allocate(task, 64);
    void* above = arena_allocate(task, 64);
    arena_free(task, below);
    EXPECT_EQ(task.scratch_used, 256);
    arena_free(task, above);
    EXPECT_EQ(task.scratch_used, 0);
}

TEST_F(ArenaTest, ReturnsNullWhenFull) {
    EXPECT_NE(arena_allocate(task, 64 * 19), nullptr);
    EXPECT_EQ(arena_allocate(task, 1), nullptr);
    EXPECT_EQ(arena_allocate(task, 0), nullptr);
    arena_init(task, memory, sizeof memory);
    EXPECT_EQ(arena_allocate(task, 64 * 19 + 1), nullptr);
    EXPECT_EQ(arena_allocate(task, std::numeric_limits<uint64_t>::max()), nullptr);
    arena_init(task, memory, 0);
    EXPECT_EQ(arena_allocate(task, 0), nullptr);
}

TEST_F(ArenaTest, IgnoresWhatIsNotABlock) {
    void* block = arena_allocate(task, 256);
    arena_free(task, nullptr);
    arena_free(task, memory + 128);
    arena_free(task, memory + 640);
    EXPECT_EQ(task.scratch_used, 320);
    arena_free(task, block);
    EXPECT_EQ(task.scratch_used, 0);
}

TEST(Hooks, TheFirstErrorOfATaskWins) {
    attnc_task task = {};
    EXPECT_EQ(attnc_abi1_error_param_too_small_i64(&task, "n", 3, 5), -9);
    EXPECT_EQ(attnc_abi1_error_bad_dimensions(&task, "q", 1, 2), -43);
    EXPECT_EQ(task.error_code, -9);
    EXPECT_STREQ(task.error_text, "n is 3, wanted 5 or more");
    EXPECT_EQ(attnc_abi1_error_bad_dimensions(nullptr, "q", 1, 2), -43);
}

// Later instruction sets imply earlier ones on every CPU that has them.
TEST(Cpu, DetectedFeaturesAreConsistent) {
    const int64_t features = detect_cpu_features();
    const auto has = [&](int64_t bits) { return (features & bits) == bits; };
    EXPECT_TRUE(!has(ATTNC_CPU_AVX2) || has(ATTNC_CPU_AVX | ATTNC_CPU_SSE41));
    EXPECT_TRUE(!has(ATTNC_CPU_AVX512_SKYLAKE) || has(ATTNC_CPU_AVX2 | ATTNC_CPU_FMA | ATTNC_CPU_F16C));
    EXPECT_EQ(has(ATTNC_CPU_AVX2), __builtin_cpu_supports("avx2") != 0);
    EXPECT_EQ(has(ATTNC_CPU_FMA), __builtin_cpu_supports("fma") != 0);
    EXPECT_EQ(has(ATTNC_CPU_AVX512_SKYLAKE),
              __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                  __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
                  __builtin_cpu_supports("avx512cd") != 0);
}

TEST(FpControl, TheCallersWordComesBackBitForBit) {
    const uint32_t original = _mm_getcsr();
    for (const uint32_t word : {0x1f80U, 0x7f80U, 0x9fc0U, 0x1fbfU}) {  // rounding upwards; sticky flags
        _mm_setcsr(word);
        {
            const FpControlGuard guard;
            EXPECT_EQ(_mm_getcsr(), 0x9fc0U);
            volatile float tiny = 1e-30F;
            tiny = tiny * 1e-15F;  // underflows, which would set a flag
            EXPECT_EQ(tiny, 0.0F);
        }
        EXPECT_EQ(_mm_getcsr(), word);
    }
    _mm_setcsr(original);
}

TEST(Nonfinite, FindsEveryPlaceAndKindWithEveryInstructionSet) {
    constexpr int64_t kCount = 67, kStride = 70, kRows = 3;
    std::vector<float> values(kStride * kRows, 3.0e38F);
    values[5] = -0.0F, values[6] = 1e-45F;
    const int64_t here = detect_cpu_features();
    for (const int64_t features : {int64_t{0}, here & ~ATTNC_CPU_AVX512_SKYLAKE, here}) {
        const auto found = [&] { return any_nonfinite({values.data(), kCount, kRows, kStride}, features); };
        EXPECT_FALSE(found());
        EXPECT_FALSE(any_nonfinite({nullptr, kCount, 0, kStride}, features));
        for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
            for (size_t i = 0; i < values.size(); ++i) {
                const float before = std::exchange(values[i], bad);
                EXPECT_EQ(found(), i % kStride < kCount) << i;
                values[i] = before;
            }
        }
    }
    EXPECT_TRUE(is_minus_infinity(-INFINITY));
    EXPECT_FALSE(is_minus_infinity(INFINITY));
    EXPECT_TRUE(std::isnan(quiet_nan()));
}

TEST(Carver, AlignsPartsAndNoticesOverflow) {
    Carver carver;
    EXPECT_EQ(carver.take(4, {3, 5}), 0);
    EXPECT_EQ(carver.take(1, {1}), 64);
    EXPECT_EQ(carver.bytes(), 128);
    EXPECT_EQ(carver.take(4, {1 << 30, 0, 1 << 30, 1 << 30}), 128);
    EXPECT_FALSE(carver.overflow());
    carver.take(4, {1 << 30, 1 << 30, 8});
    EXPECT_TRUE(carver.overflow());
}

TEST(Pack, HeadsFillPanelsWithZerosForPadding) {
    // Three heads of 5 features, padded to 16; two heads to a panel of 32, so four planes.
    constexpr int64_t kInner = 3;
    std::vector<float> w(15 * kInner), bias(15);
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(100 + i);
    const HeadPanels heads = head_panels(3, 16, 32);
    EXPECT_EQ(heads.planes(), 4);
    EXPECT_EQ(heads.panels(), 2);
    std::vector<float> panels(2 * kInner * 32, -1), packed_bias(2 * 32, -1);
    pack_heads({w.data(), 15, kInner, kInner}, bias.data(), 5, heads, 32, panels.data(), packed_bias.data());
    for (int64_t p = 0; p < 2; ++p) {
        for (int64_t n = 0; n < 32; ++n) {
            const int64_t head = p * 2 + n / 16, feature = n % 16;
            const bool padding = head >= 3 || feature >= 5;
            const int64_t row = head * 5 + feature;
            EXPECT_EQ(packed_bias[static_cast<size_t>(p * 32 + n)],
                      padding ? 0.0F : static_cast<float>(100 + row));
            for (int64_t k = 0; k < kInner; ++k) {
                EXPECT_EQ(panels[static_cast<size_t>((p * kInner + k) * 32 + n)],
                          padding ? 0.0F : static_cast<float>(row * kInner + k + 1));
            }
        }
    }
}

struct RowsTest : ::testing::Test {
    std::vector<Item> items;
    Rows make(const std::vector<int32_t>& lengths, int64_t chunks, int64_t seq, int64_t batch_stride) {
        items.assign(lengths.size(), Item{});
        int64_t total = 0;
        for (size_t i = 0; i < lengths.size(); ++i) {
            items[i].q_row = total, items[i].q_length = lengths[i],
            items[i].q_origin = static_cast<int64_t>(i);
            total += lengths[i];
        }
        EXPECT_LE(seq * 8, batch_stride);
        return {items.data(),
                static_cast<int64_t>(items.size()),
                RowKind::kQueries,
                total,
                chunks,
                batch_stride,
                8,
                INT64_MAX};
    }
    // Lengths of the calls that all chunks make.
    std::vector<std::vector<int64_t>> calls(const Rows& rows) {
        std::vector<std::vector<int64_t>> result;
        int64_t next = 0;
        for (int64_t chunk = 0; chunk < rows.chunks; ++chunk) {
            EXPECT_EQ(chunk_begin(rows, chunk), next);
            next = chunk_begin(rows, chunk + 1);
            result.emplace_back();
            for (int64_t row = chunk_begin(rows, chunk); row < next;) {
                const Stretch s = stretch_at(rows, row, next);
                EXPECT_EQ(s.row, row);
                EXPECT_EQ(s.item_row, row - items[static_cast<size_t>(s.item)].q_row);
                result.back().push_back(s.count);
                row += s.count;
            }
        }
        EXPECT_EQ(next, rows.total);
        return result;
    }
};

TEST_F(RowsTest, FullItemsThatJoinAreOneStretchInTiles) {
    EXPECT_EQ(calls(make({70, 70, 70}, 2, 70, 560)), (std::vector<std::vector<int64_t>>{{96}, {114}}));
}

TEST_F(RowsTest, ItemsThatDoNotJoinAreNotCut) {
    EXPECT_EQ(calls(make({50, 50, 50, 50, 50, 50}, 2, 50, 408)),
              (std::vector<std::vector<int64_t>>{{50, 50, 50}, {50, 50, 50}}));
    EXPECT_EQ(calls(make({20, 0, 50, 17, 33, 0}, 2, 50, 408)),
              (std::vector<std::vector<int64_t>>{{20, 50}, {17, 33}}));
}

TEST_F(RowsTest, LongItemsAreCutInTiles) {
    EXPECT_EQ(calls(make({400, 300}, 4, 400, 4000)),
              (std::vector<std::vector<int64_t>>{{168}, {168}, {64, 120}, {180}}));
}

TEST_F(RowsTest, AStretchKeepsToTheMostThatACallTakes) {
    Rows rows = make({50, 50}, 1, 50, 400);
    rows.call_rows = 40;
    EXPECT_EQ(calls(rows), (std::vector<std::vector<int64_t>>{{40, 40, 20}}));
}

// Keys before the first one of an item that some query sees have no place in the workspace.
TEST_F(RowsTest, SkippedKeysHaveNoRows) {
    items.assign(3, Item{});
    for (size_t i = 0; i < 3; ++i) items[i].kv_origin = static_cast<int64_t>(i);
    items[0].kv_first = 16, items[0].kv_end = 50;
    items[1].kv_end = 50, items[1].new_row = 34;
    items[2].kv_first = 8, items[2].kv_end = 50, items[2].new_row = 84;
    const Rows rows = {items.data(), 3, RowKind::kKeys, 126, 1, 400, 8, INT64_MAX};
    const Stretch first = stretch_at(rows, 0, 126), second = stretch_at(rows, first.count, 126);
    EXPECT_EQ(first.item_row, 16);
    EXPECT_EQ(first.count, 34 + 50);  // the second item follows, in the caller's memory too
    EXPECT_EQ(second.item, 2);
    EXPECT_EQ(second.item_row, 8);
    EXPECT_EQ(second.count, 42);
}

TEST_F(RowsTest, BordersNeverGoBack) {
    for (int64_t chunks = 1; chunks < 60; ++chunks) {
        calls(make({3, 50, 50, 1, 0, 49, 50, 2, 50, 50, 11}, chunks, 50, 400));
    }
}

TEST(Tensor, DenseOnesHaveStridesInCOrder) {
    const attnc_tensor t = attnc_tensor_4d(ATTNC_U8, nullptr, 2, 3, 5, 7);
    EXPECT_EQ(t.rank, 4);
    EXPECT_EQ(t.stride[0], 105);
    EXPECT_EQ(t.stride[2], 7);
    EXPECT_EQ(t.stride[3], 1);
    EXPECT_EQ(attnc_tensor_1d(ATTNC_I32, nullptr, 9).extent[0], 9);
}

TEST(Tensor, ConversionsMakeMasksAndBiases) {
    const int64_t wide[] = {0, -1, int64_t{1} << 40};
    const int32_t narrow[] = {0, 256, 1};
    const float real[] = {0.0F, -0.0F, 0.5F};
    uint8_t mask[3];
    attnc_keep_mask_from_i64(wide, mask, 3);
    EXPECT_EQ(std::vector<uint8_t>(mask, mask + 3), (std::vector<uint8_t>{0, 1, 1}));
    attnc_keep_mask_from_i32(narrow, mask, 3);
    EXPECT_EQ(std::vector<uint8_t>(mask, mask + 3), (std::vector<uint8_t>{0, 1, 1}));
    attnc_keep_mask_from_f32(real, mask, 3);
    EXPECT_EQ(std::vector<uint8_t>(mask, mask + 3), (std::vector<uint8_t>{0, 0, 1}));
    float bias[3];
    attnc_bias_from_scaled_mask(real, -1e9F, bias, 3);
    EXPECT_EQ(bias[2], -5e8F);
}

TEST(Status, EveryNumberHasASentence) {
    for (int status = 0; status <= 20; ++status) {
        EXPECT_STRNE(attnc_status_text(static_cast<attnc_status>(status)), "unknown status") << status;
    }
    EXPECT_STREQ(attnc_status_text(static_cast<attnc_status>(31)), "unknown status");
    EXPECT_EQ(attnc_version(), ATTNC_VERSION);
}

TEST(HalideBuffer, HasHalidesOffsets) {
    EXPECT_EQ(offsetof(HalideBuffer, host), 16U);
    EXPECT_EQ(offsetof(HalideBuffer, type), 32U);
    EXPECT_EQ(offsetof(HalideBuffer, dimensions), 36U);
    EXPECT_EQ(offsetof(HalideBuffer, dim), 40U);
}

}  // namespace
}  // namespace attnc
