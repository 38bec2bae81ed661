#include "compiler/heap_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace attnc {

namespace {

constexpr int64_t kHeaderBytes = 64;
constexpr int64_t kAlignment = 64;
constexpr int64_t kMaxAutoStackBytes = 16 * 1024;  // where Halide puts memory whose place nobody named

class HeapVisitor : public Halide::Internal::IRVisitor {
public:
    int64_t deepest() const { return deepest_; }

protected:
    using IRVisitor::visit;

    void visit(const Halide::Internal::Allocate* allocate) override {
        const int64_t bytes = heap_block(*allocate);
        live_ += bytes;
        deepest_ = std::max(deepest_, live_);
        IRVisitor::visit(allocate);
        live_ -= bytes;
    }

private:
    // Bytes that the block takes of the scratch; 0 for what lives on the stack or in registers.
    static int64_t heap_block(const Halide::Internal::Allocate& allocate) {
        using Halide::MemoryType;
        if (allocate.new_expr.defined()) return 0;  // a view of other memory
        if (allocate.memory_type == MemoryType::Register) return 0;
        int64_t elements = 1;
        for (const Halide::Expr& extent : allocate.extents) {
            const auto constant = Halide::Internal::as_const_int(extent);
            if (!constant) {
                throw std::runtime_error(
                    fmt::format("Func '{}' has memory without a constant size", allocate.name));
            }
            elements *= *constant;
        }
        const int64_t bytes = (elements + allocate.padding) * allocate.type.bytes();
        if (allocate.memory_type == MemoryType::Stack) return 0;
        if (allocate.memory_type == MemoryType::Auto && bytes <= kMaxAutoStackBytes) return 0;
        return kHeaderBytes + (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }

    int64_t live_ = 0;
    int64_t deepest_ = 0;
};

}  // namespace

int64_t heap_bytes(const Halide::Internal::Stmt& body) {
    HeapVisitor visitor;
    body.accept(&visitor);
    return visitor.deepest();
}

}  // namespace attnc
