#include "support/reference_heads.h"

#include <cmath>
#include <numbers>

#include "support/tolerance.h"

namespace attnc {
namespace {

void need_errors(Rows& rows) { rows.errors.resize(rows.values.size(), 0.0); }

// A frequency, radians for each unit of position, scaled as the options say.
long double scaled_frequency(long double frequency, const attnc_rotary& options) {
    const auto factor = static_cast<long double>(options.factor);
    if (options.scaling == ATTNC_ROTARY_SCALING_LINEAR) return frequency / factor;
    if (options.scaling != ATTNC_ROTARY_SCALING_LLAMA3) return frequency;
    const auto low = static_cast<long double>(options.low_freq_factor);
    const auto high = static_cast<long double>(options.high_freq_factor);
    const auto original = static_cast<long double>(options.original_positions);
    const long double turns = original * frequency / (2 * std::numbers::pi_v<long double>);
    if (turns < low) return frequency / factor;
    if (turns > high) return frequency;
    const long double share = (turns - low) / (high - low);
    return (1 - share) * frequency / factor + share * frequency;
}

}  // namespace

void norm_heads(Rows& rows, int64_t head_dim, const attnc_tensor& weight, double epsilon) {
    require_reference(weight.rank == 1 && weight.extent[0] == head_dim, "q_norm or k_norm has another shape");
    need_errors(rows);
    const auto features = static_cast<double>(head_dim);
    for (size_t first = 0; first < rows.values.size(); first += static_cast<size_t>(head_dim)) {
        double* x = rows.values.data() + first;
        double* errors = rows.errors.data() + first;
        double squares = 0, square_errors = 0;
        for (int64_t d = 0; d < head_dim; ++d) {
            squares += x[d] * x[d];
            square_errors += errors[d] * errors[d];
        }
        const double root = std::sqrt(squares / features + epsilon);
        const NormError error(head_dim, root, std::sqrt(square_errors / features), epsilon);
        for (int64_t d = 0; d < head_dim; ++d) {
            const double w = element<float>(weight, {d});
            const double y = x[d] / root * w;
            errors[d] = error.of_feature(x[d], errors[d], w);
            x[d] = y;
        }
    }
}

Rotation rotation_of(const Config& config, const attnc_weights& weights, const attnc_rotary& options) {
    Rotation r;
    r.head_dim = config.head_dim;
    r.dim = options.dim != 0 ? options.dim : config.head_dim;
    r.layout = config.rotary;
    r.magnitude = options.magnitude != 0 ? options.magnitude : 1;
    require_reference(r.dim % 2 == 0 && r.dim <= r.head_dim, "bad rotary dim");
    const int64_t pairs = r.dim / 2;
    if (is_given(weights.rotary_cos)) {
        for (const attnc_tensor* t : {&weights.rotary_cos, &weights.rotary_sin}) {
            require_reference(t->rank == 2 && t->extent[1] == pairs, "rotary table has another shape");
        }
        r.cos = weights.rotary_cos;
        r.sin = weights.rotary_sin;
        return r;
    }
    const attnc_tensor& given = weights.rotary_frequencies;
    require_reference(!is_given(given) || (given.rank == 1 && given.extent[0] == pairs),
                      "rotary_frequencies has another shape");
    const auto base = static_cast<long double>(options.base);
    for (int64_t i = 0; i < pairs; ++i) {
        if (is_given(given)) {
            r.frequencies.push_back(given.dtype == ATTNC_F64 ? element<double>(given, {i})
                                                             : element<float>(given, {i}));
        } else {
            const long double power = -2 * static_cast<long double>(i) / static_cast<long double>(r.dim);
            r.frequencies.push_back(scaled_frequency(std::pow(base, power), options));
        }
    }
    return r;
}

void rotate_heads(Rows& rows, const Rotation& rotation, const std::vector<int64_t>& positions) {
    need_errors(rows);
    const int64_t heads = rows.features / rotation.head_dim;
    for (int64_t n = 0; n < rows.count(); ++n) {
        const int64_t position = positions[static_cast<size_t>(n)];
        for (int64_t i = 0; i < rotation.dim / 2; ++i) {
            double cos = 0, sin = 0, table_error = 0;
            if (rotation.frequencies.empty()) {
                require_reference(0 <= position && position < rotation.cos.extent[0],
                                  "position outside of the rotary table");
                cos = element<float>(rotation.cos, {position, i});
                sin = element<float>(rotation.sin, {position, i});
            } else {
                const long double angle =
                    static_cast<long double>(position) * rotation.frequencies[static_cast<size_t>(i)];
                cos = static_cast<double>(std::cos(angle)) * rotation.magnitude;
                sin = static_cast<double>(std::sin(angle)) * rotation.magnitude;
                table_error = rotary_table_error(static_cast<double>(angle), rotation.magnitude);
            }
            for (int64_t head = 0; head < heads; ++head) {
                const auto start = static_cast<size_t>(n * rows.features + head * rotation.head_dim);
                const size_t at_a = start + static_cast<size_t>(rotation.first(i));
                const size_t at_b = start + static_cast<size_t>(rotation.second(i));
                const double a = rows.values[at_a], a_error = rows.errors[at_a];
                const double b = rows.values[at_b], b_error = rows.errors[at_b];
                rows.values[at_a] = a * cos - b * sin;
                rows.values[at_b] = b * cos + a * sin;
                rows.errors[at_a] = rotation_error(a, a_error, b, b_error, cos, sin, table_error);
                rows.errors[at_b] = rotation_error(b, b_error, a, a_error, cos, sin, table_error);
            }
        }
    }
}

}  // namespace attnc
