// What the runtime's archive needs and gives, by its symbols, and that its idea of Halide's buffer is
// Halide's.
#include <HalideRuntime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/halide_buffer.h"

namespace attnc {
namespace {

static_assert(sizeof(HalideBuffer) == sizeof(halide_buffer_t));
static_assert(offsetof(HalideBuffer, device_interface) == offsetof(halide_buffer_t, device_interface));
static_assert(offsetof(HalideBuffer, host) == offsetof(halide_buffer_t, host));
static_assert(offsetof(HalideBuffer, flags) == offsetof(halide_buffer_t, flags));
static_assert(offsetof(HalideBuffer, type) == offsetof(halide_buffer_t, type));
static_assert(offsetof(HalideBuffer, dimensions) == offsetof(halide_buffer_t, dimensions));
static_assert(offsetof(HalideBuffer, dim) == offsetof(halide_buffer_t, dim));
static_assert(sizeof(HalideDimension) == sizeof(halide_dimension_t));
static_assert(offsetof(HalideDimension, extent) == offsetof(halide_dimension_t, extent));
static_assert(offsetof(HalideDimension, stride) == offsetof(halide_dimension_t, stride));
static_assert(sizeof(HalideType) == sizeof(halide_type_t));
static_assert(kFloat32.code == halide_type_float && kUint8.code == halide_type_uint);

// What a member of the archive has or needs.
struct Symbol {
    std::string member, name;
};

std::vector<Symbol> symbols_of_members(const std::string& option) {
    const std::string command = "nm -A " + option + " " ATTNC_TEST_RUNTIME_ARCHIVE;
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string text;
    char part[4096];
    for (size_t n = 0; pipe != nullptr && (n = fread(part, 1, sizeof part, pipe.get())) > 0;)
        text.append(part, n);
    std::vector<Symbol> symbols;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {  // archive:member:address type name
        const size_t member = line.find(':') + 1, end = line.find(':', member), space = line.rfind(' ');
        if (end != std::string::npos && space != std::string::npos && space > end)
            symbols.push_back({line.substr(member, end - member), line.substr(space + 1)});
    }
    return symbols;
}

std::set<std::string> symbols(const std::string& option) {
    std::set<std::string> names;
    for (const Symbol& symbol : symbols_of_members(option)) names.insert(symbol.name);
    return names;
}

TEST(RuntimeArchive, NeedsOnlyWhatIsAllowed) {
    const std::set<std::string> defined = symbols("--defined-only");
    ASSERT_TRUE(defined.count("attnc_layer_forward") == 1);
    const std::set<std::string> allowed = {"aligned_alloc", "malloc", "free",          "madvise",
                                           "dlopen",        "dlsym",  "clock_gettime", "sched_yield"};
    const std::regex patterns("mem(cpy|set|move|cmp)|pthread_[a-z_]+|_GLOBAL_OFFSET_TABLE_");
    for (const std::string& name : symbols("--undefined-only")) {
        if (defined.count(name) != 0) continue;
        EXPECT_TRUE(allowed.count(name) != 0 || std::regex_match(name, patterns)) << name;
    }
}

// The driver of a device is looked for there alone, and nothing else leads to it: a program whose libraries are for CPUs links
// none of it.
TEST(RuntimeArchive, OnlyLibrariesForADeviceLeadToItsDriver) {
    std::set<std::string> device, members, of_device;
    for (const auto& file : std::filesystem::directory_iterator(ATTNC_TEST_DEVICE_RUNTIME)) {
        if (file.path().extension() == ".cpp") device.insert(file.path().filename().string() + ".o");
    }
    for (const Symbol& symbol : symbols_of_members("--defined-only")) {
        if (symbol.name == "attnc_layer_forward") members.insert(symbol.member);
        if (device.count(symbol.member) != 0) of_device.insert(symbol.name);
    }
    ASSERT_EQ(members, std::set<std::string>{"forward.cpp.o"});
    ASSERT_EQ(of_device.count("attnc_abi1_cuda"), 1U);
    for (const Symbol& symbol : symbols_of_members("--undefined-only")) {
        if (symbol.name == "dlopen" || symbol.name == "dlsym") {
            EXPECT_EQ(symbol.member, "driver.cpp.o");
        }
        if (device.count(symbol.member) == 0) {
            EXPECT_EQ(of_device.count(symbol.name), 0U) << symbol.member << " " << symbol.name;
        }
    }
}

TEST(RuntimeArchive, HasEveryErrorOfHalidesRuntime) {
    const std::set<std::string> defined = symbols("--defined-only");
    std::ifstream file(ATTNC_TEST_HALIDE_RUNTIME_HEADER);
    ASSERT_TRUE(file.good());
    const std::string header((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::regex declaration("\\bextern int halide_(error_[a-z0-9_]+)\\(");
    int count = 0;
    for (std::sregex_iterator match(header.begin(), header.end(), declaration), end; match != end; ++match) {
        EXPECT_EQ(defined.count("attnc_abi1_" + (*match)[1].str()), 1U) << (*match)[1].str();
        ++count;
    }
    EXPECT_GT(count, 30);
}

}  // namespace
}  // namespace attnc
