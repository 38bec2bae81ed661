// attnc.hpp: the same results as the C API, errors as exceptions, views that can't reach past their memory.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <array>
#include <string>
#include <vector>

#include "runtime/attnc.hpp"
#include "tests/support/fake_run.h"

namespace attnc::test {
namespace {

template <typename Function>
std::string error_of(attnc_status status, const Function& function) {
    try {
        function();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), status);
        return error.what();
    }
    return "no error";
}

struct WrapperTest : ::testing::Test {
    LayerCall call = random_call("d32_h2_f32:b2_q20_kv20", 1);
    FakeLibrary library{call.config};
    Weights weights{.wq = {call.wq.values, {32, 32}},
                    .wk = {call.wk.values, {32, 32}},
                    .wv = {call.wv.values, {32, 32}},
                    .wo = {call.wo.values, {32, 32}},
                    .bq = call.bq.values,
                    .bk = call.bk.values,
                    .bv = call.bv.values,
                    .bo = call.bo.values};
    std::vector<float> out = std::vector<float>(2 * 20 * 32);
    Tensor query{call.query.values, {2, 20, 32}};
    Tensor key{call.key.values, {2, 20, 32}};
    Tensor value{call.value.values, {2, 20, 32}};
};

TEST_F(WrapperTest, TakesBlockMasksAndGivesScores) {
    call.config = parse_config("d32_h2_f32_scores");
    call.block_q = 16, call.block_kv = 32;
    call.block_keep_mask = {{1, 2, 2, 1}, {1, 0, 0, 1}};
    call.scores_stage = ATTNC_SCORES_BIASED;
    const FakeResult want = run_fake(call);

    const FakeLibrary with_scores(call.config);
    const Layer layer(with_scores.get(), weights);
    Session session(layer, {.max_batch = 2, .max_seq = 20});
    std::vector<float> scores(size_t{2 * 2 * 20 * 20});
    session.forward({.query = query,
                     .key = key,
                     .value = value,
                     .block_keep_mask = {call.block_keep_mask.values, {1, 2, 2, 1}},
                     .block_q = 16,
                     .block_kv = 32},
                    {.out = {out, {2, 20, 32}},
                     .scores = {scores, {2, 2, 20, 20}},
                     .scores_stage = ScoresStage::kBiased});
    EXPECT_EQ(out, want.out);
    EXPECT_EQ(scores, want.scores);
}

TEST_F(WrapperTest, ASessionGivesWhatTheCApiGives) {
    const std::vector<int32_t> lengths = {20, 7};
    call.key_lengths = {{2}, {20, 7}};
    call.causal = ATTNC_CAUSAL_TOP_LEFT;
    call.keep_mask = filled<uint8_t>({1, 1, 20, 20}, 1);
    call.keep_mask.values[21] = 0;
    const FakeResult want = run_fake(call);

    const ThreadPool pool(2);
    const Layer layer(library.get(), weights);
    Session session(layer, {.max_batch = 2, .max_seq = 20}, pool);
    session.forward({.query = query,
                     .key = key,
                     .value = value,
                     .keep_mask = {call.keep_mask.values, {1, 1, 20, 20}},
                     .key_lengths = lengths,
                     .causal = Causal::kTopLeft},
                    {.out = {out, {2, 20, 32}}});
    EXPECT_EQ(out, want.out);
    EXPECT_STREQ(layer.target(), "x86-64-linux");
}

TEST_F(WrapperTest, ASessionGrowsInReserveOnly) {
    const Layer layer(library.get(), weights);
    Session session(layer, {.max_batch = 1, .max_seq = 5});
    const auto forward = [&] {
        session.forward({.query = query, .key = key, .value = value}, {.out = {out, {2, 20, 32}}});
    };
    const std::string text = error_of(ATTNC_WORKSPACE_TOO_SMALL, forward);
    EXPECT_EQ(text.substr(0, 18), "run.workspace has ");
    const size_t before = session.workspace_bytes();
    session.reserve({.max_batch = 2, .max_seq_q = 20, .max_seq_kv = 20});
    EXPECT_GT(session.workspace_bytes(), before);
    forward();
    EXPECT_EQ(out, run_fake(call).out);
}

