// attnc_bench_autoschedule: the layer as a Halide pipeline without a schedule of its own, scheduled by one of Halide's
// autoschedulers for one size of call, and compiled to an object with a C header.
#include <Halide.h>

#include <cstdio>
#include <exception>

#include "stages/config.h"

using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::ImageParam;
using Halide::Pipeline;
using Halide::RDom;
using Halide::Var;

namespace {

struct Layer {
    ImageParam x{Halide::Float(32), 3, "x"};  // (d_model, seq, batch)
    ImageParam wq = weight("wq"), wk = weight("wk"), wv = weight("wv"), wo = weight("wo");  // (in, out)
    ImageParam bq = bias("bq"), bk = bias("bk"), bv = bias("bv"), bo = bias("bo");
    Func out{"out"};  // (d_model, seq, batch)

    static ImageParam weight(const char* name) { return {Halide::Float(32), 2, name}; }
    static ImageParam bias(const char* name) { return {Halide::Float(32), 1, name}; }

    explicit Layer(const attnc::Problem& problem) {
        const auto& [config, sizes] = problem;
        const auto d = static_cast<int>(config.d_model), hd = static_cast<int>(config.head_dim);
        const auto seq = static_cast<int>(sizes.seq_q);
        const auto batch = static_cast<int>(sizes.batch);
        Var i("i"), t("t"), key("key"), h("h"), b("b");
        const Func q = linear("q", x, wq, bq, d), k = linear("k", x, wk, bk, d),
                   v = linear("v", x, wv, bv, d);

        Func scores("scores"), largest("largest"), weights("weights"), total("total"), context("context");
        const RDom along(0, hd, "along"), keys(0, seq, "keys");
        scores(key, t, h, b) += q(h * hd + along, t, b) * k(h * hd + along, key, b);
        Expr seen = scores(key, t, h, b) / std::sqrt(static_cast<float>(hd));
        if (config.causal) seen = Halide::select(key <= t, seen, -1e30F);
        Func masked("masked");
        masked(key, t, h, b) = seen;
        largest(t, h, b) = -1e30F;
        largest(t, h, b) = Halide::max(largest(t, h, b), masked(keys, t, h, b));
        weights(key, t, h, b) = Halide::fast_exp(masked(key, t, h, b) - largest(t, h, b));
        total(t, h, b) += weights(keys, t, h, b);
        context(i, t, h, b) += weights(keys, t, h, b) * v(h * hd + i, keys, b);
        Func merged("merged");
        merged(i, t, b) = context(i % hd, t, i / hd, b) / total(t, i / hd, b);
        const RDom features(0, d, "features");
        Func product("product");
        product(i, t, b) = bo(i);
        product(i, t, b) += merged(features, t, b) * wo(features, i);
        out(i, t, b) = product(i, t, b);

        x.dim(0).set_bounds(0, d).dim(1).set_bounds(0, seq).dim(2).set_bounds(0, batch);
        x.set_estimates({{0, d}, {0, seq}, {0, batch}});
        for (ImageParam* matrix : {&wq, &wk, &wv, &wo}) {
            matrix->dim(0).set_bounds(0, d).dim(1).set_bounds(0, d);
            matrix->set_estimates({{0, d}, {0, d}});
        }
        for (ImageParam* vector : {&bq, &bk, &bv, &bo}) {
            vector->dim(0).set_bounds(0, d);
            vector->set_estimates({{0, d}});
        }
        out.output_buffer().dim(0).set_bounds(0, d).dim(1).set_bounds(0, seq).dim(2).set_bounds(0, batch);
        out.set_estimates({{0, d}, {0, seq}, {0, batch}});
    }

    std::vector<Halide::Argument> arguments() const { return {x, wq, wk, wv, wo, bq, bk, bv, bo}; }

private:
    static Func linear(const std::string& name, const ImageParam& from, const ImageParam& matrix,
                       const ImageParam& vector, int depth) {
        Var i("i"), t("t"), b("b");
        const RDom in(0, depth, name + "_in");
        Func to(name);
        to(i, t, b) = vector(i);
        to(i, t, b) += from(in, t, b) * matrix(in, i);
        return to;
    }
};

int run(const char* problem_text, const char* scheduler, const char* plugin, const char* threads,
        const char* prefix) {
    const attnc::Problem problem = attnc::parse_problem(problem_text);
    Halide::load_plugin(plugin);
    Layer layer(problem);
    Pipeline pipeline(layer.out);
    const Halide::Target target = Halide::get_host_target();
    pipeline.apply_autoscheduler(target, {scheduler, {{"parallelism", threads}}});
    pipeline.compile_to_static_library(prefix, layer.arguments(), "attnc_bench_autoscheduled", target);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::fputs("usage: attnc_bench_autoschedule PROBLEM SCHEDULER PLUGIN THREADS PREFIX\n", stderr);
        return 2;
    }
    try {
        return run(argv[1], argv[2], argv[3], argv[4], argv[5]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "attnc_bench_autoschedule: %s\n", error.what());
        return 1;
    }
}
