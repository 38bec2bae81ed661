// projection, attention, scaled_tanh: the stages alone on whole tensors, as plainly as their equations, for reading
// their code and for comparing against. Not part of a library.
#include "generators/library_generator.h"
#include "stages/projection.h"
#include "stages/tanh.h"

namespace attnc {
namespace {

using namespace Halide;

// y = x W^T + bias over [rows, out_features] with W as frameworks store it.
class ProjectionAlone : public LibraryGenerator<ProjectionAlone> {
public:
    Input<Buffer<float, 2>> x{"x"};                      // (k, m)
    Input<Buffer<float, 2>> weights{"weights"};          // (k, n)
    Input<Buffer<float, 1>> bias_vector{"bias_vector"};  // (n)
    Output<Buffer<float, 2>> y{"y"};                     // (n, m)

    void generate() {
        const Var n("n"), k("k"), p("p"), m("m");
        Func panel("panel"), panel_bias("panel_bias");
        panel(n, k, p) = weights(k, n);
        panel_bias(n, p) = bias_vector(n);
        Projection stage({x, panel, panel_bias, x.dim(0).extent(), x.dim(1).extent()}, 1);
        y(n, m) = stage.sums(n, m, 0);
        stage.sums.compute_at(y, m);
    }
};

// softmax(q k^T scale) v of every head and item, with a keep mask.
class AttentionAlone : public LibraryGenerator<AttentionAlone> {
public:
    Input<Buffer<float, 4>> q{"q"};                    // (d, i, h, b)
    Input<Buffer<float, 4>> k{"k"};                    // (d, j, h, b)
    Input<Buffer<float, 4>> v{"v"};                    // (d, j, h, b)
    Input<Buffer<uint8_t, 4>> keep_mask{"keep_mask"};  // (j, i, h, b)
    Input<float> qk_scale{"qk_scale"};
    Output<Buffer<float, 4>> context{"context"};  // (d, i, h, b)

    void generate() {
        const Var d("d"), i("i"), j("j"), h("h"), b("b");
        const RDom feature(0, q.dim(0).extent(), "feature"), key(0, k.dim(1).extent(), "key");
        // Far below any score, and finite: a row without a permitted key sees weights of 0 through the
        // select.
        const Expr dropped = -1e30f;
        Func scores("scores"), maximum("maximum"), weights("weights"), total("total"), sums("sums");
        scores(j, i, h, b) += q(feature, i, h, b) * k(feature, j, h, b);
        Expr score = select(keep_mask(j, i, h, b) != 0, scores(j, i, h, b) * qk_scale, dropped);
        Func masked("masked");
        masked(j, i, h, b) = score;
        maximum(i, h, b) = dropped;
        maximum(i, h, b) = max(maximum(i, h, b), masked(key, i, h, b));
        weights(j, i, h, b) =
            select(keep_mask(j, i, h, b) != 0, exp(masked(j, i, h, b) - maximum(i, h, b)), 0.0f);
        total(i, h, b) += weights(key, i, h, b);
        sums(d, i, h, b) += weights(key, i, h, b) * v(d, key, h, b);
        context(d, i, h, b) = select(total(i, h, b) > 0.0f, sums(d, i, h, b) / total(i, h, b), 0.0f);
        for (Func f : {scores, masked, maximum, weights, total}) {
            f.compute_at(context, i);
        }
        sums.compute_at(context, i);
    }
};

// y = scale tanh(x / scale), element by element.
class ScaledTanhAlone : public LibraryGenerator<ScaledTanhAlone> {
public:
    Input<Buffer<float, 1>> x{"x"};
    Input<float> scale{"scale"};
    Output<Buffer<float, 1>> y{"y"};

    void generate() {
        const Var n("n");
        y(n) = scaled_tanh(x(n), scale);
        y.vectorize(n, natural_vector_size<float>());
    }
};

}  // namespace
}  // namespace attnc

HALIDE_REGISTER_GENERATOR(attnc::ProjectionAlone, projection)
HALIDE_REGISTER_GENERATOR(attnc::AttentionAlone, attention)
HALIDE_REGISTER_GENERATOR(attnc::ScaledTanhAlone, scaled_tanh)
