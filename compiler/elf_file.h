// What attnc reads from ELF64 objects and from archives of them: names of symbols, and sections by name. Every offset
// in a file is checked, since `attnc show` is given files of any origin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

struct ElfSymbol {
    std::string_view name;
    bool defined = false;
    bool global = false;  // or weak
    bool function = false;
    uint64_t size = 0;
};

// Views into bytes that must outlive it. Throws std::runtime_error, "no x86-64 object file", "damaged object file: ...".
class ElfObject {
public:
    explicit ElfObject(std::string_view bytes);

    const std::vector<ElfSymbol>& symbols() const { return symbols_; }
    // Contents of the first section of this name; nullptr data() if there is none.
    std::string_view section(std::string_view name) const;
    // Bytes of all sections that hold instructions.
    uint64_t code_bytes() const;

private:
    struct Section {
        std::string_view name;
        uint32_t type;
        uint64_t flags;
        std::string_view contents;
        uint32_t link;
    };
    std::vector<Section> sections_;
    std::vector<ElfSymbol> symbols_;
};

// The members of a static library, by name and contents; its index is left out.
struct ArchiveMember {
    std::string name;
    std::string_view contents;
};
// Throws std::runtime_error: "no static library".
std::vector<ArchiveMember> archive_members(std::string_view bytes);

}  // namespace attnc
