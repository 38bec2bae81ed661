// Norms, rotary embeddings and positions given wrongly: each has its own sentence.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/error/spoilt_calls.h"

namespace attnc::test {
namespace {

constexpr char kProblem[] = "d64_h2_f32_qknorm_rope:b2_q5_kv7";
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename Spoil>
Failure creation(const Spoil& spoil, const char* problem = kProblem) {
    Creation c(problem);
    c.options = c.call.options();
    spoil(c);
    return c.run();
}
template <typename Spoil>
Failure call(const Spoil& spoil, const char* problem = kProblem) {
    Forward f(problem);
    spoil(f);
    return f.both();
}

TEST(NormErrors, NeedALibraryWithIt) {
    constexpr char kPlain[] = "d64_h2_f32:b2_q5_kv7";
    const auto refused = [](const char* name) {
        return Failure{ATTNC_NOT_SUPPORTED,
                       std::string(name) + " is given, but the library was compiled without qk_norm"};
    };
    const std::vector<float> weight(32, 1);
    const attnc_tensor t = attnc_tensor_1d(ATTNC_F32, weight.data(), 32);
    EXPECT_EQ(creation([&](Creation& c) { c.weights.q_norm = t; }, kPlain), refused("q_norm"));
    EXPECT_EQ(creation([&](Creation& c) { c.weights.k_norm = t; }, kPlain), refused("k_norm"));
    EXPECT_EQ(creation([](Creation& c) { c.options.qk_norm_epsilon = 1e-5F; }, kPlain),
              refused("qk_norm_epsilon"));
}

TEST(NormErrors, NameTheWeight) {
    EXPECT_EQ(creation([](Creation& c) { c.weights.q_norm = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "q_norm is missing"}));
    EXPECT_EQ(creation([](Creation& c) { c.weights.k_norm = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "k_norm is missing"}));
    EXPECT_EQ(creation([](Creation& c) { c.weights.k_norm.extent[0] = 31; }),
              (Failure{ATTNC_BAD_EXTENT, "k_norm has extent 31 in dimension 0 (head_dim), wanted 32"}));
    EXPECT_EQ(creation([](Creation& c) { c.weights.q_norm.dtype = ATTNC_F64; }),
              (Failure{ATTNC_BAD_DTYPE, "q_norm has type f64, wanted f32"}));
    EXPECT_EQ(creation([](Creation& c) {
                  c.weights.q_norm = c.weights.k_norm = {};
                  c.options.qk_norm_epsilon = 1e-5F;
              }),
              (Failure{ATTNC_MISSING_TENSOR, "qk_norm_epsilon is given, but q_norm is missing"}));
    for (const float epsilon : {-1e-6F, 1e-40F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
        EXPECT_EQ(creation([&](Creation& c) { c.options.qk_norm_epsilon = epsilon; }),
                  (Failure{ATTNC_BAD_VALUE, "qk_norm_epsilon is not a finite normal number above 0"}));
    }
}

TEST(RotaryErrors, NeedALibraryWithIt) {
    constexpr char kPlain[] = "d64_h2_f32:b2_q5_kv7";
    const auto refused = [](const char* name) {
        return Failure{ATTNC_NOT_SUPPORTED,
                       std::string(name) + " is given, but the library was compiled without rotary"};
    };
    const auto spoilt = [&](const auto& change) {
        return creation([&](Creation& c) { change(c.options.rotary); }, kPlain);
    };
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.dim = 32; }), refused("rotary.dim"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.base = 1e4; }), refused("rotary.base"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.scaling = ATTNC_ROTARY_SCALING_LINEAR; }),
              refused("rotary.scaling"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.factor = 2; }), refused("rotary.factor"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.low_freq_factor = 2; }), refused("rotary.low_freq_factor"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.high_freq_factor = 2; }), refused("rotary.high_freq_factor"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.original_positions = 2; }),
              refused("rotary.original_positions"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.magnitude = 2; }), refused("rotary.magnitude"));
    const std::vector<float> table(16 * 3, 1);
    const attnc_tensor t = attnc_tensor_2d(ATTNC_F32, table.data(), 3, 16);
    EXPECT_EQ(creation([&](Creation& c) { c.weights.rotary_frequencies = t; }, kPlain),
              refused("rotary_frequencies"));
    EXPECT_EQ(creation([&](Creation& c) { c.weights.rotary_cos = t; }, kPlain), refused("rotary_cos"));
    EXPECT_EQ(creation([&](Creation& c) { c.weights.rotary_sin = t; }, kPlain), refused("rotary_sin"));
}

