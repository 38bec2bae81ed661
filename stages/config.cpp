#include "stages/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "runtime/kernel_abi.h"

namespace attnc {

namespace {

// Widest input or output of a layer, and widest side of a packed weight. With panels of 64 columns a packed
// panel is then 16 MiB, far from the 2 GiB that one kernel call may span.
constexpr int64_t kMaxFeatures = 65536;
// Heads of public models end at 256 (Gemma), single-head layers of image models at 512. A tile of 64 queries
// and its scores fit L2 up to here.
constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kLeastPage = ATTNC_HEAD_ALIGN, kMaxPage = 4096;  // keys of a page
constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;  // batch and sequence lengths in problem strings

std::string number(int64_t value) { return std::to_string(value); }

void check_range(const char* name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
        throw ConfigError(std::string(name) + " " + number(value) + " is outside " + number(low) + ".." +
                          number(high));
    }
}

// 0 means "not given" and passes.
void check_given(const char* name, int64_t value, int64_t high) {
    if (value != 0) check_range(name, value, 1, high);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

// "kv50" is {"kv", 50}; a part that doesn't end in digits, or whose number is beyond 64 bits, has no value.
struct Token {
    std::string_view letters;
    std::optional<int64_t> value;
};

Token read_token(std::string_view part) {
    const size_t digits = std::min(part.find_first_of("0123456789"), part.size());
    Token token{part.substr(0, digits), std::nullopt};
    const char* const end = part.data() + part.size();
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(part.data() + digits, end, value);
    if (error == std::errc{} && stop == end) token.value = value;
    return token;
}

// Sizes of a problem string in their order, with the field each one sets.
struct SizeToken {
    std::string_view letters;
    const char* name;
    int64_t Config::*field;
    int64_t high;
};
constexpr std::array<SizeToken, 7> kSizeTokens{{
    {"d", "d_model", &Config::d_model, kMaxFeatures},
    {"h", "num_heads", &Config::num_heads, kMaxHeads},
    {"kv", "num_kv_heads", &Config::num_kv_heads, kMaxHeads},
    {"hd", "head_dim", &Config::head_dim, kMaxHeadDim},
    {"vhd", "v_head_dim", &Config::v_head_dim, kMaxHeadDim},
    {"kdim", "k_dim", &Config::k_dim, kMaxFeatures},
    {"vdim", "v_dim", &Config::v_dim, kMaxFeatures},
}};

// Options of a problem string in their order: what the field is when the option is named.
struct OptionToken {
    std::string_view text;
    bool Config::*field = nullptr;  // null: rotary's kind, or the size of a page
    bool value = true;
    Rotary rotary = Rotary::kNone;
};
constexpr std::string_view kPage = "page";  // and a number
constexpr std::array<OptionToken, 16> kOptionTokens{{
    {"noin", &Config::in_proj, false},
    {"noout", &Config::out_proj, false},
    {"causal", &Config::causal},
    {"nomask", &Config::masks, false},
    {"noprobs", &Config::probs, false},
    {"biaskv", &Config::bias_kv},
    {"zeroattn", &Config::zero_attn},
    {"sink", &Config::sink},
    {"alibi", &Config::alibi},
    {"softcap", &Config::softcap},
    {"qknorm", &Config::qk_norm},
    {.text = "rope", .rotary = Rotary::kHalf},
    {.text = "ropepairs", .rotary = Rotary::kPairs},
    {"cache", &Config::cache},
    {.text = kPage},
    {"scores", &Config::scores},
}};

bool is_named(const OptionToken& option, const Config& config) {
    if (option.field != nullptr) return config.*option.field == option.value;
    return option.rotary != Rotary::kNone ? config.rotary == option.rotary : config.page_size != 0;
}

[[noreturn]] void fail_parse(std::string_view text, const std::string& reason) {
    throw ConfigError("configuration " + in_quotes(text) + ": " + reason);
}

// The sizes before the type, in kSizeTokens' order; returns the number of parts read.
size_t parse_size_tokens(std::string_view text, const std::vector<std::string_view>& parts, Config& config) {
    size_t next = 0;  // of kSizeTokens
    size_t count = 0;
    for (; count < parts.size(); ++count) {
        const Token token = read_token(parts[count]);
        const auto* const known =
            std::find_if(kSizeTokens.begin(), kSizeTokens.end(),
                         [&](const SizeToken& t) { return t.letters == token.letters; });
        if (known == kSizeTokens.end()) break;
        if (!token.value) fail_parse(text, in_quotes(parts[count]) + " is not a number after its letters");
        const auto position = static_cast<size_t>(known - kSizeTokens.begin());
        if (position < next) fail_parse(text, in_quotes(parts[count]) + " is given twice or out of order");
        next = position + 1;
        check_range(known->name, *token.value, 1, known->high);
        config.*known->field = *token.value;
    }
    return count;
}

}  // namespace

std::string in_quotes(std::string_view text) {
    constexpr size_t kLongest = 60;
    std::string shown;
    for (const char c : text.substr(0, kLongest)) {
        shown += c >= ' ' && c <= '~' ? c : '?';
    }
    return "'" + shown + (text.size() > kLongest ? "...'" : "'");
}

Config complete(Config config) {
    for (const SizeToken& size : kSizeTokens) {
        check_given(size.name, config.*size.field, size.high);
    }
    if (config.num_heads == 0) throw ConfigError("num_heads is not given");
    if (config.num_kv_heads == 0) config.num_kv_heads = config.num_heads;
    if (config.num_heads % config.num_kv_heads != 0) {
        throw ConfigError("num_heads " + number(config.num_heads) + " is not divisible by num_kv_heads " +
                          number(config.num_kv_heads));
    }
    if (config.d_model == 0 && !config.in_proj) {
        if (config.head_dim == 0) throw ConfigError("neither d_model nor head_dim is given");
        config.d_model = config.num_heads * config.head_dim;
        check_range("num_heads * head_dim, which d_model defaults to,", config.d_model, 1, kMaxFeatures);
    }
    if (config.d_model == 0) throw ConfigError("d_model is not given");
    if (config.head_dim == 0) {
        if (config.d_model % config.num_heads != 0) {
            throw ConfigError("d_model " + number(config.d_model) + " is not divisible by num_heads " +
                              number(config.num_heads));
        }
        config.head_dim = config.d_model / config.num_heads;
        check_range("d_model / num_heads, which head_dim defaults to,", config.head_dim, 1, kMaxHeadDim);
    }
    if (config.v_head_dim == 0) config.v_head_dim = config.head_dim;
    for (const auto& [name, head] : {std::pair{"num_heads * head_dim, padded to 16,", config.head_dim},
                                     std::pair{"num_heads * v_head_dim, padded to 16,", config.v_head_dim}}) {
        check_range(name, config.num_heads * padded_head(head), 1, kMaxFeatures);
    }

    if (config.rotary != Rotary::kNone && config.head_dim % 2 != 0) {
        throw ConfigError("head_dim " + number(config.head_dim) + " is odd, a rotary embedding needs pairs");
    }
    check_given("page size", config.page_size, kMaxPage);
    if (config.page_size % kLeastPage != 0) {
        throw ConfigError("page size " + number(config.page_size) + " is not a multiple of " +
                          number(kLeastPage));
    }
    if (config.page_size != 0 && !config.cache) throw ConfigError("a page size needs a cache");

    const int64_t k_heads = config.num_kv_heads * config.head_dim;
    const int64_t v_heads = config.num_kv_heads * config.v_head_dim;
    if (config.k_dim == 0) config.k_dim = config.in_proj ? config.d_model : k_heads;
    if (config.v_dim == 0) config.v_dim = config.in_proj ? config.d_model : v_heads;
    if (!config.in_proj) {
        if (config.k_dim != k_heads) {
            throw ConfigError("k_dim " + number(config.k_dim) + " is not num_kv_heads * head_dim = " +
                              number(k_heads) + ", as it must be without input projections");
        }
        if (config.v_dim != v_heads) {
            throw ConfigError("v_dim " + number(config.v_dim) + " is not num_kv_heads * v_head_dim = " +
                              number(v_heads) + ", as it must be without input projections");
        }
        if (config.bias_kv) throw ConfigError("bias_kv needs input projections");
        const int64_t q_heads = config.num_heads * config.head_dim;
        if (!config.out_proj && config.d_model != q_heads) {
            throw ConfigError("d_model " + number(config.d_model) + " is not num_heads * head_dim = " +
                              number(q_heads) + ", as it must be without projections");
        }
    }
    return config;
}

std::string to_string(const Config& config) {
    std::string text = "d" + number(config.d_model) + "_h" + number(config.num_heads);
    const auto add = [&](const char* letters, int64_t value, int64_t default_value) {
        if (value != default_value) text += std::string("_") + letters + number(value);
    };
    const bool divides = config.num_heads > 0 && config.d_model % config.num_heads == 0;
    add("kv", config.num_kv_heads, config.num_heads);
    add("hd", config.head_dim, divides ? config.d_model / config.num_heads : 0);
    add("vhd", config.v_head_dim, config.head_dim);
    add("kdim", config.k_dim, config.in_proj ? config.d_model : config.num_kv_heads * config.head_dim);
    add("vdim", config.v_dim, config.in_proj ? config.d_model : config.num_kv_heads * config.v_head_dim);
    text += "_f32";
    for (const OptionToken& option : kOptionTokens) {
        if (!is_named(option, config)) continue;
        text += "_" + std::string(option.text);
        if (option.text == kPage) text += number(config.page_size);
    }
    return text;
}

Config parse_config(std::string_view text) {
    const std::vector<std::string_view> parts = split(text, '_');
    Config config;
    const size_t sizes = parse_size_tokens(text, parts, config);
    if (config.d_model == 0) fail_parse(text, "d<d_model> is missing, as in d512_h8_f32");
    if (config.num_heads == 0) fail_parse(text, "h<num_heads> is missing, as in d512_h8_f32");
    if (sizes == parts.size()) fail_parse(text, "the type is missing, as in d512_h8_f32");
    const std::string_view type = parts[sizes];
    if (type == "f16" || type == "bf16" || type == "f64") {
        fail_parse(text, "type " + std::string(type) + " is not supported, f32 is");
    }
    if (type != "f32") fail_parse(text, in_quotes(type) + " is neither a size nor a type, as in d512_h8_f32");

    std::array<bool, kOptionTokens.size()> seen{};
    for (size_t i = sizes + 1; i < parts.size(); ++i) {
        const Token token = read_token(parts[i]);
        const bool is_page = token.letters == kPage && token.value;
        const auto* const option = std::find_if(
            kOptionTokens.begin(), kOptionTokens.end(),
            [&](const OptionToken& t) { return t.text == kPage ? is_page : t.text == parts[i]; });
        if (option == kOptionTokens.end()) {
            fail_parse(text,
                       in_quotes(parts[i]) +
                           " is no option: noin, noout, causal, nomask, noprobs, biaskv, zeroattn, sink, "
                           "alibi, softcap, qknorm, rope, ropepairs, cache, page<keys>, scores are");
        }
        bool& given = seen[static_cast<size_t>(option - kOptionTokens.begin())];
        if (given) fail_parse(text, in_quotes(parts[i]) + " is given twice");
        given = true;
        if (option->field != nullptr) {
            config.*option->field = option->value;
        } else if (is_page) {
            check_range("page size", *token.value, kLeastPage, kMaxPage);
            config.page_size = *token.value;
        } else {
            if (config.rotary != Rotary::kNone) fail_parse(text, "rope and ropepairs exclude each other");
            config.rotary = option->rotary;
        }
    }
    return complete(config);
}

std::string to_string(const Sizes& sizes) {
    return "b" + number(sizes.batch) + "_q" + number(sizes.seq_q) + "_kv" + number(sizes.seq_kv);
}

Sizes parse_sizes(std::string_view text) {
    constexpr std::array<std::pair<std::string_view, const char*>, 3> kTokens{
        {{"b", "batch"}, {"q", "seq_q"}, {"kv", "seq_kv"}}};
    const std::vector<std::string_view> parts = split(text, '_');
    std::array<int64_t, 3> values{};
    bool good = parts.size() == 2 || parts.size() == 3;
    for (size_t i = 0; good && i < parts.size(); ++i) {
        const Token token = read_token(parts[i]);
        good = token.letters == kTokens[i].first && token.value.has_value();
        if (good) {
            check_range(kTokens[i].second, *token.value, 0, kMaxSize);
            values[i] = *token.value;
        }
    }
    if (!good)
        throw ConfigError("sizes " + in_quotes(text) + " are not of the form b<batch>_q<seq_q>_kv<seq_kv>");
    return {values[0], values[1], parts.size() == 3 ? values[2] : values[1]};
}

Problem parse_problem(std::string_view text) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
        throw ConfigError("problem " + in_quotes(text) +
                          " has no sizes after a colon, as in d512_h8_f32:b32_q50_kv50");
    }
    return {parse_config(text.substr(0, colon)), parse_sizes(text.substr(colon + 1))};
}

