// Case files: a layer's call with its right results in one safetensors file, tensors named by role and everything else as
// attributes. Read whole, or refused: an attribute or a role that is not known here could change what is right.
// docs/cases.md has all roles and attributes; the kinds of cases are
//   op layer, attention, attention_bld   a layer, or attention alone on heads or on merged heads (case_layer.cpp)
//   op Attention, RotaryEmbedding        a node of ONNX (case_onnx.cpp)
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/attnc.h"
#include "stages/config.h"
#include "support/reference.h"

namespace attnc {

struct CaseError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A right result. got is allowed |got - value| <= atol + rtol * |value|; NaN where NaN, equal infinities.
struct Expected {
    std::vector<int64_t> shape;
    std::vector<double> values;
    double atol = 0, rtol = 0;
};

struct CaseFile {
    std::string name;
    std::string unsupported;     // why no library can run it; empty: one can
    Config config;               // complete; causal is told by the inputs
    ReferenceOptions options;    // of the layer, and the stage of scores
    attnc_weights weights = {};  // the views here, in inputs and in past show memory that this object owns
    attnc_inputs inputs = {};
    ReferencePast past;         // what a cache holds before the call
    bool rotates_only = false;  // the result is the query's heads rotated: no keys, no attention
    int64_t batch = 0, seq_q = 0, seq_kv = 0;

    // What masks and probs count: seq_kv, or the most that an item has with its past.
    int64_t all_keys() const;

    // By role, in the shapes of the outputs of a call: an unbatched case has batch 1 here.
    std::map<std::string, Expected> expected;
    // Not empty: `out` and `probs` hold these items and rows only.
    std::vector<int64_t> out_items, out_rows;

    // The file's masks before conversion: scaled_drop_mask's values (inputs.bias is their product with
    // mask_factor) and the tokenizer's attention_mask [batch, seq_kv] (the same keys as key_len's). Empty:
    // none.
    std::vector<float> scaled_mask;
    float mask_factor = 0;
    std::vector<int64_t> attention_mask;

    std::vector<std::shared_ptr<void>> memory;
};

// Throws SafetensorsError or CaseError, "FILE: what is wrong".
CaseFile read_case(const std::string& path);

// The case in float64.
Reference reference_of(const CaseFile& file);

// What `result` has for an expected role of this case (the rows and items that it holds, sums where it holds
// sums): compare it with expected.at(role). `Reference` may be filled from a float32 run as well: results and
// sizes are used.
std::vector<double> result_of_role(const CaseFile& file, const Reference& result, const std::string& role);

}  // namespace attnc
