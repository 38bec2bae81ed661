// One self-attention layer, on the CPU or on a CUDA device as the command line says. The library has code for both, and the
// rest of the program differs in where its tensors lie.
#include <algorithm>
#include <attnc.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text_attention.h"  // d_model 256, 4 heads

namespace {

constexpr int64_t kBatch = 4, kSeq = 100, kModel = TEXT_ATTENTION_D_MODEL;

using Floats = std::vector<float>;

Floats random_floats(std::mt19937& engine, int64_t count, float amplitude) {
    Floats numbers(static_cast<size_t>(count));
    for (float& x : numbers) x = (static_cast<float>(engine() >> 8) * 0x1p-23F - 1) * amplitude;
    return numbers;
}

struct Weights {
    Floats wq, wk, wv, wo;
};

attnc::Layer make_layer(const Weights& w, const std::string& target) {
    return attnc::Layer(text_attention(),
                        {.wq = {w.wq, {kModel, kModel}},
                         .wk = {w.wk, {kModel, kModel}},
                         .wv = {w.wv, {kModel, kModel}},
                         .wo = {w.wo, {kModel, kModel}}},
                        {.target = target});
}

// x and the result are [batch, seq, d_model].
Floats run_on_cpu(const attnc::Layer& layer, const Floats& x) {
    attnc::ThreadPool pool(2);
    attnc::Session session(layer, {.max_batch = kBatch, .max_seq = kSeq}, pool);
    Floats out(x.size());
    session.forward({.query = {x, {kBatch, kSeq, kModel}}}, {.out = {out, {kBatch, kSeq, kModel}}});
    return out;
}

// Memory of the device that a layer is on.
class DeviceMemory {
public:
    DeviceMemory(const attnc::Layer& layer, size_t bytes) : layer_(layer) {
        check(attnc_device_allocate(layer_.c(), bytes, &data_, &error_));
    }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory() { attnc_device_free(layer_.c(), data_, nullptr); }

    void* data() const { return data_; }
    attnc_tensor tensor() const { return attnc_tensor_3d(ATTNC_F32, data_, kBatch, kSeq, kModel); }
    void copy_in(const Floats& from) {
        check(attnc_device_copy_in(layer_.c(), data_, from.data(), from.size() * sizeof(float), nullptr,
                                   &error_));
    }
    void copy_out(Floats& to) {  // waits for the work that the device was given before
        check(
            attnc_device_copy_out(layer_.c(), to.data(), data_, to.size() * sizeof(float), nullptr, &error_));
    }

private:
    void check(attnc_status status) const {
        if (status != ATTNC_OK) throw attnc::Error(status, error_.text);
    }

    const attnc::Layer& layer_;
    void* data_ = nullptr;
    attnc_error error_ = {};
};

Floats run_on_device(const attnc::Layer& layer, const Floats& x) {
    DeviceMemory x_there(layer, x.size() * sizeof(float)), out_there(layer, x.size() * sizeof(float));
    x_there.copy_in(x);
    attnc_inputs in = ATTNC_INPUTS_INIT;
    in.query = x_there.tensor();
    attnc_outputs out = ATTNC_OUTPUTS_INIT;
    out.out = out_there.tensor();
    attnc_run run = ATTNC_RUN_INIT;
    attnc_error error = {};
    attnc_status status = attnc_layer_workspace(layer.c(), &in, &out, &run, &run.workspace_bytes, &error);
    if (status != ATTNC_OK) throw attnc::Error(status, error.text);
    const DeviceMemory workspace(layer, run.workspace_bytes);
    run.workspace = workspace.data();
    status = attnc_layer_forward(layer.c(), &in, &out, &run, &error);
    if (status != ATTNC_OK) throw attnc::Error(status, error.text);
    Floats result(x.size());
    out_there.copy_out(result);
    return result;
}

double root_mean_square(const Floats& numbers) {
    double sum = 0;
    for (const float x : numbers) sum += double{x} * double{x};
    return std::sqrt(sum / static_cast<double>(numbers.size()));
}

// The largest root of a sum of squares of a row of d_model numbers.
double largest_norm(const Floats& rows) {
    double largest = 0;
    for (auto row = rows.begin(); row != rows.end(); row += kModel) {
        double sum = 0;
        for (auto x = row; x != row + kModel; ++x) sum += double{*x} * double{*x};
        largest = std::max(largest, std::sqrt(sum));
    }
    return largest;
}

// How far two computations of the layer may be apart. A projection is a sum of d_model products, off by at most d_model
// roundings of the sum of their absolute values, which is at most the product of both norms. Attention's weights add up to 1,
// so that values pass their error on, and what its own steps add is less than another projection's.
double allowed_difference(const Weights& w, const Floats& x) {
    const double rounding = kModel * double{std::numeric_limits<float>::epsilon()} / 2,
                 width = std::sqrt(kModel);
    const double value = largest_norm(w.wv) * largest_norm(x), out = largest_norm(w.wo) * width * value;
    const double passed_on = largest_norm(w.wo) * width * (2 * rounding * value);
    return 2 * (passed_on + rounding * out);  // both are off
}

int run(std::string_view target) {
    const float amplitude = std::sqrt(3.0F / kModel);  // variance 1/d_model
    std::mt19937 engine(7);
    const auto matrix = [&] { return random_floats(engine, kModel * kModel, amplitude); };
    const Weights weights{matrix(), matrix(), matrix(), matrix()};
    const Floats x = random_floats(engine, kBatch * kSeq * kModel, 1);

    const Floats on_cpu = run_on_cpu(make_layer(weights, ""), x);
    if (target == "cpu") {
        std::printf("cpu: root mean square %.6f\n", root_mean_square(on_cpu));
        return 0;
    }
    const Floats on_device = run_on_device(make_layer(weights, "cuda"), x);
    double difference = 0;
    for (size_t n = 0; n < x.size(); ++n)
        difference = std::max(difference, std::fabs(double{on_cpu[n]} - double{on_device[n]}));
    const double allowed = allowed_difference(weights, x);
    std::printf("cuda: root mean square %.6f, at most %.1e from the CPU's, %.1e allowed\n",
                root_mean_square(on_device), difference, allowed);
    return difference <= allowed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view target = argc == 2 ? argv[1] : "";
    if (target != "cpu" && target != "cuda") {
        std::fprintf(stderr, "usage: cuda_layer cpu|cuda\n");
        return 2;
    }
    try {
        return run(target);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cuda_layer: %s\n", error.what());
        return 1;
    }
}
