// A kernel has one registered name and a generator for each kind of target that it has code for; the target decides.
#pragma once

#include <Halide.h>

#include <memory>

namespace attnc {

enum class TargetKind { kCpu, kGpu };

// Registers `factory` for targets of its kind under `name`, which the other kind may share. Throws at generation where the
// target's kind is not there.
class KernelRegistration {
public:
    KernelRegistration(const char* name, TargetKind kind, Halide::Internal::GeneratorFactory factory);
};

template <typename GeneratorClass>
Halide::Internal::AbstractGeneratorPtr create_kernel(const Halide::GeneratorContext& context,
                                                     const char* name) {
    return GeneratorClass::create(context, name, name);
}

}  // namespace attnc

#define ATTNC_REGISTER_KERNEL_OF(GeneratorClass, name, kind)                                           \
    namespace {                                                                                        \
    const attnc::KernelRegistration registered_##name(#name, kind,                                     \
                                                      [](const Halide::GeneratorContext& context) {    \
                                                          return attnc::create_kernel<GeneratorClass>( \
                                                              context, #name);                         \
                                                      });                                              \
    }
#define ATTNC_REGISTER_KERNEL(GeneratorClass, name) \
    ATTNC_REGISTER_KERNEL_OF(GeneratorClass, name, attnc::TargetKind::kCpu)
#define ATTNC_REGISTER_GPU_KERNEL(GeneratorClass, name) \
    ATTNC_REGISTER_KERNEL_OF(GeneratorClass, name, attnc::TargetKind::kGpu)