TEST_F(WrapperTest, ErrorsAreExceptionsWithTheSentence) {
    Weights wrong = weights;
    wrong.wq = {};
    EXPECT_EQ(error_of(ATTNC_MISSING_TENSOR, [&] { Layer(library.get(), wrong); }), "wq is missing");
    EXPECT_EQ(error_of(ATTNC_NO_TARGET, [&] { Layer(library.get(), weights, {.target = "z80"}); }),
              "target z80 is not in the library");
    EXPECT_EQ(error_of(ATTNC_BAD_VALUE, [] { ThreadPool(0); }), "threads is 0, wanted 1 to 1024");
}

TEST_F(WrapperTest, WorkspaceTakesSizesWithoutMemory) {
    const Layer layer(library.get(), weights);
    const size_t bytes =
        layer.workspace({.query = Tensor::sizes({2, 20, 32})}, {.out = MutableTensor::sizes({2, 20, 32})});
    EXPECT_EQ(bytes, layer.workspace({.query = query}, {.out = {out, {2, 20, 32}}}));
    EXPECT_LE(bytes, layer.workspace_bound({.max_batch = 2, .max_seq = 20}));
}

TEST_F(WrapperTest, AWindowOfNoKeysIsNotTheSameAsNone) {
    const auto run = [&](const LayerOptions& options) {
        const Layer layer(library.get(), weights, options);
        Session session(layer, {.max_batch = 2, .max_seq = 20});
        session.forward({.query = query, .key = key, .value = value}, {.out = {out, {2, 20, 32}}});
        return out;
    };
    EXPECT_EQ(run({}), run_fake(call).out);
    call.window_left = 0;
    EXPECT_EQ(run({.window_left = 0}), run_fake(call).out);
    call.window_right = 5;
    EXPECT_EQ(run({.window_left = 0, .window_right = 5}), run_fake(call).out);
    call.window_left = {};
    EXPECT_EQ(run({.window_right = 5}), run_fake(call).out);
}

// A decoder's steps one token at a time, and the same in one call.
TEST_F(WrapperTest, ACacheKeepsWhatStepsAppend) {
    const FakeLibrary cached(parse_config("d32_h2_f32_cache_page16"));
    const Layer layer(cached.get(), weights);
    Session session(layer, {.max_batch = 2, .max_seq = 20});
    session.forward({.query = query, .causal = Causal::kBottomRight}, {.out = {out, {2, 20, 32}}});
    const std::vector<float> want = out;

    Cache cache(layer, {.slots = 2, .capacity = 20});
    EXPECT_GE(cache.bytes(), size_t{2 * 2 * 20 * 32} * sizeof(float));
    const std::vector<int64_t> slots = {1, 0};
    for (int64_t i = 0; i < 20; ++i) {
        const auto at = static_cast<size_t>(i * 32);
        session.forward({.query = {std::span<const float>(call.query.values).subspan(at, (20 + 1) * 32),
                                   {2, 1, 32},
                                   {20 * 32, 32, 1}},
                         .causal = Causal::kBottomRight,
                         .cache = cache.c(),
                         .cache_slots = slots},
                        {.out = {std::span(out).subspan(at, (20 + 1) * 32), {2, 1, 32}, {20 * 32, 32, 1}}});
    }
    EXPECT_EQ(out, want);
    EXPECT_EQ(cache.length(0), 20);

    // What was kept goes to the pages of another cache and back.
    std::vector<float> keys(2 * 2 * 20 * 16), values(keys.size());
    cache.export_to({.count = 20}, {keys, {2, 2, 20, 16}}, {values, {2, 2, 20, 16}});
    Cache paged(layer, {.kind = CacheKind::kPaged, .pages = 4});
    const std::vector<int32_t> table = {3, 1, 0, 2};
    const CacheRange range = {.block_table = {table, {2, 2}}, .count = 20};
    paged.import_from(range, {keys, {2, 2, 20, 16}}, {values, {2, 2, 20, 16}});
    std::vector<float> again(keys.size());
    paged.export_to(range, {again, {2, 2, 20, 16}}, {});
    EXPECT_EQ(again, keys);

    cache.reorder(std::vector<int64_t>{1, 1});
    cache.export_to({.count = 20}, {again, {2, 2, 20, 16}}, {});
    EXPECT_TRUE(std::equal(again.begin(), again.begin() + 2 * 20 * 16, keys.begin() + 2 * 20 * 16));
    cache.rewind(0, 7), cache.clear(1);
    EXPECT_EQ(cache.length(0), 7);
    EXPECT_EQ(cache.length(1), 0);
    EXPECT_EQ(error_of(ATTNC_BAD_VALUE, [&] { cache.rewind(1, 3); }), "length is 3, wanted 0 to 0");
    EXPECT_EQ(error_of(ATTNC_NOT_SUPPORTED, [&] { Cache(Layer(library.get(), weights), {}); }),
              "a cache is asked for, but the library was compiled without cache");
}

