// Joins disjoint sets of keys, such as the splits of attend_decode: all of them at once, in their order. A sink is one more
// key, seen by every row, whose value is 0.
#pragma once

#include <Halide.h>

#include <string>

#include "stages/dropping.h"
#include "stages/exp_gpu.h"
#include "stages/row_stats.h"

namespace attnc {

struct AttentionMergeGpu {
    Halide::Var d{"d"}, h{"h"}, m{"m"}, c{"c"}, s{"s"};

    // What a row's thread makes of the statistics of all splits.
    struct Row {
        Halide::Func largest;  // (m, h)
        Halide::Func total;    // (m, h): of exponentials, in units of the largest one
    };
    Row of_context, of_stats;   // one for each result
    Halide::Func sums{"sums"};  // (d, h, m)
    Halide::RDom parts_of_sum;

    // contexts (d, h, m, s) and row_stats (m, h, c, s) of `parts` splits; sinks (h), undefined where there are none.
    AttentionMergeGpu(const Halide::Func& contexts, const Halide::Func& row_stats, const Halide::Expr& parts,
                      const Halide::Func& sinks, const Halide::Target& target)
        : parts_of_sum(0, parts, "parts_of_sum"),
          row_stats_(row_stats),
          sinks_(sinks),
          parts_(parts),
          target_(target) {
        using namespace Halide;
        of_context = row("of_context");
        of_stats = row("of_stats");
        // A split that alone sees keys keeps its bits.
        Expr part = exponentials(of_context, parts_of_sum), all = of_context.total(m, h);
        Expr is_all = reinterpret<int>(part) == reinterpret<int>(all);
        Expr sees_none = sees_no_key(row_stats(m, h, kSum, parts_of_sum));
        sums(d, h, m) = 0.0f;
        sums(d, h, m) += select(sees_none, 0.0f, is_all, 1.0f, part / all) * contexts(d, h, m, parts_of_sum);
    }

    Halide::Expr context() const { return sums(d, h, m); }
    Halide::Expr row_stat() const { return Halide::mux(c, {of_stats.largest(m, h), of_stats.total(m, h)}); }

private:
    Halide::Func row_stats_, sinks_;
    Halide::Expr parts_;
    Halide::Target target_;

    Halide::Expr exponentials(const Row& of, const Halide::Expr& split) const {
        return row_stats_(m, h, kSum, split) *
               exp_nonpositive_gpu(row_stats_(m, h, kLargest, split) - of.largest(m, h), target_);
    }

    Row row(const std::string& name) const {
        Row made = {.largest = Halide::Func(name + "_largest"), .total = Halide::Func(name + "_total")};
        const Halide::RDom larger(0, parts_, name + "_larger"), summed(0, parts_, name + "_summed");
        made.largest(m, h) = sinks_.defined() ? sinks_(h) : Halide::Expr(kLowest);
        made.largest(m, h) = larger_gpu(made.largest(m, h), row_stats_(m, h, kLargest, larger), target_);
        made.total(m, h) = sinks_.defined() ? exp_nonpositive_gpu(sinks_(h) - made.largest(m, h), target_)
                                            : Halide::Expr(0.0f);
        made.total(m, h) += exponentials(made, summed);
        return made;
    }
};

}  // namespace attnc