std::string to_string(const Problem& problem) {
    return to_string(problem.config) + ":" + to_string(problem.sizes);
}

int64_t config_flags(const Config& config) {
    return (config.in_proj ? ATTNC_CONFIG_IN_PROJ : 0) | (config.out_proj ? ATTNC_CONFIG_OUT_PROJ : 0) |
           (config.causal ? ATTNC_CONFIG_CAUSAL : 0) | (config.masks ? ATTNC_CONFIG_MASKS : 0) |
           (config.probs ? ATTNC_CONFIG_PROBS : 0) | (config.bias_kv ? ATTNC_CONFIG_BIAS_KV : 0) |
           (config.zero_attn ? ATTNC_CONFIG_ZERO_ATTN : 0) | (config.sink ? ATTNC_CONFIG_SINK : 0) |
           (config.alibi ? ATTNC_CONFIG_ALIBI : 0) | (config.softcap ? ATTNC_CONFIG_SOFTCAP : 0) |
           (config.qk_norm ? ATTNC_CONFIG_QK_NORM : 0) |
           (config.rotary == Rotary::kHalf ? ATTNC_CONFIG_ROTARY : 0) |
           (config.rotary == Rotary::kPairs ? ATTNC_CONFIG_ROTARY_PAIRS : 0) |
           (config.cache ? ATTNC_CONFIG_CACHE : 0) | (config.scores ? ATTNC_CONFIG_SCORES : 0);
}

