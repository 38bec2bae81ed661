// The installed tree, after it was moved, serves outside projects: by CMake, by pkg-config, from plain C; beside other
// libraries and beside a Halide of the program's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <utility>

#include "compiler/files.h"
#include "compiler/subprocess.h"
#include "tests/command/run_attnc.h"
#include "tests/command/tuned_records.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::HasSubstr;

class Installed : public testing::Test {
protected:
    static void SetUpTestSuite() {
        folder_ = new TestFolder;
        run({ATTNC_CMAKE, "--install", ATTNC_BUILD, "--prefix", folder() / "prefix"});
        fs::rename(folder() / "prefix", folder() / "moved");
    }
    static void TearDownTestSuite() {
        delete folder_;
        folder_ = nullptr;
    }

    static const TestFolder& folder() { return *folder_; }
    static std::string attnc() { return folder() / "moved/bin/attnc"; }

    // Runs a program that must succeed; returns what it printed.
    static std::string run(const Strings& command,
                           const std::map<std::string, std::string>& environment = {}) {
        Strings all = {"/usr/bin/env", "ATTNC_KERNEL_CACHE=" + test_kernel_cache().string()};
        for (const auto& [name, value] : environment) all.push_back(name + "=" + value);
        all.insert(all.end(), command.begin(), command.end());
        const ProcessResult result = run_process(all, std::chrono::seconds(300));
        EXPECT_TRUE(result.succeeded()) << quoted(command) << "\n" << result.output;
        return result.output;
    }

    static void configure(const std::string& project, const std::string& build, const Strings& options) {
        run(Strings{ATTNC_CMAKE, "-S", std::string(ATTNC_PROJECTS "/") + project, "-B", folder() / build,
                    "-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=" ATTNC_NINJA} +
            options);
    }
    static std::string build(const std::string& build) {
        return run({ATTNC_CMAKE, "--build", folder() / build});
    }

    static void build_library(const std::string& name, const std::string& output) {
        run({attnc(), "build", "d32_h2_f32_nomask_noprobs", "--name", name, "--target", "x86-64-linux", "-o",
             folder() / output});
    }

private:
    static inline TestFolder* folder_ = nullptr;
};

TEST_F(Installed, HoldsItsOwnHalide) {
    EXPECT_TRUE(fs::exists(folder() / "moved/lib/attnc/libHalide.so"));
    const std::string libraries = run({"/usr/bin/ldd", attnc()});
    EXPECT_THAT(libraries,
                HasSubstr(fs::canonical(folder() / "moved/bin").string() + "/../lib/attnc/libHalide.so"));
}

// The runner that it links is a part of the tree, as is the module that --mpi loads where MPI is.
TEST_F(Installed, ExportsRunners) {
    if (!fs::exists(folder() / "moved/lib/attnc/attnc_runner.o"))
        GTEST_SKIP() << "a build with a sanitizer has no runner";
    run({attnc(), "tune", "d32_h2_f32_nomask_noprobs:b1_q8_kv8", "--target", "x86-64-linux", "--effort",
         "quick", "--kernel", "project_out", "--export-candidates", "1", "--db", folder() / "none.jsonl",
         "--export", folder() / "runner"});
    EXPECT_THAT(run({folder() / "runner/attnc-runner", "--help"}),
                HasSubstr("usage: attnc-runner [RESULTS]"));
}

TEST_F(Installed, KnowsTheBenchmarkGridAndShippedRecords) {
    EXPECT_THAT(run({attnc(), "explain", "d512_h8_f32", "--no-records"}),
                HasSubstr("d512_h8_f32 for b1_q128_kv128 b1_q512_kv512 b1_q2048_kv2048 b32_q50_kv50\n"));
    const std::string records = folder() / "moved/share/attnc/db";
    fs::create_directories(records);
    write_file(records + "/test.jsonl", line_of(small_record(32)));
    EXPECT_THAT(
        run({attnc(), "explain", "d32_h2_f32_nomask_noprobs", "--target", "x86-64-linux"}),
        HasSubstr(
            "  -> nearest machine, sizes and layer: d32_h2_f32_nomask_noprobs at b1_q40_kv40 on Test CPU"));
    fs::remove(records + "/test.jsonl");
}

TEST_F(Installed, ServesACMakeProject) {
    const Strings options = {"-DCMAKE_PREFIX_PATH=" + (folder() / "moved"), "-DAPP_D_MODEL=32"};
    configure("cmake_project", "cmake", options);
    build("cmake");
    EXPECT_EQ(run({folder() / "cmake/app"}), "d32_h2_f32_nomask_noprobs and d16_h2_f32_nomask_noprobs\n");
    EXPECT_THAT(build("cmake"), HasSubstr("no work to do"));

    // Another configuration is compiled anew, and what includes its header with it.
    configure("cmake_project", "cmake", {"-DAPP_D_MODEL=48"});
    build("cmake");
    EXPECT_EQ(run({folder() / "cmake/app"}), "d48_h2_f32_nomask_noprobs and d16_h2_f32_nomask_noprobs\n");
}

TEST_F(Installed, ServesPlainCByPkgConfig) {
    build_library("app_attention", "pkg_config");
    const std::string flags = run({"/usr/bin/pkg-config", "--cflags", "--libs", "app_attention"},
                                  {{"PKG_CONFIG_PATH", folder() / "pkg_config"}});
    const std::string source = ATTNC_PROJECTS "/plain_c/main.c";
    const std::string program = folder() / "plain_c";
    run({"/bin/sh", "-c",
         "cc -std=c11 -pedantic -Wall -Werror -o '" + program + "' '" + source + "' " +
             flags.substr(0, flags.find('\n'))});
    EXPECT_EQ(run({program}), "d32_h2_f32_nomask_noprobs on x86-64-linux\n");
}

