// One wrong use of the runtime each, by status and exact sentence. The call that every test spoils is right
// otherwise.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/error/spoilt_calls.h"

namespace attnc::test {
namespace {

TEST(CreateErrors, TheUnspoiltOneSucceeds) {
    Creation c;
    EXPECT_EQ(c.run(), (Failure{ATTNC_OK, ""}));
}

TEST(CreateErrors, NullPointers) {
    Creation c;
    attnc_error error = {};
    attnc_layer* layer = nullptr;
    EXPECT_EQ(attnc_layer_create(nullptr, &c.weights, nullptr, &layer, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "library is null");
    EXPECT_EQ(attnc_layer_create(c.library.get(), nullptr, nullptr, &layer, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "weights is null");
    EXPECT_EQ(attnc_layer_create(c.library.get(), &c.weights, nullptr, nullptr, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "layer is null");
    EXPECT_EQ(attnc_layer_create(nullptr, &c.weights, nullptr, &layer, nullptr), ATTNC_NULL_ARGUMENT);
    attnc_layer_destroy(nullptr);
}

TEST(CreateErrors, StructSizes) {
    Creation c;
    c.weights.struct_size = 8;
    EXPECT_EQ(c.run(), (Failure{ATTNC_BAD_STRUCT_SIZE, "struct_size of attnc_weights is 8, wanted " +
                                                           std::to_string(sizeof(attnc_weights))}));
    Creation o;
    o.options.struct_size = 1;
    EXPECT_EQ(o.run(), (Failure{ATTNC_BAD_STRUCT_SIZE, "struct_size of attnc_layer_options is 1, wanted " +
                                                           std::to_string(sizeof(attnc_layer_options))}));
}

TEST(CreateErrors, Libraries) {
    const auto spoilt = [](const std::function<void(Creation&)>& spoil) {
        Creation c;
        spoil(c);
        return c.run();
    };
    const auto bad = [](const char* text) { return Failure{ATTNC_BAD_LIBRARY, text}; };
    EXPECT_EQ(spoilt([](Creation& c) { c.library.table().abi_version = 2; }),
              bad("the library has ABI version 2, this runtime serves 1"));
    EXPECT_EQ(spoilt([](Creation& c) { c.library.table().target_count = 0; }),
              bad("the library has no target"));
    EXPECT_EQ(spoilt([](Creation& c) { c.library.table().config.head_dim = 0; }),
              bad("the library's head_dim is 0, wanted 1 to 16777216"));
    EXPECT_EQ(spoilt([](Creation& c) { c.library.table().config.num_kv_heads = 3; }),
              bad("the library's num_heads 2 is not divisible by its num_kv_heads 3"));
    EXPECT_EQ(spoilt([](Creation& c) { c.library.target(1).name = nullptr; }),
              bad("the library's target 1 has no name"));
    EXPECT_EQ(
        spoilt([](Creation& c) { c.library.target(1).layout.panel = 24; }),
        bad("the library's panel for target x86-64-linux is 24, wanted a multiple of 16 up to 1048576"));
    EXPECT_EQ(
        spoilt([](Creation& c) {
            c.library.table().config.head_dim = 33;
            c.library.target(0).layout.panel = 32;
        }),
        bad("the library's panel for target x86-64-linux-impossible is 32, which neither divides nor is a "
            "multiple of a padded head"));
    EXPECT_EQ(spoilt([](Creation& c) { c.library.target(0).kernels[ATTNC_KERNEL_ATTEND].run = nullptr; }),
              bad("the library has no kernel attend for target x86-64-linux-impossible"));
    EXPECT_EQ(
        spoilt([](Creation& c) { c.library.target(0).kernels[ATTNC_KERNEL_ATTEND].argument_count = 100; }),
        bad("the library's entry of kernel attend for target x86-64-linux-impossible is corrupt"));
    static const int64_t kUnknown[] = {77}, kOther[] = {ATTNC_ARGUMENT_WEIGHTS};
    EXPECT_EQ(spoilt([](Creation& c) {
                  c.library.target(0).kernels[ATTNC_KERNEL_ATTEND].argument_count = 1;
                  c.library.target(0).kernels[ATTNC_KERNEL_ATTEND].arguments = kUnknown;
              }),
              bad("the library's kernel attend takes argument 77, which this runtime does not know"));
    EXPECT_EQ(spoilt([](Creation& c) {
                  c.library.target(0).kernels[ATTNC_KERNEL_ATTEND].argument_count = 1;
                  c.library.target(0).kernels[ATTNC_KERNEL_ATTEND].arguments = kOther;
              }),
              bad("the library's kernel attend takes argument weights, which this runtime does not give it"));
}

TEST(CreateErrors, Targets) {
    Creation c;
    c.options.target = "x86-64-linux-avx999";
    EXPECT_EQ(c.run(), (Failure{ATTNC_NO_TARGET, "target x86-64-linux-avx999 is not in the library"}));
    c.options.target = "x86-64-linux-impossible";
    EXPECT_EQ(c.run(), (Failure{ATTNC_NO_TARGET,
                                "target x86-64-linux-impossible needs instructions that this CPU or "
                                "its operating system does not have"}));
    c.options.target = "x86-64-linux";
    EXPECT_EQ(c.run().status, ATTNC_OK);
    c.options.target = nullptr;
    c.library.table().target_count = 1;
    EXPECT_EQ(c.run(), (Failure{ATTNC_NO_TARGET, "this CPU runs none of the library's 1 targets"}));
}

TEST(CreateErrors, Options) {
    Creation c;
    const int wrong = 9;
    std::memcpy(&c.options.empty_rows, &wrong, sizeof wrong);
    EXPECT_EQ(c.run(), (Failure{ATTNC_BAD_VALUE, "empty_rows is 9, wanted 0 to 3"}));
    c.options.empty_rows = ATTNC_EMPTY_ROWS_ZERO;
    for (const float scale : {NAN, INFINITY, -INFINITY}) {
        c.options.qk_scale = scale;
        EXPECT_EQ(c.run(), (Failure{ATTNC_BAD_VALUE, "qk_scale is not finite"}));
    }
}

TEST(CreateErrors, Sinks) {
    const auto spoilt = [](const std::function<void(Creation&)>& spoil) {
        Creation c("d32_h2_f32_sink:b1_q1_kv1");
        spoil(c);
        return c.run();
    };
    EXPECT_EQ(spoilt([](Creation&) {}).status, ATTNC_OK);
    EXPECT_EQ(spoilt([](Creation& c) { c.weights.sink.rank = 0; }), (Failure{ATTNC_OK, ""}));
    EXPECT_EQ(spoilt([](Creation& c) { c.weights.sink.extent[0] = 3; }),
              (Failure{ATTNC_BAD_EXTENT, "sink has extent 3 in dimension 0 (num_heads), wanted 2"}));
    for (const float value : {NAN, INFINITY, -INFINITY}) {
        EXPECT_EQ(spoilt([&](Creation& c) { static_cast<float*>(c.weights.sink.data)[1] = value; }),
                  (Failure{ATTNC_BAD_VALUE, "sink[1] is not finite"}));
    }
    const float sink[2] = {};
    Creation without;
    without.weights.sink = attnc_tensor_1d(ATTNC_F32, sink, 2);
    EXPECT_EQ(without.run(), (Failure{ATTNC_UNEXPECTED_TENSOR,
                                      "sink is given, but the library was compiled without sinks"}));
}

TEST(CreateErrors, Windows) {
    const auto refused = [](int window, int64_t left, int64_t right) {
        Creation c;
        std::memcpy(&c.options.window, &window, sizeof window);
        c.options.window_left = left, c.options.window_right = right;
        return c.run();
    };
    const auto bad = [](const char* text) { return Failure{ATTNC_BAD_VALUE, text}; };
    EXPECT_EQ(refused(4, 0, 0), bad("window is 4, wanted 0 to 3"));
    EXPECT_EQ(refused(-1, 0, 0), bad("window is -1, wanted 0 to 3"));
    EXPECT_EQ(refused(ATTNC_WINDOW_LEFT, -1, 0), bad("window_left is -1, wanted 0 or more"));
    EXPECT_EQ(refused(ATTNC_WINDOW_BOTH, 4, -1), bad("window_right is -1, wanted 0 or more"));
    EXPECT_EQ(refused(ATTNC_WINDOW_NOT_GIVEN, 128, 0),
              bad("window_left is 128, but window does not limit the left"));
    EXPECT_EQ(refused(ATTNC_WINDOW_LEFT, 128, -1),
              bad("window_right is -1, but window does not limit the right"));
    EXPECT_EQ(refused(ATTNC_WINDOW_BOTH, 0, kHuge).status, ATTNC_OK);
}

void* no_memory(void*, size_t, size_t) { return nullptr; }
void* misaligned(void* context, size_t, size_t) { return static_cast<char*>(context) + 4; }
void count_free(void* context, void*, size_t) { ++*static_cast<int*>(context); }
void ignore_free(void*, void*, size_t) {}

TEST(CreateErrors, Allocators) {
    Creation c;
    attnc_allocator allocator = {nullptr, nullptr, ignore_free};
    c.options.allocator = &allocator;
    EXPECT_EQ(c.run(), (Failure{ATTNC_NULL_ARGUMENT, "allocator.allocate is null"}));
    allocator = {nullptr, no_memory, nullptr};
    EXPECT_EQ(c.run(), (Failure{ATTNC_NULL_ARGUMENT, "allocator.deallocate is null"}));
    allocator = {nullptr, no_memory, ignore_free};
    const Failure failure = c.run();
    EXPECT_EQ(failure.status, ATTNC_OUT_OF_MEMORY);
    EXPECT_EQ(failure.text.substr(0, 23), "no memory for a layer o");
    alignas(64) int counter[64] = {};
    allocator = {counter, misaligned, count_free};
    EXPECT_EQ(c.run(), (Failure{ATTNC_BAD_VALUE,
                                "allocator.allocate returned memory that is not aligned to 64 bytes"}));
    EXPECT_EQ(counter[0], 1);  // and it was given back
}

TEST(CreateErrors, Weights) {
    const auto spoilt = [](const std::function<void(attnc_weights&)>& spoil,
                           std::string_view problem = "d32_h2_f32:b1_q1_kv1") {
        Creation c(problem);
        spoil(c.weights);
        return c.run();
    };
    EXPECT_EQ(spoilt([](auto& w) { w.wq.rank = 0; }), (Failure{ATTNC_MISSING_TENSOR, "wq is missing"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wo.rank = 0; }), (Failure{ATTNC_MISSING_TENSOR, "wo is missing"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wk.data = nullptr; }),
              (Failure{ATTNC_NULL_ARGUMENT, "the data of wk is null"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wv.dtype = ATTNC_F64; }),
              (Failure{ATTNC_BAD_DTYPE, "wv has type f64, wanted f32"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wv.dtype = ATTNC_F16; }),
              (Failure{ATTNC_BAD_DTYPE, "wv has type f16, wanted f32"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wv.dtype = ATTNC_BF16; }),
              (Failure{ATTNC_BAD_DTYPE, "wv has type bf16, wanted f32"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wv.dtype = 77; }),
              (Failure{ATTNC_BAD_DTYPE, "wv has type 77, wanted f32"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wq.rank = 1; }),
              (Failure{ATTNC_BAD_RANK, "wq has rank 1, wanted 2 [num_heads * head_dim, d_model]"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wq.rank = -3; }),
              (Failure{ATTNC_BAD_RANK, "wq has rank -3, wanted 2 [num_heads * head_dim, d_model]"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wq.extent[1] = 31; }),
              (Failure{ATTNC_BAD_EXTENT, "wq has extent 31 in dimension 1 (d_model), wanted 32"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wo.extent[0] = -1; }),
              (Failure{ATTNC_BAD_EXTENT, "wo has extent -1 in dimension 0 (d_model), wanted 0 or more"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wq.stride[1] = 2; }),
              (Failure{ATTNC_BAD_STRIDE, "wq has stride 2 in dimension 1, wanted 1"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wq.stride[0] = -32; }),
              (Failure{ATTNC_BAD_STRIDE, "wq has stride -32 in dimension 0, wanted 0 or more"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wq.stride[0] = kHuge; }),
              (Failure{ATTNC_TOO_LARGE, "the size of wq overflows"}));
    EXPECT_EQ(spoilt([](auto& w) { w.bq.reserved = 5; }),
              (Failure{ATTNC_BAD_VALUE, "bq has reserved 5, wanted 0"}));
    EXPECT_EQ(spoilt([](auto& w) { w.bo.extent[0] = 33; }),
              (Failure{ATTNC_BAD_EXTENT, "bo has extent 33 in dimension 0 (d_model), wanted 32"}));
    EXPECT_EQ(
        spoilt([](auto& w) { w.bias_k = w.bq; }),
        (Failure{ATTNC_UNEXPECTED_TENSOR, "bias_k is given, but the library was compiled without bias_kv"}));
    EXPECT_EQ(spoilt([](auto& w) { w.bias_v.rank = 0; }, "d32_h2_f32_biaskv:b1_q1_kv1"),
              (Failure{ATTNC_MISSING_TENSOR, "bias_v is missing"}));
    EXPECT_EQ(spoilt([](auto& w) { w.bk = w.bo; }, "d32_h2_f32_noin:b1_q1_kv1"),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "bk is given, but the library has no input projections"}));
    EXPECT_EQ(spoilt([](auto& w) { w.wo = w.wq; }, "d32_h2_f32_noout:b1_q1_kv1"),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "wo is given, but the library has no output projection"}));
}

TEST(CreateErrors, PackedWeights) {
    std::vector<float> packed(96 * 32), bias(96);
    const auto spoilt = [&](const std::function<void(attnc_weights&)>& spoil,
                            std::string_view problem = "d32_h2_f32:b1_q1_kv1") {
        Creation c(problem);
        attnc_weights& w = c.weights;
        w.wq.rank = w.wk.rank = w.wv.rank = w.bq.rank = w.bk.rank = w.bv.rank = 0;
        w.in_proj_weight = attnc_tensor_2d(ATTNC_F32, packed.data(), 96, 32);
        w.in_proj_bias = attnc_tensor_1d(ATTNC_F32, bias.data(), 96);
        spoil(w);
        return c.run();
    };
    EXPECT_EQ(spoilt([](auto&) {}).status, ATTNC_OK);
    EXPECT_EQ(spoilt([](auto& w) { w.wk = w.wo; }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "wk is given, but in_proj_weight stands for it"}));
    EXPECT_EQ(spoilt([](auto& w) { w.bv = w.bo; }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "bv is given, but in_proj_bias stands for it"}));
    EXPECT_EQ(
        spoilt([](auto& w) { w.in_proj_weight.extent[0] = 32; }),
        (Failure{ATTNC_BAD_EXTENT, "in_proj_weight has extent 32 in dimension 0 (3 * d_model), wanted 96"}));
    EXPECT_EQ(spoilt([](auto&) {}, "d32_h2_kv1_f32:b1_q1_kv1"),
              (Failure{ATTNC_UNEXPECTED_TENSOR,
                       "in_proj_weight is given, but the layer's projections are not all 32 by 32"}));
}

