#include "models/rotary_fields.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace attnc {

namespace {

// The object that holds the scaling: rope_parameters (of the layer's type, where it has types), rope_scaling, or none.
const Json& scaling_section(const Json& fields, const std::string& layer_type) {
    static const Json none = Json::object();
    for (const char* const name : {"rope_parameters", "rope_scaling"}) {
        if (find_field(fields, name) == nullptr) continue;
        const Json& section = read_section(fields, name);
        const bool has_types = section.contains("full_attention") || section.contains("sliding_attention");
        return has_types && !layer_type.empty() ? read_section(section, layer_type) : section;
    }
    return none;
}

std::string scaling_type(const Json& scaling) {
    for (const char* const name : {"rope_type", "type"}) {
        if (find_field(scaling, name) != nullptr) return read_text(scaling, name);
    }
    return scaling.empty() || scaling.contains("rope_theta") ? "default" : read_text(scaling, "rope_type");
}

int64_t read_dim(const Json& fields, const Json& scaling, int64_t head_dim, double fraction) {
    for (const Json* const object : {&scaling, &fields}) {
        if (find_field(*object, "partial_rotary_factor") == nullptr) continue;
        fraction = read_positive(*object, "partial_rotary_factor");
        break;
    }
    const auto dim = static_cast<int64_t>(static_cast<double>(head_dim) * std::min(fraction, 2.0));
    if (dim > head_dim || dim < 2 || dim % 2 != 0) {
        throw ConfigError("rotary embedding of " + std::to_string(dim) + " of " + std::to_string(head_dim) +
                          " features of a head: it must be an even number of them");
    }
    return dim;
}

// The frequency of pair i before scaling.
double frequency(double base, int64_t dim, int64_t i) {
    return std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
}

// YaRN (Peng et al. 2023): pairs that turn often keep their frequency, those that turn less than once over the
// original positions are slowed by `factor`, and a ramp over the pairs lies between.
void apply_yarn(const Json& fields, const Json& scaling, RotarySettings& rotary) {
    const double factor = read_positive(scaling, "factor");
    const char* const original = "original_max_position_embeddings";
    const double positions = find_field(scaling, original) != nullptr
                                 ? read_positive(scaling, original)
                                 : read_positive(fields, "max_position_embeddings");
    const bool truncate = read_flag(scaling, "truncate", true);
    const auto dim = static_cast<double>(rotary.dim);

    // The pair, as a fraction, that turns so many times over the original positions.
    const auto pair_of = [&](double turns) {
        return dim * std::log(positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(rotary.base));
    };
    double low = pair_of(read_positive(scaling, "beta_fast", 32.0));
    double high = pair_of(read_positive(scaling, "beta_slow", 1.0));
    if (truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;  // as the models' own code: a step in the place of a ramp

    for (int64_t i = 0; i < rotary.dim / 2; ++i) {
        const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        rotary.frequencies.push_back(frequency(rotary.base, rotary.dim, i) * (slowed / factor + 1 - slowed));
    }

    const auto magnitude = [&](double weight) {
        return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1;
    };
    const bool two_weights =
        find_field(scaling, "mscale") != nullptr && find_field(scaling, "mscale_all_dim") != nullptr;
    const double usual = two_weights ? magnitude(read_positive(scaling, "mscale")) /
                                           magnitude(read_positive(scaling, "mscale_all_dim"))
                                     : magnitude(1);
    rotary.magnitude = read_positive(scaling, "attention_factor", usual);
}

// LongRoPE (Ding et al. 2024): a divisor for each pair, one list for contexts of the first training's length and one
// for longer ones.
void apply_longrope(const Json& fields, const Json& scaling, int64_t max_positions, RotarySettings& rotary) {
    const char* const original = "original_max_position_embeddings";
    double positions = 0;
    double factor = 0;
    if (find_field(fields, original) != nullptr || find_field(scaling, original) != nullptr) {
        positions = read_positive(find_field(fields, original) != nullptr ? fields : scaling, original);
        factor = read_positive(fields, "max_position_embeddings") / positions;
    } else {
        positions = read_positive(fields, "max_position_embeddings");
        factor = read_positive(scaling, "factor");
    }
    const bool is_long = static_cast<double>(max_positions) > positions;
    const char* const list = is_long ? "long_factor" : "short_factor";
    const std::vector<double> divisors = read_positives(scaling, list);
    if (divisors.size() != static_cast<size_t>(rotary.dim / 2)) {
        throw ConfigError(std::string(list) + " has " + std::to_string(divisors.size()) +
                          " entries, wanted " + std::to_string(rotary.dim / 2) +
                          ", half the rotary dimension");
    }
    for (size_t i = 0; i < divisors.size(); ++i) {
        rotary.frequencies.push_back(frequency(rotary.base, rotary.dim, static_cast<int64_t>(i)) /
                                     divisors[i]);
    }
    const double usual = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(positions));
    rotary.magnitude = read_positive(scaling, "attention_factor", usual);
}

void apply_llama3(const Json& scaling, RotarySettings& rotary) {
    rotary.scaling = RotarySettings::Scaling::kLlama3;
    rotary.factor = read_positive(scaling, "factor");
    rotary.low_freq_factor = read_positive(scaling, "low_freq_factor");
    rotary.high_freq_factor = read_positive(scaling, "high_freq_factor");
    rotary.original_positions = read_size(scaling, "original_max_position_embeddings");
    if (rotary.low_freq_factor >= rotary.high_freq_factor)
        throw ConfigError("low_freq_factor is not less than high_freq_factor");
}

}  // namespace

RotarySettings read_rotary(const Json& fields, int64_t head_dim, const RotaryDefaults& defaults) {
    const Json& scaling = scaling_section(fields, defaults.layer_type);
    RotarySettings rotary;
    rotary.dim = read_dim(fields, scaling, head_dim, defaults.fraction);
    rotary.base = read_positive(scaling, "rope_theta", read_positive(fields, "rope_theta", defaults.base));
    if (!(rotary.base > 1)) throw ConfigError("rope_theta is not greater than 1");

    std::string type = scaling_type(scaling);
    if (type == "su" || (type == "yarn" && defaults.yarn_is_longrope)) type = "longrope";
    if (type == "default") return rotary;
    if (type == "linear") {
        rotary.scaling = RotarySettings::Scaling::kLinear;
        rotary.factor = read_positive(scaling, "factor");
    } else if (type == "llama3") {
        apply_llama3(scaling, rotary);
    } else if (type == "yarn") {
        apply_yarn(fields, scaling, rotary);
    } else if (type == "longrope") {
        apply_longrope(fields, scaling, defaults.max_positions, rotary);
    } else {
        throw ConfigError("rope_type " + in_quotes(type) +
                          " is not supported, default, linear, llama3, yarn and longrope are");
    }
    return rotary;
}

}  // namespace attnc
