#include "compiler/tune_parts.h"

#include <algorithm>

#include "compiler/kernel_forms.h"
#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

bool is_among(const std::vector<std::string>& kernels, const std::string& kernel) {
    return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
}

// The start with the forms for fewer queries that the target usually has: where they would run if they were there.
CpuSchedule with_usual_forms(const Config& config, const std::string& target, const CpuSchedule& start) {
    const CpuSchedule usual = default_schedule(config, target);
    CpuSchedule schedule = start;
    CpuParams& params = schedule.params;
    if (params.attend_narrow.rows == 0 && usual.params.attend_narrow.rows < params.attend.rows)
        params.attend_narrow = usual.params.attend_narrow;
    const int64_t wider = params.attend_narrow.rows > 0 ? params.attend_narrow.rows : params.attend.rows;
    if (params.attend_single.rows == 0 && usual.params.attend_single.rows < wider)
        params.attend_single = usual.params.attend_single;
    return schedule;
}

TunedWork work_of(const std::string& part) {
    if (part == "project_heads") return TunedWork::kProjectInputs;
    if (part == "project_out") return TunedWork::kProjectOutput;
    if (part == "attend_masked") return TunedWork::kAttendMasked;
    if (part == "attend_probs") return TunedWork::kAttendProbs;
    if (part == "attend_decode") return TunedWork::kCall;
    return TunedWork::kAttend;
}

// Whether a call of these sizes, with what `work` adds to it, runs the part's kernels.
bool is_run(const SearchPart& part, const Config& config, const CpuSchedule& schedule, const Sizes& sizes) {
    const std::vector<std::string> attention = attention_at(config, schedule, sizes);
    const bool decodes = is_among(attention, "attend_decode");
    if (part.name == "project_heads" || part.name == "project_out") return true;
    // Masks and probabilities take any number of queries but for those of a step of decoding, which has masks of its own.
    if (part.name == "attend_masked") return !decodes && config.masks;
    if (part.name == "attend_probs") return !decodes;
    return is_among(attention, part.name);
}

}  // namespace

std::vector<TunedPart> tuned_parts(const Config& config, const std::string& target,
                                   const std::vector<Sizes>& sizes, const CpuSchedule& start) {
    const CpuSchedule usual = with_usual_forms(config, target, start);
    std::vector<TunedPart> parts;
    for (const SearchPart& part : search_parts(config)) {
        TunedPart tuned = {.part = part, .work = work_of(part.name)};
        const int leading = part.kernels.front();
        if (part.name == "attend_guarded") {
            tuned.not_tuned = "it follows attend_masked";
        } else if (part.optional && !has_kernel(usual, leading)) {
            tuned.not_tuned = "the target does without it";
        } else {
            for (const Sizes& size : sizes) {
                if (is_run(part, config, usual, size)) tuned.sizes.push_back(size);
            }
            if (tuned.sizes.empty()) tuned.not_tuned = "no call of these sizes runs it";
        }
        parts.push_back(tuned);
    }
    return parts;
}

bool is_asked_for(const TunedPart& part, const std::vector<std::string>& kernels) {
    return kernels.empty() || is_among(kernels, part.part.name);
}

}  // namespace attnc
