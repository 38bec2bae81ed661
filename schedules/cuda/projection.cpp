#include "schedules/cuda/projection.h"

#include "schedules/cuda/thread_loops.h"

namespace attnc {

using namespace Halide;

ProjectionGpuTile projection_tile(const CudaProjectParams& params, int64_t panel) {
    return {.threads = {.x = static_cast<int>(params.threads_x),
                        .y = static_cast<int>(params.threads_y),
                        .register_state = params.register_state != 0},
            .row_groups = static_cast<int>(params.row_groups),
            .column_groups = static_cast<int>(panel / (kQuad * params.threads_x)),
            .depth = static_cast<int>(params.depth)};
}

void schedule_projection_gpu(ProjectionGpu& s, Func out, const CudaProjectParams& params, bool vectors) {
    const ProjectionGpuTile& tile = s.tile;
    const GpuThreads& threads = tile.threads;
    using Store = ProjectionGpu::StoreDimension;
    const auto store = [&](Store dimension) { return s.store[dimension]; };

    // Without blocks the definition, which stores nothing, would be the host's, and the result be copied to it.
    out.gpu_blocks(out.args().back());
    Stage stored = out.update();
    stored.allow_race_conditions();
    thread_loops(stored, {store(s.kColumn), store(s.kColumnGroup), store(s.kRow), store(s.kRowGroup)}, {},
                 store(s.kThreadX), store(s.kThreadY), {store(s.kTile), store(s.kPanel)}, vectors);
    stored.gpu_blocks(store(s.kTile), store(s.kPanel));

    keep_by_thread(s.sums, LoopLevel(out, store(s.kTile)),
                   {kQuad, tile.column_groups, kQuad, tile.row_groups});
    define_by_thread(s.sums, 0, s.seed, {s.v, s.g, s.u, s.h});
    const RVar feature = s.multiply.steps[0], step = s.multiply.steps[1];
    const int chain = threads.register_state ? 1 : tile.chain;
    RVar outer_feature("outer_feature"), inner_feature("inner_feature");
    Stage multiply = s.sums.stage(1);
    multiply.split(feature, outer_feature, inner_feature, static_cast<int>(params.unroll) / chain);
    define_by_thread(s.sums, 1, s.multiply, {s.v, s.g, s.u, s.h}, {inner_feature, outer_feature}, {step});
    multiply.unroll(inner_feature);

    const LoopLevel each_step(s.sums.func, step), each_feature(s.sums.func, inner_feature);
    const Var outer("outer"), lane("lane");
    s.row_tile.compute_at(each_step)
        .store_in(MemoryType::GPUShared)
        .bound(s.u, 0, kQuad)
        .bound(s.t, 0, threads.y)
        .bound(s.h, 0, tile.row_groups)
        .bound_extent(s.k, tile.depth)
        .bound_extent(s.m, 1)
        .split(s.k, outer, lane, threads.x);
    thread_loops(s.row_tile, {s.u, s.h, outer}, {}, lane, s.t, {s.m});
    s.weight_tile.compute_at(each_step)
        .store_in(MemoryType::GPUShared)
        .bound(s.v, 0, kQuad)
        .bound(s.s, 0, threads.x)
        .bound(s.g, 0, tile.column_groups)
        .bound_extent(s.k, tile.depth)
        .bound_extent(s.p, 1)
        .split(s.k, outer, lane, threads.y);
    thread_loops(s.weight_tile, {s.v, s.g, outer}, {}, s.s, lane, {s.p});
    s.row_tile.in()
        .compute_at(each_feature)
        .store_in(MemoryType::Register)
        .vectorize(s.u)
        .unroll(s.h)
        .unroll(s.k);
    s.weight_tile.in()
        .compute_at(each_feature)
        .store_in(MemoryType::Register)
        .vectorize(s.v)
        .unroll(s.g)
        .unroll(s.k);
}

}  // namespace attnc
