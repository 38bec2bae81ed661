// attend_merge: joins two blocks of keys.
#include "generators/library_generator.h"
#include "schedules/cpu/attention.h"
#include "stages/attention_merge.h"

namespace attnc {
namespace {

using namespace Halide;

class AttendMerge : public LibraryGenerator<AttendMerge> {
public:
    Input<Buffer<float, 2>> context_a{"context_a"};  // (d, i)
    Input<Buffer<float, 1>> lse_a{"lse_a"};          // (i)
    Input<Buffer<float, 2>> context_b{"context_b"};  // (d, i)
    Input<Buffer<float, 1>> lse_b{"lse_b"};          // (i)
    Output<Buffer<float, 2>> context{"context"};     // (d, i)
    Output<Buffer<float, 1>> lse{"lse"};             // (i)

    void generate() {
        const int64_t v_head_dim = kernel_config().v_head_dim;
        from_zero(context_a, v_head_dim);
        from_zero(context_b, v_head_dim);
        from_zero(context, v_head_dim);
        from_zero(lse_a);
        from_zero(lse_b);
        from_zero(lse);
        AttentionMerge stage(context_a, lse_a, context_b, lse_b);
        context(stage.d, stage.i) = stage.context(stage.d, stage.i);
        lse(stage.i) = stage.lse(stage.i);
        schedule_merge(stage, context, lse, static_cast<int>(v_head_dim), get_target());
    }
};

}  // namespace
}  // namespace attnc

HALIDE_REGISTER_GENERATOR(attnc::AttendMerge, attend_merge)