int64_t padded_head(int64_t head_dim) {
    return (head_dim + ATTNC_HEAD_ALIGN - 1) / ATTNC_HEAD_ALIGN * ATTNC_HEAD_ALIGN;
}

std::vector<int> kernels_of(const Config& config) {
    std::vector<int> kernels;
    const auto add = [&](int kernel, bool wanted) {
        if (wanted) kernels.push_back(kernel);
    };
    add(ATTNC_KERNEL_PROJECT_HEADS, config.in_proj);
    add(ATTNC_KERNEL_PROJECT_OUT, config.out_proj);
    // Tail, narrow and single kernels where a target's schedule has them.
    add(ATTNC_KERNEL_PROJECT_HEADS_TAIL, config.in_proj);
    add(ATTNC_KERNEL_PROJECT_OUT_TAIL, config.out_proj);
    add(ATTNC_KERNEL_ATTEND, true);
    add(ATTNC_KERNEL_ATTEND_NARROW, true);
    add(ATTNC_KERNEL_ATTEND_SINGLE, true);
    add(ATTNC_KERNEL_ATTEND_MASKED, config.masks || config.alibi || config.softcap);
    add(ATTNC_KERNEL_ATTEND_GUARDED, true);  // any call may be causal, and a causal tile meets dropped values
    add(ATTNC_KERNEL_ATTEND_MERGE, true);
    add(ATTNC_KERNEL_ATTEND_LSE, true);
    add(ATTNC_KERNEL_ATTEND_PROBS, config.probs);
    add(ATTNC_KERNEL_SPLIT_HEADS, !config.in_proj);
    add(ATTNC_KERNEL_MERGE_HEADS, !config.out_proj);
    add(ATTNC_KERNEL_ATTEND_DECODE, config.cache);
    add(ATTNC_KERNEL_ATTEND_SCORES, config.scores);
    add(ATTNC_KERNEL_NORM_HEADS, config.qk_norm);
    add(ATTNC_KERNEL_ROTATE_HEADS, config.rotary != Rotary::kNone);
    add(ATTNC_KERNEL_ROTARY_ANGLES, config.rotary != Rotary::kNone);
    return kernels;
}

