// A row's bits depend on its query, its visible keys and their absolute places alone: thousands of random calls, each
// repeated in another form that leaves those as they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/random.h"
#include "tests/harness/cached_run.h"
#include "tests/harness/layer_call.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

constexpr uint64_t kSeed = 71;
constexpr int kCallsOfATarget = 3400;  // 10 200 on the three instruction sets

struct Case {
    const char* config;
    const char* schedule;
};
constexpr Case kCases[] = {{"d32_h2_f32", ""},
                           {"d32_h2_f32", "tile_kv:32"},
                           {"d24_h3_kv1_hd20_vhd12_f32_causal_sink", "tile_kv:32"},
                           {"d48_h4_kv2_f32_noin_noout", "tile_kv:32"},
                           {"d40_h2_kdim24_vdim56_f32_zeroattn", ""}};

struct LayerDelete {
    void operator()(attnc_layer* layer) const { attnc_layer_destroy(layer); }
};
using LayerPointer = std::unique_ptr<attnc_layer, LayerDelete>;

// Dense tokens [batch, rows, features] and what else a call has, small enough to copy.
struct Call {
    const attnc_layer* layer = nullptr;
    Config config;
    int64_t batch = 0, seq_q = 0, seq_kv = 0;
    Array<float> query, key, value, key_bias;
    Array<uint8_t> keep_mask;  // [batch, 1, seq_q, seq_kv]
    Array<int64_t> q_lengths, kv_lengths, offsets;
    attnc_causal causal = ATTNC_CAUSAL_NONE;
    bool more_outputs = false;
    int64_t tasks = 1;
};

int run_backwards(void*, int64_t count, int (*task)(void*, int64_t), void* data) {
    int result = 0;
    for (int64_t i = count; i-- > 0;) result |= task(data, i);
    return result;
}

int64_t out_features(const Config& c) { return c.out_proj ? c.d_model : c.num_heads * c.v_head_dim; }

// out, [batch, seq_q, features].
Array<float> run(const Call& call) {
    const Config& c = call.config;
    attnc_inputs in = ATTNC_INPUTS_INIT;
    in.query = call.query.view(), in.key = call.key.view(), in.value = call.value.view();
    in.keep_mask = call.keep_mask.view(), in.key_bias = call.key_bias.view();
    in.query_lengths = call.q_lengths.view(), in.key_lengths = call.kv_lengths.view();
    in.causal = call.causal, in.causal_offsets = call.offsets.view();
    Array<float> out = filled<float>({call.batch, call.seq_q, out_features(c)}, -1);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out.view();
    const int64_t columns = call.seq_kv + (c.bias_kv ? 1 : 0) + (c.zero_attn ? 1 : 0);
    Array<float> probs, lse;
    if (call.more_outputs) {
        probs = filled<float>({call.batch, c.num_heads, call.seq_q, columns}, -1);
        lse = filled<float>({call.batch, c.num_heads, call.seq_q}, -1);
        outputs.probs = probs.view(), outputs.lse = lse.view();
    }
    const attnc_executor executor = {nullptr, call.tasks, run_backwards};
    attnc_run settings = ATTNC_RUN_INIT;
    settings.executor = call.tasks > 1 ? &executor : nullptr;
    attnc_error error = {};
    EXPECT_EQ(attnc_layer_workspace(call.layer, &in, &outputs, &settings, &settings.workspace_bytes, &error),
              ATTNC_OK)
        << error.text;
    const std::unique_ptr<void, decltype(&std::free)> workspace(
        std::aligned_alloc(64, (settings.workspace_bytes + 127) / 64 * 64), std::free);
    std::fill_n(static_cast<unsigned char*>(workspace.get()), settings.workspace_bytes, 0xff);
    settings.workspace = workspace.get();
    EXPECT_EQ(attnc_layer_forward(call.layer, &in, &outputs, &settings, &error), ATTNC_OK) << error.text;
    return out;
}

Call random_small_call(Random& random, const attnc_layer* layer, const Config& config) {
    Call call;
    call.layer = layer, call.config = config;
    call.batch = random.between(1, 4), call.seq_q = random.between(1, 40),
    call.seq_kv = random.between(0, 70);
    const auto tokens = [&](int64_t rows, int64_t features) {
        return random_array({call.batch, rows, features}, random.bits(), 2);
    };
    call.query = tokens(call.seq_q, config.in_proj ? config.d_model : config.num_heads * config.head_dim);
    call.key = tokens(call.seq_kv, config.k_dim), call.value = tokens(call.seq_kv, config.v_dim);
    call.causal = static_cast<attnc_causal>(random.between(ATTNC_CAUSAL_NONE, ATTNC_CAUSAL_OFFSET));
    call.q_lengths = filled<int64_t>({call.batch}, call.seq_q);
    call.kv_lengths = filled<int64_t>({call.batch}, call.seq_kv);
    if (random.chance(0.6)) {
        for (int64_t& length : call.q_lengths.values) length = random.between(0, call.seq_q);
        for (int64_t& length : call.kv_lengths.values) length = random.between(0, call.seq_kv);
    }
    if (call.causal == ATTNC_CAUSAL_OFFSET) {
        call.offsets = filled<int64_t>({call.batch}, 0);
        for (int64_t& offset : call.offsets.values) offset = random.between(-call.seq_q, call.seq_kv);
    }
    if (random.chance(0.3)) call.key_bias = random_array({call.batch, call.seq_kv}, random.bits(), 3);
    if (random.chance(0.3)) {
        call.keep_mask = filled<uint8_t>({call.batch, 1, call.seq_q, call.seq_kv}, 0);
        for (uint8_t& element : call.keep_mask.values) element = random.chance(0.8) ? 1 : 0;
    }
    return call;
}

