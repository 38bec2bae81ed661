#include "support/case_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "support/case_reading.h"
#include "support/case_source.h"
#include "support/reference_heads.h"

namespace attnc {
namespace {

// Attributes that say where a case comes from, or repeat what its tensors show.
const std::set<std::string, std::less<>> kInformation = {
    "case",      "empty_rows", "fill",        "kind",        "layer",          "made_with",
    "note",      "opset",      "out_rule",    "probs_note",  "precision_note", "rng",
    "sentences", "source",     "source_case", "torch_result"};

// Element types that attnc has names for and does not run.
const std::set<std::string, std::less<>> kOtherTypes = {"float16", "bfloat16", "float64"};

}  // namespace

CaseFile read_case(const std::string& path) {
    CaseSource in(path);
    CaseFile file;
    file.name = in.take("case", "");
    file.weights.struct_size = sizeof(attnc_weights);
    file.inputs.struct_size = sizeof(attnc_inputs);
    in.take_choice("format", {"attention-vector-1"}, 0);
    const std::string dtype = in.take("dtype", "float32");
    if (kOtherTypes.contains(dtype)) {
        file.unsupported = "dtype " + dtype + " is not supported";
    } else if (dtype != "float32") {
        in.fail("unknown dtype '" + dtype + "'");
    }
    const std::string op = in.take("op", "");
    if (op == "Attention") {
        read_onnx_attention(in, file);
    } else if (op == "RotaryEmbedding") {
        read_onnx_rotary(in, file);
    } else {
        read_layer_case(in, file);
    }
    if (file.expected.empty()) in.fail("there is no result to compare with");
    in.refuse_rest(kInformation, {"f32_err.", "f64_err."});
    file.memory = std::move(in.memory);
    return file;
}

int64_t CaseFile::all_keys() const {
    if (!past.given()) return seq_kv;
    int64_t most = 0;
    for (int64_t item = 0; item < batch; ++item) {
        const int64_t keys = past.alone ? 0
                             : inputs.key_lengths.rank != 0
                                 ? static_cast<const int64_t*>(inputs.key_lengths.data)[item]
                                 : seq_kv;
        most = std::max(most, past.length(item) + keys);
    }
    return most;
}

Config completed(const CaseSource& in, const Config& config) {
    try {
        return complete(config);
    } catch (const ConfigError& error) {
        in.fail(error.what());
    }
}

std::vector<int64_t> mask_shape(const CaseSource& in, const CaseFile& file, const std::string& role,
                                std::vector<int64_t> shape) {
    const int64_t wanted[4] = {file.batch, file.config.num_heads, file.seq_q, file.all_keys()};
    if (shape.size() > 4) in.fail("role '" + role + "' has more than 4 dimensions");
    shape.insert(shape.begin(), 4 - shape.size(), 1);
    for (size_t n = 0; n < 4; ++n) {
        if (shape[n] != 1 && shape[n] != wanted[n])
            in.fail("role '" + role + "' does not broadcast to the scores");
    }
    return shape;
}

Reference reference_of(const CaseFile& file) {
    if (!file.rotates_only)
        return reference_layer(file.config, file.weights, file.options, file.inputs, file.past);
    const attnc_inputs& in = file.inputs;
    const Rotation rotation = rotation_of(file.config, file.weights, file.options.rotary);
    Reference result;
    result.batch = file.batch;
    result.num_heads = file.config.num_heads;
    result.seq_q = file.seq_q;
    result.v_head_dim = file.config.head_dim;
    result.out_features = file.config.num_heads * file.config.head_dim;
    for (int64_t item = 0; item < file.batch; ++item) {
        Rows rows = rows_of(in.query, {}, item, file.seq_q);
        std::vector<int64_t> positions;
        positions.reserve(static_cast<size_t>(file.seq_q));
        for (int64_t row = 0; row < file.seq_q; ++row)
            positions.push_back(integer(in.query_positions, {item, row}));
        rotate_heads(rows, rotation, positions);
        result.out.insert(result.out.end(), rows.values.begin(), rows.values.end());
        for (int64_t head = 0; head < result.num_heads; ++head) {
            for (int64_t row = 0; row < file.seq_q; ++row) {
                const double* from = rows.row(row) + head * result.v_head_dim;
                result.context.insert(result.context.end(), from, from + result.v_head_dim);
            }
        }
    }
    return result;
}

}  // namespace attnc