namespace {
#define ATTNC_X(id, name) #name,
constexpr std::array<const char*, ATTNC_KERNEL_COUNT> kKernelNames{ATTNC_KERNELS(ATTNC_X)};
#undef ATTNC_X
}  // namespace

const char* kernel_name(int kernel) {
    if (kernel < 0 || kernel >= ATTNC_KERNEL_COUNT)
        throw ConfigError("kernel number " + number(kernel) + " is unknown");
    return kKernelNames[static_cast<size_t>(kernel)];
}

int kernel_by_name(std::string_view name) {
    for (int kernel = 0; kernel < ATTNC_KERNEL_COUNT; ++kernel) {
        if (name == kernel_name(kernel)) return kernel;
    }
    std::string known;
    for (const char* const kernel : kKernelNames) {
        known += (known.empty() ? "" : ", ") + std::string(kernel);
    }
    throw ConfigError("kernel " + in_quotes(name) + " is unknown, known are " + known);
}

namespace {

// Parts of a kernel configuration after its sizes, with the kernels that depend on them.
struct KernelToken {
    std::string_view text;
    bool KernelConfig::*field;
};
constexpr std::array<KernelToken, 5> kKernelTokens{{
    {"softcap", &KernelConfig::softcap},
    {"alibi", &KernelConfig::alibi},
    {"sink", &KernelConfig::sink},
    {"pairs", &KernelConfig::rotary_pairs},
    {"cache", &KernelConfig::cache},
}};

bool has_score_steps(int kernel) {
    return kernel == ATTNC_KERNEL_ATTEND_MASKED || kernel == ATTNC_KERNEL_ATTEND_GUARDED ||
           kernel == ATTNC_KERNEL_ATTEND_PROBS || kernel == ATTNC_KERNEL_ATTEND_SCORES ||
           kernel == ATTNC_KERNEL_ATTEND_DECODE;
}

}  // namespace

