#include "schedules/cpu/heads.h"

namespace attnc {

using namespace Halide;

void schedule_norm_heads(HeadNorm& s, Func y, int head_dim, const Target& target) {
    const Var lane("lane");
    y.bound(s.d, 0, head_dim).vectorize(s.d, target.natural_vector_size<float>());
    s.factor.compute_at(y, s.m).store_in(MemoryType::Stack);
    s.squares.compute_at(y, s.m).store_in(MemoryType::Stack);
    s.squares.update().atomic().vectorize(s.lanes);
    s.chains.compute_at(y, s.m)
        .store_in(MemoryType::Stack)
        .bound_extent(s.lane, HeadNorm::kLanes)
        .vectorize(s.lane);
    s.chains.update().reorder(s.lane, s.step).vectorize(s.lane);
}

// All heads of a row one after another, so that the row of the tables is read once.
void schedule_rotate_heads(const Rotation& s, Func y, const Target& target) {
    const RVar lane("lane");
    y.update()
        .allow_race_conditions()  // no feature is in two pairs
        .split(s.pair, s.pair, lane, target.natural_vector_size<float>(), TailStrategy::GuardWithIf)
        .reorder(lane, s.pair, s.h, s.m)
        .vectorize(lane);
}

void schedule_rotary_angles(Func table, const Var& pair, const Target& target) {
    table.vectorize(pair, target.natural_vector_size<double>(), TailStrategy::GuardWithIf);
}

}  // namespace attnc
