// CPU schedules of the projections.
#pragma once

#include <Halide.h>

#include "stages/projection.h"

namespace attnc {

// y (n, a, m, c, h) in the layout that attention wants; `head` columns of each of `heads` heads make a panel.
void schedule_project_heads(const ProjectionTiles& tiles, Halide::Func y,
                            const std::vector<Halide::Var>& y_args, int head, int heads,
                            const Halide::Target& target);

// out (n, m): panels side by side, the last one cut where out ends.
void schedule_project_out(const ProjectionTiles& tiles, const Halide::Func& out,
                          const std::vector<Halide::Var>& out_args, int panel, const Halide::Target& target);

}  // namespace attnc