TEST(RotaryErrors, NameTheField) {
    const auto spoilt = [&](const auto& change) {
        const Failure failure = creation([&](Creation& c) { change(c.options.rotary); });
        EXPECT_EQ(failure.status, ATTNC_BAD_VALUE);
        return failure.text;
    };
    for (const int64_t dim : {-2, 1, 7, 34}) {
        EXPECT_EQ(spoilt([&](attnc_rotary& r) { r.dim = dim; }),
                  "rotary.dim is " + std::to_string(dim) + ", wanted an even number from 2 to 32");
    }
    for (const double base : {-1e4, 1.0, 0.5, kNan, kInfinity}) {
        EXPECT_EQ(spoilt([&](attnc_rotary& r) { r.base = base; }),
                  "rotary.base is not a finite number above 1");
    }
    for (const double magnitude : {-1.0, kNan, kInfinity}) {
        EXPECT_EQ(spoilt([&](attnc_rotary& r) { r.magnitude = magnitude; }),
                  "rotary.magnitude is not a finite number above 0");
    }
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.scaling = static_cast<attnc_rotary_scaling>(3); }),
              "rotary.scaling is 3, wanted 0 to 2");
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.factor = 2; }),
              "rotary.factor is given, but rotary.scaling is none");
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.original_positions = 2; }),
              "rotary.original_positions is given, but rotary.scaling is none");
}

TEST(RotaryErrors, FieldsNeedSomethingToRotateBy) {
    const auto spoilt = [](const auto& change) {
        return creation([&](Creation& c) {
            c.options.rotary = {};
            change(c.options.rotary);
        });
    };
    const auto lacks = [](const char* name) {
        return Failure{ATTNC_BAD_VALUE, std::string(name) +
                                            " is given, but neither rotary.base nor "
                                            "rotary_frequencies nor rotary_cos"};
    };
    EXPECT_EQ(spoilt([](attnc_rotary&) {}).status, ATTNC_OK);
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.dim = 32; }), lacks("rotary.dim"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.magnitude = 2; }), lacks("rotary.magnitude"));
    EXPECT_EQ(spoilt([](attnc_rotary& r) { r.scaling = ATTNC_ROTARY_SCALING_LINEAR, r.factor = 2; }),
              lacks("rotary.scaling"));
}

TEST(RotaryErrors, NameWhatAScalingLacks) {
    const auto linear = [](const auto& change) {
        return creation([&](Creation& c) {
                   c.options.rotary.scaling = ATTNC_ROTARY_SCALING_LINEAR, c.options.rotary.factor = 2;
                   change(c.options.rotary);
               })
            .text;
    };
    for (const double factor : {0.0, 0.5, -1.0, kNan, kInfinity}) {
        EXPECT_EQ(linear([&](attnc_rotary& r) { r.factor = factor; }),
                  "rotary.factor is not a finite number of at least 1");
    }
    EXPECT_EQ(linear([](attnc_rotary& r) { r.low_freq_factor = 1; }),
              "rotary.low_freq_factor is given, but rotary.scaling is linear");
    EXPECT_EQ(linear([](attnc_rotary& r) { r.high_freq_factor = kNan; }),
              "rotary.high_freq_factor is given, but rotary.scaling is linear");
    const auto llama3 = [](const auto& change) {
        return creation([&](Creation& c) {
                   attnc_rotary& r = c.options.rotary;
                   r.scaling = ATTNC_ROTARY_SCALING_LLAMA3, r.factor = 8;
                   r.low_freq_factor = 1, r.high_freq_factor = 4, r.original_positions = 8192;
                   change(r);
               })
            .text;
    };
    EXPECT_EQ(llama3([](attnc_rotary&) {}), "");
    EXPECT_EQ(llama3([](attnc_rotary& r) { r.low_freq_factor = 0; }),
              "rotary.low_freq_factor is not a finite number above 0");
    EXPECT_EQ(llama3([](attnc_rotary& r) { r.high_freq_factor = 1; }),
              "rotary.high_freq_factor is not a finite number above rotary.low_freq_factor");
    EXPECT_EQ(llama3([](attnc_rotary& r) { r.original_positions = 0; }),
              "rotary.original_positions is not above 0");
}

