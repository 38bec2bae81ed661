// Projections as work lists: rows times groups of weight panels. Before attention the inputs become heads;
// after it the context becomes the output.
#pragma once

#include "runtime/head_steps.h"
#include "runtime/rows.h"
#include "runtime/stage.h"

namespace attnc {

// What of a projection stays in the call's cache.
enum class Keeps { kNothing, kKeys, kValues };

// One projection of a call, or where the layer has none, the copy that splits or merges heads.
struct Projection {
    Rows rows;
    const PackedWeights* weights;  // null: a copy
    TokenView from;                // the caller's tokens, or the context in the workspace
    OutView to;                    // planes of heads in the workspace, or the caller's output
    bool heads_out;                // true: project_heads, from the caller; false: project_out, to the caller
    Keeps keeps;
    HeadSteps steps;     // of q and k, on the heads that a call wrote; a piece of work has whole heads then
    int64_t real_heads;  // without those of padding
    HeadPanels heads;    // of project_heads and of copies
    int64_t features;    // of a head on the caller's side; out: of the caller's output row
    int64_t panel_step, group_step;  // panels of a head, and groups of heads, in one piece of work
    int64_t panel_parts, group_parts;
    // Projections from this one on that one piece of work makes, of the same rows; 0: this one comes with one before it.
    int64_t together = 1;
    int64_t count() const { return rows.chunks * panel_parts * group_parts; }
};

// Up to three, for q, k and v; returns how many. With all of them chosen so that every thread has work.
int64_t plan_in_projections(const Wave& wave, Projection* projections);

// One, or none where attention writes the output itself.
int64_t plan_out_projection(const Wave& wave, Projection* projection);

WorkList work_of(const Projection& projection);

}  // namespace attnc