TEST_F(WrapperTest, AMemoryIsProjectedOnceAndRead) {
    const FakeLibrary cached(parse_config("d32_h2_f32_cache"));
    const Layer layer(cached.get(), weights);
    const std::vector<int64_t> lengths = {20, 7};
    Session session(layer, {.max_batch = 2, .max_seq = 20});
    session.forward({.query = query, .key = key, .value = value, .key_lengths = lengths},
                    {.out = {out, {2, 20, 32}}});
    const std::vector<float> want = out;
    Cache memory(layer, {.slots = 2, .capacity = 20});
    const Inputs inputs = {.key = key, .value = value, .key_lengths = lengths, .cache = memory.c()};
    EXPECT_LE(layer.memory_workspace(inputs), session.workspace_bytes());
    session.project_memory(inputs);
    session.forward({.query = query, .cache = memory.c(), .cache_use = CacheUse::kRead},
                    {.out = {out, {2, 20, 32}}});
    EXPECT_EQ(out, want);
}

TEST_F(WrapperTest, LayersMove) {
    Layer layer(library.get(), weights);
    const attnc_layer* address = layer.c();
    const Layer moved = std::move(layer);
    EXPECT_EQ(moved.c(), address);
    static_assert(!std::is_copy_constructible_v<Layer>);
}

TEST_F(WrapperTest, TheCallersControlWordComesBack) {
    const Layer layer(library.get(), weights);
    Session session(layer, {.max_batch = 2, .max_seq = 20});
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(0x5fa1);  // rounds upwards, one sticky flag
    session.forward({.query = query}, {.out = {out, {2, 20, 32}}});
    EXPECT_EQ(_mm_getcsr(), 0x5fa1U);
    _mm_setcsr(before);
}

TEST(View, MustMatchItsSpan) {
    std::vector<float> data(24);
    const auto view = [&](std::initializer_list<int64_t> extents,
                          std::initializer_list<int64_t> strides = {}) {
        return [&data, extents, strides] { Tensor(data, extents, strides); };
    };
    EXPECT_EQ(error_of(ATTNC_OK, view({2, 3, 4})), "no error");
    EXPECT_EQ(error_of(ATTNC_OK, view({2, 3}, {20, 1})), "no error");
    EXPECT_EQ(error_of(ATTNC_BAD_EXTENT, view({2, 3})), "a view of 6 elements does not match its span of 24");
    EXPECT_EQ(error_of(ATTNC_BAD_EXTENT, view({2, 3}, {22, 1})),
              "a view needs more elements than its span of 24");
    EXPECT_EQ(error_of(ATTNC_BAD_EXTENT, view({int64_t{1} << 40, int64_t{1} << 40})),
              "a view needs more elements than its span of 24");
    EXPECT_EQ(error_of(ATTNC_BAD_EXTENT, view({-1})), "a view has an extent of -1");
    EXPECT_EQ(error_of(ATTNC_BAD_STRIDE, view({2, 3}, {-3, 1})), "a view has a stride of -3");
    EXPECT_EQ(error_of(ATTNC_BAD_STRIDE, view({2, 3}, {3})), "a view has 1 strides for 2 extents");
    EXPECT_EQ(error_of(ATTNC_BAD_RANK, view({1, 1, 1, 1, 1, 24})), "a view has rank 6, wanted 1 to 5");
}

TEST(View, MasksOfOnePolarityDoNotStandForTheOther) {
    static_assert(!std::is_convertible_v<keep_mask, drop_mask>);
    static_assert(!std::is_convertible_v<key_keep_mask, keep_mask>);
    static_assert(!std::is_convertible_v<Tensor, MutableTensor>);
    static_assert(std::is_convertible_v<MutableTensor, Tensor>);
    const std::array<bool, 4> flags = {true, false, true, true};
    EXPECT_EQ(keep_mask(flags, {1, 1, 2, 2}).c().dtype, ATTNC_U8);
}

}  // namespace
}  // namespace attnc::test