TEST(RotaryErrors, TablesAndFrequenciesExcludeEachOther) {
    const std::vector<float> table(16 * 3, 0.5F);
    const attnc_tensor t = attnc_tensor_2d(ATTNC_F32, table.data(), 3, 16);
    const attnc_tensor frequencies = attnc_tensor_1d(ATTNC_F32, table.data(), 16);
    const auto with_table = [&](const auto& change) {
        return creation([&](Creation& c) {
            c.options.rotary.base = 0;
            c.weights.rotary_cos = c.weights.rotary_sin = t;
            change(c);
        });
    };
    const auto with_frequencies = [&](const auto& change) {
        return creation([&](Creation& c) {
            c.options.rotary.base = 0;
            c.weights.rotary_frequencies = frequencies;
            change(c);
        });
    };
    EXPECT_EQ(with_table([](Creation&) {}).status, ATTNC_OK);
    EXPECT_EQ(with_frequencies([](Creation& c) { c.options.rotary.magnitude = 2; }).status, ATTNC_OK);
    EXPECT_EQ(
        with_table([&](Creation& c) { c.weights.rotary_frequencies = frequencies; }),
        (Failure{ATTNC_UNEXPECTED_TENSOR, "rotary_frequencies is given, but rotary_cos stands for it"}));
    EXPECT_EQ(with_table([](Creation& c) { c.options.rotary.base = 1e4; }),
              (Failure{ATTNC_BAD_VALUE, "rotary.base is given, but rotary_cos stands for it"}));
    EXPECT_EQ(with_table([](Creation& c) { c.options.rotary.magnitude = 2; }),
              (Failure{ATTNC_BAD_VALUE, "rotary.magnitude is given, but rotary_cos stands for it"}));
    EXPECT_EQ(with_frequencies([](Creation& c) { c.options.rotary.base = 1e4; }),
              (Failure{ATTNC_BAD_VALUE, "rotary.base is given, but rotary_frequencies stands for it"}));
    EXPECT_EQ(with_frequencies([](Creation& c) {
                  c.options.rotary.scaling = ATTNC_ROTARY_SCALING_LINEAR, c.options.rotary.factor = 2;
              }),
              (Failure{ATTNC_BAD_VALUE, "rotary.scaling is given, but rotary_frequencies stands for it"}));
    EXPECT_EQ(with_table([](Creation& c) { c.weights.rotary_sin = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "rotary_sin is missing"}));
    EXPECT_EQ(with_table([](Creation& c) { c.weights.rotary_cos = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "rotary_cos is missing"}));
    EXPECT_EQ(with_table([](Creation& c) { c.weights.rotary_sin.extent[0] = 2; }),
              (Failure{ATTNC_BAD_EXTENT, "rotary_sin has extent 2 in dimension 0 (positions), wanted 3"}));
    EXPECT_EQ(
        with_table([](Creation& c) { c.options.rotary.dim = 30; }),
        (Failure{ATTNC_BAD_EXTENT, "rotary_cos has extent 16 in dimension 1 (rotary.dim / 2), wanted 15"}));
    EXPECT_EQ(with_frequencies([](Creation& c) { c.weights.rotary_frequencies.extent[0] = 15; }),
              (Failure{ATTNC_BAD_EXTENT,
                       "rotary_frequencies has extent 15 in dimension 0 (rotary.dim / 2), wanted 16"}));
    EXPECT_EQ(with_frequencies([](Creation& c) { c.weights.rotary_frequencies.dtype = ATTNC_F16; }),
              (Failure{ATTNC_BAD_DTYPE, "rotary_frequencies has type f16, wanted f32 or f64"}));
}

