// project_heads and project_out on a GPU: linear layers of all tokens of a batch.
#include "generators/cuda/gpu_generator.h"
#include "schedules/cuda/projection.h"

namespace attnc {
namespace {

using namespace Halide;

template <typename T>
class GpuProject : public GpuGenerator<T> {
public:
    template <typename U>
    using In = typename GpuGenerator<T>::template Input<U>;

    In<Buffer<float, 2>> x{"x"};                      // (k, m)
    In<Buffer<float, 3>> weights{"weights"};          // (n, k, p), k filled up with zeros to whole steps
    In<Buffer<float, 2>> bias_vector{"bias_vector"};  // (n, p)
    In<Buffer<int32_t, 1>> lengths{"lengths"};        // (b)
    In<int32_t> seq{"seq"};                           // rows of an item

protected:
    ProjectionGpu project(const CudaProjectParams& params, int64_t panel) {
        this->from_zero(x);
        this->aligned_rows(weights, panel);
        weights.dim(1).set_stride(static_cast<int>(panel));
        this->aligned_rows(bias_vector, panel);
        bias_vector.dim(1).set_stride(static_cast<int>(panel));
        this->from_zero(lengths);
        return {x,
                weights,
                bias_vector,
                lengths,
                x.dim(0).extent(),
                x.dim(1).extent(),
                seq,
                weights.dim(2).extent(),
                projection_tile(params, panel)};
    }
};

class ProjectHeads : public GpuProject<ProjectHeads> {
public:
    Output<Buffer<float, 3>> y{"y"};  // (d, m, h): one plane of rows for each head

    void generate() {
        const CudaSchedule schedule = cuda_schedule();
        const Expr head = head_of_y();
        y.dim(1).set_bounds(0, x.dim(1).extent());
        ProjectionGpu stage = project(schedule.params.project_heads, schedule.layout.panel);
        // In fours: a head is a multiple of them.
        const Expr quad = stage.column_quad(), plane = quad / (head / kQuad);
        stage.store.where(plane < y.dim(2).extent());
        const Var d("d"), m("m"), h("h");
        y(d, m, h) = undef<float>();
        y(quad % (head / kQuad) * kQuad + stage.store[ProjectionGpu::kColumn],
          clamp(stage.row(), 0, x.dim(1).extent() - 1), clamp(plane, 0, y.dim(2).extent() - 1)) =
            stage.result();
        schedule_projection_gpu(stage, y, schedule.params.project_heads, true);
    }

private:
    // Features of a padded head, which y's rows have: of Q and K, or of V. A constant where these agree.
    Expr head_of_y() {
        const KernelConfig kernel = kernel_config();
        aligned_rows(y, kernel.head_dim);
        if (kernel.head_dim == kernel.v_head_dim) return static_cast<int>(kernel.head_dim);
        y.dim(0).set_bounds(0, y.dim(0).extent() / kQuad * kQuad);
        return y.dim(0).extent();
    }
};

class ProjectOut : public GpuProject<ProjectOut> {
public:
    Output<Buffer<float, 2>> out{"out"};  // (n, m)

    void generate() {
        const CudaSchedule schedule = cuda_schedule();
        from_zero(out);
        out.dim(1).set_bounds(0, x.dim(1).extent());
        ProjectionGpu stage = project(schedule.params.project_out, schedule.layout.out_panel);
        const Expr column = stage.column_quad() * kQuad + stage.store[ProjectionGpu::kColumn];
        stage.store.where(column < out.dim(0).extent());
        const Var n("n"), m("m");
        out(n, m) = undef<float>();
        out(clamp(column, 0, out.dim(0).extent() - 1), clamp(stage.row(), 0, x.dim(1).extent() - 1)) =
            stage.result();
        schedule_projection_gpu(stage, out, schedule.params.project_out, false);
    }
};

}  // namespace
}  // namespace attnc

ATTNC_REGISTER_GPU_KERNEL(attnc::ProjectHeads, project_heads)
ATTNC_REGISTER_GPU_KERNEL(attnc::ProjectOut, project_out)