TEST(CallErrors, TheUnspoiltOneSucceeds) {
    Forward f;
    EXPECT_EQ(f.both(), (Failure{ATTNC_OK, ""}));
    Forward again;
    again.ask_for_probs();
    EXPECT_EQ(again.both(), (Failure{ATTNC_OK, ""}));
}

TEST(CallErrors, NullPointersAndStructSizes) {
    Forward f;
    attnc_error error = {};
    size_t bytes = 0;
    const auto text = [&](attnc_status status) { return Failure{status, error.text}; };
    const auto null = [](const char* what) { return Failure{ATTNC_NULL_ARGUMENT, what}; };
    const attnc_layer* layer = f.layer.get();
    EXPECT_EQ(text(attnc_layer_forward(nullptr, &f.in, &f.out, &f.run, &error)), null("layer is null"));
    EXPECT_EQ(text(attnc_layer_forward(layer, nullptr, &f.out, &f.run, &error)), null("inputs is null"));
    EXPECT_EQ(text(attnc_layer_forward(layer, &f.in, nullptr, &f.run, &error)), null("outputs is null"));
    EXPECT_EQ(text(attnc_layer_forward(layer, &f.in, &f.out, nullptr, &error)), null("run is null"));
    EXPECT_EQ(text(attnc_layer_workspace(nullptr, &f.in, &f.out, nullptr, &bytes, &error)),
              null("layer is null"));
    EXPECT_EQ(text(attnc_layer_workspace(layer, &f.in, &f.out, nullptr, nullptr, &error)),
              null("bytes is null"));
    f.in.struct_size = 3;
    EXPECT_EQ(f.both(), (Failure{ATTNC_BAD_STRUCT_SIZE, "struct_size of attnc_inputs is 3, wanted " +
                                                            std::to_string(sizeof(attnc_inputs))}));
    f.in.struct_size = sizeof(attnc_inputs);
    f.out.struct_size = 0;
    EXPECT_EQ(f.both(), (Failure{ATTNC_BAD_STRUCT_SIZE, "struct_size of attnc_outputs is 0, wanted " +
                                                            std::to_string(sizeof(attnc_outputs))}));
    f.out.struct_size = sizeof(attnc_outputs);
    f.run.struct_size = 9;
    EXPECT_EQ(f.both(), (Failure{ATTNC_BAD_STRUCT_SIZE, "struct_size of attnc_run is 9, wanted " +
                                                            std::to_string(sizeof(attnc_run))}));
}

