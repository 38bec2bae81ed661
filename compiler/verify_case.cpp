#include "compiler/verify_case.h"

#include <fmt/format.h>

#include "compiler/run_layer.h"
#include "support/comparison.h"

namespace attnc {

namespace {

// Sizes of a call, as run_layer wants them.
Reference sizes_of(const CaseFile& file) {
    const Config& config = file.config;
    Reference sizes;
    sizes.batch = file.batch;
    sizes.num_heads = config.num_heads;
    sizes.seq_q = file.seq_q;
    sizes.appended = int64_t{config.bias_kv} + int64_t{config.zero_attn};
    sizes.keys = file.all_keys() + sizes.appended;
    sizes.v_head_dim = config.v_head_dim;
    sizes.out_features = config.out_proj ? config.d_model : config.num_heads * config.v_head_dim;
    return sizes;
}

Reference run_case(const CaseFile& file, const attnc_library* library, const std::string& target) {
    const auto expects = [&](const char* role) { return file.expected.contains(role); };
    if (file.rotates_only) {
        Reference rotated = sizes_of(file);
        (file.inputs.query.rank == 4 ? rotated.context : rotated.out) =
            run_rotation(library, target, file.weights, file.inputs, file.options);
        return rotated;
    }
    const bool scores = file.options.scores_stage != ATTNC_SCORES_NOT_GIVEN;
    const Wanted wanted = {.probs = expects("probs") || (expects("qk_matmul_output") && !scores),
                           .probs_averaged = expects("avg_probs"),
                           .lse = expects("lse")};
    return run_layer(library, target, file.weights, file.inputs, file.options, wanted, sizes_of(file),
                     file.past);
}

}  // namespace

std::string check_case(const CaseFile& file, const attnc_library* library, const std::string& target) {
    const Reference got = run_case(file, library, target);
    std::string wrong;
    for (const auto& [role, expected] : file.expected) {
        if (role == "ctx" && got.context.empty()) continue;  // inside the layer: no output of a library
        if (role.ends_with("_f64_arithmetic")) continue;     // what float64 would give where float32 rounds
        const Comparison comparison = compare(result_of_role(file, got, role), expected);
        if (!comparison.ok())
            wrong += fmt::format("{}{}: {}", wrong.empty() ? "" : "; ", role, comparison.text());
    }
    return wrong;
}

}  // namespace attnc
