#include "compiler/assembly.h"

#include "compiler/files.h"
#include "compiler/llvm_tools.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

class PrefetchFinder : public Halide::Internal::IRVisitor {
public:
    bool found = false;

private:
    using IRVisitor::visit;
    void visit(const Halide::Internal::Call* call) override {
        found = found || call->name == "_halide_prefetch";
        IRVisitor::visit(call);
    }
};

bool prefetches(const Halide::Module& module) {
    PrefetchFinder finder;
    for (const Halide::Internal::LoweredFunc& function : module.functions()) function.body.accept(&finder);
    return finder.found;
}

// A file that goes away again.
struct Passing {
    fs::path path;
    explicit Passing(const fs::path& where) : path(where) {}
    Passing(const Passing&) = delete;
    Passing& operator=(const Passing&) = delete;
    ~Passing() {
        std::error_code ignored;
        fs::remove(path, ignored);
    }
};

}  // namespace

std::string assembly_of(const Halide::Module& module, const fs::path& prefix) {
    const Passing written(prefix.string() + ".halide.s");
    module.compile({{Halide::OutputFileType::assembly, written.path.string()}});
    std::string text = read_file(written.path);
    constexpr std::string_view kHalides = "\tprefetchnta\t", kOurs = "\tprefetcht1\t";
    for (size_t at = 0; (at = text.find(kHalides, at)) != std::string::npos; at += kOurs.size())
        text.replace(at, kHalides.size(), kOurs);
    return text;
}

std::string object_of(const Halide::Module& module, const fs::path& prefix) {
    if (!prefetches(module)) {
        const Halide::Buffer<uint8_t> code = module.compile_to_buffer();
        return {reinterpret_cast<const char*>(code.data()), code.size_in_bytes()};
    }
    const Passing text(prefix.string() + ".ahead.s"), object(prefix.string() + ".ahead.o");
    write_file(text.path, assembly_of(module, prefix));
    run_tool({find_llvm_tools().mc, "--triple=x86_64-linux-gnu", "--filetype=obj", "-o", object.path.string(),
              text.path.string()});
    return read_file(object.path);
}

}  // namespace attnc