TEST_F(Installed, LibrariesAreCMakePackages) {
    build_library("app_attention", "package");
    configure("find_library", "find", {"-Dapp_attention_DIR=" + (folder() / "package")});
    build("find");
    EXPECT_EQ(run({folder() / "find/app"}), "d32_h2_f32_nomask_noprobs on x86-64-linux\n");
}

TEST_F(Installed, LibrariesLiveBesideEachOtherAndBesideAHalideOfTheHost) {
    build_library("first_attention", "two");
    build_library("second_attention", "two");
    run({attnc(), "generate", "-g", "merge_heads", "-f", "host_kernel", "-e", "static_library,c_header", "-o",
         folder() / "two", "target=x86-64-linux", "config=hd16_vhd16"});
    const std::string two = folder() / "two";
    run({"/usr/bin/cc", "-std=c11", "-Wall", "-Werror", "-o", two + "/app",
         ATTNC_PROJECTS "/two_libraries/main.c", "-I" + two, "-I" ATTNC_HALIDE_INCLUDE,
         two + "/libfirst_attention.a", two + "/libsecond_attention.a", two + "/host_kernel.a",
         two + "/libattnc_runtime.a", "-ldl", "-pthread"});
    EXPECT_EQ(run({two + "/app"}), "two libraries and a Halide of the host's own\n");
}

// Two libraries in one program had the names of their runtimes in common, or lacked some (halide/Halide#7592, #2151,
// #4894, #2816): two layers of different sizes, linked in both orders, and each in a shared object.
class TwoLayers : public Installed {
protected:
    static void SetUpTestSuite() {
        Installed::SetUpTestSuite();
        for (const auto& [name, problem, d_model] : kLayers) {
            const std::string library = std::string(name) + "_attention";
            run({attnc(), "build", problem, "--name", library, "--target", "x86-64-linux", "-o", two()});
            run({"/usr/bin/cc", "-std=c11", "-Wall", "-Werror", "-O1", "-fPIC", "-c", "-I" + two(),
                 "-DHEADER=\"" + library + ".h\"", "-DLIBRARY=" + library,
                 std::string("-DCHECK=check_") + name, std::string("-DD_MODEL=") + d_model, "-o",
                 two() + "/" + name + ".o", ATTNC_PROJECTS "/two_layers/part.c"});
        }
    }

    static std::string two() { return folder() / "two_layers"; }
    static std::string archive(const std::string& layer) { return two() + "/lib" + layer + "_attention.a"; }

private:
    struct Layer {
        const char *name, *problem, *d_model;
    };
    static constexpr Layer kLayers[] = {{"small", "d512_h8_f32_nomask_noprobs", "512"},
                                        {"large", "d768_h12_f32_nomask_noprobs", "768"}};
};

TEST_F(TwoLayers, LinkIntoOneProgramInEitherOrder) {
    for (const auto& [first, second] :
         {std::pair<std::string, std::string>{"small", "large"}, {"large", "small"}}) {
        const std::string program = two() + "/" + first + "_first";
        run({"/usr/bin/cc", "-std=c11", "-Wall", "-Werror", "-o", program,
             ATTNC_PROJECTS "/two_layers/linked.c", two() + "/" + first + ".o", two() + "/" + second + ".o",
             archive(first), archive(second), two() + "/libattnc_runtime.a", "-pthread"});
        EXPECT_EQ(run({program}), "both layers\n") << first << " first";
    }
}

TEST_F(TwoLayers, InSharedObjectsOutliveEachOther) {
    for (const std::string layer : {"small", "large"}) {
        run({"/usr/bin/cc", "-shared", "-o", two() + "/" + layer + ".so", two() + "/" + layer + ".o",
             archive(layer), two() + "/libattnc_runtime.a", "-pthread"});
    }
    const std::string program = two() + "/loaded";
    run({"/usr/bin/cc", "-std=gnu11", "-Wall", "-Werror", "-o", program,
         ATTNC_PROJECTS "/two_layers/loaded.c", "-ldl"});
    const std::string small = two() + "/small.so", large = two() + "/large.so";
    EXPECT_EQ(run({program, small, "check_small", large, "check_large"}), "one layer after the other\n");
    EXPECT_EQ(run({program, large, "check_large", small, "check_small"}), "one layer after the other\n");
}

// Files of two builds must not link: the header names the hash of its own library.
TEST_F(Installed, HeaderAndLibraryOfTwoBuildsDoNotLink) {
    build_library("app_attention", "mixed");
    run({attnc(), "build", "d64_h2_f32_nomask_noprobs", "--name", "app_attention", "--target", "x86-64-linux",
         "-o", folder() / "mixed_other"});
    const ProcessResult result =
        run_process({"/usr/bin/cc", "-o", folder() / "mixed/app", ATTNC_PROJECTS "/plain_c/main.c",
                     "-I" + (folder() / "mixed"), folder() / "mixed_other/libapp_attention.a",
                     folder() / "mixed/libattnc_runtime.a", "-pthread"},
                    std::chrono::seconds(60));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("undefined reference to `attnc_lib_app_attention_"));
}

}  // namespace
}  // namespace attnc::test
