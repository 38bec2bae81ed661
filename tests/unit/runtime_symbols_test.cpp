// What the runtime's archive needs and gives, by its symbols, and that its idea of Halide's buffer is
// Halide's.
#include <HalideRuntime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>

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

// Names that `nm OPTION` prints for the archive.
std::set<std::string> symbols(const std::string& option) {
    const std::string command = "nm " + option + " " ATTNC_TEST_RUNTIME_ARCHIVE;
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string text;
    char part[4096];
    for (size_t n = 0; pipe != nullptr && (n = fread(part, 1, sizeof part, pipe.get())) > 0;)
        text.append(part, n);
    std::set<std::string> names;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t space = line.rfind(' ');
        if (space != std::string::npos && space + 1 < line.size()) names.insert(line.substr(space + 1));
    }
    return names;
}

TEST(RuntimeArchive, NeedsOnlyWhatIsAllowed) {
    const std::set<std::string> defined = symbols("--defined-only");
    ASSERT_TRUE(defined.count("attnc_layer_forward") == 1);
    const std::set<std::string> allowed = {"aligned_alloc", "malloc", "free", "madvise"};
    const std::regex patterns("mem(cpy|set|move|cmp)|pthread_[a-z_]+|_GLOBAL_OFFSET_TABLE_");
    for (const std::string& name : symbols("--undefined-only")) {
        if (defined.count(name) != 0) continue;
        EXPECT_TRUE(allowed.count(name) != 0 || std::regex_match(name, patterns)) << name;
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
