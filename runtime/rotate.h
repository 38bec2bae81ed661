// attnc_layer_rotate: what forward does to heads of q and k before attention, by itself.
#pragma once

#include "runtime/request.h"

namespace attnc {

// Heads of a call after its checks; its rows are the request's queries.
struct RotatedHeads {
    bool keys;
    int64_t heads;
    TokenView from;
    OutView to;
    bool in_place;  // `to` is `from`
};

attnc_status check_rotation(attnc_error* error, const attnc_layer& layer, const attnc_rotation* rotation,
                            RotatedHeads* call, Request* request);

}  // namespace attnc