TEST(CallErrors, Tokens) {
    const auto spoilt = [](const std::function<void(Forward&)>& spoil,
                           std::string_view problem = "d32_h2_f32:b4_q5_kv7") {
        Forward f(problem);
        spoil(f);
        return f.both();
    };
    EXPECT_EQ(spoilt([](auto& f) { f.in.query.rank = 0; }),
              (Failure{ATTNC_MISSING_TENSOR, "query is missing"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.query.rank = 2; }),
              (Failure{ATTNC_BAD_RANK, "query has rank 2, wanted 3 [batch, seq, d_model]"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.query.rank = 9; }),
              (Failure{ATTNC_BAD_RANK, "query has rank 9, wanted 3 [batch, seq, d_model]"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.query.extent[2] = 30; }),
              (Failure{ATTNC_BAD_EXTENT, "query has extent 30 in dimension 2 (d_model), wanted 32"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.query.extent[0] = -4; }),
              (Failure{ATTNC_BAD_EXTENT, "query has extent -4 in dimension 0 (batch), wanted 0 or more"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.query.stride[2] = 2; }),
              (Failure{ATTNC_BAD_STRIDE, "query has stride 2 in dimension 2, wanted 1"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.key.extent[0] = 3; }),
              (Failure{ATTNC_BAD_EXTENT, "key has extent 3 in dimension 0 (batch), wanted 4"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.value.extent[1] = 6; }),
              (Failure{ATTNC_BAD_EXTENT, "value has extent 6 in dimension 1 (seq), wanted 7"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.value.dtype = ATTNC_I32; }),
              (Failure{ATTNC_BAD_DTYPE, "value has type i32, wanted f32"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.key.stride[0] = kHuge; }),
              (Failure{ATTNC_TOO_LARGE, "the size of key overflows"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.key.rank = 0; }),
              (Failure{ATTNC_UNEXPECTED_TENSOR, "value is given, but key is missing"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.key.rank = f.in.value.rank = 0; }, "d32_h2_kdim16_f32:b4_q5_kv5"),
              (Failure{ATTNC_MISSING_TENSOR,
                       "key is missing, and query cannot stand for it: it has 32 features, wanted 16"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.value.rank = 0; }, "d32_h2_vdim16_f32:b4_q5_kv5"),
              (Failure{ATTNC_MISSING_TENSOR,
                       "value is missing, and key cannot stand for it: it has 32 features, wanted 16"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.query.rank = 2; }, "d32_h2_f32_noin:b4_q5_kv5"),
              (Failure{ATTNC_BAD_RANK,
                       "query has rank 2, wanted 3 [batch, seq, num_heads * head_dim] or 4 [batch, "
                       "num_heads, seq, head_dim]"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.value = attnc_tensor_4d(ATTNC_F32, f.in.value.data, 4, 2, 5, 15); },
                     "d32_h2_f32_noin:b4_q5_kv5"),
              (Failure{ATTNC_BAD_EXTENT, "value has extent 15 in dimension 3 (v_head_dim), wanted 16"}));
}

