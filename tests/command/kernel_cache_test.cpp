// Kernels that several ask for at once.
#include "compiler/kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "compiler/files.h"
#include "compiler/kernel_workers.h"
#include "compiler/library_plan.h"
#include "runtime/kernel_abi.h"
#include "schedules/cpu_params.h"
#include "tests/command/run_attnc.h"

namespace attnc::test {
namespace {

namespace fs = std::filesystem;

constexpr int kBuilds = 4;

KernelJob small_job() {
    const std::string target = "x86-64-linux";
    const Config config = parse_config("d32_h2_f32_nomask_noprobs");
    return kernel_job(config, target, default_schedule(config, target), ATTNC_KERNEL_PROJECT_OUT);
}

TEST(KernelCache, AKernelIsCompiledOnceForAllThatWantItAtOnce) {
    const TestFolder folder;
    // The command, with a note of each kernel that it compiles.
    const fs::path command = folder.path() / "attnc", notes = folder.path() / "notes";
    write_file(command,
               "#!/bin/sh\necho x >>" + notes.string() + "\nexec " + attnc_command().string() + " \"$@\"\n");
    fs::permissions(command, fs::perms::owner_all);
    const CompilerVersions versions = versions_of(attnc_command());

    std::vector<std::future<CompiledKernel>> builds;
    for (int n = 0; n < kBuilds; ++n) {
        const fs::path own = folder.path() / std::to_string(n);
        fs::create_directory(own);
        builds.push_back(std::async(std::launch::async, [&, own] {
            const WorkerOptions options = {.attnc = command, .cache = folder.path() / "cache", .folder = own};
            return compile_kernels({small_job()}, versions, options).front();
        }));
    }
    int compiled = 0;
    std::vector<std::string> objects;
    for (auto& build : builds) {
        const CompiledKernel kernel = build.get();
        compiled += kernel.cached ? 0 : 1;
        objects.push_back(contents(kernel.object));
    }
    EXPECT_EQ(compiled, 1);
    EXPECT_EQ(contents(notes), "x\n");
    EXPECT_THAT(objects, testing::Each(objects.front()));
}

// Where a kernel can't be compiled the next tries, and none waits for ever.
TEST(KernelCache, WhatFailsIsLetGo) {
    const TestFolder folder;
    const CompilerVersions versions = versions_of(attnc_command());
    WorkerOptions options = {
        .attnc = "/bin/false", .cache = folder.path() / "cache", .folder = folder.path()};
    EXPECT_THROW(compile_kernels({small_job()}, versions, options), std::runtime_error);
    options.attnc = attnc_command();
    EXPECT_FALSE(compile_kernels({small_job()}, versions, options).front().cached);
}

}  // namespace
}  // namespace attnc::test
