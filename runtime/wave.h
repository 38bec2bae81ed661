// The parts of a layer on a wave of items, one after another. Apart from forward, so that a benchmark can time one of them
// on what the ones before it have left.
#pragma once

#include "runtime/stage.h"

namespace attnc {

// A wave without items yet. `workspace` is that of the call.
Wave make_wave(const attnc_layer& layer, const Request& request, const Plan& plan, void* workspace);

// Items first .. of the batch, as many as the workspace holds; only valid rows get a place there. Their queries are all there,
// or the first ones of a long item.
void begin_wave(Wave& wave, int64_t first);

// Back to the first queries, and on to the next ones of a long item; false after the last ones.
void first_queries(Wave& wave);
bool next_queries(Wave& wave);

// Angles of a rotary embedding; then Q, K and V as attention reads them, and what masks add to each key.
attnc_status project_inputs(attnc_error* error, const Wave& wave);

// The context of the wave's queries, or where the layer projects no output, the output itself; lse, probabilities and scores of
// each head.
attnc_status attend(attnc_error* error, const Wave& wave);

// The output of the same queries, and with the last ones probabilities averaged over heads.
attnc_status project_output(attnc_error* error, const Wave& wave);

}  // namespace attnc
