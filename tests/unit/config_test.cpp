#include "stages/config.h"

#include <gtest/gtest.h>

#include "runtime/kernel_abi.h"
#include "tests/unit/config_error.h"

namespace attnc {
namespace {

std::string parse_error(std::string_view text) {
    return error_of([&] { parse_config(text); });
}

// A configuration of the given sizes; what is left out is 0, that is, not given.
Config sized(int64_t d_model, int64_t num_heads, int64_t head_dim = 0) {
    Config config;
    config.d_model = d_model;
    config.num_heads = num_heads;
    config.head_dim = head_dim;
    return config;
}

std::string complete_error(const Config& config) {
    return error_of([&] { complete(config); });
}

TEST(Complete, FillsWhatIsNotGiven) {
    const Config config = complete(sized(512, 8));
    EXPECT_EQ(config.num_kv_heads, 8);
    EXPECT_EQ(config.head_dim, 64);
    EXPECT_EQ(config.v_head_dim, 64);
    EXPECT_EQ(config.k_dim, 512);
    EXPECT_EQ(config.v_dim, 512);
    EXPECT_EQ(complete(config), config);
}

TEST(Complete, GivenHeadDimNeedsNoDivisibility) {
    const Config config = complete(sized(500, 12, 40));
    EXPECT_EQ(config.head_dim, 40);
    EXPECT_EQ(config.v_head_dim, 40);
}

TEST(Complete, WithoutProjectionsSizesFollowFromTheHeads) {
    Config config = sized(0, 8, 48);
    config.in_proj = false;
    config.num_kv_heads = 2;
    config.v_head_dim = 32;
    config = complete(config);
    EXPECT_EQ(config.d_model, 384);
    EXPECT_EQ(config.k_dim, 96);
    EXPECT_EQ(config.v_dim, 64);
}

TEST(Complete, OutputProjectionAloneMayChangeTheWidth) {
    Config config = sized(100, 8, 48);
    config.in_proj = false;
    config = complete(config);
    EXPECT_EQ(config.d_model, 100);
}

TEST(Complete, RefusesWithOneLine) {
    EXPECT_EQ(complete_error(sized(500, 12)), "d_model 500 is not divisible by num_heads 12");
    EXPECT_EQ(complete_error(sized(512, 0)), "num_heads is not given");
    EXPECT_EQ(complete_error(sized(0, 8)), "d_model is not given");
    EXPECT_EQ(complete_error(sized(0, 8, 64)), "d_model is not given");
    EXPECT_EQ(complete_error(sized(-512, 8)), "d_model -512 is outside 1..65536");
    EXPECT_EQ(complete_error(sized(65537, 8)), "d_model 65537 is outside 1..65536");
    EXPECT_EQ(complete_error(sized(512, 4097)), "num_heads 4097 is outside 1..4096");
    EXPECT_EQ(complete_error(sized(512, 8, 513)), "head_dim 513 is outside 1..512");
    EXPECT_EQ(complete_error(sized(1024, 1)),
              "d_model / num_heads, which head_dim defaults to, 1024 is outside 1..512");
    EXPECT_EQ(complete_error(sized(512, 4096, 17)),
              "num_heads * head_dim, padded to 16, 131072 is outside 1..65536");

    Config config = sized(512, 8);
    config.num_kv_heads = 3;
    EXPECT_EQ(complete_error(config), "num_heads 8 is not divisible by num_kv_heads 3");
    config.num_kv_heads = -1;
    EXPECT_EQ(complete_error(config), "num_kv_heads -1 is outside 1..4096");

    config = sized(512, 4096, 16);
    config.v_head_dim = 20;
    EXPECT_EQ(complete_error(config), "num_heads * v_head_dim, padded to 16, 131072 is outside 1..65536");
    config = sized(512, 8);
    config.v_head_dim = 1000;
    EXPECT_EQ(complete_error(config), "v_head_dim 1000 is outside 1..512");
    config = sized(512, 8);
    config.k_dim = 1 << 20;
    EXPECT_EQ(complete_error(config), "k_dim 1048576 is outside 1..65536");
    config = sized(512, 8);
    config.v_dim = -3;
    EXPECT_EQ(complete_error(config), "v_dim -3 is outside 1..65536");
}

TEST(Complete, RefusesSizesThatContradictMissingProjections) {
    Config config = sized(512, 8);
    config.in_proj = false;
    config.k_dim = 256;
    EXPECT_EQ(complete_error(config),
              "k_dim 256 is not num_kv_heads * head_dim = 512, as it must be without input projections");
    config.k_dim = 0;
    config.v_dim = 100;
    EXPECT_EQ(complete_error(config),
              "v_dim 100 is not num_kv_heads * v_head_dim = 512, as it must be without input projections");
    config.v_dim = 0;
    config.bias_kv = true;
    EXPECT_EQ(complete_error(config), "bias_kv needs input projections");
    config.bias_kv = false;
    config.head_dim = 32;
    config.out_proj = false;
    EXPECT_EQ(complete_error(config),
              "d_model 512 is not num_heads * head_dim = 256, as it must be without projections");
    config = sized(0, 8);
    config.in_proj = false;
    EXPECT_EQ(complete_error(config), "neither d_model nor head_dim is given");
    config = sized(0, 4096, 512);
    config.in_proj = false;
    EXPECT_EQ(complete_error(config),
              "num_heads * head_dim, which d_model defaults to, 2097152 is outside 1..65536");
}

TEST(ProblemString, NamesOnlyWhatDiffersFromItsDefault) {
    EXPECT_EQ(to_string(complete(sized(512, 8))), "d512_h8_f32");
    EXPECT_EQ(to_string(complete(sized(512, 8, 64))), "d512_h8_f32");
    EXPECT_EQ(to_string(complete(sized(500, 12, 40))), "d500_h12_hd40_f32");
    Config config = sized(2048, 32);
    config.num_kv_heads = 4;
    config.v_head_dim = 32;
    config.k_dim = 100;
    config.v_dim = 200;
    config.causal = config.bias_kv = config.zero_attn = config.sink = true;
    config.alibi = config.softcap = config.qk_norm = config.cache = config.scores = true;
    config.out_proj = config.masks = config.probs = false;
    config.rotary = Rotary::kPairs;
    config.page_size = 64;
    EXPECT_EQ(
        to_string(complete(config)),
        "d2048_h32_kv4_vhd32_kdim100_vdim200_f32_noout_causal_nomask_noprobs_biaskv_zeroattn_sink_alibi_"
        "softcap_qknorm_ropepairs_cache_page64_scores");
}

TEST(ProblemString, ParsingUndoesPrinting) {
    for (const char* const text :
         {"d512_h8_f32", "d384_h12_f32", "d2048_h32_kv4_hd128_f32_causal", "d500_h12_hd40_vhd24_f32",
          "d512_h8_kdim768_vdim1024_f32_nomask_noprobs", "d384_h8_kv2_vhd32_f32_noin_noout_causal_zeroattn",
          "d100_h8_hd48_f32_noin", "d64_h4_f32_biaskv_zeroattn", "d64_h4_f32_noin_sink", "d1_h1_f32",
          "d65536_h512_f32_noout", "d2048_h32_kv4_f32_causal_qknorm_rope_cache_page16",
          "d64_h4_f32_alibi_softcap_ropepairs_cache_scores"}) {
        const Config config = parse_config(text);
        EXPECT_EQ(to_string(config), text);
        EXPECT_EQ(parse_config(to_string(config)), config);
    }
}

TEST(ProblemString, OptionsComeInAnyOrderAndDefaultsMayBeNamed) {
    EXPECT_EQ(to_string(parse_config("d512_h8_kv8_hd64_vhd64_kdim512_vdim512_f32_noprobs_causal")),
              "d512_h8_f32_causal_noprobs");
}

TEST(ProblemString, RefusesWithOneLine) {
    EXPECT_EQ(parse_error(""), "configuration '': d<d_model> is missing, as in d512_h8_f32");
    EXPECT_EQ(parse_error("h8_f32"), "configuration 'h8_f32': d<d_model> is missing, as in d512_h8_f32");
    EXPECT_EQ(parse_error("d512_f32"),
              "configuration 'd512_f32': h<num_heads> is missing, as in d512_h8_f32");
    EXPECT_EQ(parse_error("d512_h8"), "configuration 'd512_h8': the type is missing, as in d512_h8_f32");
    EXPECT_EQ(parse_error("d512_h8_"),
              "configuration 'd512_h8_': '' is neither a size nor a type, as in d512_h8_f32");
    EXPECT_EQ(parse_error("d512_h8_x4_f32"),
              "configuration 'd512_h8_x4_f32': 'x4' is neither a size nor a type, as in d512_h8_f32");
    EXPECT_EQ(parse_error("d512_h8_f16"), "configuration 'd512_h8_f16': type f16 is not supported, f32 is");
    EXPECT_EQ(parse_error("d512_h8_bf16"),
              "configuration 'd512_h8_bf16': type bf16 is not supported, f32 is");
    EXPECT_EQ(parse_error("d512_h8_f64"), "configuration 'd512_h8_f64': type f64 is not supported, f32 is");
    EXPECT_EQ(parse_error("d_h8_f32"), "configuration 'd_h8_f32': 'd' is not a number after its letters");
    EXPECT_EQ(parse_error("d5x_h8_f32"),
              "configuration 'd5x_h8_f32': 'd5x' is not a number after its letters");
    EXPECT_EQ(parse_error("d-5_h8_f32"),
              "configuration 'd-5_h8_f32': d<d_model> is missing, as in d512_h8_f32");
    EXPECT_EQ(
        parse_error("d99999999999999999999_h8_f32"),
        "configuration 'd99999999999999999999_h8_f32': 'd99999999999999999999' is not a number after its "
        "letters");
    EXPECT_EQ(parse_error("d512_h8_h8_f32"),
              "configuration 'd512_h8_h8_f32': 'h8' is given twice or out of order");
    EXPECT_EQ(parse_error("h8_d512_f32"),
              "configuration 'h8_d512_f32': 'd512' is given twice or out of order");
    EXPECT_EQ(parse_error("d512_h8_f32_causal_causal"),
              "configuration 'd512_h8_f32_causal_causal': 'causal' is given twice");
    EXPECT_EQ(
        parse_error("d512_h8_f32_casual"),
        "configuration 'd512_h8_f32_casual': 'casual' is no option: noin, noout, causal, nomask, noprobs, "
        "biaskv, zeroattn, sink, alibi, softcap, qknorm, rope, ropepairs, cache, page<keys>, scores are");
    EXPECT_EQ(parse_error("d512_h8_f32_rope_ropepairs"),
              "configuration 'd512_h8_f32_rope_ropepairs': rope and ropepairs exclude each other");
    EXPECT_EQ(parse_error("d512_h8_f32_cache_page8"), "page size 8 is outside 16..4096");
    EXPECT_EQ(parse_error("d512_h8_f32_cache_page24"), "page size 24 is not a multiple of 16");
    EXPECT_EQ(parse_error("d512_h8_f32_page16"), "a page size needs a cache");
    EXPECT_EQ(parse_error("d512_h8_f32_cache_page16_page32"),
              "configuration 'd512_h8_f32_cache_page16_page32': 'page32' is given twice");
    EXPECT_EQ(parse_error("d21_h3_f32_rope"), "head_dim 7 is odd, a rotary embedding needs pairs");
    EXPECT_EQ(parse_error("d0_h8_f32"), "d_model 0 is outside 1..65536");
    EXPECT_EQ(parse_error("d512_h8_kv0_f32"), "num_kv_heads 0 is outside 1..4096");
    EXPECT_EQ(parse_error("d500_h12_f32"), "d_model 500 is not divisible by num_heads 12");
    EXPECT_EQ(parse_error("d512\n_h8_f32"),
              "configuration 'd512?_h8_f32': 'd512?' is not a number after its letters");
    EXPECT_EQ(parse_error(std::string(100, 'a')),
              "configuration '" + std::string(60, 'a') + "...': d<d_model> is missing, as in d512_h8_f32");
}

TEST(Sizes, ParsingUndoesPrinting) {
    const Sizes sizes{32, 7, 50};
    EXPECT_EQ(to_string(sizes), "b32_q7_kv50");
    EXPECT_EQ(parse_sizes("b32_q7_kv50"), sizes);
    EXPECT_EQ(parse_sizes("b32_q50"), (Sizes{32, 50, 50}));
    EXPECT_EQ(parse_sizes("b0_q0_kv0"), (Sizes{0, 0, 0}));
}

TEST(Sizes, RefusesWithOneLine) {
    const auto refused = [](std::string_view text) { return error_of([&] { parse_sizes(text); }); };
    for (const std::string text :
         {"", "b32", "q50_kv50", "b32_kv50_q50", "b32_q50_kv50_", "b32_q50_kv", "b_q5"}) {
        EXPECT_EQ(refused(text), "sizes '" + text + "' are not of the form b<batch>_q<seq_q>_kv<seq_kv>");
    }
    EXPECT_EQ(refused("b1_q2147483648_kv1"), "seq_q 2147483648 is outside 0..2147483647");
}

TEST(Problem, IsAConfigurationAndSizes) {
    const Problem problem = parse_problem("d512_h8_f32:b32_q50_kv50");
    EXPECT_EQ(problem.config, complete(sized(512, 8)));
    EXPECT_EQ(to_string(problem), "d512_h8_f32:b32_q50_kv50");
    EXPECT_EQ(error_of([] { parse_problem("d512_h8_f32"); }),
              "problem 'd512_h8_f32' has no sizes after a colon, as in d512_h8_f32:b32_q50_kv50");
}

std::string kernel_names(std::string_view config) {
    std::string names;
    for (const int kernel : kernels_of(parse_config(config))) {
        names += (names.empty() ? "" : " ") + std::string(kernel_name(kernel));
    }
    return names;
}

TEST(KernelsOf, HoldsWhatTheConfigurationCanCall) {
    EXPECT_EQ(
        kernel_names("d512_h8_f32"),
        "project_heads project_out project_heads_tail project_out_tail attend attend_narrow attend_single "
        "attend_masked attend_guarded attend_merge attend_lse attend_probs");
    EXPECT_EQ(
        kernel_names("d512_h8_f32_nomask_noprobs"),
        "project_heads project_out project_heads_tail project_out_tail attend attend_narrow attend_single "
        "attend_guarded attend_merge attend_lse");
    EXPECT_EQ(kernel_names("d512_h8_f32_noin_noout_noprobs"),
              "attend attend_narrow attend_single attend_masked attend_guarded attend_merge attend_lse "
              "split_heads merge_heads");
    EXPECT_EQ(
        kernel_names("d512_h8_f32_nomask_noprobs_softcap_qknorm_rope_cache_scores"),
        "project_heads project_out project_heads_tail project_out_tail attend attend_narrow attend_single "
        "attend_masked attend_guarded attend_merge attend_lse "
        "attend_decode attend_scores norm_heads rotate_heads rotary_angles");
}

TEST(KernelsOf, NamesAndNumbersBelongTogether) {
    for (int kernel = 0; kernel < ATTNC_KERNEL_COUNT; ++kernel) {
        EXPECT_EQ(kernel_by_name(kernel_name(kernel)), kernel);
    }
    EXPECT_EQ(error_of([] { kernel_by_name("attention"); }),
              "kernel 'attention' is unknown, known are project_heads, project_out, "
              "project_heads_tail, project_out_tail, attend, attend_narrow, attend_single, attend_masked, "
              "attend_guarded, attend_merge, attend_lse, attend_probs, split_heads, merge_heads, "
              "attend_decode, attend_scores, norm_heads, rotate_heads, rotary_angles");
    EXPECT_EQ(error_of([] { kernel_name(-1); }), "kernel number -1 is unknown");
    EXPECT_EQ(error_of([] { kernel_name(ATTNC_KERNEL_COUNT); }), "kernel number 19 is unknown");
}

TEST(KernelConfig, DependsOnPaddedHeadsOnly) {
    const std::string a = kernel_config(parse_config("d500_h12_hd40_vhd24_f32"), ATTNC_KERNEL_ATTEND);
    const std::string b = kernel_config(parse_config("d96_h2_hd48_vhd32_f32_causal"), ATTNC_KERNEL_ATTEND);
    EXPECT_EQ(a, "hd48_vhd32");
    EXPECT_EQ(a, b);
    const KernelConfig parsed = parse_kernel_config(a);
    EXPECT_EQ(parsed.head_dim, 48);
    EXPECT_EQ(parsed.v_head_dim, 32);
    for (const int kernel : {ATTNC_KERNEL_PROJECT_OUT, ATTNC_KERNEL_SPLIT_HEADS, ATTNC_KERNEL_MERGE_HEADS}) {
        EXPECT_EQ(kernel_config(parse_config("d512_h8_f32"), kernel), "hd16_vhd16");
    }
    EXPECT_EQ(kernel_config(parse_config("d512_h8_vhd80_f32_qknorm"), ATTNC_KERNEL_NORM_HEADS), "hd64_vhd16");
}

TEST(KernelConfig, NamesTheStepsThatAKernelHas) {
    const Config config = parse_config("d512_h8_f32_alibi_softcap_ropepairs_cache_scores");
    for (const int kernel :
         {ATTNC_KERNEL_ATTEND_MASKED, ATTNC_KERNEL_ATTEND_GUARDED, ATTNC_KERNEL_ATTEND_PROBS,
          ATTNC_KERNEL_ATTEND_SCORES, ATTNC_KERNEL_ATTEND_DECODE}) {
        EXPECT_EQ(kernel_config(config, kernel), "hd64_vhd64_softcap_alibi") << kernel_name(kernel);
    }
    EXPECT_EQ(kernel_config(config, ATTNC_KERNEL_ROTATE_HEADS), "hd16_vhd16_pairs");
    EXPECT_EQ(kernel_config(config, ATTNC_KERNEL_ATTEND), "hd64_vhd64");  // of all calls that need no step
    const KernelConfig parsed = parse_kernel_config("hd64_vhd64_softcap_alibi");
    EXPECT_TRUE(parsed.softcap && parsed.alibi && !parsed.rotary_pairs);
    EXPECT_TRUE(parse_kernel_config("hd64_vhd64_pairs").rotary_pairs);
    EXPECT_TRUE(parse_kernel_config("hd64_vhd64_sink").sink);
}

TEST(KernelConfig, RefusesWithOneLine) {
    for (const std::string text : {"", "hd64", "hd64_vhd60", "vhd64_hd64", "hd0_vhd64", "hd64_vhd528",
                                   "hd64_vhd64_", "hd64_vhd64_alibi_alibi", "hd64_vhd64_rope"}) {
        EXPECT_EQ(error_of([&] { parse_kernel_config(text); }),
                  "kernel configuration '" + text +
                      "' is not of the form hd64_vhd64[_softcap][_alibi][_sink][_pairs][_cache] with "
                      "multiples of 16 up to "
                      "512");
    }
}

TEST(KernelSymbol, IsAnIdentifier) {
    EXPECT_EQ(kernel_symbol(ATTNC_KERNEL_ATTEND, "x86-64-linux-avx2-fma-f16c"),
              "attnc_attend__x86_64_linux_avx2_fma_f16c");
}

TEST(PaddedHead, IsTheNextMultipleOf16) {
    EXPECT_EQ(padded_head(1), 16);
    EXPECT_EQ(padded_head(16), 16);
    EXPECT_EQ(padded_head(80), 80);
    EXPECT_EQ(padded_head(81), 96);
}

TEST(LibraryName, IsAnIdentifierOfC) {
    for (const char* const name : {"minilm_attention", "A", "x1", "attnc_d512_h8_f32", "attnchor"}) {
        EXPECT_NO_THROW(check_library_name(name)) << name;
    }
    const auto refused = [](std::string_view name) { return error_of([&] { check_library_name(name); }); };
    EXPECT_EQ(refused(""), "library name is empty");
    for (const std::string name : {"1st", "_hidden", "two words", "a-b", "a/b", "h\xc3\xa4"}) {
        EXPECT_NE(refused(name).find("is not a C identifier: a letter, then letters, digits and underscores"),
                  std::string::npos)
            << name;
    }
    EXPECT_EQ(refused("while"), "library name 'while' is a reserved word of C or C++");
    EXPECT_EQ(refused("attnc"), "library name 'attnc' is one of attnc's own, attnc and attnc_*");
    EXPECT_EQ(refused("attnc_layer"), "library name 'attnc_layer' is one of attnc's own, attnc and attnc_*");
    EXPECT_EQ(refused("attnc_d"), "library name 'attnc_d' is one of attnc's own, attnc and attnc_*");
    EXPECT_EQ(refused(std::string(64, 'x')),
              "library name '" + std::string(60, 'x') + "...' has 64 characters, at most 63 are allowed");
}

}  // namespace
}  // namespace attnc