TEST(CallErrors, NullDataIsForSizesOnly) {
    Forward f;
    f.in.query.data = nullptr;
    EXPECT_EQ(f.forward(), (Failure{ATTNC_NULL_ARGUMENT, "the data of query is null"}));
    EXPECT_EQ(f.sizes().status, ATTNC_OK);
    Forward o;
    o.out.out.data = nullptr;
    EXPECT_EQ(o.forward(), (Failure{ATTNC_NULL_ARGUMENT, "the data of out is null"}));
    EXPECT_EQ(o.sizes().status, ATTNC_OK);
}

TEST(CallErrors, SizesBeyondTheKernels) {
    Forward f;
    f.in.query.extent[1] = int64_t{1} << 26;
    f.in.query.stride[1] = 0;
    EXPECT_EQ(f.both(), (Failure{ATTNC_TOO_LARGE, "seq_q is 67108864, at most 33554431"}));
    Forward k;
    k.in.key.extent[1] = k.in.value.extent[1] = int64_t{1} << 26;
    k.in.key.stride[1] = k.in.value.stride[1] = 0;
    EXPECT_EQ(k.both(), (Failure{ATTNC_TOO_LARGE, "seq_kv is 67108864, at most 33554431"}));
}

TEST(CallErrors, Masks) {
    std::vector<uint8_t> mask(4 * 2 * 5 * 7, 1);
    std::vector<float> bias(4 * 2 * 5 * 7);
    const auto spoilt = [&](const std::function<void(Forward&)>& spoil,
                            std::string_view problem = "d32_h2_f32:b4_q5_kv7") {
        Forward f(problem);
        spoil(f);
        return f.both();
    };
    const auto u8 = [&](int64_t b, int64_t h, int64_t q, int64_t k) {
        return attnc_tensor_4d(ATTNC_U8, mask.data(), b, h, q, k);
    };
    EXPECT_EQ(spoilt([&](auto& f) { f.in.keep_mask = u8(4, 2, 5, 7); }).status, ATTNC_OK);
    EXPECT_EQ(spoilt([&](auto& f) { f.in.keep_mask = attnc_tensor_2d(ATTNC_U8, mask.data(), 5, 7); }),
              (Failure{ATTNC_BAD_RANK, "keep_mask has rank 2, wanted 4 [batch, num_heads, seq_q, seq_kv]"}));
    EXPECT_EQ(
        spoilt([&](auto& f) { f.in.keep_mask = u8(4, 3, 5, 7); }),
        (Failure{ATTNC_BAD_EXTENT, "keep_mask has extent 3 in dimension 1 (num_heads), wanted 1 or 2"}));
    EXPECT_EQ(spoilt([&](auto& f) { f.in.drop_mask = u8(4, 2, 5, 6); }),
              (Failure{ATTNC_BAD_EXTENT, "drop_mask has extent 6 in dimension 3 (seq_kv), wanted 1 or 7"}));
    EXPECT_EQ(spoilt([&](auto& f) { f.in.keep_mask = attnc_tensor_4d(ATTNC_I64, mask.data(), 1, 1, 5, 7); }),
              (Failure{ATTNC_BAD_DTYPE, "keep_mask has type i64, wanted u8"}));
    EXPECT_EQ(spoilt([&](auto& f) { f.in.bias = u8(1, 1, 5, 7); }),
              (Failure{ATTNC_BAD_DTYPE, "bias has type u8, wanted f32"}));
    EXPECT_EQ(spoilt([&](auto& f) {
                  f.in.bias = attnc_tensor_4d(ATTNC_F32, bias.data(), 1, 1, 5, 7);
                  f.in.bias.stride[3] = 100000000;
              }),
              (Failure{ATTNC_TOO_LARGE, "bias has stride 100000000 in dimension 3, at most 76695844"}));
    EXPECT_EQ(spoilt([&](auto& f) { f.in.key_keep_mask = attnc_tensor_2d(ATTNC_U8, mask.data(), 1, 7); }),
              (Failure{ATTNC_BAD_EXTENT, "key_keep_mask has extent 1 in dimension 0 (batch), wanted 4"}));
    EXPECT_EQ(spoilt([&](auto& f) { f.in.key_drop_mask = u8(4, 1, 1, 7); }),
              (Failure{ATTNC_BAD_RANK, "key_drop_mask has rank 4, wanted 2 [batch, seq_kv]"}));
    EXPECT_EQ(spoilt([&](auto& f) { f.in.key_bias = attnc_tensor_2d(ATTNC_F64, bias.data(), 4, 7); }),
              (Failure{ATTNC_BAD_DTYPE, "key_bias has type f64, wanted f32"}));
    constexpr const char* kNoMasks = "d32_h2_f32_nomask:b4_q5_kv7";
    EXPECT_EQ(
        spoilt([&](auto& f) { f.in.drop_mask = u8(4, 2, 5, 7); }, kNoMasks),
        (Failure{ATTNC_NOT_SUPPORTED, "drop_mask is given, but the library was compiled without masks"}));
    EXPECT_EQ(
        spoilt([&](auto& f) { f.in.key_bias = attnc_tensor_2d(ATTNC_F32, bias.data(), 4, 7); }, kNoMasks),
        (Failure{ATTNC_NOT_SUPPORTED, "key_bias is given, but the library was compiled without masks"}));
}

