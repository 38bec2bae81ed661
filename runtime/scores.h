// Scores before the softmax, as outputs.scores shows them.
#pragma once

#include "runtime/attend.h"

namespace attnc {

// All columns of the queries of a range, at the stage that the call asks for. False when the kernel refused.
bool write_scores(const Wave& wave, Worker& worker, const QueryRange& range);

}  // namespace attnc
