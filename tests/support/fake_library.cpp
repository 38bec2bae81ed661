#include "tests/support/fake_library.h"

#include <stdexcept>

#include "tests/support/fake_call.h"
#include "tests/support/fake_kernels.h"

extern "C" int attnc_abi1_error_constraint_violated(void* user_context, const char* var, int val,
                                                    const char* constrained_var, int constrained_val);

namespace attnc::test {
namespace {

using namespace fake;

std::atomic<FakeFailure> g_failure[ATTNC_KERNEL_COUNT];

// Refuses if the test asked for it.
bool refuses(int kernel, void** argv, int32_t* code) {
    const FakeFailure how = g_failure[kernel].exchange(FakeFailure::kNone);
    if (how == FakeFailure::kNone) return false;
    *code = -7;
    if (how == FakeFailure::kHook) {
        *code = attnc_abi1_error_constraint_violated(*static_cast<void**>(argv[0]), "q.extent.0", 17,
                                                     "the padded head", 16);
    }
    return true;
}

template <int kernel, int32_t (*body)(int, void**)>
int32_t entry(void** argv) {
    int32_t code = 0;
    return refuses(kernel, argv, &code) ? code : body(kernel, argv);
}

attnc_kernel_argv body_of(const Config& config, int kernel) {
    switch (kernel) {
        case ATTNC_KERNEL_PROJECT_HEADS:
            return entry<ATTNC_KERNEL_PROJECT_HEADS, project>;
        case ATTNC_KERNEL_PROJECT_OUT:
            return entry<ATTNC_KERNEL_PROJECT_OUT, project>;
        case ATTNC_KERNEL_PROJECT_HEADS_TAIL:
            return entry<ATTNC_KERNEL_PROJECT_HEADS_TAIL, project>;
        case ATTNC_KERNEL_PROJECT_OUT_TAIL:
            return entry<ATTNC_KERNEL_PROJECT_OUT_TAIL, project>;
        case ATTNC_KERNEL_ATTEND:
            return entry<ATTNC_KERNEL_ATTEND, attend>;
        case ATTNC_KERNEL_ATTEND_NARROW:
            return entry<ATTNC_KERNEL_ATTEND_NARROW, attend>;
        case ATTNC_KERNEL_ATTEND_SINGLE:
            return entry<ATTNC_KERNEL_ATTEND_SINGLE, attend>;
        case ATTNC_KERNEL_ATTEND_MASKED:
            return entry<ATTNC_KERNEL_ATTEND_MASKED, attend>;
        case ATTNC_KERNEL_ATTEND_GUARDED:
            return entry<ATTNC_KERNEL_ATTEND_GUARDED, attend>;
        case ATTNC_KERNEL_ATTEND_MERGE:
            return entry<ATTNC_KERNEL_ATTEND_MERGE, merge>;
        case ATTNC_KERNEL_ATTEND_LSE:
            return entry<ATTNC_KERNEL_ATTEND_LSE, log_sum>;
        case ATTNC_KERNEL_ATTEND_PROBS:
            return entry<ATTNC_KERNEL_ATTEND_PROBS, probs>;
        case ATTNC_KERNEL_ATTEND_SCORES:
            return entry<ATTNC_KERNEL_ATTEND_SCORES, show_scores>;
        case ATTNC_KERNEL_SPLIT_HEADS:
            return entry<ATTNC_KERNEL_SPLIT_HEADS, copy_heads>;
        case ATTNC_KERNEL_MERGE_HEADS:
            return entry<ATTNC_KERNEL_MERGE_HEADS, copy_heads>;
        case ATTNC_KERNEL_NORM_HEADS:
            return entry<ATTNC_KERNEL_NORM_HEADS, norm_heads>;
        case ATTNC_KERNEL_ROTATE_HEADS:
            return config.rotary == Rotary::kPairs ? entry<ATTNC_KERNEL_ROTATE_HEADS, rotate_pairs>
                                                   : entry<ATTNC_KERNEL_ROTATE_HEADS, rotate_halves>;
        case ATTNC_KERNEL_ROTARY_ANGLES:
            return entry<ATTNC_KERNEL_ROTARY_ANGLES, rotary_angles>;
        case ATTNC_KERNEL_ATTEND_DECODE:
            return entry<ATTNC_KERNEL_ATTEND_DECODE, decode>;
        default:
            throw std::logic_error(std::string("no scalar form of kernel ") + kernel_name(kernel));
    }
}

attnc_kernel_entry entry_of(const Config& config, int kernel) {
    const std::vector<int64_t>& order = arguments_of(kernel);
    return {body_of(config, kernel), order.data(), static_cast<int64_t>(order.size()), 2 * (64 + 1024)};
}

attnc_target_entry make_target(const Config& config, const FakeLayout& layout, const char* name,
                               int64_t features) {
    attnc_target_entry target = {};
    target.name = name;
    target.cpu_features = features;
    target.layout = {layout.panel != 0 ? layout.panel : padded_head(config.head_dim),
                     layout.out_panel,
                     layout.tile_rows,
                     layout.tail_rows,
                     layout.tile_rows,
                     layout.tail_rows,
                     layout.tile_kv,
                     layout.tile_q,
                     layout.tile_q_narrow,
                     layout.tile_q_single,
                     layout.split_kv};
    for (const int kernel : kernels_of(config)) {
        const bool left_out =
            (kernel == ATTNC_KERNEL_ATTEND_NARROW && layout.tile_q_narrow == 0) ||
            (kernel == ATTNC_KERNEL_ATTEND_SINGLE && layout.tile_q_single == 0) ||
            ((kernel == ATTNC_KERNEL_PROJECT_HEADS_TAIL || kernel == ATTNC_KERNEL_PROJECT_OUT_TAIL) &&
             layout.tail_rows == 0);
        if (!left_out) target.kernels[kernel] = entry_of(config, kernel);
    }
    return target;
}

}  // namespace

FakeCounts& fake_counts() {
    static FakeCounts counts{};
    return counts;
}

void FakeCounts::reset() {
    for (auto& count : calls) count = 0;
    rows_projected = rows_angled = pairs_attended = in_flight = most_in_flight = wrong_control_words = 0;
    foretold = mistold = asked_ahead = 0;
    fake::forget_foretold();
}

void fail_next_call(int kernel, FakeFailure how) { g_failure[kernel] = how; }

FakeLibrary::FakeLibrary(const Config& config, const FakeLayout& layout) : problem_(to_string(config)) {
    // No CPU has the first one's features.
    targets_ = {make_target(config, layout, "x86-64-linux-impossible", int64_t{1} << 60),
                make_target(config, layout, "x86-64-linux", 0)};
    library_.abi_version = ATTNC_ABI_VERSION;
    library_.name = "fake";
    library_.problem = problem_.c_str();
    library_.config = {config.d_model,  config.num_heads,     config.num_kv_heads,
                       config.head_dim, config.v_head_dim,    config.k_dim,
                       config.v_dim,    config_flags(config), config.page_size};
    library_.target_count = static_cast<int64_t>(targets_.size());
    library_.targets = targets_.data();
    library_.manifest = "{}";
    library_.manifest_bytes = 2;
    if (!layout.device) return;
    device_ = std::make_unique<FakeDevice>(config, layout.device_layout);
    library_.device = &device_->entry();
}

}  // namespace attnc::test