TEST(CallErrors, LengthsAndDiagonals) {
    const auto spoilt = [](const std::function<void(Forward&)>& spoil) {
        Forward f;
        spoil(f);
        return f.both();
    };
    static int64_t wide[] = {7, 0, 3, 8};
    static int32_t narrow[] = {-1, 0, 3, 5};
    static float real[] = {1, 2, 3, 4};
    EXPECT_EQ(spoilt([](auto& f) { f.in.key_lengths = attnc_tensor_1d(ATTNC_I64, wide, 4); }),
              (Failure{ATTNC_BAD_VALUE, "key_lengths[3] is 8, wanted 0 to 7"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.query_lengths = attnc_tensor_1d(ATTNC_I32, narrow, 4); }),
              (Failure{ATTNC_BAD_VALUE, "query_lengths[0] is -1, wanted 0 to 5"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.key_lengths = attnc_tensor_1d(ATTNC_I64, wide, 3); }),
              (Failure{ATTNC_BAD_EXTENT, "key_lengths has extent 3 in dimension 0 (batch), wanted 4"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.key_lengths = attnc_tensor_2d(ATTNC_I64, wide, 2, 2); }),
              (Failure{ATTNC_BAD_RANK, "key_lengths has rank 2, wanted 1 [batch]"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.key_lengths = attnc_tensor_1d(ATTNC_F32, real, 4); }),
              (Failure{ATTNC_BAD_DTYPE, "key_lengths has type f32, wanted i32 or i64"}));
    EXPECT_EQ(spoilt([](auto& f) {
                  const int wrong = 9;
                  std::memcpy(&f.in.causal, &wrong, sizeof wrong);
              }),
              (Failure{ATTNC_BAD_VALUE, "causal is 9, wanted 0 to 4"}));
    EXPECT_EQ(spoilt([](auto& f) { f.in.causal = ATTNC_CAUSAL_OFFSET; }),
              (Failure{ATTNC_MISSING_TENSOR, "causal_offsets is missing"}));
    EXPECT_EQ(
        spoilt([](auto& f) { f.in.causal_offsets = attnc_tensor_1d(ATTNC_I64, wide, 4); }),
        (Failure{ATTNC_UNEXPECTED_TENSOR, "causal_offsets is given, but causal does not ask for offsets"}));
    EXPECT_EQ(spoilt([](auto& f) {
                  f.in.causal = ATTNC_CAUSAL_OFFSET;
                  f.in.causal_offsets = attnc_tensor_1d(ATTNC_I64, wide, 2);
              }),
              (Failure{ATTNC_BAD_EXTENT, "causal_offsets has extent 2 in dimension 0 (batch), wanted 4"}));
}