TEST(RotaryErrors, FrequenciesAreNumbers) {
    for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity(), 0x1p32F, -0x1p40F}) {
        std::vector<float> frequencies(16, 0.5F);
        frequencies[9] = bad;
        EXPECT_EQ(creation([&](Creation& c) {
                      c.options.rotary.base = 0;
                      c.weights.rotary_frequencies = attnc_tensor_1d(ATTNC_F32, frequencies.data(), 16);
                  }),
                  (Failure{ATTNC_BAD_VALUE, "rotary_frequencies[9] is not a number between -2^32 and 2^32"}));
    }
}

TEST(PositionErrors, NeedALibraryWithRotary) {
    const std::vector<int64_t> numbers(14, 0);
    constexpr char kPlain[] = "d64_h2_f32_qknorm:b2_q5_kv7";
    const auto refused = [](const char* name) {
        return Failure{ATTNC_NOT_SUPPORTED,
                       std::string(name) + " is given, but the library was compiled without rotary"};
    };
    EXPECT_EQ(call([&](Forward& f) { f.in.position_offsets = attnc_tensor_1d(ATTNC_I64, numbers.data(), 2); },
                   kPlain),
              refused("position_offsets"));
    EXPECT_EQ(
        call([&](Forward& f) { f.in.query_positions = attnc_tensor_2d(ATTNC_I64, numbers.data(), 2, 5); },
             kPlain),
        refused("query_positions"));
    EXPECT_EQ(call([&](Forward& f) { f.in.key_positions = attnc_tensor_2d(ATTNC_I64, numbers.data(), 2, 7); },
                   kPlain),
              refused("key_positions"));
}

TEST(PositionErrors, NameTheTensor) {
    const std::vector<int64_t> numbers(14, 0);
    const attnc_tensor positions = attnc_tensor_2d(ATTNC_I64, numbers.data(), 2, 5);
    EXPECT_EQ(call([&](Forward& f) { f.in.position_offsets = positions; }),
              (Failure{ATTNC_BAD_RANK, "position_offsets has rank 2, wanted 1 [batch]"}));
    EXPECT_EQ(call([&](Forward& f) { f.in.query_positions = attnc_tensor_1d(ATTNC_I64, numbers.data(), 5); }),
              (Failure{ATTNC_BAD_RANK, "query_positions has rank 1, wanted 2 [batch, seq_q]"}));
    EXPECT_EQ(call([&](Forward& f) { f.in.key_positions = positions; }),
              (Failure{ATTNC_BAD_EXTENT, "key_positions has extent 5 in dimension 1 (seq_kv), wanted 7"}));
    EXPECT_EQ(call([&](Forward& f) {
                  f.in.query_positions = positions;
                  f.in.query_positions.dtype = ATTNC_F32;
              }),
              (Failure{ATTNC_BAD_DTYPE, "query_positions has type f32, wanted i32 or i64"}));
    Forward null;
    EXPECT_EQ(call([&](Forward& f) { f.in.query_positions = positions, f.in.query_positions.stride[1] = 2; }),
              (Failure{ATTNC_BAD_STRIDE, "query_positions has stride 2 in dimension 1, wanted 1"}));
    Forward missing(kProblem);
    missing.in.query_positions = attnc_tensor_2d(ATTNC_I64, nullptr, 2, 5);
    EXPECT_EQ(missing.forward(), (Failure{ATTNC_NULL_ARGUMENT, "the data of query_positions is null"}));
    EXPECT_EQ(missing.sizes().status, ATTNC_OK);
}

