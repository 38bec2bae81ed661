#include "runtime/wave.h"

#include "runtime/attend.h"
#include "runtime/cache_rows.h"
#include "runtime/decode.h"
#include "runtime/masks.h"
#include "runtime/probs.h"
#include "runtime/project.h"
#include "runtime/rotary.h"
#include "runtime/text.h"

namespace attnc {

namespace {

void set_queries(Wave& wave, int64_t first) {
    const int64_t rows = wave.plan.rows_context;
    wave.first_query = first;
    wave.end_query = wave.q_rows - first > rows ? first + rows : wave.request.seq_q;
}

}  // namespace

Wave make_wave(const attnc_layer& layer, const Request& request, const Plan& plan, void* workspace) {
    auto* bytes = static_cast<unsigned char*>(workspace);
    return {.layer = layer,
            .request = request,
            .plan = plan,
            .masks = use_masks(request),
            .workspace = bytes,
            .items = reinterpret_cast<Item*>(bytes + plan.items)};
}

void begin_wave(Wave& wave, int64_t first) {
    const Request& r = wave.request;
    const Plan& plan = wave.plan;
    const int64_t left = r.batch - first;
    const int64_t most = left < plan.wave_items ? left : plan.wave_items;
    wave.item_count = wave.q_rows = wave.kv_rows = wave.new_rows = wave.most_splits = 0;
    int64_t runs = 0, split_rows = 0;
    for (int64_t i = 0; i < most; ++i) {
        Item& item = wave.items[i] = make_item(wave.layer, r, first + i);
        const int64_t projected = r.cache ? item.new_keys : item.kv_used();
        const int64_t q_rows = wave.q_rows + item.q_length;
        if (q_rows > plan.rows_q || wave.new_rows + projected > plan.rows_kv) break;
        if (i > 0 && q_rows > plan.rows_context) break;
        ++wave.item_count;
        item.q_row = wave.q_rows;
        item.kv_row = wave.kv_rows;
        item.new_row = wave.new_rows;
        item.run_row = runs;
        wave.q_rows += item.q_length;
        wave.kv_rows += item.kv_used();
        wave.new_rows += projected;
        runs += runs_of(item);
        item.split_row = split_rows;
        if (!has_few_queries(wave.layer, item)) continue;
        const int64_t splits = splits_of(wave.layer, item).count;
        if (splits > wave.most_splits) wave.most_splits = splits;
        split_rows += splits * wave.layer.config.num_heads * item.q_length;
    }
    wave.keys_share_angles = keys_share_angles(wave);
    first_queries(wave);
}

void first_queries(Wave& wave) { set_queries(wave, 0); }

bool next_queries(Wave& wave) {
    if (wave.end_query == wave.request.seq_q) return false;
    set_queries(wave, wave.end_query);
    return true;
}

attnc_status project_inputs(attnc_error* error, const Wave& wave) {
    const WorkList angles[] = {query_angles_work(wave), key_angles_work(wave)};
    ATTNC_TRY(run_stage(error, wave, angles, 2));

    Projection in[3];
    WorkList lists[5];
    const int64_t projections = plan_in_projections(wave, in);
    int64_t count = 0;
    lists[count++] = key_addend_work(wave);
    lists[count++] = key_runs_work(wave);
    for (int64_t i = 0; i < projections; ++i) {
        if (in[i].together > 0) lists[count++] = work_of(in[i]);
    }
    return run_stage(error, wave, lists, count);
}

attnc_status attend(attnc_error* error, const Wave& wave) {
    // An item that comes in parts has many queries, and has its empty tail written once.
    const WorkList lists[] = {attend_work(wave), decode_work(wave), empty_tails_work(wave)};
    if (wave.first_query > 0) return run_stage(error, wave, lists, 1);
    ATTNC_TRY(run_stage(error, wave, lists, 3));
    const WorkList joins = join_splits_work(wave);
    return joins.count > 0 ? run_stage(error, wave, &joins, 1) : ATTNC_OK;
}

attnc_status project_output(attnc_error* error, const Wave& wave) {
    Projection out;
    WorkList lists[2];
    if (wave.end_query == wave.request.seq_q) lists[0] = average_probs_work(wave);
    if (plan_out_projection(wave, &out) != 0) lists[1] = work_of(out);
    return run_stage(error, wave, lists, 2);
}

}  // namespace attnc