TEST(CallErrors, Outputs) {
    const auto spoilt = [](const std::function<void(Forward&)>& spoil,
                           std::string_view problem = "d32_h2_f32:b4_q5_kv7") {
        Forward f(problem);
        f.ask_for_probs();
        spoil(f);
        return f.both();
    };
    EXPECT_EQ(spoilt([](auto& f) { f.out.out.rank = 0; }), (Failure{ATTNC_MISSING_TENSOR, "out is missing"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.out.rank = 2; }),
              (Failure{ATTNC_BAD_RANK, "out has rank 2, wanted 3 [batch, seq_q, d_model]"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.out.extent[1] = 4; }),
              (Failure{ATTNC_BAD_EXTENT, "out has extent 4 in dimension 1 (seq_q), wanted 5"}));
    EXPECT_EQ(
        spoilt([](auto& f) { f.out.out.stride[1] = 31; }),
        (Failure{ATTNC_BAD_STRIDE,
                 "out has stride 31 in dimension 1, wanted 32 or more so that elements do not overlap"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.out.stride[0] = 0; }),
              (Failure{ATTNC_BAD_STRIDE,
                       "out has stride 0 in dimension 0, wanted 1 or more so that elements do not overlap"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.probs.extent[3] = 8; }),
              (Failure{ATTNC_BAD_EXTENT, "probs has extent 8 in dimension 3 (seq_kv), wanted 7"}));
    EXPECT_EQ(
        spoilt([](auto& f) { f.out.probs.extent[3] = 7; }, "d32_h2_f32_zeroattn:b4_q5_kv7"),
        (Failure{ATTNC_BAD_EXTENT, "probs has extent 7 in dimension 3 (seq_kv + appended keys), wanted 8"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.probs_averaged.rank = 4; }),
              (Failure{ATTNC_BAD_RANK, "probs_averaged has rank 4, wanted 3 [batch, seq_q, seq_kv]"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.lse.extent[1] = 1; }),
              (Failure{ATTNC_BAD_EXTENT, "lse has extent 1 in dimension 1 (num_heads), wanted 2"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.lse.dtype = ATTNC_F64; }),
              (Failure{ATTNC_BAD_DTYPE, "lse has type f64, wanted f32"}));
    EXPECT_EQ(
        spoilt([](auto& f) { f.out.probs_averaged.rank = 0; }, "d32_h2_f32_noprobs:b4_q5_kv7"),
        (Failure{ATTNC_NOT_SUPPORTED, "probs is asked for, but the library was compiled without probs"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.probs.rank = 0; }, "d32_h2_f32_noprobs:b4_q5_kv7"),
              (Failure{ATTNC_NOT_SUPPORTED,
                       "probs_averaged is asked for, but the library was compiled without probs"}));
    EXPECT_EQ(spoilt([](auto& f) { f.out.out.rank = 2; }, "d32_h2_f32_noout:b4_q5_kv7"),
              (Failure{ATTNC_BAD_RANK,
                       "out has rank 2, wanted 3 [batch, seq_q, num_heads * v_head_dim] or 4 [batch, "
                       "num_heads, seq_q, v_head_dim]"}));
}

TEST(CallErrors, Overlaps) {
    const auto spoilt = [](const std::function<void(Forward&)>& spoil) {
        Forward f;
        f.ask_for_probs();
        spoil(f);
        return f.both();
    };
    const auto overlap = [](const char* text) { return Failure{ATTNC_OVERLAP, text}; };
    EXPECT_EQ(spoilt([](auto& f) { f.in.query.data = f.out.out.data; }), overlap("out overlaps query"));
    // By one element only.
    EXPECT_EQ(spoilt([](auto& f) { f.in.key.data = f.out_data.data() + f.out_data.size() - 1; }),
              overlap("out overlaps key"));
    EXPECT_EQ(spoilt([](auto& f) {
                  std::fill_n(f.lse_data.data(), 4, 0.0F);
                  f.in.key_lengths = attnc_tensor_1d(ATTNC_I32, f.lse_data.data(), 4);
              }),
              overlap("lse overlaps key_lengths"));
    EXPECT_EQ(spoilt([](auto& f) { f.out.probs_averaged.data = f.probs_data.data() + 5; }),
              overlap("probs overlaps probs_averaged"));
}

