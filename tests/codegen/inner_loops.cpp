#include "tests/codegen/inner_loops.h"

#include <algorithm>
#include <sstream>

namespace attnc::test {

namespace {

// ".LBB0_17:" and what follows it: the label; "" for any other line.
std::string label_of(const std::string& line) {
    if (!line.starts_with(".LBB")) return "";
    return line.substr(0, line.find(':'));
}

// "\tjne\t.LBB0_17": where to; "" for any other line.
std::string jump_target(const std::string& line) {
    if (!line.starts_with("\tj")) return "";
    const size_t begin = line.find(".LBB");
    return begin == std::string::npos ? "" : line.substr(begin, line.find_first_of(" \t#", begin) - begin);
}

}  // namespace

std::vector<InnerLoop> inner_loops(const std::string& assembly) {
    std::vector<InnerLoop> loops;
    std::istringstream text(assembly);
    std::string label;
    InnerLoop since_label;
    for (std::string line; std::getline(text, line);) {
        if (const std::string next = label_of(line); !next.empty()) {
            label = next;
            since_label = {};
        }
        since_label.lines.push_back(line);
        if (line.find("vfmadd") != std::string::npos) ++since_label.fused_multiply_adds;
        if (!label.empty() && jump_target(line) == label) loops.push_back(since_label);
    }
    std::stable_sort(loops.begin(), loops.end(), [](const InnerLoop& a, const InnerLoop& b) {
        return a.fused_multiply_adds > b.fused_multiply_adds;
    });
    return loops;
}

std::string as_text(const std::vector<InnerLoop>& loops, size_t count) {
    std::string text;
    for (size_t i = 0; i < std::min(count, loops.size()); ++i) {
        text += "LOOP\n";
        for (const std::string& line : loops[i].lines) text += line + "\n";
        text += "END\n";
    }
    return text;
}

}  // namespace attnc::test
