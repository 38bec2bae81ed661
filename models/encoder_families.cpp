// Encoders of text, images and sound, and models of an encoder and a decoder.
#include <utility>

#include "models/families.h"

namespace attnc {

namespace {

// q_proj, k_proj, v_proj and out_proj, as most models of an encoder and a decoder call them; biases everywhere.
void name_projections(ModelLayer& layer, std::vector<std::string> prefixes, std::string begin) {
    layer.names.prefixes = std::move(prefixes);
    layer.names.layer = std::move(begin);
    layer.names.q = "q_proj";
    layer.names.k = "k_proj";
    layer.names.v = "v_proj";
    layer.names.out = "out_proj";
    set_biases(layer, true, true);
}

void read_bert(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    if (read_flag(fields, "is_decoder", false)) make_decoder(layer);
    layer.names = {.prefixes = {"bert.", "roberta.", "electra.", "ernie."},
                   .layer = numbered("encoder.layer.", request.number, ".attention."),
                   .q = "self.query",
                   .k = "self.key",
                   .v = "self.value",
                   .out = "output.dense"};
    set_biases(layer, true, true);
}

// Layers of a group share their weights.
void read_albert(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    if (read_size(fields, "inner_group_num", 1) != 1)
        throw ConfigError("inner_group_num is not 1: layers of several sub-layers are not supported");
    const int64_t layers = read_size(fields, "num_hidden_layers", 12);
    const int64_t groups = read_size(fields, "num_hidden_groups", 1);
    if (groups > layers) throw ConfigError("num_hidden_groups is greater than num_hidden_layers");
    const int64_t group = request.number * groups / layers;
    layer.names = {.prefixes = {"albert."},
                   .layer = numbered("encoder.albert_layer_groups.", group, ".albert_layers.0.attention."),
                   .q = "query",
                   .k = "key",
                   .v = "value",
                   .out = "dense"};
    set_biases(layer, true, true);
}

void read_distilbert(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "dim", "n_heads", layer);
    layer.names = {.prefixes = {"distilbert."},
                   .layer = numbered("transformer.layer.", request.number, ".attention."),
                   .q = "q_lin",
                   .k = "k_lin",
                   .v = "v_lin",
                   .out = "out_lin"};
    set_biases(layer, true, true);
}

void read_vit(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    layer.names = {.prefixes = {"vit.", "deit.", "dinov2.", "audio_spectrogram_transformer."},
                   .layer = numbered("encoder.layer.", request.number, ".attention."),
                   .q = "attention.query",
                   .k = "attention.key",
                   .v = "attention.value",
                   .out = "output.dense"};
    set_biases(layer, read_flag(fields, "qkv_bias", true), true);
}

void read_wav2vec2(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    name_projections(layer, {"wav2vec2."}, numbered("encoder.layers.", request.number, ".attention."));
}

void read_clip_text(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    layer.config.causal = true;
    name_projections(layer, {}, numbered("text_model.encoder.layers.", request.number, ".self_attn."));
}

void read_clip_vision(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "hidden_size", "num_attention_heads", layer);
    name_projections(layer, {}, numbered("vision_model.encoder.layers.", request.number, ".self_attn."));
}

void read_bart_encoder(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "d_model", "encoder_attention_heads", layer);
    name_projections(layer, {"model."}, numbered("encoder.layers.", request.number, ".self_attn."));
}

void read_bart_decoder(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "d_model", "decoder_attention_heads", layer);
    make_decoder(layer);
    name_projections(layer, {"model."}, numbered("decoder.layers.", request.number, ".self_attn."));
}

// The cache holds the encoder's output, projected once.
void read_bart_cross(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read_sizes(fields, "d_model", "decoder_attention_heads", layer);
    layer.config.cache = true;
    name_projections(layer, {"model."}, numbered("decoder.layers.", request.number, ".encoder_attn."));
}

// Whisper: as BART, with no bias of the keys.
template <void (*read)(const Json&, const LayerRequest&, ModelLayer&)>
void read_whisper(const Json& fields, const LayerRequest& request, ModelLayer& layer) {
    read(fields, request, layer);
    layer.names.bias_k = false;
}

}  // namespace

const std::vector<Family>& encoder_families() {
    static const std::vector<Family> all = {
        {{"bert", "camembert", "electra", "ernie", "roberta", "xlm-roberta"},
         {{"encoder.self", "num_hidden_layers", read_bert}}},
        {{"albert"}, {{"encoder.self", "num_hidden_layers", read_albert}}},
        {{"distilbert"}, {{"encoder.self", "n_layers", read_distilbert}}},
        {{"audio-spectrogram-transformer", "deit", "dinov2", "vit", "vit_mae"},
         {{"encoder.self", "num_hidden_layers", read_vit}}},
        {{"wav2vec2"}, {{"encoder.self", "num_hidden_layers", read_wav2vec2}}},
        {{"clip"},
         {{"text.self", "num_hidden_layers", read_clip_text, "text_config"},
          {"vision.self", "num_hidden_layers", read_clip_vision, "vision_config"}}},
        {{"clip_text_model"}, {{"text.self", "num_hidden_layers", read_clip_text}}},
        {{"clip_vision_model"}, {{"vision.self", "num_hidden_layers", read_clip_vision}}},
        {{"bart", "blenderbot", "m2m_100", "marian", "mbart", "pegasus"},
         {{"encoder.self", "encoder_layers", read_bart_encoder},
          {"decoder.self", "decoder_layers", read_bart_decoder},
          {"decoder.cross", "decoder_layers", read_bart_cross}}},
        {{"whisper"},
         {{"encoder.self", "encoder_layers", read_whisper<read_bart_encoder>},
          {"decoder.self", "decoder_layers", read_whisper<read_bart_decoder>},
          {"decoder.cross", "decoder_layers", read_whisper<read_bart_cross>}}},
    };
    return all;
}

}  // namespace attnc