TEST(CallErrors, OverlapsWithTheWorkspace) {
    Forward out, in;
    out.ask_for_probs();
    out.out.lse.data = out.workspace.get() + 64;
    EXPECT_EQ(out.forward(), (Failure{ATTNC_OVERLAP, "lse overlaps the workspace"}));
    in.in.value.data = in.workspace.get();
    EXPECT_EQ(in.forward(), (Failure{ATTNC_OVERLAP, "value overlaps the workspace"}));
}

TEST(CallErrors, Workspaces) {
    Forward f;
    size_t bytes = 0;
    ASSERT_EQ(attnc_layer_workspace(f.layer.get(), &f.in, &f.out, &f.run, &bytes, nullptr), ATTNC_OK);
    f.run.workspace_bytes = bytes - 1;
    EXPECT_EQ(f.forward(),
              (Failure{ATTNC_WORKSPACE_TOO_SMALL, "run.workspace has " + std::to_string(bytes - 1) +
                                                      " bytes, wanted " + std::to_string(bytes)}));
    f.run.workspace_bytes = bytes;
    f.run.workspace = f.workspace.get() + 32;
    EXPECT_EQ(f.forward(), (Failure{ATTNC_WORKSPACE_MISALIGNED, "run.workspace is not aligned to 64 bytes"}));
    f.run.workspace = nullptr;
    EXPECT_EQ(f.forward(), (Failure{ATTNC_NULL_ARGUMENT, "run.workspace is null"}));
}

