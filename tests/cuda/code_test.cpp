// The CUDA code of the kernels: what NVIDIA's assembler makes of it, held against the formulas that schedules are checked
// and chosen by, and the share of multiply-adds in the loops where the time goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ostream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "compiler/files.h"
#include "compiler/subprocess.h"
#include "runtime/kernel_abi.h"
#include "schedules/cuda_model.h"
#include "tests/cuda/cuda_code.h"

namespace attnc::test {
namespace {

struct Kernel {
    int id;
    std::string problem;  // one that has the heads
    std::string config;
    std::string schedule;  // "": the default one

    Config layer() const { return parse_config(problem); }
    CudaSchedule chosen() const { return parse_cuda_schedule(schedule, default_cuda_schedule(layer())); }
    CudaResources resources() const { return cuda_resources(chosen(), layer(), id); }
    std::string name() const { return kernel_name(id); }
};

void PrintTo(const Kernel& kernel, std::ostream* to) {
    *to << kernel.name() << " " << kernel.config << " " << kernel.schedule;
}

const std::string kProblem = "d512_h8_f32", kConfig = "hd64_vhd64";

std::vector<Kernel> kernels() {
    const std::string steps = kConfig + "_softcap_alibi";
    return {{ATTNC_KERNEL_PROJECT_HEADS, kProblem, kConfig, ""},
            {ATTNC_KERNEL_PROJECT_OUT, kProblem, kConfig, ""},
            {ATTNC_KERNEL_ATTEND, kProblem, kConfig, ""},
            {ATTNC_KERNEL_ATTEND, "d256_h8_f32", "hd32_vhd32", ""},
            {ATTNC_KERNEL_ATTEND, "d512_h4_f32", "hd128_vhd128", ""},
            {ATTNC_KERNEL_ATTEND_MASKED, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND_DECODE, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND_PROBS, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND_SCORES, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND_GUARDED, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND, "d512_h1_hd512_vhd496_f32", "hd512_vhd496", ""}};
}

// As a library with cache has them: a key's row is found by a table, with no more registers and shared memory.
std::vector<Kernel> cache_kernels() {
    const std::string steps = kConfig + "_softcap_alibi_cache";
    return {{ATTNC_KERNEL_ATTEND, kProblem, kConfig + "_cache", ""},
            {ATTNC_KERNEL_ATTEND, "d256_h8_f32", "hd32_vhd32_cache", ""},
            {ATTNC_KERNEL_ATTEND, "d512_h4_f32", "hd128_vhd128_cache", ""},
            {ATTNC_KERNEL_ATTEND_MASKED, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND_DECODE, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND_PROBS, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND_SCORES, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND_GUARDED, kProblem, steps, ""},
            {ATTNC_KERNEL_ATTEND, "d512_h1_hd512_vhd496_f32", "hd512_vhd496_cache", ""},
            {ATTNC_KERNEL_ATTEND, kProblem, kConfig + "_cache", "attend.register_state:0"},
            {ATTNC_KERNEL_ATTEND_GUARDED, kProblem, steps, "attend_masked.register_state:0"},
            {ATTNC_KERNEL_ATTEND_DECODE, kProblem, steps, "attend_decode.register_state:0"},
            {ATTNC_KERNEL_ATTEND_PROBS, kProblem, steps, "attend_probs.register_state:0"},
            {ATTNC_KERNEL_ATTEND_SCORES, kProblem, steps, "attend_probs.register_state:0"}};
}

std::vector<Kernel> race_free_kernels() {
    return {{ATTNC_KERNEL_PROJECT_HEADS, kProblem, kConfig, "project_heads.register_state:0"},
            {ATTNC_KERNEL_ATTEND, kProblem, kConfig, "attend.register_state:0"},
            {ATTNC_KERNEL_ATTEND_GUARDED, kProblem, kConfig, "attend_masked.register_state:0"},
            {ATTNC_KERNEL_ATTEND_DECODE, kProblem, kConfig, "attend_decode.register_state:0"},
            {ATTNC_KERNEL_ATTEND_PROBS, kProblem, kConfig, "attend_probs.register_state:0"},
            {ATTNC_KERNEL_ATTEND_SCORES, kProblem, kConfig, "attend_probs.register_state:0"}};
}

// Blocks of many keys with few threads, each of which copies many keys at a time.
std::vector<Kernel> wide_kernels() {
    const auto schedule = [](const std::string& layout, const std::string& own) {
        std::string text = layout;
        for (const char* kernel : {"attend", "attend_masked", "attend_probs", "attend_decode"}) {
            for (size_t at = 0; at < own.size();) {
                const size_t end = std::min(own.find(',', at), own.size());
                text += std::string(",") + kernel + "." + own.substr(at, end - at);
                at = end + 1;
            }
        }
        return text;
    };
    const std::string sixteen = "threads_x:16,tile_kv:128,split_kv:512", four = "threads_y:4,";
    return {{ATTNC_KERNEL_ATTEND, kProblem, kConfig,
             schedule(sixteen, four + "depth:32,value_keys:32,unroll:16")},
            {ATTNC_KERNEL_ATTEND, kProblem, kConfig,
             schedule(sixteen, four + "depth:64,value_keys:128,unroll:16")},
            {ATTNC_KERNEL_ATTEND, kProblem, kConfig + "_cache",
             schedule(sixteen, four + "depth:32,value_keys:32,unroll:16")},
            {ATTNC_KERNEL_ATTEND, "d512_h4_f32", "hd128_vhd128_cache",
             schedule(sixteen, four + "depth:32,value_keys:32,unroll:16")},
            {ATTNC_KERNEL_ATTEND, "d256_h8_f32", "hd32_vhd32",
             schedule("threads_x:8,tile_kv:128,split_kv:512", four + "depth:32,value_keys:32,unroll:16")}};
}

constexpr int kArchitectures[] = {75, 80, 90, 100, 120};

// Nothing is allocated and nothing copied to the host: names of the launcher and of errors are all.
void expect_only_the_launcher(const CudaKernel& code) {
    for (const std::string& name : code.undefined_names()) {
        EXPECT_TRUE(name.starts_with("halide_error_") || name.starts_with("halide_cuda_") ||
                    name == "halide_copy_to_device")
            << "it needs " << name;
    }
}

void expect_within_formulas(const Kernel& kernel) {
    const CudaKernel code(kernel.name(), kernel.config, kernel.schedule);
    expect_only_the_launcher(code);
    const CudaResources allowed = kernel.resources();
    ASSERT_THAT(code.launches(), testing::SizeIs(1));
    const Launch launch = code.launches().front();
    EXPECT_EQ(launch.threads_x * launch.threads_y, allowed.threads);
    EXPECT_EQ(launch.shared_bytes, allowed.shared_bytes);
    ATTNC_SKIP_WITHOUT_CUDA_TOOL(ptxas);
    for (const int architecture : kArchitectures) {
        const Assembled made = code.assemble(architecture, allowed.registers);
        EXPECT_LE(made.registers, allowed.registers) << "sm_" << architecture;
        EXPECT_LE(made.spill_bytes, kMostSpillBytes) << "sm_" << architecture;
        EXPECT_LE(made.stack_bytes, made.spill_bytes == 0 ? 0 : 2 * kMostSpillBytes) << "sm_" << architecture;
    }
}

class CudaCode : public testing::TestWithParam<Kernel> {};

TEST_P(CudaCode, StaysWithinTheFormulasOnEveryArchitecture) { expect_within_formulas(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Kernels, CudaCode, testing::ValuesIn(kernels()));
INSTANTIATE_TEST_SUITE_P(KernelsWithCache, CudaCode, testing::ValuesIn(cache_kernels()));
INSTANTIATE_TEST_SUITE_P(WideKernels, CudaCode, testing::ValuesIn(wide_kernels()));

class RaceFreeCudaCode : public testing::TestWithParam<Kernel> {};

TEST_P(RaceFreeCudaCode, StaysWithinTheFormulasOnEveryArchitecture) { expect_within_formulas(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Kernels, RaceFreeCudaCode, testing::ValuesIn(race_free_kernels()));

// A kernel without parameters: a thread for each row, feature or element.
struct PlainKernel {
    std::string name, config;
    size_t launches = 1;
};

void PrintTo(const PlainKernel& kernel, std::ostream* to) { *to << kernel.name << " " << kernel.config; }

std::vector<PlainKernel> plain_kernels() {
    const std::string any = "hd16_vhd16";
    return {{"fill_items", any},
            {"split_heads", any},
            {"merge_heads", any},
            {"norm_heads", "hd512_vhd16"},
            {"rotary_angles", any},
            {"rotary_rows", any},
            {"rotate_heads", any},
            {"rotate_heads", any + "_pairs"},
            {"attend_suspects", kConfig, 2},
            {"attend_merge", kConfig},
            {"attend_merge", "hd512_vhd512_sink"},
            {"fill_empty", "hd512_vhd512"},
            {"fill_empty", "hd512_vhd512_cache"},
            {"attend_lse", any},
            {"average_probs", any},
            {"fill_key_bias", any},
            {"fill_key_blocks", any},
            {"fill_positions", any},
            {"clear_rows", any},
            {"fill_cache", any},
            {"fill_runs", any},
            {"append_rows", any},
            {"keep_lengths", any}};
}

class PlainCudaCode : public testing::TestWithParam<PlainKernel> {};

TEST_P(PlainCudaCode, IsOneLaunchInRegistersOnEveryArchitecture) {
    const PlainKernel& kernel = GetParam();
    const CudaKernel code(kernel.name, kernel.config, "");
    expect_only_the_launcher(code);
    EXPECT_THAT(code.launches(), testing::SizeIs(kernel.launches));
    for (const Launch& launch : code.launches()) {
        EXPECT_LE(launch.threads_x * launch.threads_y, 512);
        EXPECT_LE(launch.shared_bytes, 512);
    }
    ATTNC_SKIP_WITHOUT_CUDA_TOOL(ptxas);
    constexpr int64_t kRegisters = 64;  // of which 512 threads have enough on every device
    for (const int architecture : kArchitectures) {
        const Assembled made = code.assemble(architecture, kRegisters);
        EXPECT_EQ(made.spill_bytes, 0) << "sm_" << architecture;
        EXPECT_EQ(made.stack_bytes, 0) << "sm_" << architecture;
    }
}

INSTANTIATE_TEST_SUITE_P(Kernels, PlainCudaCode, testing::ValuesIn(plain_kernels()));

// What the driver of the generators says to a call that can't be.
std::string refusal(const std::string& generator, const std::string& schedule) {
    const TestFolder folder;
    const CommandResult result =
        run_attnc({"generate", "-g", generator, "-f", "kernel", "-e", "object", "-o", folder.path().string(),
                   "target=x86-64-linux-cuda-no_runtime", "config=" + kConfig, "schedule=" + schedule});
    EXPECT_NE(result.exit_code, 0);
    return result.output;
}

TEST(CudaCode, IsRefusedForKernelsAndSchedulesThatAreNone) {
    EXPECT_THAT(refusal("attend_narrow", "panel:128"),
                testing::HasSubstr("kernel 'attend_narrow' has no code for a GPU"));
    EXPECT_THAT(refusal("attend", "attend.depth:24"),
                testing::HasSubstr("the padded head_dim 64 is not a multiple of attend.depth, 24"));
}

// ---- Loops

// Instructions and multiply-adds of a loop, each run of an inner nest taken as often as `trips` say, outermost first.
std::pair<double, double> weighed(const SassLoop& loop, const std::vector<int64_t>& trips, size_t depth = 0) {
    auto total = std::pair(static_cast<double>(loop.instructions), static_cast<double>(loop.multiply_adds));
    for (const SassLoop& inner : loop.inner) {
        const double times = depth < trips.size() ? static_cast<double>(trips[depth]) : 1;
        const auto of_inner = weighed(inner, trips, depth + 1);
        total.first += times * of_inner.first;
        total.second += times * of_inner.second;
    }
    return total;
}

const SassLoop& busiest(const std::vector<SassLoop>& loops) {
    return *std::max_element(loops.begin(), loops.end(), [](const SassLoop& a, const SassLoop& b) {
        return a.last - a.first < b.last - b.first;
    });
}

TEST(CudaLoops, OfTheProjectionAreMultiplyAdds) {
    ATTNC_SKIP_WITHOUT_CUDA_TOOL(ptxas);
    ATTNC_SKIP_WITHOUT_CUDA_TOOL(nvdisasm);
    const Kernel kernel = kernels()[0];
    const CudaKernel code(kernel.name(), kernel.config, kernel.schedule);
    code.assemble(80, kernel.resources().registers);
    const std::vector<SassLoop> loops = sass_loops(code.sass());
    const auto [instructions, multiply_adds] = weighed(busiest(loops), {});
    EXPECT_EQ(multiply_adds,
              cuda_model(kernel.chosen(), kernel.layer(), kernel.id, cuda_device(80)).multiply_adds);
    EXPECT_GE(multiply_adds / instructions, 0.85);
    RecordProperty("fma_percent", static_cast<int>(100 * multiply_adds / instructions));
}

// A block of keys, with all that masks may add to it: the loops over features and keys run inside it as often as the
// schedule says.
class CudaKeyLoops : public testing::TestWithParam<Kernel> {};

TEST_P(CudaKeyLoops, OfABlockOfKeysAreMultiplyAdds) {
    ATTNC_SKIP_WITHOUT_CUDA_TOOL(ptxas);
    ATTNC_SKIP_WITHOUT_CUDA_TOOL(nvdisasm);
    const Kernel& kernel = GetParam();
    const CudaSchedule schedule = kernel.chosen();
    const CudaAttendParams& params = schedule.params.attend;
    ASSERT_EQ(params.depth, params.value_keys) << "both nests are taken to run equally often";
    ASSERT_EQ(schedule.layout.tile_kv, kernel.layer().head_dim);
    const CudaKernel code(kernel.name(), kernel.config, kernel.schedule);
    code.assemble(80, kernel.resources().registers);
    // A loop of one round isn't there.
    std::vector<int64_t> trips = {schedule.layout.tile_kv / params.depth, params.depth / params.unroll};
    std::erase(trips, 1);
    const auto [instructions, multiply_adds] = weighed(busiest(sass_loops(code.sass())), trips);
    const double wanted = cuda_model(schedule, kernel.layer(), kernel.id, cuda_device(80)).multiply_adds;
    EXPECT_GE(multiply_adds, wanted) << "the loops are others than expected";
    EXPECT_LE(multiply_adds, 1.05 * wanted) << "the loops are others than expected";
    EXPECT_GE(multiply_adds / instructions, 0.68);
    RecordProperty("fma_percent", static_cast<int>(100 * multiply_adds / instructions));
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaKeyLoops, testing::Values(kernels()[2], cache_kernels()[0]));

// What the assembler has left of the instructions that kernels are made for.
TEST(Sass, OfAttentionHasWideLoadsAndThePowerOfTwo) {
    ATTNC_SKIP_WITHOUT_CUDA_TOOL(ptxas);
    ATTNC_SKIP_WITHOUT_CUDA_TOOL(nvdisasm);
    const auto sass_of = [](const Kernel& kernel) {
        const CudaKernel code(kernel.name(), kernel.config, kernel.schedule);
        code.assemble(80, kernel.resources().registers);
        return code.sass();
    };
    const auto has = [](const std::string& sass, const std::string& instruction) {
        return std::regex_search(sass, std::regex("\\*/.* " + instruction));  // behind an address
    };
    const std::string attend = sass_of(kernels()[2]), project = sass_of(kernels()[0]);
    for (const std::string* sass : {&attend, &project}) {
        for (const char* instruction : {"LDG\\.E\\.128", "STS\\.128", "LDS\\.128"})
            EXPECT_TRUE(has(*sass, instruction)) << instruction;
        for (const char* instruction : {"LDL", "STL"})  // local memory
            EXPECT_FALSE(has(*sass, instruction)) << instruction;
    }
    EXPECT_TRUE(has(attend, "MUFU\\.EX2"));
    EXPECT_FALSE(has(project, "MUFU\\.EX2"));
}

// ---- PTX

ProcessResult file_check(const std::string& text, const std::string& check) {
    const TestFolder folder;
    write_file(folder / "kernel.ptx", text);
    return run_process({ATTNC_FILECHECK, "--input-file=" + (folder / "kernel.ptx"),
                        "--implicit-check-not={{\\.local|call|div\\.rn|sqrt}}", ATTNC_CHECKS "/" + check},
                       std::chrono::seconds(60));
}

TEST(Ptx, OfAttentionHasTheInstructionsThatItIsMadeFor) {
    const std::string text = CudaKernel("attend", kConfig, "").ptx();
    const ProcessResult result = file_check(text, "attend.ptx.check");
    EXPECT_TRUE(result.succeeded()) << result.output;
    // The check sees the difference.
    std::string without = text;
    for (size_t at = 0; (at = without.find("ex2.approx.ftz.f32", at)) != std::string::npos;)
        without.replace(at, 10, "ex2.other");
    EXPECT_FALSE(file_check(without, "attend.ptx.check").succeeded());
}

TEST(Ptx, OfTheProjectionHasTheInstructionsThatItIsMadeFor) {
    const std::string text = CudaKernel("project_heads", kConfig, "").ptx();
    const ProcessResult result = file_check(text, "project.ptx.check");
    EXPECT_TRUE(result.succeeded()) << result.output;
    EXPECT_FALSE(file_check(text + "\n\tst.local.f32 [%rd1], %f1;\n", "project.ptx.check").succeeded());
}

}  // namespace
}  // namespace attnc::test
