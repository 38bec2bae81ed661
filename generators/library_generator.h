// What all generators share: the two string parameters, and buffer contracts.
#pragma once

#include <Halide.h>

#include <string>

#include "schedules/cpu_params.h"
#include "stages/config.h"
#include "stages/row_stats.h"

namespace attnc {

// Every kernel's generator has exactly these two parameters; the rest follows from them.
// config: kernel_config() text, "hd64_vhd64". schedule: to_string(CpuSchedule); empty: the target's defaults.
template <typename T>
class LibraryGenerator : public Halide::Generator<T> {
public:
    Halide::GeneratorParam<std::string> config_text{"config", ""};
    Halide::GeneratorParam<std::string> schedule_text{"schedule", ""};

protected:
    KernelConfig kernel_config() const { return parse_kernel_config(config_text.value()); }

    CpuSchedule cpu_schedule() const {
        const KernelConfig kernel = kernel_config();
        Config config;
        config.d_model = kernel.head_dim;
        config.num_heads = 1;
        config.head_dim = kernel.head_dim;
        config.v_head_dim = kernel.v_head_dim;
        return parse_schedule(schedule_text.value(),
                              default_schedule(complete(config), this->get_target().to_string()));
    }

    // Of a kernel that a schedule may leave out.
    static void check_there(int64_t rows) {
        if (rows == 0) throw ConfigError("this target does without this kernel: its rows are 0");
    }

    // A buffer whose dimensions all begin at 0. Halide takes stride 1 of the first for granted and checks it.
    template <typename Buffer>
    static void from_zero(Buffer& buffer) {
        for (int n = 0; n < buffer.dimensions(); n++) {
            buffer.dim(n).set_min(0);
        }
    }
    // The same, and the first dimension has exactly `extent` elements.
    template <typename Buffer>
    static void from_zero(Buffer& buffer, int64_t extent) {
        from_zero(buffer);
        buffer.dim(0).set_bounds(0, static_cast<int>(extent));
    }
    // Row statistics (i, c).
    template <typename Buffer>
    static void row_statistics(Buffer& buffer) {
        from_zero(buffer);
        buffer.dim(1).set_bounds(0, kRowStats);
    }
    // The same as from_zero, with any strides.
    template <typename Buffer>
    static void any_strides(Buffer& buffer) {
        from_zero(buffer);
        buffer.dim(0).set_stride(Halide::Expr());
    }
};

}  // namespace attnc
