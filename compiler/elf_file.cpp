#include "compiler/elf_file.h"

#include <elf.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <stdexcept>

namespace attnc {

namespace {

[[noreturn]] void damaged(std::string_view what) {
    throw std::runtime_error(fmt::format("damaged object file: {}", what));
}

// `count` bytes at `offset`, if they are there.
std::string_view range(std::string_view bytes, uint64_t offset, uint64_t count, std::string_view what) {
    if (offset > bytes.size() || count > bytes.size() - offset) damaged(what);
    return bytes.substr(offset, count);
}

template <typename T>
T record(std::string_view bytes, uint64_t offset, std::string_view what) {
    T value;
    std::memcpy(&value, range(bytes, offset, sizeof value, what).data(), sizeof value);
    return value;
}

std::string_view text_at(std::string_view table, uint64_t offset, std::string_view what) {
    if (offset >= table.size()) damaged(what);
    std::string_view text = table.substr(offset);
    size_t end = text.find('\0');
    if (end == std::string_view::npos) damaged(what);
    return text.substr(0, end);
}

bool is_x86_64_object(std::string_view bytes) {
    if (bytes.size() < sizeof(Elf64_Ehdr) || !bytes.starts_with(ELFMAG)) return false;
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    return header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
           header.e_type == ET_REL && header.e_machine == EM_X86_64;
}

}  // namespace

ElfObject::ElfObject(std::string_view bytes) {
    if (!is_x86_64_object(bytes)) throw std::runtime_error("no x86-64 object file");
    const auto header = record<Elf64_Ehdr>(bytes, 0, "header");
    if (header.e_shentsize != sizeof(Elf64_Shdr)) damaged("section table");
    range(bytes, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), "section table");

    std::vector<Elf64_Shdr> headers;
    headers.reserve(header.e_shnum);
    for (uint64_t i = 0; i < header.e_shnum; ++i) {
        headers.push_back(
            record<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr), "section table"));
    }
    for (const Elf64_Shdr& section : headers) {
        std::string_view contents;
        if (section.sh_type != SHT_NOBITS)
            contents = range(bytes, section.sh_offset, section.sh_size, "section");
        sections_.push_back({"", section.sh_type, section.sh_flags, contents, section.sh_link});
    }
    if (header.e_shstrndx >= sections_.size()) damaged("section names");
    const std::string_view names = sections_[header.e_shstrndx].contents;
    for (size_t i = 0; i < sections_.size(); ++i) {
        sections_[i].name = text_at(names, headers[i].sh_name, "section name");
    }

    for (const Section& section : sections_) {
        if (section.type != SHT_SYMTAB) continue;
        if (section.link >= sections_.size()) damaged("symbol names");
        const std::string_view symbol_names = sections_[section.link].contents;
        for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.contents.size(); at += sizeof(Elf64_Sym)) {
            const auto symbol = record<Elf64_Sym>(section.contents, at, "symbol");
            symbols_.push_back({.name = text_at(symbol_names, symbol.st_name, "symbol name"),
                                .defined = symbol.st_shndx != SHN_UNDEF,
                                .global = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL,
                                .function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC,
                                .size = symbol.st_size});
        }
    }
}

std::string_view ElfObject::section(std::string_view name) const {
    for (const Section& section : sections_) {
        if (section.name == name) return section.contents;
    }
    return {};
}

uint64_t ElfObject::code_bytes() const {
    uint64_t bytes = 0;
    for (const Section& section : sections_) {
        if (section.flags & SHF_EXECINSTR) bytes += section.contents.size();
    }
    return bytes;
}

std::vector<ArchiveMember> archive_members(std::string_view bytes) {
    constexpr std::string_view kMagic = "!<arch>\n";
    constexpr size_t kHeaderBytes = 60;  // name 16, date 12, owner 6, group 6, mode 8, size 10, end mark 2
    const auto fail = [] { throw std::runtime_error("no static library"); };
    if (!bytes.starts_with(kMagic)) fail();

    std::vector<ArchiveMember> members;
    std::string_view long_names;
    for (size_t at = kMagic.size(); at < bytes.size();) {
        if (bytes.size() - at < kHeaderBytes) fail();
        std::string_view header = bytes.substr(at, kHeaderBytes);
        std::string_view name = header.substr(0, 16);
        name = name.substr(0, name.find_last_not_of(' ') + 1);
        std::string_view digits = header.substr(48, 10);
        size_t size = 0;
        if (std::from_chars(digits.data(), digits.data() + digits.size(), size).ec != std::errc()) fail();
        at += kHeaderBytes;
        if (size > bytes.size() - at) fail();
        std::string_view contents = bytes.substr(at, size);
        at += size + size % 2;

        if (name == "//") {
            long_names = contents;
        } else if (name != "/" && name != "/SYM64/") {
            if (name.starts_with('/')) {  // "/123": offset into the table of long names
                size_t offset = 0;
                std::from_chars(name.data() + 1, name.data() + name.size(), offset);
                if (offset > long_names.size()) fail();
                name = long_names.substr(offset);
            }
            members.push_back({std::string(name.substr(0, name.find('/'))), contents});
        }
    }
    return members;
}

}  // namespace attnc
