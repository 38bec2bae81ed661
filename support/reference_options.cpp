#include "support/reference.h"

namespace attnc {

attnc_layer_options layer_options_of(const ReferenceOptions& options) {
    attnc_layer_options o = ATTNC_LAYER_OPTIONS_INIT;
    o.empty_rows = options.empty_rows;
    o.qk_scale = static_cast<float>(options.qk_scale);
    o.window = static_cast<attnc_window>((options.window_left ? ATTNC_WINDOW_LEFT : 0) |
                                         (options.window_right ? ATTNC_WINDOW_RIGHT : 0));
    o.window_left = options.window_left.value_or(0);
    o.window_right = options.window_right.value_or(0);
    o.softcap = static_cast<float>(options.softcap);
    o.qk_norm_epsilon = static_cast<float>(options.qk_norm_epsilon);
    o.rotary = options.rotary;
    return o;
}

}  // namespace attnc