TEST(PositionErrors, NameThePositionThatIsOutOfRange) {
    std::vector<int64_t> positions(10, 3);
    positions[8] = int64_t{1} << 31;
    EXPECT_EQ(
        call([&](Forward& f) { f.in.query_positions = attnc_tensor_2d(ATTNC_I64, positions.data(), 2, 5); }),
        (Failure{ATTNC_BAD_VALUE, "query_positions[1, 3] is 2147483648, wanted -2147483647 to 2147483647"}));
    positions.assign(14, 3), positions[2] = -(int64_t{1} << 31);
    EXPECT_EQ(
        call([&](Forward& f) { f.in.key_positions = attnc_tensor_2d(ATTNC_I64, positions.data(), 2, 7); }),
        (Failure{ATTNC_BAD_VALUE, "key_positions[0, 2] is -2147483648, wanted -2147483647 to 2147483647"}));
    const std::vector<int64_t> offsets = {3, 2147483643, std::numeric_limits<int64_t>::min()};
    EXPECT_EQ(
        call([&](Forward& f) { f.in.position_offsets = attnc_tensor_1d(ATTNC_I64, offsets.data(), 2); }),
        (Failure{ATTNC_BAD_VALUE,
                 "the keys of item 1 begin at position 2147483643 and are 7, wanted positions from "
                 "-2147483647 to 2147483647"}));
    EXPECT_EQ(
        call([&](Forward& f) { f.in.position_offsets = attnc_tensor_1d(ATTNC_I64, offsets.data() + 1, 2); }),
        (Failure{
            ATTNC_BAD_VALUE,
            "the queries of item 1 begin at position -9223372036854775808 and are 5, wanted positions from "
            "-2147483647 to 2147483647"}));
}

// A library without projections and a table of six positions.
struct TableForward : Forward {
    std::vector<float> table;
    TableForward() : Forward("d64_h2_f32_noin_noout_rope:b2_q5_kv7"), table(6 * 16, 0.5F) {
        attnc_weights weights = call.weights();
        weights.rotary_cos = weights.rotary_sin = attnc_tensor_2d(ATTNC_F32, table.data(), 6, 16);
        attnc_layer* made = nullptr;
        EXPECT_EQ(attnc_layer_create(library.get(), &weights, nullptr, &made, nullptr), ATTNC_OK);
        layer.reset(made);
    }
};

TEST(PositionErrors, ATableHasItsPositionsOnly) {
    TableForward f;
    EXPECT_EQ(f.both(),
              (Failure{ATTNC_BAD_VALUE,
                       "the keys of item 0 begin at position 0 and are 7, wanted positions from 0 to 5"}));
    const std::vector<int64_t> lengths = {6, 4}, offsets = {0, 3}, good = {0, 2};
    f.in.key_lengths = attnc_tensor_1d(ATTNC_I64, lengths.data(), 2);
    EXPECT_EQ(f.forward().status, ATTNC_OK);
    f.out_data.assign(f.out_data.size(), 7);
    f.in.position_offsets = attnc_tensor_1d(ATTNC_I64, offsets.data(), 2);
    EXPECT_EQ(f.both(),
              (Failure{ATTNC_BAD_VALUE,
                       "the queries of item 1 begin at position 3 and are 5, wanted positions from 0 to 5"}));
    std::vector<int64_t> positions(10, 5);
    f.in.query_positions = attnc_tensor_2d(ATTNC_I64, positions.data(), 2, 5);
    EXPECT_EQ(f.both(),
              (Failure{ATTNC_BAD_VALUE,
                       "the keys of item 1 begin at position 3 and are 4, wanted positions from 0 to 5"}));
    f.in.position_offsets = attnc_tensor_1d(ATTNC_I64, good.data(), 2);
    positions[9] = -1;
    EXPECT_EQ(f.both(), (Failure{ATTNC_BAD_VALUE, "query_positions[1, 4] is -1, wanted 0 to 5"}));
    positions[9] = 5;
    EXPECT_EQ(f.forward().status, ATTNC_OK);
}

TEST(PositionErrors, PositionsAreInputsThatNothingMayOverlap) {
    Forward f(kProblem);
    f.in.query_positions = attnc_tensor_2d(ATTNC_I32, f.out_data.data(), 2, 5);
    for (float& value : f.out_data) value = 0;  // positions 0
    attnc_error error = {};
    EXPECT_EQ(attnc_layer_forward(f.layer.get(), &f.in, &f.out, &f.run, &error), ATTNC_OVERLAP);
    EXPECT_STREQ(error.text, "out overlaps query_positions");
}

