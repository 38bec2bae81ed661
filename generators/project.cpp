// project_heads, project_out: the linear layers, from and into tokens.
#include <algorithm>

#include "generators/library_generator.h"
#include "schedules/cpu/projection.h"
#include "stages/projection.h"

namespace attnc {
namespace {

using namespace Halide;

class ProjectHeads : public LibraryGenerator<ProjectHeads> {
public:
    Input<Buffer<float, 2>> x{"x"};                      // (k, m)
    Input<Buffer<float, 3>> weights{"weights"};          // (n, k, p)
    Input<Buffer<float, 2>> bias_vector{"bias_vector"};  // (n, p)
    Output<Buffer<float, 5>> y{"y"};                     // (n, a, m, c, h)

    void generate() {
        const CpuSchedule schedule = cpu_schedule();
        const int panel = static_cast<int>(schedule.layout.panel);
        const KernelConfig kernel = kernel_config();
        const int head =
            static_cast<int>(std::min({schedule.layout.panel, kernel.head_dim, kernel.v_head_dim}));
        const int heads = panel / head;
        from_zero(x);
        from_zero(weights, panel);
        from_zero(bias_vector, panel);
        from_zero(y, head);
        y.dim(1).set_bounds(0, heads);
        weights.dim(1).set_bounds(0, x.dim(0).extent()).set_stride(panel);
        bias_vector.dim(1).set_stride(panel);

        Projection stage(x, weights, bias_vector, x.dim(0).extent(), x.dim(1).extent());
        const Var n("n"), a("a"), m("m"), c("c"), h("h");
        y(n, a, m, c, h) = stage.sums(n + head * a, m, c + y.dim(3).extent() * h);
        schedule_project_heads(stage, y, {n, a, m, c, h}, schedule.params.project_heads, head, heads,
                               get_target());
    }
};

class ProjectOut : public LibraryGenerator<ProjectOut> {
public:
    Input<Buffer<float, 2>> x{"x"};                      // (k, m)
    Input<Buffer<float, 3>> weights{"weights"};          // (n, k, p)
    Input<Buffer<float, 2>> bias_vector{"bias_vector"};  // (n, p)
    Output<Buffer<float, 2>> out{"out"};                 // (n, m)

    void generate() {
        const CpuSchedule schedule = cpu_schedule();
        const int panel = static_cast<int>(schedule.layout.out_panel);
        from_zero(x);
        from_zero(weights, panel);
        from_zero(bias_vector, panel);
        from_zero(out);
        weights.dim(1).set_bounds(0, x.dim(0).extent()).set_stride(panel);
        bias_vector.dim(1).set_stride(panel);

        Projection stage(x, weights, bias_vector, x.dim(0).extent(), x.dim(1).extent());
        const Var n("n"), m("m");
        out(n, m) = stage.sums(n % panel, m, n / panel);
        schedule_project_out(stage, out, {n, m}, schedule.params.project_out, panel, get_target());
    }
};

}  // namespace
}  // namespace attnc

HALIDE_REGISTER_GENERATOR(attnc::ProjectHeads, project_heads)
HALIDE_REGISTER_GENERATOR(attnc::ProjectOut, project_out)
