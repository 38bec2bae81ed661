// Random sequences of calls that share a cache against the reference, which gets what the cache held before each call; a
// cache of another kind has the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/harness/cached_run.h"
#include "tests/harness/libraries.h"
#include "tests/harness/targets.h"

namespace attnc::test {
namespace {

constexpr uint64_t kSeed = 52;
constexpr int kLayers = 6, kSequences = 3, kSteps = 10;
constexpr int64_t kSlots = 4, kMostRows = 20, kMostWindow = 20, kCapacity = 200, kRing = 48;

Config random_config(Random& random) {
    Config config;
    config.num_kv_heads = random.between(1, 2);
    config.num_heads = config.num_kv_heads * random.between(1, 3);
    config.head_dim = random.between(1, 32);
    config.v_head_dim = random.chance(0.5) ? config.head_dim : random.between(1, 32);
    config.in_proj = random.chance(0.8);
    config.out_proj = random.chance(0.8);
    config.d_model =
        config.in_proj || config.out_proj ? random.between(1, 70) : config.num_heads * config.head_dim;
    config.causal = random.chance(0.3);
    config.zero_attn = random.chance(0.2);
    config.sink = random.chance(0.3);
    config.cache = true;
    config.page_size = random.chance(0.5) ? 16 : 32;
    return complete(config);
}

struct Step {
    LayerCall call;
    std::vector<int64_t> slots;
    bool reads = false;
};

// Keys that item b brings.
int64_t brings(const Step& step, int64_t b) {
    if (step.reads) return 0;
    if (step.call.key_lengths.given()) return step.call.key_lengths.at(b);
    return step.call.key.given() ? step.call.key.shape[1] : step.call.sizes.seq_q;
}

// A call of some slots, on top of the layer of `model`.
Step random_step(Random& random, const LayerCall& model, const CachedLayer& cache, bool ring) {
    Step step;
    std::vector<int64_t> order = {0, 1, 2, 3};
    for (size_t i = 3; i > 0; --i)
        std::swap(order[i], order[static_cast<size_t>(random.between(0, static_cast<int64_t>(i)))]);
    const int64_t batch = random.between(1, kSlots);
    step.slots.assign(order.begin(), order.begin() + batch);
    step.reads = random.chance(0.15);
    const auto rows = [&] {
        return random.chance(0.4) ? random.between(1, 3) : random.between(1, kMostRows);
    };
    const Sizes sizes = {batch, rows(), rows()};
    const LayerCall data = random_call(model.config, sizes, random.bits());
    LayerCall& call = step.call = model;
    call.sizes = sizes;
    call.query = data.query;
    call.key = data.key, call.value = data.value;
    if (step.reads) {
        call.key = call.value = {};
    } else if (data.query.shape[2] == data.key.shape[2] && data.key.shape[2] == data.value.shape[2] &&
               random.chance(0.5)) {
        call.key = call.value = {};
    }
    const auto lengths = [&](int64_t most) {
        Array<int64_t> array = filled<int64_t>({batch}, 0);
        for (int64_t& length : array.values) length = random.between(0, most);
        return array;
    };
    if (random.chance(0.4)) call.query_lengths = lengths(sizes.seq_q);
    if (!step.reads && random.chance(0.4))
        call.key_lengths = lengths(call.key.given() ? sizes.seq_kv : sizes.seq_q);
    call.sizes.seq_kv = 0;
    for (int64_t b = 0; b < batch; ++b) {
        call.sizes.seq_kv =
            std::max(call.sizes.seq_kv, cache.length(step.slots[static_cast<size_t>(b)]) + brings(step, b));
    }
    const int64_t keys = call.sizes.seq_kv;
    if (random.chance(0.3)) {
        call.keep_mask = filled<uint8_t>({1, 1, sizes.seq_q, keys}, 1);
        for (uint8_t& element : call.keep_mask.values) element = random.chance(0.8) ? 1 : 0;
    }
    if (random.chance(0.3)) call.bias = random_array({batch, 1, 1, keys}, random.bits(), 3);
    if (random.chance(0.2)) {
        call.key_drop_mask = filled<uint8_t>({batch, keys}, 0);
        for (uint8_t& element : call.key_drop_mask.values) element = random.chance(0.1) ? 1 : 0;
    }
    // A ring has only keys near the bottom-right diagonal.
    const attnc_causal near[] = {ATTNC_CAUSAL_NOT_GIVEN, ATTNC_CAUSAL_NONE, ATTNC_CAUSAL_BOTTOM_RIGHT};
    call.causal = ring || random.chance(0.8) ? near[random.between(0, 2)] : ATTNC_CAUSAL_TOP_LEFT;
    call.probs = random.chance(0.4), call.probs_averaged = random.chance(0.3), call.lse = random.chance(0.5);
    return step;
}

// What the cache holds for the items of a step.
struct Past {
    Array<float> keys, values;
    ReferencePast view;
};
Past past_of(const Config& c, const CachedLayer& cache, const Step& step) {
    Past past;
    int64_t most = 0;
    for (const int64_t slot : step.slots) {
        past.view.lengths.push_back(cache.length(slot));
        most = std::max(most, cache.length(slot));
    }
    const auto batch = static_cast<int64_t>(step.slots.size());
    past.keys = filled<float>({batch, c.num_kv_heads, most, c.head_dim}, 0);
    past.values = filled<float>({batch, c.num_kv_heads, most, c.v_head_dim}, 0);
    for (int64_t b = 0; b < batch; ++b) {
        const int64_t count = past.view.lengths[static_cast<size_t>(b)];
        attnc_cache_range range = ATTNC_CACHE_RANGE_INIT;
        range.slots = attnc_tensor_1d(ATTNC_I64, &step.slots[static_cast<size_t>(b)], 1);
        range.count = count;
        const auto part = [&](Array<float>& array) {
            attnc_tensor t = array.view();
            t.data = static_cast<float*>(t.data) + b * t.stride[0];
            t.extent[0] = 1, t.extent[2] = count;
            return t;
        };
        const attnc_tensor key = part(past.keys), value = part(past.values);
        EXPECT_EQ(attnc_cache_export(cache.cache(), &range, &key, &value, nullptr), ATTNC_OK);
    }
    past.view.keys = past.keys.view(), past.view.values = past.values.view();
    past.view.alone = step.reads;
    return past;
}

class RandomCache : public ::testing::TestWithParam<int> {
protected:
    void run_sequence(Random& random, const LayerCall& model, attnc_cache_kind kind,
                      const std::string& target);
};

void RandomCache::run_sequence(Random& random, const LayerCall& model, attnc_cache_kind kind,
                               const std::string& target) {
    const attnc_library* library = library_of(model.config);
    CachedLayer slots(library, model, {ATTNC_CACHE_SLOTS, kSlots, kCapacity}, target.c_str());
    const int64_t capacity = kind == ATTNC_CACHE_RING ? kRing : kCapacity;
    CachedLayer other(library, model, {kind, kSlots, capacity}, target.c_str());
    for (int n = 0; n < kSteps; ++n) {
        const Step step = random_step(random, model, slots, kind == ATTNC_CACHE_RING);
        const Past past = past_of(model.config, slots, step);
        const Reference want = reference_layer(model.config, step.call.weights(),
                                               step.call.reference_options(), step.call.inputs(), past.view);
        const auto run = [&](CachedLayer& layer) {
            return step.reads ? layer.read(step.call, step.slots) : layer.append(step.call, step.slots);
        };
        const RunResult got = run(slots);
        ASSERT_TRUE(matches_reference(step.call, got, {.target = target}, &want)) << "step " << n;
        ASSERT_TRUE(same_bits(got, run(other))) << "step " << n << ", cache of kind " << kind;
        if (kind == ATTNC_CACHE_PAGED || random.chance(0.7)) continue;
        std::vector<int64_t> from(static_cast<size_t>(random.between(1, kSlots)));
        for (int64_t& slot : from) slot = random.between(0, kSlots - 1);
        for (const CachedLayer* layer : {&slots, &other}) {
            ASSERT_EQ(
                attnc_cache_reorder(layer->cache(), from.data(), static_cast<int64_t>(from.size()), nullptr),
                ATTNC_OK);
        }
    }
}

TEST_P(RandomCache, MatchesTheReference) {
    Random random(mixed_bits(kSeed, static_cast<uint64_t>(GetParam())));
    const Config config = random_config(random);
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", layer " + std::to_string(GetParam()) + ": " +
                 to_string(config));
    for (int n = 0; n < kSequences; ++n) {
        LayerCall model = random_call(config, {1, 1, 1}, random.bits());
        model.query = model.key = model.value = {};
        const auto kind = static_cast<attnc_cache_kind>(random.between(ATTNC_CACHE_SLOTS, ATTNC_CACHE_PAGED));
        if (kind == ATTNC_CACHE_RING || random.chance(0.3))
            model.window_left = random.between(0, kMostWindow);
        const attnc_empty_rows policies[] = {ATTNC_EMPTY_ROWS_ZERO, ATTNC_EMPTY_ROWS_NAN,
                                             ATTNC_EMPTY_ROWS_MEAN_OF_VALUES};
        model.empty_rows = policies[random.between(0, kind == ATTNC_CACHE_RING ? 1 : 2)];
        const uint64_t steps = random.bits();
        for (const std::string& target : runnable_targets()) {
            Random same_steps(steps);
            run_sequence(same_steps, model, kind, target);
            if (HasFatalFailure()) return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, RandomCache, ::testing::Range(0, kLayers));

}  // namespace
}  // namespace attnc::test
