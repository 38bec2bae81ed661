// Parts of reading case files, one for each kind of case.
#pragma once

#include "support/case_file.h"
#include "support/case_source.h"

namespace attnc {

// Fill what the file says; the caller refuses the rest.
void read_layer_case(CaseSource& in, CaseFile& file);
void read_onnx_attention(CaseSource& in, CaseFile& file);
void read_onnx_rotary(CaseSource& in, CaseFile& file);

// Options of a layer beside its projections. Those of the configuration first, then weights and numbers, which need the
// complete configuration, then what a call brings.
void read_option_flags(CaseSource& in, Config& config);
void read_option_values(CaseSource& in, CaseFile& file);
void read_call_options(CaseSource& in, CaseFile& file);

// Attribute empty_row.
attnc_empty_rows read_empty_rows(CaseSource& in);
// complete(), with what it throws as an error of the file.
Config completed(const CaseSource& in, const Config& config);
// Right-aligned to [batch, heads, seq_q, all keys], each extent that one or 1.
std::vector<int64_t> mask_shape(const CaseSource& in, const CaseFile& file, const std::string& role,
                                std::vector<int64_t> shape);

}  // namespace attnc
