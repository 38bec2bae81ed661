// What the generators for GPU targets share. They take whole batches: the grid of a launch is the list of slices that the
// runtime makes of a call for a CPU.
#pragma once

#include <optional>

#include "generators/library_generator.h"
#include "generators/register_kernel.h"
#include "runtime/device_abi.h"
#include "schedules/cuda_params.h"

namespace attnc {

template <typename T>
class GpuGenerator : public LibraryGenerator<T> {
protected:
    CudaSchedule cuda_schedule() const {
        const Config config = one_head();
        CudaSchedule schedule =
            parse_cuda_schedule(this->schedule_text.value(), default_cuda_schedule(config));
        // The twin for OpenCL is for tests: it has no device that limits it.
        const Halide::Target chosen = this->get_target();
        if (chosen.has_feature(Halide::Target::CUDA))
            check_cuda_schedule(schedule, config, chosen.to_string());
        return schedule;
    }

    // One head of the kernel's sizes, for rules and defaults.
    Config one_head() const {
        const KernelConfig kernel = this->kernel_config();
        Config config;
        config.d_model = kernel.head_dim;
        config.num_heads = 1;
        config.head_dim = kernel.head_dim;
        config.v_head_dim = kernel.v_head_dim;
        return complete(config);
    }

    // Rows of features that are read and written in vectors of four.
    template <typename Buffer>
    static void aligned_rows(Buffer& buffer, int64_t features) {
        LibraryGenerator<T>::from_zero(buffer, features);
        buffer.set_host_alignment(16);
        for (int dim = 1; dim < buffer.dimensions(); ++dim) {
            buffer.dim(dim).set_stride((buffer.dim(dim).stride() / 4) * 4);
        }
    }
    // items (c, b): ATTNC_ITEM_*.
    template <typename Buffer>
    static void item_columns(Buffer& buffer) {
        LibraryGenerator<T>::from_zero(buffer, ATTNC_ITEM_COLUMNS);
        buffer.dim(1).set_stride(ATTNC_ITEM_COLUMNS);
    }
    // key_runs (r, b), where the configuration has a cache; null: it has none.
    using KeyRuns = Halide::GeneratorInput<Halide::Buffer<int32_t, 2>>;
    KeyRuns* add_key_runs() {
        if (!this->kernel_config().cache) return nullptr;
        return this->template add_input<Halide::Buffer<int32_t, 2>>("key_runs");
    }
    template <typename Items>
    static std::optional<Halide::ImageParam> key_runs_of_items(KeyRuns* key_runs, Items& items) {
        if (key_runs == nullptr) return std::nullopt;
        LibraryGenerator<T>::from_zero(*key_runs);
        key_runs->dim(1).set_bounds(0, items.dim(1).extent());
        return *key_runs;
    }
    // Row statistics (m, h, c), with splits behind where there are some.
    template <typename Buffer>
    static void row_statistics(Buffer& buffer) {
        LibraryGenerator<T>::from_zero(buffer);
        buffer.dim(2).set_bounds(0, kRowStats);
    }
};

}  // namespace attnc