// Query i's own key, of an item.
int64_t diagonal(const Call& call, int64_t item) {
    if (call.causal == ATTNC_CAUSAL_TOP_LEFT) return 0;
    if (call.causal == ATTNC_CAUSAL_OFFSET) return call.offsets.at(item);
    return call.kv_lengths.at(item) - call.q_lengths.at(item);
}

// A slice of a call, with room and garbage around it: items first_item .., rows first_row .. of their queries, and
// `padding` more rows of queries and of keys, all NaN.
struct Slice {
    int64_t first_item, items, first_row, rows, padding;
};

template <typename T>
Array<T> with_rows(const Array<T>& from, const Slice& slice, int64_t first, int64_t rows, T garbage) {
    const int64_t features = from.shape[2];
    Array<T> to = filled<T>({slice.items, rows + slice.padding, features}, garbage);
    for (int64_t b = 0; b < slice.items; ++b) {
        const auto source = from.values.begin() + ((slice.first_item + b) * from.shape[1] + first) * features;
        std::copy_n(source, rows * features, to.values.begin() + b * (rows + slice.padding) * features);
    }
    return to;
}

Call slice_of(const Call& call, const Slice& slice) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    Call result = call;
    result.batch = slice.items;
    result.seq_q = slice.rows + slice.padding, result.seq_kv = call.seq_kv + slice.padding;
    result.query = with_rows(call.query, slice, slice.first_row, slice.rows, kNan);
    result.key = with_rows(call.key, slice, 0, call.seq_kv, kNan);
    result.value = with_rows(call.value, slice, 0, call.seq_kv, kNan);
    result.q_lengths = result.kv_lengths = filled<int64_t>({slice.items}, 0);
    result.offsets = {};
    if (call.causal != ATTNC_CAUSAL_NONE) {
        result.causal = ATTNC_CAUSAL_OFFSET;
        result.offsets = filled<int64_t>({slice.items}, 0);
    }
    if (call.key_bias.given()) result.key_bias = filled<float>({slice.items, result.seq_kv}, kNan);
    if (call.keep_mask.given())
        result.keep_mask = filled<uint8_t>({slice.items, 1, result.seq_q, result.seq_kv}, 1);
    for (int64_t b = 0; b < slice.items; ++b) {
        const int64_t item = slice.first_item + b;
        result.q_lengths.at(b) =
            std::clamp<int64_t>(call.q_lengths.at(item) - slice.first_row, 0, slice.rows);
        result.kv_lengths.at(b) = call.kv_lengths.at(item);
        if (result.offsets.given()) result.offsets.at(b) = diagonal(call, item) + slice.first_row;
        for (int64_t j = 0; j < call.seq_kv; ++j) {
            if (call.key_bias.given()) result.key_bias.at(b, j) = call.key_bias.at(item, j);
            for (int64_t i = 0; call.keep_mask.given() && i < slice.rows; ++i)
                result.keep_mask.at(b, 0, i, j) = call.keep_mask.at(item, 0, slice.first_row + i, j);
        }
    }
    return result;
}

// Rows of the slice have the bits of the whole call's; "" if so.
std::string difference(const Call& call, const Array<float>& whole, const Slice& slice,
                       const Array<float>& got) {
    for (int64_t b = 0; b < slice.items; ++b) {
        for (int64_t i = 0; i < slice.rows && slice.first_row + i < call.q_lengths.at(slice.first_item + b);
             ++i) {
            for (int64_t f = 0; f < whole.shape[2]; ++f) {
                const float want = whole.at(slice.first_item + b, slice.first_row + i, f),
                            have = got.at(b, i, f);
                if (std::bit_cast<uint32_t>(want) != std::bit_cast<uint32_t>(have)) {
                    return "item " + std::to_string(slice.first_item + b) + " row " +
                           std::to_string(slice.first_row + i) + " feature " + std::to_string(f) + ": " +
                           std::to_string(have) + ", wanted " + std::to_string(want);
                }
            }
        }
    }
    return "";
}

