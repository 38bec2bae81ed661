// The loops where the time goes are what the schedule says: all accumulators in registers of the full width, nothing
// spilled, nothing called. And the checks see the difference: the same loops with one fault each do not pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <ostream>

#include "compiler/files.h"
#include "compiler/subprocess.h"
#include "tests/codegen/inner_loops.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

struct Loops {
    std::string kernel, target;
    std::string check;  // file of this folder
    size_t count;       // of loops that the file checks
    std::string never = "{{call|%rsp}}";
};

const char* schedule_of(const std::string& target) {
    return target == "x86-64-linux-avx512_skylake"
               ? "panel:64,out_panel:64,project_heads.rows:6,project_out.rows:6,attend.rows:64,attend.q_"
                 "vectors:4,"
                 "attend.key_rows:6,attend.context_rows:8,attend.context_columns:32,"
                 "attend_decode.rows:4,attend_decode.keys:4,attend_decode."
                 "columns:64,"
                 "attend_decode.single_columns:64"
               : "panel:16,out_panel:16,project_heads.rows:6,project_out.rows:6,attend.rows:16,attend.q_"
                 "vectors:1,"
                 "attend.key_rows:6,attend.context_rows:4,attend.context_columns:16";
}

void PrintTo(const Loops& loops, std::ostream* to) { *to << loops.kernel << " for " << loops.target; }

// Built at its first use.
const TestFolder& library_with_assembly(const std::string& target) {
    static std::map<std::string, TestFolder> folders;
    const auto [found, is_new] = folders.try_emplace(target);
    if (is_new) {
        const CommandResult result = run_attnc({"build", "d128_h2_f32_nomask_noprobs_cache", "--name", "x",
                                                "--target", target, "--schedule", schedule_of(target),
                                                "--emit", "asm", "-o", found->second.path().string()});
        EXPECT_EQ(result.exit_code, 0) << result.output;
    }
    return found->second;
}

std::vector<InnerLoop> loops_of(const Loops& loops) {
    const TestFolder& folder = library_with_assembly(loops.target);
    return inner_loops(contents(folder / ("x." + loops.kernel + "." + loops.target + ".s")));
}

// Where a loop does more than multiply and add: addresses may come from the stack, vectors may not.
const std::string kNoVectorOnStack = "{{call|mm[0-9]+.*%rsp|%rsp.*mm[0-9]+}}";

ProcessResult file_check(const std::string& text, const std::string& check, const std::string& never) {
    const TestFolder folder;
    write_file(folder / "loops.s", text);
    return run_process({ATTNC_FILECHECK, "--input-file=" + (folder / "loops.s"),
                        "--implicit-check-not=" + never, ATTNC_CHECKS "/" + check},
                       std::chrono::seconds(60));
}

class InnerLoops : public testing::TestWithParam<Loops> {};

TEST_P(InnerLoops, AreWhatTheScheduleSays) {
    const std::string text = as_text(loops_of(GetParam()), GetParam().count);
    const ProcessResult result = file_check(text, GetParam().check, GetParam().never);
    EXPECT_TRUE(result.succeeded()) << result.output << text;
}

std::string name_of(const testing::TestParamInfo<Loops>& info) {
    const bool wide = info.param.target.find("avx512") != std::string::npos;
    return info.param.kernel + (wide ? "_avx512" : "_avx2");
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, InnerLoops,
    testing::Values(
        Loops{"project_heads", "x86-64-linux-avx512_skylake", "project.avx512.check", 1, kNoVectorOnStack},
        Loops{"project_out", "x86-64-linux-avx512_skylake", "project.avx512.check", 1, kNoVectorOnStack},
        Loops{"attend", "x86-64-linux-avx512_skylake", "attend.avx512.check", 5, kNoVectorOnStack},
        Loops{"attend_decode", "x86-64-linux-avx512_skylake", "attend_decode.avx512.check", 6,
              kNoVectorOnStack},
        Loops{"project_heads", "x86-64-linux-avx2-fma-f16c", "project.avx2.check", 1},
        Loops{"project_out", "x86-64-linux-avx2-fma-f16c", "project.avx2.check", 1},
        Loops{"attend", "x86-64-linux-avx2-fma-f16c", "attend.avx2.check", 1}),
    name_of);

// Near misses, made from the real loop.
class NearMiss : public testing::Test {
protected:
    static void SetUpTestSuite() {
        const Loops loops = {"project_heads", "x86-64-linux-avx512_skylake", "project.avx512.check", 1,
                             kNoVectorOnStack};
        loops_ = loops_of(loops);
        ASSERT_TRUE(file_check(as_text(loops_, 1), loops.check, loops.never).succeeded()) << "the real loop";
    }

    static void expect_refused(const std::vector<InnerLoop>& changed) {
        const ProcessResult result =
            file_check(as_text(changed, 1), "project.avx512.check", kNoVectorOnStack);
        EXPECT_EQ(result.exit_code, 1) << result.output;
    }

    static inline std::vector<InnerLoop> loops_;
};

TEST_F(NearMiss, NarrowerRegister) {
    std::vector<InnerLoop> changed = loops_;
    for (std::string& line : changed[0].lines) {
        if (line.find("vfmadd") == std::string::npos) continue;
        for (size_t at = 0; (at = line.find("%zmm", at)) != std::string::npos;) line.replace(at, 4, "%ymm");
        break;
    }
    expect_refused(changed);
}

TEST_F(NearMiss, Spill) {
    std::vector<InnerLoop> changed = loops_;
    changed[0].lines.insert(changed[0].lines.begin() + 9, "\tvmovups\t%zmm5, 64(%rsp)");
    expect_refused(changed);
}

TEST_F(NearMiss, Call) {
    std::vector<InnerLoop> changed = loops_;
    changed[0].lines.insert(changed[0].lines.begin() + 9, "\tcallq\texpf@PLT");
    expect_refused(changed);
}

TEST_F(NearMiss, OneAccumulatorLess) {
    std::vector<InnerLoop> changed = loops_;
    std::erase_if(changed[0].lines, [seen = false](const std::string& line) mutable {
        if (seen || line.find("vfmadd") == std::string::npos) return false;
        return seen = true;
    });
    expect_refused(changed);
}

}  // namespace
}  // namespace attnc::test
