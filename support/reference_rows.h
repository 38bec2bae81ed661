// Parts of the float64 reference: elements of views, and rows of features with bounds on the errors of their float32
// counterparts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"

namespace attnc {

// Throws std::invalid_argument, "reference: WHAT".
void require_reference(bool holds, const char* what);

inline bool is_given(const attnc_tensor& t) { return t.rank != 0; }

// Element of a view; an extent of 1 is broadcast.
template <typename T>
T element(const attnc_tensor& t, std::initializer_list<int64_t> index) {
    int64_t offset = 0;
    int dimension = 0;
    for (const int64_t i : index) {
        offset += t.extent[dimension] == 1 ? 0 : i * t.stride[dimension];
        ++dimension;
    }
    return static_cast<const T*>(t.data)[offset];
}

// Element of a tensor of I32 or I64.
int64_t integer(const attnc_tensor& t, std::initializer_list<int64_t> index);

// Values [rows, features] and bounds on the errors of their float32 counterparts (empty: none).
struct Rows {
    int64_t features = 0;
    std::vector<double> values, errors;

    int64_t count() const { return features == 0 ? 0 : static_cast<int64_t>(values.size()) / features; }
    const double* row(int64_t n) const { return values.data() + n * features; }
    double error(int64_t n, int64_t feature) const {
        return errors.empty() ? 0 : errors[static_cast<size_t>(n * features + feature)];
    }
    // Behind the rows that are there; exact ones, of the same width (or the first).
    void append(const std::vector<double>& row);
};

// A linear layer: weight [out, in] at a row offset (for packed ones), bias [out] or not given.
struct Linear {
    attnc_tensor weight{}, bias{};
    int64_t first_row = 0;
    int64_t in = 0, out = 0;

    double w(int64_t n, int64_t k) const { return element<float>(weight, {first_row + n, k}); }
    double b(int64_t n) const { return is_given(bias) ? element<float>(bias, {first_row + n}) : 0.0; }
};

// The linear layers of a configuration; those that it lacks are not there.
struct LinearLayers {
    std::optional<Linear> q, k, v, out;
};
LinearLayers linear_layers(const Config& config, const attnc_weights& weights);

// x is [rows, layer.in].
Rows project(const Linear& layer, const std::vector<double>& x, int64_t rows);

// Tokens are [batch, seq, features] or [batch, heads, seq, features of a head].
int64_t sequence_of(const attnc_tensor& tokens);
int64_t features_of(const attnc_tensor& tokens);
// The first `rows` tokens of an item, [rows, features]; those of rank 4 have their heads merged.
std::vector<double> tokens_of(const attnc_tensor& t, int64_t item, int64_t rows);

// Those rows of an input, projected where there is a layer.
Rows rows_of(const attnc_tensor& t, const std::optional<Linear>& layer, int64_t item, int64_t rows);
// The item's first `length` rows of an earlier call's heads [batch, heads, seq, features], and the new ones behind.
Rows behind_past(const attnc_tensor& past, int64_t item, int64_t length, Rows fresh);

}  // namespace attnc