std::string kernel_config(const Config& config, int kernel) {
    KernelConfig parts{.head_dim = ATTNC_HEAD_ALIGN, .v_head_dim = ATTNC_HEAD_ALIGN};
    switch (kernel) {
        case ATTNC_KERNEL_PROJECT_OUT:
        case ATTNC_KERNEL_PROJECT_OUT_TAIL:
        case ATTNC_KERNEL_SPLIT_HEADS:
        case ATTNC_KERNEL_MERGE_HEADS:
        case ATTNC_KERNEL_ROTATE_HEADS:
        case ATTNC_KERNEL_ROTARY_ANGLES:
            break;  // whatever the heads are, these are the same
        case ATTNC_KERNEL_NORM_HEADS:
            parts.head_dim = padded_head(config.head_dim);
            break;
        default:
            parts.head_dim = padded_head(config.head_dim);
            parts.v_head_dim = padded_head(config.v_head_dim);
    }
    parts.softcap = config.softcap && has_score_steps(kernel);
    parts.alibi = config.alibi && has_score_steps(kernel);
    parts.rotary_pairs = config.rotary == Rotary::kPairs && kernel == ATTNC_KERNEL_ROTATE_HEADS;
    return to_string(parts);
}

std::string to_string(const KernelConfig& config) {
    std::string text = "hd" + number(config.head_dim) + "_vhd" + number(config.v_head_dim);
    for (const KernelToken& token : kKernelTokens) {
        if (config.*token.field) text += "_" + std::string(token.text);
    }
    return text;
}

