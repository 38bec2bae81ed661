#include "compiler/stack_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>

#include "compiler/llvm_tools.h"

namespace attnc {

namespace {

constexpr int64_t kWordBytes = 8;

// "$0x48" or "$72"; AT&T syntax.
int64_t immediate(std::string_view text, std::string_view instruction) {
    std::string_view digits = text.substr(text.starts_with('$') ? 1 : 0);
    const bool negative = digits.starts_with('-');
    if (negative) digits.remove_prefix(1);
    const int base = digits.starts_with("0x") ? 16 : 10;
    if (base == 16) digits.remove_prefix(2);
    int64_t value = 0;
    if (!text.starts_with('$') ||
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base).ec != std::errc()) {
        throw std::runtime_error(fmt::format("has a stack frame of no constant size: {}", instruction));
    }
    return negative ? -value : value;
}

// Bytes that an instruction may take of the stack. `instruction` is "subq\t$0x48, %rsp".
int64_t taken(std::string_view instruction) {
    const size_t space = instruction.find_first_of(" \t");
    if (space == std::string_view::npos) return 0;
    const std::string_view name = instruction.substr(0, space);
    std::string_view operands = instruction.substr(instruction.find_first_not_of(" \t", space));
    if (name.starts_with("push")) return kWordBytes;
    if (!operands.ends_with(", %rsp")) return 0;
    operands.remove_suffix(std::string_view(", %rsp").size());
    if (name == "subq") return std::max<int64_t>(0, immediate(operands, instruction));
    if (name == "addq")
        return std::max<int64_t>(0, -immediate(operands, instruction));  // 128 is added as -128
    if (name == "andq") return -immediate(operands, instruction);        // rounds down to this multiple
    // A frame is left by these, from the frame pointer.
    if ((name == "movq" && operands == "%rbp") || (name == "leaq" && operands.ends_with("(%rbp)"))) return 0;
    if (name.starts_with("cmp") || name.starts_with("test")) return 0;
    throw std::runtime_error(fmt::format("has a stack frame of no constant size: {}", instruction));
}

}  // namespace

int64_t stack_bytes(const std::filesystem::path& object) {
    const std::string text = run_tool({find_llvm_tools().objdump, "--disassemble", "--no-show-raw-insn",
                                       "--no-leading-addr", "--no-print-imm-hex", object.string()});
    int64_t bytes = 0;
    for (size_t at = 0; at < text.size();) {
        size_t end = std::min(text.find('\n', at), text.size());
        std::string_view line(text.data() + at, end - at);
        at = end + 1;
        const size_t begin = line.find_first_not_of(" \t");
        if (begin == std::string_view::npos) continue;
        if (begin == 0) {                                   // a function's label
            if (line.ends_with(">:")) bytes += kWordBytes;  // where it returns to
            continue;
        }
        line.remove_prefix(begin);
        line = line.substr(0, line.find('#'));  // a comment: the number in the other base
        while (line.ends_with(' ')) line.remove_suffix(1);
        bytes += taken(line);
    }
    return bytes;
}

}  // namespace attnc