class Reproducibility : public ::testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        if (!cpu_runs(GetParam())) GTEST_SKIP() << "this CPU does not run " << GetParam();
        for (const Case& layer : kCases) {
            const LayerCall call = random_call(std::string(layer.config) + ":b1_q1_kv1", kSeed);
            const attnc_weights weights = call.weights();
            attnc_layer_options options = ATTNC_LAYER_OPTIONS_INIT;
            options.target = GetParam().c_str();
            attnc_layer* created = nullptr;
            attnc_error error = {};
            ASSERT_EQ(attnc_layer_create(library_of(call.config, layer.schedule), &weights, &options,
                                         &created, &error),
                      ATTNC_OK)
                << error.text;
            layers_.emplace_back(created);
            configs_.push_back(call.config);
        }
    }
    std::vector<LayerPointer> layers_;
    std::vector<Config> configs_;
};
INSTANTIATE_TEST_SUITE_P(Cpu, Reproducibility, ::testing::ValuesIn(all_targets()),
                         [](const auto& test) { return short_name(test.param); });

TEST_P(Reproducibility, HoldsForRandomCallsInOtherForms) {
    int failures = 0;
    for (int n = 0; n < kCallsOfATarget && failures < 5; ++n) {
        Random random(mixed_bits(kSeed, static_cast<uint64_t>(n)));
        const auto which = static_cast<size_t>(n) % layers_.size();
        const Call call = random_small_call(random, layers_[which].get(), configs_[which]);
        const Array<float> whole = run(call);
        Slice slice = {0, call.batch, 0, call.seq_q, random.chance(0.5) ? random.between(1, 40) : 0};
        if (random.chance(0.5)) {
            slice.first_item = random.between(0, call.batch - 1);
            slice.items = random.between(1, call.batch - slice.first_item);
        }
        if (random.chance(0.5)) {
            slice.first_row = random.between(0, call.seq_q - 1);
            slice.rows = random.between(1, call.seq_q - slice.first_row);
        }
        Call other = slice_of(call, slice);
        if (random.chance(0.5)) other.tasks = random.between(2, 9);
        other.more_outputs = random.chance(0.3);
        const std::string wrong = difference(call, whole, slice, run(other));
        if (wrong.empty()) continue;
        ++failures;
        ADD_FAILURE() << kCases[which].config << " " << kCases[which].schedule << ", call " << n << ", items "
                      << slice.first_item << "+" << slice.items << " of " << call.batch << ", rows "
                      << slice.first_row << "+" << slice.rows << " of " << call.seq_q << ", padding "
                      << slice.padding << ", " << other.tasks << " tasks: " << wrong;
    }
}

// Chunks of more than 8 queries, which the decode kernel does not take.
TEST_P(Reproducibility, HoldsForPrefillInChunksOfACache) {
    constexpr int kCalls = 200;
    constexpr int64_t kLeastChunk = 9;
    int failures = 0;
    for (int n = 0; n < kCalls && failures < 5; ++n) {
        Random random(mixed_bits(kSeed + 1, static_cast<uint64_t>(n)));
        const int64_t batch = random.between(1, 3), rows = random.between(kLeastChunk, 120);
        LayerCall call = random_call(parse_config("d32_h4_kv2_f32_causal_cache_page16"), {batch, rows, rows},
                                     random.bits());
        call.key = call.value = {};
        const auto kind = static_cast<attnc_cache_kind>(random.between(ATTNC_CACHE_SLOTS, ATTNC_CACHE_PAGED));
        if (kind == ATTNC_CACHE_RING || random.chance(0.3)) call.window_left = random.between(0, 50);
        const int64_t most_chunk = random.between(kLeastChunk, 60);
        const int64_t held = call.window_left.value_or(0) + most_chunk + kLeastChunk + 16;
        const int64_t capacity = kind == ATTNC_CACHE_RING ? held / 16 * 16 : rows;
        CachedLayer layer(library_of(call.config, "tile_kv:32"), call, {kind, batch, capacity},
                          GetParam().c_str());
        const RunResult whole = layer.plain(call);
        ASSERT_EQ(whole.status, ATTNC_OK) << whole.error;
        const int64_t features = call.config.d_model;
        for (int64_t first = 0; first < rows;) {
            int64_t count = std::min(random.between(kLeastChunk, most_chunk), rows - first);
            if (rows - first - count < kLeastChunk) count = rows - first;
            const RunResult chunk = layer.append(part_of(call, Part{first, count, first, count}));
            ASSERT_EQ(chunk.status, ATTNC_OK) << chunk.error;
            for (int64_t b = 0; b < batch; ++b) {
                const auto want = whole.out.begin() + (b * rows + first) * features;
                const auto got = chunk.out.begin() + b * count * features;
                const auto same = same_bits(std::vector<float>(want, want + count * features),
                                            std::vector<float>(got, got + count * features));
                failures += same ? 0 : 1;
                EXPECT_TRUE(same) << "call " << n << ", kind " << kind << ", item " << b << " of " << batch
                                  << ", rows " << first << "+" << count << " of " << rows;
            }
            first += count;
        }
    }
}

}  // namespace
}  // namespace attnc::test