TEST(CallErrors, Limits) {
    Forward f;
    attnc_error error = {};
    size_t bytes = 0;
    const auto bound = [&](attnc_limits limits) {
        const attnc_status status = attnc_layer_workspace_bound(f.layer.get(), &limits, &bytes, &error);
        return Failure{status, error.text};
    };
    EXPECT_EQ(bound({8, 1, 1, 1, 1}),
              (Failure{ATTNC_BAD_STRUCT_SIZE,
                       "struct_size of attnc_limits is 8, wanted " + std::to_string(sizeof(attnc_limits))}));
    EXPECT_EQ(bound({sizeof(attnc_limits), 0, 1, 1, 1}),
              (Failure{ATTNC_BAD_VALUE, "max_batch is 0, wanted 1 or more"}));
    EXPECT_EQ(bound({sizeof(attnc_limits), 1, -1, 1, 1}),
              (Failure{ATTNC_BAD_VALUE, "max_seq_q is -1, wanted 1 or more"}));
    EXPECT_EQ(bound({sizeof(attnc_limits), 1, 1, int64_t{1} << 40, 1}),
              (Failure{ATTNC_TOO_LARGE, "max_seq_kv is 1099511627776, at most 33554431"}));
    EXPECT_EQ(bound({sizeof(attnc_limits), 1, 1, 1, 0}),
              (Failure{ATTNC_BAD_VALUE, "max_concurrency is 0, wanted 1 or more"}));
    EXPECT_EQ(bound({sizeof(attnc_limits), 1, 1, 1, kHuge}),
              (Failure{ATTNC_TOO_LARGE, "the size of the workspace overflows"}));
    EXPECT_EQ(bound({sizeof(attnc_limits), kHuge, 1000, 1000, 1}).status, ATTNC_OK);
    EXPECT_EQ(attnc_layer_workspace_bound(f.layer.get(), nullptr, &bytes, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "limits is null");
}

int never_runs(void*, int64_t, int (*)(void*, int64_t), void*) { return 0; }
int returns_three(void*, int64_t count, int (*task)(void*, int64_t), void* data) {
    for (int64_t i = 0; i < count; ++i) task(data, i);
    return 3;
}
int runs_one_too_few(void*, int64_t count, int (*task)(void*, int64_t), void* data) {
    for (int64_t i = 1; i < count; ++i) task(data, i);
    return 0;
}
int runs_one_too_many(void*, int64_t count, int (*task)(void*, int64_t), void* data) {
    for (int64_t i = 0; i <= count; ++i) task(data, i);
    return 0;
}

TEST(CallErrors, Executors) {
    Forward f;
    attnc_executor executor = {nullptr, 2, nullptr};
    f.run.executor = &executor;
    EXPECT_EQ(f.both(), (Failure{ATTNC_NULL_ARGUMENT, "executor.parallel_for is null"}));
    executor = {nullptr, 0, never_runs};
    EXPECT_EQ(f.both(), (Failure{ATTNC_BAD_VALUE, "executor.concurrency is 0, wanted 1 or more"}));
    executor = {nullptr, kHuge, never_runs};
    EXPECT_EQ(f.both(), (Failure{ATTNC_TOO_LARGE, "the size of the workspace overflows"}));
    const auto run = [](auto parallel_for) {
        Forward g;
        const attnc_executor bad = {nullptr, 2, parallel_for};
        g.run.executor = &bad;
        return g.forward();
    };
    EXPECT_EQ(run(never_runs),
              (Failure{ATTNC_EXECUTOR_FAILED, "executor.parallel_for ran 0 tasks, wanted 2"}));
    EXPECT_EQ(run(runs_one_too_few),
              (Failure{ATTNC_EXECUTOR_FAILED, "executor.parallel_for ran 1 tasks, wanted 2"}));
    EXPECT_EQ(run(runs_one_too_many),
              (Failure{ATTNC_EXECUTOR_FAILED, "executor.parallel_for ran 3 tasks, wanted 2"}));
    EXPECT_EQ(run(returns_three), (Failure{ATTNC_EXECUTOR_FAILED, "executor.parallel_for returned 3"}));
}

TEST(CallErrors, KernelsThatRefuse) {
    const auto spoilt = [](int kernel, FakeFailure how, std::string_view problem = "d32_h2_f32:b4_q5_kv40") {
        Forward f(problem);
        f.ask_for_probs();
        f.in.causal = ATTNC_CAUSAL_TOP_LEFT;
        f.call.value.values[4 * 32] = NAN;  // of a key that some queries see, so that guarded rows are needed
        f.in.value = f.call.value.view();
        fail_next_call(kernel, how);
        return f.forward();
    };
    const auto failed = [](const std::string& text) { return Failure{ATTNC_KERNEL_FAILED, text}; };
    const std::pair<int, const char*> kernels[] = {{ATTNC_KERNEL_PROJECT_HEADS, "project_heads"},
                                                   {ATTNC_KERNEL_PROJECT_OUT, "project_out"},
                                                   {ATTNC_KERNEL_ATTEND, "attend"},
                                                   {ATTNC_KERNEL_ATTEND_GUARDED, "attend_guarded"},
                                                   {ATTNC_KERNEL_ATTEND_LSE, "attend_lse"},
                                                   {ATTNC_KERNEL_ATTEND_PROBS, "attend_probs"}};
    for (const auto& [kernel, name] : kernels) {
        EXPECT_EQ(spoilt(kernel, FakeFailure::kHook),
                  failed(std::string("kernel ") + name +
                         " failed: q.extent.0 is 17, wanted the padded head, which is 16"));
        EXPECT_EQ(spoilt(kernel, FakeFailure::kCodeOnly),
                  failed(std::string("kernel ") + name + " failed with code -7"));
    }
    EXPECT_EQ(spoilt(ATTNC_KERNEL_SPLIT_HEADS, FakeFailure::kCodeOnly, "d20_h4_f32_noin_noout:b4_q5_kv5"),
              failed("kernel split_heads failed with code -7"));
    EXPECT_EQ(spoilt(ATTNC_KERNEL_MERGE_HEADS, FakeFailure::kCodeOnly, "d20_h4_f32_noin_noout:b4_q5_kv5"),
              failed("kernel merge_heads failed with code -7"));
    EXPECT_EQ(spoilt(ATTNC_KERNEL_ATTEND_MERGE, FakeFailure::kCodeOnly, "d32_h2_f32_zeroattn:b4_q5_kv5"),
              failed("kernel attend_merge failed with code -7"));
}

TEST(CallErrors, AKernelThatWantsMoreScratchThanItsTableSays) {
    Creation c;
    for (auto& kernel : c.library.target(1).kernels) kernel.scratch_bytes = 64;
    attnc_layer* layer = nullptr;
    ASSERT_EQ(attnc_layer_create(c.library.get(), &c.weights, nullptr, &layer, nullptr), ATTNC_OK);
    Forward f("d32_h2_f32:b2_q5_kv7");
    f.layer.reset(layer);
    EXPECT_EQ(f.forward(), (Failure{ATTNC_KERNEL_FAILED,
                                    "kernel project_heads failed: the task's scratch memory is too small"}));
}

TEST(CallErrors, ErrorsMayBeNull) {
    Forward f;
    f.in.query.rank = 0;
    EXPECT_EQ(attnc_layer_forward(f.layer.get(), &f.in, &f.out, &f.run, nullptr), ATTNC_MISSING_TENSOR);
}

// Every allocation happens in create: one, with the allocator's own functions, given back with its size.
TEST(Allocator, IsUsedForTheLayersOnlyMemory) {
    struct Memory {
        int allocations = 0, live = 0;
        size_t bytes = 0;
    } memory;
    const attnc_allocator allocator = {&memory,
                                       [](void* context, size_t bytes, size_t alignment) {
                                           auto& m = *static_cast<Memory*>(context);
                                           ++m.allocations, ++m.live, m.bytes = bytes;
                                           return std::aligned_alloc(alignment, bytes);
                                       },
                                       [](void* context, void* address, size_t bytes) {
                                           auto& m = *static_cast<Memory*>(context);
                                           --m.live;
                                           EXPECT_EQ(bytes, m.bytes);
                                           std::free(address);
                                       }};
    Creation c;
    c.options.allocator = &allocator;
    EXPECT_EQ(c.run().status, ATTNC_OK);
    EXPECT_EQ(memory.allocations, 1);
    EXPECT_EQ(memory.live, 0);
}

TEST(LibraryQueries, NameTargetsAndSayWhichRun) {
    const FakeLibrary library(parse_problem("d32_h2_f32:b1_q1_kv1").config);
    EXPECT_STREQ(attnc_library_target_name(library.get(), 0), "x86-64-linux-impossible");
    EXPECT_STREQ(attnc_library_target_name(library.get(), 1), "x86-64-linux");
    EXPECT_EQ(attnc_library_target_name(library.get(), 2), nullptr);
    EXPECT_EQ(attnc_library_target_name(library.get(), -1), nullptr);
    EXPECT_EQ(attnc_library_target_runs(library.get(), 0), 0);
    EXPECT_EQ(attnc_library_target_runs(library.get(), 1), 1);
    EXPECT_EQ(attnc_library_target_runs(library.get(), 2), 0);
    EXPECT_STREQ(attnc_library_problem(library.get()), "d32_h2_f32");
    EXPECT_STREQ(attnc_library_manifest(library.get()), "{}");
    Creation c;
    attnc_layer* layer = nullptr;
    ASSERT_EQ(attnc_layer_create(c.library.get(), &c.weights, nullptr, &layer, nullptr), ATTNC_OK);
    EXPECT_STREQ(attnc_layer_target(layer), "x86-64-linux");
    attnc_layer_destroy(layer);
}

}  // namespace
}  // namespace attnc::test
