#include "runtime/check_rotary.h"

#include "runtime/arithmetic.h"
#include "runtime/check.h"

namespace attnc {
namespace {

constexpr double kDefaultEpsilon = 1e-6;
constexpr double kSmallestNormal = 0x1p-126;
constexpr double kMostFrequency = 0x1p32;

attnc_status not_compiled(attnc_error* error, const char* name, const char* without) {
    return fail(error, ATTNC_NOT_SUPPORTED,
                {name, " is given, but the library was compiled without ", without});
}

attnc_status check_norm(attnc_error* error, const attnc_config& c, const attnc_weights& w,
                        const attnc_layer_options& options, HeadSources* sources) {
    const struct {
        const char* name;
        const attnc_tensor& tensor;
        const float** result;
    } weights[] = {{"q_norm", w.q_norm, &sources->q_norm}, {"k_norm", w.k_norm, &sources->k_norm}};
    const bool compiled = (c.flags & ATTNC_CONFIG_QK_NORM) != 0;
    const bool wanted = given(w.q_norm) || given(w.k_norm);
    for (const auto& weight : weights) {
        if (!compiled) {
            if (given(weight.tensor)) return not_compiled(error, weight.name, "qk_norm");
            continue;
        }
        if (!wanted) continue;
        if (!given(weight.tensor)) return fail(error, ATTNC_MISSING_TENSOR, {weight.name, " is missing"});
        ATTNC_TRY(check_tensor(error, {weight.name, ATTNC_F32, ATTNC_F32}, weight.tensor,
                               {{"head_dim", c.head_dim}}));
        *weight.result = static_cast<const float*>(weight.tensor.data);
    }
    const auto epsilon = static_cast<double>(options.qk_norm_epsilon);
    if (epsilon != 0 && !compiled) return not_compiled(error, "qk_norm_epsilon", "qk_norm");
    if (epsilon != 0 && !wanted)
        return fail(error, ATTNC_MISSING_TENSOR, {"qk_norm_epsilon is given, but q_norm is missing"});
    // A denormal number would count as zero, and a head of zeros would become NaN.
    if (epsilon != 0 && !(is_finite(epsilon) && epsilon >= kSmallestNormal)) {
        return fail(error, ATTNC_BAD_VALUE, {"qk_norm_epsilon is not a finite normal number above 0"});
    }
    sources->epsilon = epsilon != 0 ? epsilon : kDefaultEpsilon;
    return ATTNC_OK;
}

// A field of attnc_rotary and whether it is given.
struct Field {
    const char* name;
    bool given;
};

// The first field that is given; null: none. Base, frequencies and tables come last.
const char* given_field(const attnc_rotary& r, const attnc_weights& w) {
    const Field fields[] = {{"rotary.dim", r.dim != 0},
                            {"rotary.scaling", number_of(r.scaling) != 0},
                            {"rotary.factor", r.factor != 0},
                            {"rotary.low_freq_factor", r.low_freq_factor != 0},
                            {"rotary.high_freq_factor", r.high_freq_factor != 0},
                            {"rotary.original_positions", r.original_positions != 0},
                            {"rotary.magnitude", r.magnitude != 0},
                            {"rotary.base", r.base != 0},
                            {"rotary_frequencies", given(w.rotary_frequencies)},
                            {"rotary_cos", given(w.rotary_cos)},
                            {"rotary_sin", given(w.rotary_sin)}};
    for (const Field& field : fields) {
        if (field.given) return field.name;
    }
    return nullptr;
}

attnc_status check_scaling(attnc_error* error, const attnc_rotary& r) {
    const int scaling = number_of(r.scaling);
    if (scaling < ATTNC_ROTARY_SCALING_NONE || scaling > ATTNC_ROTARY_SCALING_LLAMA3) {
        return fail(
            error, ATTNC_BAD_VALUE,
            {"rotary.scaling is ", scaling, ", wanted 0 to ", static_cast<int>(ATTNC_ROTARY_SCALING_LLAMA3)});
    }
    const bool scales = scaling != ATTNC_ROTARY_SCALING_NONE;
    const bool by_length = scaling == ATTNC_ROTARY_SCALING_LLAMA3;
    const struct {
        Field field;
        bool wanted, good;
        const char* rule;
    } numbers[] = {
        {{"rotary.factor", r.factor != 0},
         scales,
         is_finite(r.factor) && r.factor >= 1,
         " is not a finite number of at least 1"},
        {{"rotary.low_freq_factor", r.low_freq_factor != 0},
         by_length,
         is_finite(r.low_freq_factor) && r.low_freq_factor > 0,
         " is not a finite number above 0"},
        {{"rotary.high_freq_factor", r.high_freq_factor != 0},
         by_length,
         is_finite(r.high_freq_factor) && r.high_freq_factor > r.low_freq_factor,
         " is not a finite number above rotary.low_freq_factor"},
        {{"rotary.original_positions", r.original_positions != 0},
         by_length,
         r.original_positions > 0,
         " is not above 0"},
    };
    for (const auto& number : numbers) {
        if (!number.wanted && number.field.given) {
            return fail(error, ATTNC_BAD_VALUE,
                        {number.field.name, " is given, but rotary.scaling is ", scales ? "linear" : "none"});
        }
        if (number.wanted && !number.good)
            return fail(error, ATTNC_BAD_VALUE, {number.field.name, number.rule});
    }
    return ATTNC_OK;
}

attnc_status check_numbers(attnc_error* error, const attnc_config& c, attnc_rotary& r) {
    if (r.dim == 0) r.dim = c.head_dim;
    if (r.dim < 2 || r.dim > c.head_dim || r.dim % 2 != 0) {
        return fail(error, ATTNC_BAD_VALUE,
                    {"rotary.dim is ", r.dim, ", wanted an even number from 2 to ", c.head_dim});
    }
    if (r.base != 0 && !(is_finite(r.base) && r.base > 1))
        return fail(error, ATTNC_BAD_VALUE, {"rotary.base is not a finite number above 1"});
    if (r.magnitude != 0 && !(is_finite(r.magnitude) && r.magnitude > 0))
        return fail(error, ATTNC_BAD_VALUE, {"rotary.magnitude is not a finite number above 0"});
    return check_scaling(error, r);
}

double frequency_at(const attnc_tensor& t, int64_t i) {
    return t.dtype == ATTNC_F64 ? static_cast<const double*>(t.data)[i]
                                : static_cast<double>(static_cast<const float*>(t.data)[i]);
}

attnc_status check_frequencies(attnc_error* error, const attnc_tensor& t, int64_t pairs) {
    ATTNC_TRY(
        check_tensor(error, {"rotary_frequencies", ATTNC_F32, ATTNC_F64}, t, {{"rotary.dim / 2", pairs}}));
    for (int64_t i = 0; i < pairs; ++i) {
        const double frequency = frequency_at(t, i);
        if (!(frequency > -kMostFrequency && frequency < kMostFrequency)) {
            return fail(error, ATTNC_BAD_VALUE,
                        {"rotary_frequencies[", i, "] is not a number between -2^32 and 2^32"});
        }
    }
    return ATTNC_OK;
}

attnc_status check_table(attnc_error* error, const attnc_weights& w, int64_t pairs) {
    if (!given(w.rotary_cos)) return fail(error, ATTNC_MISSING_TENSOR, {"rotary_cos is missing"});
    if (!given(w.rotary_sin)) return fail(error, ATTNC_MISSING_TENSOR, {"rotary_sin is missing"});
    const Dim columns = {"rotary.dim / 2", pairs};
    ATTNC_TRY(check_tensor(error, {"rotary_cos", ATTNC_F32, ATTNC_F32}, w.rotary_cos,
                           {{"positions", kAny}, columns}));
    return check_tensor(error, {"rotary_sin", ATTNC_F32, ATTNC_F32}, w.rotary_sin,
                        {{"positions", w.rotary_cos.extent[0]}, columns});
}

attnc_status check_rotary(attnc_error* error, const attnc_config& c, const attnc_weights& w,
                          const attnc_layer_options& options, RotarySource* source) {
    const char* const any = given_field(options.rotary, w);
    if ((c.flags & (ATTNC_CONFIG_ROTARY | ATTNC_CONFIG_ROTARY_PAIRS)) == 0)
        return any != nullptr ? not_compiled(error, any, "rotary") : ATTNC_OK;
    attnc_rotary& r = source->rotary = options.rotary;
    const bool table = given(w.rotary_cos) || given(w.rotary_sin);
    const bool frequencies = given(w.rotary_frequencies);
    if (!table && !frequencies && r.base == 0) {
        if (any == nullptr) return ATTNC_OK;
        return fail(error, ATTNC_BAD_VALUE,
                    {any, " is given, but neither rotary.base nor rotary_frequencies nor rotary_cos"});
    }
    ATTNC_TRY(check_numbers(error, c, r));
    source->pairs = r.dim / 2;
    if (table || frequencies) {
        const char* const stands = table ? "rotary_cos" : "rotary_frequencies";
        const Field replaced[] = {{"rotary.base", r.base != 0},
                                  {"rotary.scaling", number_of(r.scaling) != 0},
                                  {"rotary.magnitude", table && r.magnitude != 0}};
        for (const Field& field : replaced) {
            if (!field.given) continue;
            return fail(error, ATTNC_BAD_VALUE, {field.name, " is given, but ", stands, " stands for it"});
        }
        if (table && frequencies) {
            return fail(error, ATTNC_UNEXPECTED_TENSOR,
                        {"rotary_frequencies is given, but rotary_cos stands for it"});
        }
    }
    if (r.magnitude == 0) r.magnitude = 1;
    source->frequencies = w.rotary_frequencies;
    source->cos = w.rotary_cos, source->sin = w.rotary_sin;
    if (frequencies) return check_frequencies(error, w.rotary_frequencies, source->pairs);
    return table ? check_table(error, w, source->pairs) : ATTNC_OK;
}

}  // namespace

attnc_status check_head_steps(attnc_error* error, const attnc_config& config, const attnc_weights& weights,
                              const attnc_layer_options& options, HeadSources* sources) {
    ATTNC_TRY(check_norm(error, config, weights, options, sources));
    return check_rotary(error, config, weights, options, &sources->rotary);
}

}  // namespace attnc
