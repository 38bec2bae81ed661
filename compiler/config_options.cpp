#include "compiler/config_options.h"

#include "compiler/command.h"
#include "models/hf_config.h"

namespace attnc {

namespace {

constexpr const char* kSizes = "Sizes of the layer";
constexpr const char* kParts = "Parts of the layer";
constexpr const char* kModel = "From a model";

}  // namespace

void add_config_options(CLI::App& command, ConfigOptions& options) {
    options.command = &command;
    Config& config = options.config;
    command.add_option("--problem,problem", options.problem, "Problem string, instead of sizes: d512_h8_f32");

    command.add_option("--d-model", config.d_model, "Features of a token")->group(kSizes);
    command.add_option("--num-heads", config.num_heads, "Heads of the queries")->group(kSizes);
    command.add_option("--num-kv-heads", config.num_kv_heads, "Heads of keys and values; default: num-heads")
        ->group(kSizes);
    command.add_option("--head-dim", config.head_dim, "Features of a head; default: d-model / num-heads")
        ->group(kSizes);
    command
        .add_option("--v-head-dim", config.v_head_dim, "Features of a head of the values; default: head-dim")
        ->group(kSizes);
    command.add_option("--k-dim", config.k_dim, "Features of the key input; default: d-model")->group(kSizes);
    command.add_option("--v-dim", config.v_dim, "Features of the value input; default: d-model")
        ->group(kSizes);

    command.add_flag("--no-in-proj", options.no_in_proj, "Query, key and value arrive projected")
        ->group(kParts);
    command.add_flag("--no-out-proj", options.no_out_proj, "The merged heads are the output")->group(kParts);
    command.add_flag("--causal", config.causal, "Calls that name no diagonal are causal (bottom-right)")
        ->group(kParts);
    command.add_flag("--no-masks", options.no_masks, "Leave out masks and biases")->group(kParts);
    command.add_flag("--no-probs", options.no_probs, "Leave out probabilities")->group(kParts);
    command.add_flag("--add-bias-kv", config.bias_kv, "Append one learned key and value")->group(kParts);
    command.add_flag("--add-zero-attn", config.zero_attn, "Append a key and value of zeros")->group(kParts);
    command.add_flag("--sink", config.sink, "A logit for each head that takes weight and has no value")
        ->group(kParts);

    command.add_flag("--alibi", config.alibi, "Scores fall with the distance of the key (ALiBi)")
        ->group(kParts);
    command.add_flag("--softcap", config.softcap, "Scores may be soft-capped")->group(kParts);
    command.add_flag("--qk-norm", config.qk_norm, "RMS-normalise each head of queries and keys")
        ->group(kParts);
    command
        .add_option("--rotary", config.rotary,
                    "Rotary position embedding: half (features i and i + half turn together) or pairs (2 i "
                    "and 2 i + 1)")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, Rotary>{{"half", Rotary::kHalf}, {"pairs", Rotary::kPairs}}))
        ->group(kParts);
    command.add_flag("--cache", config.cache, "Keys and values may stay from call to call")->group(kParts);
    command
        .add_option("--page-size", config.page_size,
                    "Keys of a page of a paged cache; default: no paged caches")
        ->group(kParts);
    command.add_flag("--scores", config.scores, "Scores before the softmax can be asked for")->group(kParts);

    CLI::Option* file = command.add_option("--hf-config", options.hf_config,
                                           "config.json of a Hugging Face model, instead of sizes");
    file->group(kModel);
    command
        .add_option(
            "--layer", options.layer,
            "Which attention of the model: encoder.self, decoder.self, decoder.cross, a number, or both: "
            "decoder.self.3. Layers of a kind need one library")
        ->group(kModel)
        ->needs(file);
    command
        .add_flag("--no-cache", options.no_cache,
                  "Leave out the cache of keys and values, which a decoder's layers have")
        ->group(kModel)
        ->needs(file);
}

namespace {

// A model says what its layers compute; what a library supports beside that is the caller's.
Config config_of_model(const ConfigOptions& options, const Config& wished) {
    Config config = config_from_hf(options.hf_config, options.layer);
    if (options.no_cache) config.cache = false;
    config.masks = wished.masks;
    config.probs = wished.probs;
    config.scores = wished.scores;
    config.page_size = wished.page_size;
    return complete(config);
}

Config without_support(Config config) {
    config.masks = config.probs = true;
    config.scores = false;
    config.page_size = 0;
    return config;
}

}  // namespace

Config chosen_config(const ConfigOptions& options) {
    Config config = options.config;
    config.in_proj = !options.no_in_proj;
    config.out_proj = !options.no_out_proj;
    config.masks = !options.no_masks;
    config.probs = !options.no_probs;
    const bool of_model = !options.hf_config.empty();
    const bool described = !((of_model ? without_support(config) : config) == Config{});
    const int ways = int{described} + int{!options.problem.empty()} + int{of_model};
    if (ways == 0) {
        throw UsageError(
            "no configuration: give --d-model and --num-heads, a problem string, or --hf-config");
    }
    if (ways > 1) {
        throw UsageError(
            "more than one configuration: give sizes, a problem string or --hf-config, not several");
    }
    if (!options.problem.empty()) return parse_config(options.problem);
    if (of_model) return config_of_model(options, config);
    return complete(config);
}

}  // namespace attnc
