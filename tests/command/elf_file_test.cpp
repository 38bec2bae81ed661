// The reader of objects and archives: names and sections of a real library.
#include "compiler/elf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "compiler/files.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

using Strings = std::vector<std::string>;

TEST(ElfFile, ReadsTheObjectOfALibrary) {
    const TestFolder folder;
    run_attnc(kSmallBuild +
              Strings{"--name", "a_name_longer_than_sixteen_letters", "-o", folder.path().string()});
    const std::string bytes = read_file(folder / "liba_name_longer_than_sixteen_letters.a");
    const std::vector<ArchiveMember> members = archive_members(bytes);
    ASSERT_EQ(members.size(), 1U);
    EXPECT_EQ(members[0].name, "a_name_longer_than_sixteen_letters.o");

    const ElfObject object(members[0].contents);
    EXPECT_GT(object.code_bytes(), 1000U);
    EXPECT_THAT(std::string(object.section(".rodata.attnc_manifest")), testing::StartsWith("{"));
    EXPECT_EQ(object.section(".no_such_section").data(), nullptr);
    Strings defined;
    for (const ElfSymbol& symbol : object.symbols()) {
        if (symbol.global && symbol.defined) defined.emplace_back(symbol.name);
    }
    EXPECT_THAT(defined, testing::ElementsAre(testing::MatchesRegex(
                             "attnc_lib_a_name_longer_than_sixteen_letters_[0-9a-f]+")));
}

TEST(ElfFile, RefusesOtherFiles) {
    EXPECT_THROW(ElfObject(""), std::runtime_error);
    EXPECT_THROW(ElfObject("not an object file, but as long as the header of one would have to be......."),
                 std::runtime_error);
    EXPECT_THROW(archive_members("!<arch"), std::runtime_error);
    EXPECT_THROW(archive_members("!<arch>\nshort"), std::runtime_error);
    EXPECT_TRUE(archive_members("!<arch>\n").empty());
}

}  // namespace
}  // namespace attnc::test
