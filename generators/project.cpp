// project_heads, project_out and their tail kernels: the linear layers, from and into tokens.
#include <algorithm>

#include "generators/library_generator.h"
#include "generators/register_kernel.h"
#include "schedules/cpu/ahead.h"
#include "schedules/cpu/in_line.h"
#include "schedules/cpu/projection.h"
#include "stages/projection.h"

namespace attnc {
namespace {

using namespace Halide;

template <typename T>
class ProjectGenerator : public LibraryGenerator<T> {
protected:
    // The sums of a kernel's inputs, with what is known of their layout.
    template <typename X, typename Weights, typename Bias>
    ProjectionTiles tiles_of(X& x, Weights& weights, Bias& bias_vector, int panel,
                             const ProjectParams& params, bool tail) {
        this->from_zero(x);
        this->from_zero(weights, panel);
        this->from_zero(bias_vector, panel);
        weights.dim(1).set_bounds(0, x.dim(0).extent()).set_stride(panel);
        bias_vector.dim(1).set_stride(panel);
        const int rows = static_cast<int>(params.rows);
        const int lanes = this->get_target().template natural_vector_size<float>();
        ProjectionInputs in = {.x = x,
                               .weights = weights,
                               .bias_vector = bias_vector,
                               .depth = x.dim(0).extent(),
                               .count = x.dim(1).extent(),
                               .panel = panel,
                               .in_line = steps_in_line(this->get_target())};
        if (projection_asks_ahead(rows * panel / lanes)) in.address = address_of(weights);
        return {in, rows, tail};
    }
};

template <typename T>
class HeadsGenerator : public ProjectGenerator<T> {
public:
    template <typename U>
    using In = typename LibraryGenerator<T>::template Input<U>;
    template <typename U>
    using Out = typename LibraryGenerator<T>::template Output<U>;

    In<Buffer<float, 2>> x{"x"};                      // (k, m)
    In<Buffer<float, 3>> weights{"weights"};          // (n, k, p)
    In<Buffer<float, 2>> bias_vector{"bias_vector"};  // (n, p)
    Out<Buffer<float, 5>> y{"y"};                     // (n, a, m, c, h)

protected:
    void generate_rows(const ProjectParams& params, bool tail) {
        this->check_there(params.rows);
        const CpuSchedule schedule = this->cpu_schedule();
        const int panel = static_cast<int>(schedule.layout.panel);
        const KernelConfig kernel = this->kernel_config();
        const int head =
            static_cast<int>(std::min({schedule.layout.panel, kernel.head_dim, kernel.v_head_dim}));
        const int heads = panel / head;
        this->from_zero(y, head);
        y.dim(1).set_bounds(0, heads);
        const ProjectionTiles tiles = this->tiles_of(x, weights, bias_vector, panel, params, tail);
        const Var n("n"), a("a"), m("m"), c("c"), h("h");
        y(n, a, m, c, h) = tiles.sums(n + head * a, m, c + y.dim(3).extent() * h);
        schedule_project_heads(tiles, y, {n, a, m, c, h}, head, heads, this->get_target());
    }
};

class ProjectHeads : public HeadsGenerator<ProjectHeads> {
public:
    void generate() { generate_rows(cpu_schedule().params.project_heads, false); }
};

class ProjectHeadsTail : public HeadsGenerator<ProjectHeadsTail> {
public:
    void generate() { generate_rows(cpu_schedule().params.project_heads_tail, true); }
};

template <typename T>
class OutGenerator : public ProjectGenerator<T> {
public:
    template <typename U>
    using In = typename LibraryGenerator<T>::template Input<U>;
    template <typename U>
    using Out = typename LibraryGenerator<T>::template Output<U>;

    In<Buffer<float, 2>> x{"x"};                      // (k, m)
    In<Buffer<float, 3>> weights{"weights"};          // (n, k, p)
    In<Buffer<float, 2>> bias_vector{"bias_vector"};  // (n, p)
    Out<Buffer<float, 2>> out{"out"};                 // (n, m)

protected:
    void generate_rows(const ProjectParams& params, bool tail) {
        this->check_there(params.rows);
        const CpuSchedule schedule = this->cpu_schedule();
        const int panel = static_cast<int>(schedule.layout.out_panel);
        this->from_zero(out);
        const ProjectionTiles tiles = this->tiles_of(x, weights, bias_vector, panel, params, tail);
        const Var n("n"), m("m");
        out(n, m) = tiles.sums(n % panel, m, n / panel);
        schedule_project_out(tiles, out, {n, m}, panel, this->get_target());
    }
};

class ProjectOut : public OutGenerator<ProjectOut> {
public:
    void generate() { generate_rows(cpu_schedule().params.project_out, false); }
};

class ProjectOutTail : public OutGenerator<ProjectOutTail> {
public:
    void generate() { generate_rows(cpu_schedule().params.project_out_tail, true); }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_KERNEL(attnc::ProjectHeads, project_heads)
ATTNC_REGISTER_KERNEL(attnc::ProjectOut, project_out)
ATTNC_REGISTER_KERNEL(attnc::ProjectHeadsTail, project_heads_tail)
ATTNC_REGISTER_KERNEL(attnc::ProjectOutTail, project_out_tail)
