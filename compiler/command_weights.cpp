// attnc weights: one layer's weights and settings out of a model's checkpoint.
#include <fmt/format.h>

#include <memory>

#include "compiler/command.h"
#include "models/hf_config.h"
#include "models/layer_file.h"

namespace attnc {

namespace {

struct Options {
    std::string hf_config;
    std::string layer;
    std::string checkpoint;
    int64_t max_positions = 0;
    std::string output;
};

void run(const Options& options) {
    const LoadedLayer loaded =
        load_model_layer(options.hf_config, options.layer, options.checkpoint, options.max_positions);
    write_layer_file(options.output, loaded);
    for (const auto& [name, value] : layer_attributes(loaded.layer)) fmt::print("{}: {}\n", name, value);
}

}  // namespace

void add_weights_command(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("weights", "Take a layer's weights and settings out of a model's checkpoint");
    auto options = std::make_shared<Options>();
    command->add_option("--hf-config", options->hf_config, "config.json of a Hugging Face model")->required();
    command
        ->add_option("--layer", options->layer,
                     "Which layer, with its number: decoder.self.3, or 3 where the model has one kind")
        ->required();
    command
        ->add_option("--checkpoint", options->checkpoint,
                     "model.safetensors, model.safetensors.index.json, or a folder with one of them")
        ->required();
    command
        ->add_option(
            "--max-positions", options->max_positions,
            "Tokens that the layer is meant for, where frequencies depend on that (LongRoPE); default: "
            "as many as in the model's first training")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
    command->add_option("--output,-o", options->output, "File to write (safetensors)")->required();
    command->footer(
        "Example:\n"
        "  attnc weights --hf-config config.json --layer decoder.self.3 --checkpoint model.safetensors -o "
        "layer3.safetensors\n"
        "writes wq, wk, wv, wo and what else the layer has, as 32-bit floats in the shapes that "
        "attnc_weights takes,\n"
        "with the layer's options (qk_scale, window_left, rotary_base, ...) as attributes of the file, which "
        "it also "
        "prints.");
    command->callback([options] { run(*options); });
}

}  // namespace attnc
