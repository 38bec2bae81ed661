#include "support/case_file.h"

namespace attnc {

std::vector<double> result_of_role(const CaseFile& file, const Reference& result, const std::string& role) {
    const Expected& expected = file.expected.at(role);
    if (role == "lse") return result.lse;
    if (role == "avg_probs") return result.probs_averaged;
    if (role == "scores") return result.scores;
    if (role == "qk_matmul_output")
        return file.options.scores_stage == ATTNC_SCORES_NOT_GIVEN ? result.probs : result.scores;
    if (role == "present_key") return result.keys_after;
    if (role == "present_value") return result.values_after;

    std::vector<double> values;
    values.reserve(expected.values.size());
    if (role.starts_with("out_row_sum")) {
        const bool squares = role.ends_with("squares");
        for (auto row = result.out.begin(); row != result.out.end(); row += result.out_features) {
            double sum = 0;
            for (auto y = row; y != row + result.out_features; ++y) sum += squares ? *y * *y : *y;
            values.push_back(sum);
        }
        return values;
    }
    const bool subset = !file.out_items.empty() && role != "ctx";
    const int64_t items = subset ? expected.shape[0] : file.batch;
    const int64_t rows = subset ? static_cast<int64_t>(file.out_rows.size()) : file.seq_q;
    const auto copy = [&](const std::vector<double>& from, int64_t row, int64_t width) {
        values.insert(values.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
    };
    const bool per_head = expected.shape.size() == 4;  // out of attention alone, or probs
    for (int64_t i = 0; i < items; ++i) {
        const int64_t item = subset ? file.out_items[static_cast<size_t>(i)] : i;
        for (int64_t head = 0; head < (per_head ? result.num_heads : 1); ++head) {
            for (int64_t r = 0; r < rows; ++r) {
                const int64_t row = subset ? file.out_rows[static_cast<size_t>(r)] : r;
                const int64_t of_head = (item * result.num_heads + head) * result.seq_q + row;
                if (role.starts_with("probs")) {
                    copy(result.probs, of_head, result.keys);
                } else if (per_head) {
                    copy(result.context, of_head, result.v_head_dim);
                } else if (role == "ctx") {
                    for (int64_t h = 0; h < result.num_heads; ++h) {
                        copy(result.context, (item * result.num_heads + h) * result.seq_q + row,
                             result.v_head_dim);
                    }
                } else {
                    copy(result.out, item * result.seq_q + row, result.out_features);
                }
            }
        }
    }
    return values;
}

}  // namespace attnc
