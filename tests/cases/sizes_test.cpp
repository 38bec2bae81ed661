// Faults that users of other attention layers met with sizes around 2^31 elements and 2 GiB, each with its public report.
// Tensors that large lie in memory whose untouched pages take no room: rows far apart, or few of them used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cases/direct_call.h"
#include "tests/harness/layer_run.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

constexpr int64_t kTwo31 = int64_t{1} << 31;
constexpr size_t kFloat = sizeof(float);

class SizeCases : public TargetTest {};
ATTNC_FOR_EACH_TARGET(SizeCases);

// [1, rows, features] with `stride` elements between rows.
attnc_tensor far_rows(const SparseMemory& memory, int64_t rows, int64_t features, int64_t stride) {
    attnc_tensor t = attnc_tensor_3d(ATTNC_F32, memory.as<float>(), 1, rows, features);
    t.stride[0] = rows * stride;
    t.stride[1] = stride;
    return t;
}

// Rows of a dense array to rows from `first` of a tensor, or back.
void put_rows(const Array<float>& from, const attnc_tensor& to, int64_t first) {
    const int64_t rows = from.shape[1], features = from.shape[2];
    for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(static_cast<float*>(to.data) + (first + i) * to.stride[1],
                    from.values.data() + i * features, static_cast<size_t>(features) * kFloat);
    }
}
std::vector<float> get_rows(const attnc_tensor& from, int64_t first, int64_t rows) {
    std::vector<float> values;
    for (int64_t i = first; i < first + rows; ++i) {
        const float* row = static_cast<const float*>(from.data) + i * from.stride[1];
        values.insert(values.end(), row, row + from.extent[2]);
    }
    return values;
}

Array<float> rows_of(const Array<float>& all, int64_t first, int64_t rows) {
    const int64_t features = all.shape[2];
    const auto begin = all.values.begin() + first * features;
    return {{1, rows, features}, {begin, begin + rows * features}};
}

// A rank-4 mask or bias [1, 1, seq, seq], of which a corner is written.
template <typename T>
attnc_tensor far_corner(const SparseMemory& memory, attnc_dtype dtype, int64_t seq, const Array<T>& corner,
                        int64_t first) {
    const int64_t size = corner.shape[3];
    for (int64_t i = 0; i < size; ++i) {
        std::memcpy(memory.as<T>() + (first + i) * seq + first, corner.values.data() + i * size,
                    static_cast<size_t>(size) * sizeof(T));
    }
    return attnc_tensor_4d(dtype, memory.as<T>(), 1, 1, seq, seq);
}

// 65536 tokens made offsets overflow 32 bits (microsoft/onnxruntime#20921, microsoft/onnxruntime-genai#515): rows of
// tokens and outputs, and masks and biases of seq_q x seq_kv, past 2^31 elements. A window keeps the work small. What
// isn't zero lies in the first and the last 128 rows.
TEST_P(SizeCases, SixtyFourThousandTokensReachPastTwoToThe31Elements) {
    constexpr int64_t kSeq = 65536, kStride = 40016, kEdge = 128, kWindow = 31, kFeatures = 32;
    static_assert((kSeq - 8192) * kStride > kTwo31 && kSeq * kSeq > kTwo31);
    const SparseMemory query(kSeq * kStride * kFloat), key(kSeq * kStride * kFloat),
        value(kSeq * kStride * kFloat), out(kSeq * kStride * kFloat);
    const SparseMemory drops(kSeq * kSeq), biases(kSeq * kSeq * kFloat);
    for (const char* config : {"d32_h2_f32", "d32_h2_f32_noin_noout"}) {
        LayerCall edge = random_call(parse_config(config), {1, kEdge, kEdge}, 28);
        edge.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        edge.window_left = kWindow;
        edge.bias = random_array({1, 1, kEdge, kEdge}, 29, 2);
        edge.drop_mask = filled<uint8_t>({1, 1, kEdge, kEdge}, 0);
        for (size_t n = 0; n < edge.drop_mask.values.size(); n += 3) edge.drop_mask.values[n] = 1;

        attnc_inputs in = ATTNC_INPUTS_INIT;
        in.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
        in.query = far_rows(query, kSeq, kFeatures, kStride);
        in.key = far_rows(key, kSeq, kFeatures, kStride);
        in.value = far_rows(value, kSeq, kFeatures, kStride);
        for (const int64_t first : {int64_t{0}, kSeq - kEdge}) {
            put_rows(edge.query, in.query, first);
            put_rows(edge.key, in.key, first);
            put_rows(edge.value, in.value, first);
            in.drop_mask = far_corner(drops, ATTNC_U8, kSeq, edge.drop_mask, first);
            in.bias = far_corner(biases, ATTNC_F32, kSeq, edge.bias, first);
        }
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = far_rows(out, kSeq, kFeatures, kStride);
        const LayerPointer layer = make_layer(edge, target());
        Workspace workspace;
        const DirectResult result = forward(layer.get(), in, outputs, workspace);
        ASSERT_TRUE(result.ok()) << result.error;

        RunResult first_rows;
        first_rows.out = get_rows(outputs.out, 0, kEdge);
        EXPECT_TRUE(matches_reference(edge, first_rows, {.target = target()}));
        LayerCall last = edge;  // the queries whose window lies in what was written
        last.sizes.seq_q = kEdge - kWindow;
        last.query = rows_of(edge.query, kWindow, kEdge - kWindow);
        const auto cut = [&](auto& array) {
            array.shape[2] = kEdge - kWindow;
            array.values.erase(array.values.begin(), array.values.begin() + kWindow * kEdge);
        };
        cut(last.drop_mask);
        cut(last.bias);
        RunResult last_rows;
        last_rows.out = get_rows(outputs.out, kSeq - kEdge + kWindow, kEdge - kWindow);
        EXPECT_TRUE(matches_reference(last, last_rows, {.target = target()}));
    }
}

