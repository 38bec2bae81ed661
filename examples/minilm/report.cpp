#include "report.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

namespace minilm {
namespace {

constexpr Eigen::Index kMostInTable = 16;          // 16 columns of 7 characters fit a terminal
constexpr Eigen::Index kMostCosinesInFile = 1000;  // a million numbers

struct Pair {
    Eigen::Index first = 0, second = 0;
    float cosine = 0;
};

// Of all pairs the one with the largest cosine; the first one of equals. Row by row, so that memory stays
// small.
Pair nearest_pair(const RowMajor& embeddings) {
    Pair best{0, 1, -2};
    for (Eigen::Index i = 0; i + 1 < embeddings.rows(); ++i) {
        const Eigen::VectorXf cosines =
            embeddings.bottomRows(embeddings.rows() - i - 1) * embeddings.row(i).transpose();
        Eigen::Index at = 0;
        const float cosine = cosines.maxCoeff(&at);
        if (cosine > best.cosine) best = {i, i + 1 + at, cosine};
    }
    return best;
}

std::runtime_error cannot_write(const std::filesystem::path& file, const std::string& reason) {
    return std::runtime_error("cannot write " + file.string() + ": " + reason);
}

void write_all(const std::filesystem::path& to, const std::filesystem::path& file, const std::string& text) {
    errno = 0;
    std::ofstream stream(to, std::ios::binary | std::ios::trunc);
    stream << text;
    stream.close();
    if (!stream) throw cannot_write(file, errno != 0 ? std::strerror(errno) : "output error");
}

}  // namespace

void print_similarities(const Result& result) {
    const Eigen::Index count = result.embeddings.rows();
    const auto text = [&](Eigen::Index i) { return result.texts[static_cast<size_t>(i)].c_str(); };
    if (count <= kMostInTable) {
        for (Eigen::Index i = 0; i < count; ++i) {
            std::printf("%3td  %s  (%zu tokens)\n", i + 1, text(i),
                        result.token_ids[static_cast<size_t>(i)].size());
        }
        const RowMajor cosines = result.embeddings * result.embeddings.transpose();
        std::printf("\nsimilarity (cosine)\n   ");
        for (Eigen::Index j = 0; j < count; ++j) std::printf("%7td", j + 1);
        for (Eigen::Index i = 0; i < count; ++i) {
            std::printf("\n%3td", i + 1);
            for (Eigen::Index j = 0; j < count; ++j) std::printf("%7.3f", static_cast<double>(cosines(i, j)));
        }
        std::printf("\n\n");
    } else {
        std::printf("%td sentences; the similarity table is printed for up to %td\n\n", count, kMostInTable);
    }
    if (count > 1) {
        const Pair pair = nearest_pair(result.embeddings);
        std::printf("nearest pair: %td and %td, cosine %.3f\n  %s\n  %s\n", pair.first + 1, pair.second + 1,
                    static_cast<double>(pair.cosine), text(pair.first), text(pair.second));
    }
}

std::string to_json(const Result& result, const std::string& model, const std::string& target) {
    const auto row_of = [](const auto& row) { return std::vector<double>(row.begin(), row.end()); };
    nlohmann::ordered_json json;
    json["model"] = model;
    json["dim"] = result.embeddings.cols();
    json["target"] = target;
    json["sentences"] = nlohmann::json::array();
    for (size_t i = 0; i < result.texts.size(); ++i) {
        json["sentences"].push_back(
            {{"text", result.texts[i]},
             {"token_ids", result.token_ids[i]},
             {"embedding", row_of(result.embeddings.row(static_cast<Eigen::Index>(i)))}});
    }
    if (result.embeddings.rows() <= kMostCosinesInFile) {
        const Eigen::MatrixXd embeddings = result.embeddings.cast<double>();
        const Eigen::MatrixXd cosines = embeddings * embeddings.transpose();
        json["cosine"] = nlohmann::json::array();
        for (Eigen::Index i = 0; i < cosines.rows(); ++i) json["cosine"].push_back(row_of(cosines.row(i)));
    }
    // The model's path need not be UTF-8; the sentences are.
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_file(const std::filesystem::path& file, const std::string& text) {
    std::error_code error;
    const auto status = std::filesystem::status(file, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
        write_all(file, file, text);
        return;
    }
    // A link stays a link: what it names is replaced.
    std::filesystem::path target = file;
    if (std::filesystem::exists(status)) target = std::filesystem::canonical(file, error);
    std::filesystem::path temporary = target;
    temporary += ".part" + std::to_string(::getpid());
    try {
        write_all(temporary, file, text);
    } catch (...) {
        std::filesystem::remove(temporary, error);
        throw;
    }
    std::filesystem::rename(temporary, target, error);
    if (error) {
        const std::string reason = error.message();
        std::filesystem::remove(temporary, error);
        throw cannot_write(file, reason);
    }
}

}  // namespace minilm
