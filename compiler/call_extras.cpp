#include "compiler/call_extras.h"

#include <stdexcept>

#include "support/random.h"

namespace attnc {

namespace {

constexpr double kDropped = 0.1;
constexpr uint64_t kMaskSeed = 7, kLengthSeed = 11;

attnc_tensor dense(attnc_dtype type, const void* data, const std::vector<int64_t>& extents) {
    switch (extents.size()) {
        case 2:
            return attnc_tensor_2d(type, data, extents[0], extents[1]);
        case 3:
            return attnc_tensor_3d(type, data, extents[0], extents[1], extents[2]);
        default:
            return attnc_tensor_4d(type, data, extents[0], extents[1], extents[2], extents[3]);
    }
}

int64_t elements(const std::vector<int64_t>& extents) {
    int64_t count = 1;
    for (int64_t extent : extents) count *= extent;
    return count;
}

std::vector<uint8_t> random_bytes(int64_t count, double share) {
    Random random(kMaskSeed);
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    for (uint8_t& byte : bytes) byte = random.chance(share) ? 1 : 0;
    return bytes;
}

struct MaskName {
    const char* name;
    attnc_tensor attnc_inputs::*field;
    bool per_key;
};
constexpr MaskName kMasks[] = {
    {"key_keep_mask", &attnc_inputs::key_keep_mask, true},
    {"key_drop_mask", &attnc_inputs::key_drop_mask, true},
    {"key_bias", &attnc_inputs::key_bias, true},
    {"keep_mask", &attnc_inputs::keep_mask, false},
    {"drop_mask", &attnc_inputs::drop_mask, false},
    {"bias", &attnc_inputs::bias, false},
};

}  // namespace

CallExtras::CallExtras(const Problem& problem, const std::vector<std::string>& names) {
    for (const std::string& name : names) add(problem, name);
}

void CallExtras::add(const Problem& problem, const std::string& name) {
    const auto [batch, seq_q, seq_kv] = problem.sizes;
    const int64_t heads = problem.config.num_heads;
    for (const MaskName& mask : kMasks) {
        if (name == mask.name) return add_mask(mask.field, mask.per_key, false, problem.sizes, heads);
        if (!mask.per_key && name == std::string(mask.name) + "_of_heads")
            return add_mask(mask.field, false, true, problem.sizes, heads);
    }
    if (name == "causal") {
        causal_ = true;
    } else if (name == "full_lengths") {
        lengths_.assign(static_cast<size_t>(batch), seq_q);
    } else if (name == "lengths") {
        Random random(kLengthSeed);
        lengths_.resize(static_cast<size_t>(batch));
        for (int64_t& length : lengths_) length = random.between((seq_q + 7) / 8, seq_q);
    } else if (name == "probs") {
        add_output(&attnc_outputs::probs, {batch, heads, seq_q, seq_kv});
    } else if (name == "probs_averaged") {
        add_output(&attnc_outputs::probs_averaged, {batch, seq_q, seq_kv});
    } else if (name == "lse") {
        add_output(&attnc_outputs::lse, {batch, heads, seq_q});
    } else {
        throw std::runtime_error("no call has " + in_quotes(name));
    }
}

void CallExtras::add_mask(attnc_tensor attnc_inputs::*field, bool per_key, bool of_heads, const Sizes& sizes,
                          int64_t heads) {
    std::vector<int64_t> extents = {sizes.batch, sizes.seq_kv};
    if (!per_key) extents = {1, 1, sizes.seq_q, sizes.seq_kv};
    if (of_heads) extents = {sizes.batch, heads, sizes.seq_q, sizes.seq_kv};
    if (field == &attnc_inputs::bias || field == &attnc_inputs::key_bias) {
        floats_.push_back(generated(elements(extents), kMaskSeed, 2));
        inputs_.push_back({field, dense(ATTNC_F32, floats_.back().data(), extents)});
        return;
    }
    const bool drops = field == &attnc_inputs::drop_mask || field == &attnc_inputs::key_drop_mask;
    bytes_.push_back(random_bytes(elements(extents), drops ? kDropped : 1 - kDropped));
    inputs_.push_back({field, dense(ATTNC_U8, bytes_.back().data(), extents)});
}

void CallExtras::add_output(attnc_tensor attnc_outputs::*field, const std::vector<int64_t>& extents) {
    floats_.emplace_back(static_cast<size_t>(elements(extents)));
    outputs_.push_back({field, dense(ATTNC_F32, floats_.back().data(), extents)});
}

void CallExtras::apply(attnc_inputs& inputs, attnc_outputs& outputs) const {
    if (causal_) inputs.causal = ATTNC_CAUSAL_BOTTOM_RIGHT;
    if (!lengths_.empty()) {
        inputs.key_lengths = inputs.query_lengths =
            attnc_tensor_1d(ATTNC_I64, lengths_.data(), static_cast<int64_t>(lengths_.size()));
    }
    for (const auto& given : inputs_) inputs.*given.field = given.view;
    for (const auto& given : outputs_) outputs.*given.field = given.view;
}

}  // namespace attnc