TEST(HeadStepErrors, AKernelThatRefusesIsNamed) {
    for (const int kernel :
         {ATTNC_KERNEL_NORM_HEADS, ATTNC_KERNEL_ROTATE_HEADS, ATTNC_KERNEL_ROTARY_ANGLES}) {
        Forward f(kProblem);
        fail_next_call(kernel, FakeFailure::kCodeOnly);
        EXPECT_EQ(f.forward(), (Failure{ATTNC_KERNEL_FAILED, std::string("kernel ") + kernel_name(kernel) +
                                                                 " failed with code -7"}));
    }
}

// attnc_layer_rotate, to spoil.
struct Rotate {
    LayerCall call;
    FakeLibrary library;
    LayerPointer layer;
    std::vector<float> x, out;
    std::vector<int64_t> positions;
    std::unique_ptr<unsigned char, decltype(&std::free)> workspace;
    attnc_rotation rotation = ATTNC_ROTATION_INIT;
    attnc_run run = ATTNC_RUN_INIT;

    explicit Rotate(std::string_view problem = "d64_h4_kv2_hd16_f32_noout_qknorm_rope:b2_q5_kv7")
        : call(random_call(problem, 1)),
          library(call.config),
          layer(make_layer(library, call)),
          x(2 * 3 * 64, 1),
          out(2 * 3 * 64, 7),
          positions(6, 0),
          workspace(static_cast<unsigned char*>(std::aligned_alloc(64, 1 << 16)), std::free) {
        rotation.heads = ATTNC_HEADS_QUERY;
        rotation.x = attnc_tensor_3d(ATTNC_F32, x.data(), 2, 3, 64);
        rotation.out = attnc_tensor_3d(ATTNC_F32, out.data(), 2, 3, 64);
        run.workspace = workspace.get();
        run.workspace_bytes = 1 << 16;
    }
    Failure failure() {
        attnc_error error = {};
        const attnc_status status = attnc_layer_rotate(layer.get(), &rotation, &run, &error);
        if (status != ATTNC_OK) {
            for (const float value : out) EXPECT_EQ(value, 7);
        }
        return {status, error.text};
    }
};

template <typename Spoil>
Failure rotating(const Spoil& spoil) {
    Rotate r;
    spoil(r);
    return r.failure();
}