// The same fault inside: 4096 heads of 65536 rows, padded to 16 features, are 2^32 elements of workspace, twice. Few
// rows are valid, so that few pages are used.
TEST_P(SizeCases, PlanesOfHeadsReachPastTwoToThe31Elements) {
    constexpr int64_t kSeq = 65536, kHeads = 4096, kRows = 4, kFeatures = 16;
    static_assert(kSeq * kHeads * 16 == 2 * kTwo31);
    const LayerCall few = random_call(parse_config("d16_h4096_kv1_hd1_f32_noin"), {1, kRows, kRows}, 30);
    const LayerPointer layer = make_layer(few, target());
    const SparseMemory query(kSeq * kHeads * kFloat), key(kSeq * kFloat), value(kSeq * kFloat),
        out(kSeq * kFeatures * kFloat);
    attnc_inputs in = ATTNC_INPUTS_INIT;
    in.query = far_rows(query, kSeq, kHeads, kHeads);
    in.key = far_rows(key, kSeq, 1, 1);
    in.value = far_rows(value, kSeq, 1, 1);
    put_rows(few.query, in.query, 0);
    put_rows(few.key, in.key, 0);
    put_rows(few.value, in.value, 0);
    const Array<int64_t> lengths = {{1}, {kRows}};
    in.query_lengths = in.key_lengths = lengths.view();
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = far_rows(out, kSeq, kFeatures, kFeatures);
    Workspace workspace;
    const DirectResult result = forward(layer.get(), in, outputs, workspace);
    ASSERT_TRUE(result.ok()) << result.error;
    EXPECT_TRUE(same_bits(get_rows(outputs.out, 0, kRows), forward(layer.get(), few)));
}

// Buffers over 2 GiB gave errors, crashes or negative strides, depending on the version (halide/Halide#4460, #123,
// #5791): tokens and outputs that span just less, exactly and just more than 2 GiB and than 2^31 elements.
TEST_P(SizeCases, SpansAroundTwoGibibytesAndTwoToThe31ElementsWork) {
    constexpr int64_t kFeatures = 16;
    const SparseMemory tokens((kTwo31 + 1) * kFloat), out((kTwo31 + 1) * kFloat);
    for (const char* config : {"d16_h1_f32", "d16_h1_f32_noin_noout"}) {
        const LayerCall call = random_call(parse_config(config), {1, 2, 2}, 31);
        const LayerPointer layer = make_layer(call, target());
        LayerCall self = call;
        self.key = self.value = {};
        const std::vector<float> want = forward(layer.get(), self);
        for (const int64_t limit : {kTwo31 / 4, kTwo31}) {
            for (const int64_t span : {limit - 1, limit, limit + 1}) {
                attnc_inputs in = ATTNC_INPUTS_INIT;
                in.query = far_rows(tokens, 2, kFeatures, span - kFeatures);
                put_rows(call.query, in.query, 0);
                attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
                outputs.out = far_rows(out, 2, kFeatures, span - kFeatures);
                Workspace workspace;
                const DirectResult result = forward(layer.get(), in, outputs, workspace);
                ASSERT_TRUE(result.ok()) << result.error;
                EXPECT_TRUE(same_bits(get_rows(outputs.out, 0, 2), want)) << config << ", span " << span;
            }
        }
    }
}

