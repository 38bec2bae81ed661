#include "bench/memory_growth.h"

#include <malloc.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "compiler/layer_data.h"
#include "compiler/load_library.h"

namespace attnc::bench {

namespace {

// "VmRSS" or "VmHWM" of this process, in bytes.
int64_t resident(const std::string& which) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(which + ":")) return 1024 * std::stoll(line.substr(which.size() + 1));
    }
    throw std::runtime_error("/proc/self/status has no " + which);
}

struct Layer {
    attnc_layer* layer = nullptr;
    Layer(const Problem& problem, const attnc_library* library) {
        const GeneratedWeights weights(problem.config, 1);
        attnc_error error;
        check_status(attnc_layer_create(library, &weights.view, nullptr, &layer, &error), error,
                     "attnc_layer_create");
    }
    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;
    ~Layer() { attnc_layer_destroy(layer); }
};

// Self-attention: the call has one set of tokens.
void call(const attnc_layer* layer, const Problem& problem) {
    const auto [batch, seq, ignored] = problem.sizes;
    const AlignedBytes x(static_cast<size_t>(batch * seq * problem.config.d_model) * sizeof(float));
    const AlignedBytes y(static_cast<size_t>(out_elements(problem)) * sizeof(float));
    auto* numbers = static_cast<float*>(x.data());
    for (size_t i = 0; i < x.size() / sizeof(float); ++i) numbers[i] = static_cast<float>(i % 97) / 97;
    attnc_inputs inputs = ATTNC_INPUTS_INIT;
    inputs.query = attnc_tensor_3d(ATTNC_F32, x.data(), batch, seq, problem.config.d_model);
    attnc_outputs outputs = ATTNC_OUTPUTS_INIT;
    outputs.out = out_view(problem, static_cast<float*>(y.data()));
    attnc_run run = ATTNC_RUN_INIT;
    attnc_error error;
    check_status(attnc_layer_workspace(layer, &inputs, &outputs, &run, &run.workspace_bytes, &error), error,
                 "attnc_layer_workspace");
    const AlignedBytes workspace(run.workspace_bytes);
    run.workspace = workspace.data();
    check_status(attnc_layer_forward(layer, &inputs, &outputs, &run, &error), error, "attnc_layer_forward");
}

}  // namespace

int64_t memory_growth(const Problem& problem, const std::filesystem::path& archive) {
    const LoadedLibrary library(archive, installation_of(ATTNC_BENCH_COMMAND));
    const Layer layer(problem, library);
    ::malloc_trim(0);
    const int64_t before = resident("VmRSS");
    std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM starts again from VmRSS
    call(layer.layer, problem);
    return resident("VmHWM") - before;
}

}  // namespace attnc::bench