TEST(RotateErrors, NameTheArgument) {
    EXPECT_EQ(rotating([](Rotate&) {}).status, ATTNC_OK);
    attnc_error error = {};
    Rotate r;
    EXPECT_EQ(attnc_layer_rotate(nullptr, &r.rotation, &r.run, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "layer is null");
    EXPECT_EQ(attnc_layer_rotate(r.layer.get(), nullptr, &r.run, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "rotation is null");
    EXPECT_EQ(attnc_layer_rotate(r.layer.get(), &r.rotation, nullptr, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "run is null");
    EXPECT_EQ(attnc_layer_rotate_workspace(r.layer.get(), nullptr, nullptr, &error), ATTNC_NULL_ARGUMENT);
    EXPECT_STREQ(error.text, "bytes is null");
    EXPECT_EQ(rotating([](Rotate& s) { s.rotation.struct_size = 8; }),
              (Failure{ATTNC_BAD_STRUCT_SIZE, "struct_size of attnc_rotation is 8, wanted " +
                                                  std::to_string(sizeof(attnc_rotation))}));
    EXPECT_EQ(rotating([](Rotate& s) { s.rotation.heads = static_cast<attnc_heads>(0); }),
              (Failure{ATTNC_BAD_VALUE, "heads is 0, wanted 1 or 2"}));
    EXPECT_EQ(rotating([](Rotate& s) { s.rotation.x = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "x is missing"}));
    EXPECT_EQ(rotating([](Rotate& s) { s.rotation.out = {}; }),
              (Failure{ATTNC_MISSING_TENSOR, "out is missing"}));
    EXPECT_EQ(rotating([](Rotate& s) { s.rotation.heads = ATTNC_HEADS_KEY; }),
              (Failure{ATTNC_BAD_EXTENT, "x has extent 64 in dimension 2 (heads * head_dim), wanted 32"}));
    EXPECT_EQ(rotating([](Rotate& s) { s.rotation.x.rank = 2; }),
              (Failure{ATTNC_BAD_RANK,
                       "x has rank 2, wanted 3 [batch, seq, heads * head_dim] or 4 [batch, "
                       "num_heads, seq, head_dim]"}));
    EXPECT_EQ(rotating([](Rotate& s) { s.rotation.out.extent[1] = 2; }),
              (Failure{ATTNC_BAD_EXTENT, "out has extent 2 in dimension 1 (seq), wanted 3"}));
    EXPECT_EQ(
        rotating([](Rotate& s) { s.rotation.out.stride[1] = 32; }),
        (Failure{ATTNC_BAD_STRIDE,
                 "out has stride 32 in dimension 1, wanted 64 or more so that elements do not overlap"}));
    EXPECT_EQ(rotating([](Rotate& s) { s.run.workspace_bytes = 64; }).status, ATTNC_WORKSPACE_TOO_SMALL);
}

TEST(RotateErrors, NameThePosition) {
    EXPECT_EQ(
        rotating([](Rotate& s) {
            s.positions[5] = int64_t{1} << 40;
            s.rotation.positions = attnc_tensor_2d(ATTNC_I64, s.positions.data(), 2, 3);
        }),
        (Failure{ATTNC_BAD_VALUE, "positions[1, 2] is 1099511627776, wanted -2147483647 to 2147483647"}));
    EXPECT_EQ(rotating([](Rotate& s) {
                  s.positions[1] = 2147483646;
                  s.rotation.position_offsets = attnc_tensor_1d(ATTNC_I64, s.positions.data(), 2);
              }),
              (Failure{ATTNC_BAD_VALUE,
                       "the rows of item 1 begin at position 2147483646 and are 3, wanted "
                       "positions from -2147483647 to 2147483647"}));
    EXPECT_EQ(rotating([](Rotate& s) {
                  s.rotation.positions = attnc_tensor_2d(ATTNC_I64, s.positions.data(), 2, 2);
              }),
              (Failure{ATTNC_BAD_EXTENT, "positions has extent 2 in dimension 1 (seq), wanted 3"}));
}

TEST(RotateErrors, ALayerMustHaveSomethingToDo) {
    Rotate plain("d64_h4_f32:b2_q5_kv7");
    EXPECT_EQ(plain.failure(), (Failure{ATTNC_NOT_SUPPORTED,
                                        "attnc_layer_rotate is called, but the layer has "
                                        "neither a rotary embedding nor norms"}));
    Rotate norm("d64_h4_f32_qknorm:b2_q5_kv7");
    EXPECT_EQ(norm.failure().status, ATTNC_OK);
    norm.out.assign(norm.out.size(), 7);
    norm.rotation.position_offsets = attnc_tensor_1d(ATTNC_I64, norm.positions.data(), 2);
    EXPECT_EQ(norm.failure(),
              (Failure{ATTNC_NOT_SUPPORTED,
                       "position_offsets is given, but the library was compiled without rotary"}));
}

TEST(RotateErrors, MemoryMayBeTheSameButNotOverlap) {
    EXPECT_EQ(rotating([](Rotate& s) {
                  s.rotation.x.data = s.out.data() + 64;
                  s.rotation.x.extent[0] = s.rotation.out.extent[0] = 1;
              }),
              (Failure{ATTNC_OVERLAP, "out overlaps x"}));
    EXPECT_EQ(rotating([](Rotate& s) {
                  s.run.workspace = reinterpret_cast<unsigned char*>(reinterpret_cast<uintptr_t>(s.x.data()) &
                                                                     ~uintptr_t{63});
              }).status,
              ATTNC_OVERLAP);
    Rotate in_place;
    in_place.rotation.x = in_place.rotation.out;
    EXPECT_EQ(in_place.failure().status, ATTNC_OK);
}

}  // namespace
}  // namespace attnc::test