KernelConfig parse_kernel_config(std::string_view text) {
    const std::vector<std::string_view> parts = split(text, '_');
    const auto size = [&](size_t part, std::string_view letters) {
        const Token token = part < parts.size() ? read_token(parts[part]) : Token{};
        const bool good = token.letters == letters && token.value && *token.value >= ATTNC_HEAD_ALIGN &&
                          *token.value <= kMaxHeadDim && *token.value % ATTNC_HEAD_ALIGN == 0;
        return good ? *token.value : 0;
    };
    KernelConfig config{.head_dim = size(0, "hd"), .v_head_dim = size(1, "vhd")};
    bool good = config.head_dim != 0 && config.v_head_dim != 0;
    for (size_t i = 2; i < parts.size(); ++i) {
        const auto* const token = std::find_if(kKernelTokens.begin(), kKernelTokens.end(),
                                               [&](const KernelToken& t) { return t.text == parts[i]; });
        good = good && token != kKernelTokens.end() && !(config.*token->field);
        if (token != kKernelTokens.end()) config.*token->field = true;
    }
    if (good) return config;
    throw ConfigError("kernel configuration " + in_quotes(text) +
                      " is not of the form hd64_vhd64[_softcap][_alibi][_sink][_pairs][_cache] with "
                      "multiples of 16 up to " +
                      number(kMaxHeadDim));
}

std::string kernel_symbol(int kernel, std::string_view target) {
    std::string symbol = std::string("attnc_") + kernel_name(kernel) + "__";
    for (const char c : target) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        symbol += plain ? c : '_';
    }
    return symbol;
}

void check_library_name(std::string_view name) {
    // Words of C and C++ that would not do as the name of the header's function.
    static constexpr std::string_view kReserved[] = {
        "alignas",     "alignof",      "and",       "and_eq",
        "asm",         "auto",         "bitand",    "bitor",
        "bool",        "break",        "case",      "catch",
        "char",        "char16_t",     "char32_t",  "char8_t",
        "class",       "co_await",     "co_return", "co_yield",
        "compl",       "concept",      "const",     "const_cast",
        "consteval",   "constexpr",    "constinit", "continue",
        "decltype",    "default",      "delete",    "do",
        "double",      "dynamic_cast", "else",      "enum",
        "explicit",    "export",       "extern",    "false",
        "float",       "for",          "friend",    "goto",
        "if",          "inline",       "int",       "long",
        "main",        "mutable",      "namespace", "new",
        "noexcept",    "not",          "not_eq",    "nullptr",
        "operator",    "or",           "or_eq",     "private",
        "protected",   "public",       "register",  "reinterpret_cast",
        "requires",    "restrict",     "return",    "short",
        "signed",      "sizeof",       "static",    "static_assert",
        "static_cast", "struct",       "switch",    "template",
        "this",        "thread_local", "throw",     "true",
        "try",         "typedef",      "typeid",    "typename",
        "union",       "unsigned",     "using",     "virtual",
        "void",        "volatile",     "wchar_t",   "while",
        "xor",         "xor_eq"};
    if (name.empty()) throw ConfigError("library name is empty");
    if (name.size() > kLongestLibraryName) {
        throw ConfigError("library name " + in_quotes(name) + " has " + std::to_string(name.size()) +
                          " characters, at most " + std::to_string(kLongestLibraryName) + " are allowed");
    }
    const bool starts_well = (name[0] >= 'a' && name[0] <= 'z') || (name[0] >= 'A' && name[0] <= 'Z');
    const bool all_plain = std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!starts_well || !all_plain) {
        throw ConfigError("library name " + in_quotes(name) +
                          " is not a C identifier: a letter, then letters, digits and underscores");
    }
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
        throw ConfigError("library name " + in_quotes(name) + " is a reserved word of C or C++");
    }
    // Of attnc's own prefix only what begins as a problem string does: attnc_d512_h8_f32.
    constexpr std::string_view kProblemName = "attnc_d";
    const bool problem_name = name.starts_with(kProblemName) && name.size() > kProblemName.size() &&
                              name[kProblemName.size()] >= '0' && name[kProblemName.size()] <= '9';
    if (name == "attnc" || (name.starts_with("attnc_") && !problem_name)) {
        throw ConfigError("library name " + in_quotes(name) + " is one of attnc's own, attnc and attnc_*");
    }
}

}  // namespace attnc