// The same for an output of 2.4 GiB in 37500 rows, of which one call of a kernel can't take all.
TEST_P(SizeCases, AnOutputOfTwoAndAHalfGibibytesIsWrittenToItsEnd) {
    constexpr int64_t kRows = 37500, kStride = 16384, kFeatures = 16;
    const SparseMemory out(kRows * kStride * kFloat);
    for (const char* config : {"d16_h1_f32", "d16_h1_f32_noin_noout"}) {
        const LayerCall call = random_call(parse_config(config), {1, kRows, 3}, 33);
        const LayerPointer layer = make_layer(call, target());
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = far_rows(out, kRows, kFeatures, kStride);
        Workspace workspace;
        const DirectResult result = forward(layer.get(), call.inputs(), outputs, workspace);
        ASSERT_TRUE(result.ok()) << result.error;
        EXPECT_TRUE(same_bits(get_rows(outputs.out, 0, kRows), forward(layer.get(), call))) << config;
    }
}

// And for weights of attention and lse whose heads lie 2^31 elements apart.
TEST_P(SizeCases, WeightsWithHeadsTwoToThe31ElementsApartAreWritten) {
    constexpr int64_t kQueries = 3, kKeys = 5;
    LayerCall call = random_call(parse_config("d32_h2_f32"), {1, kQueries, kKeys}, 34);
    call.probs = call.lse = true;
    const RunResult want = run_call(call, target());
    ASSERT_EQ(want.status, ATTNC_OK) << want.error;
    const SparseMemory probs((kTwo31 + kQueries * kKeys) * kFloat), lse((kTwo31 + kQueries) * kFloat);
    const LayerPointer layer = make_layer(call, target());
    Array<float> out = filled<float>({1, kQueries, 32}, 0);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out.view();
    outputs.probs = attnc_tensor_4d(ATTNC_F32, probs.as<float>(), 1, 2, kQueries, kKeys);
    outputs.lse = attnc_tensor_3d(ATTNC_F32, lse.as<float>(), 1, 2, kQueries);
    outputs.probs.stride[1] = outputs.lse.stride[1] = kTwo31;
    Workspace workspace;
    const DirectResult result = forward(layer.get(), call.inputs(), outputs, workspace);
    ASSERT_TRUE(result.ok()) << result.error;
    for (int64_t head = 0; head < 2; ++head) {
        const auto is_same = [&](const SparseMemory& got, const std::vector<float>& all, int64_t each) {
            const float* first = got.as<float>() + head * kTwo31;
            return same_bits({first, first + each},
                             {all.begin() + head * each, all.begin() + (head + 1) * each});
        };
        EXPECT_TRUE(is_same(probs, want.probs, kQueries * kKeys));
        EXPECT_TRUE(is_same(lse, want.lse, kQueries));
    }
}

// Sizes beyond what a kernel's buffers hold are refused by the sentence that names the limit, before anything is written;
// a batch has no limit.
TEST_P(SizeCases, ItemsOfTwoToThe31ElementsAreRefused) {
    const LayerCall call = random_call(parse_config("d16_h1_f32"), {1, 1, 1}, 35);
    const LayerPointer layer = make_layer(call, target());
    const auto refusal = [&](int64_t batch, int64_t seq_q, int64_t seq_kv) {
        attnc_inputs in = ATTNC_INPUTS_INIT;
        in.query = attnc_tensor_3d(ATTNC_F32, nullptr, batch, seq_q, 16);
        in.key = attnc_tensor_3d(ATTNC_F32, nullptr, batch, seq_kv, 16);
        attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
        outputs.out = attnc_tensor_3d(ATTNC_F32, nullptr, batch, seq_q, 16);
        size_t bytes = 0;
        attnc_error error = {};
        const attnc_status status =
            attnc_layer_workspace(layer.get(), &in, &outputs, nullptr, &bytes, &error);
        EXPECT_EQ(status, status == ATTNC_OK ? ATTNC_OK : ATTNC_TOO_LARGE);
        return std::string(status == ATTNC_OK ? "" : error.text);
    };
    for (const int64_t seq : {kTwo31 - 1, kTwo31, kTwo31 * 2}) {
        const std::string number = std::to_string(seq);
        EXPECT_TRUE(refusal(1, seq, 1).starts_with("seq_q is " + number + ", at most "))
            << refusal(1, seq, 1);
        EXPECT_TRUE(refusal(1, 1, seq).starts_with("seq_kv is " + number + ", at most "))
            << refusal(1, 1, seq);
        EXPECT_EQ(refusal(seq, 1, 1), "");
    }
}

}  // namespace
}  // namespace attnc::test
