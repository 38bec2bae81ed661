// What generated code leaves undefined: Halide's runtime names, renamed halide_* -> attnc_abi1_* when a
// library is written. user_context is the attnc_task of the call. Errors leave a code and a sentence there;
// the first one wins.
#include "runtime/arena.h"
#include "runtime/task_error.h"

namespace {

using attnc::keep_error;

// Halide's error codes. Kernels return them; the runtime only looks at zero or not.
enum : int {
    kGenericError = -1,
    kExplicitBoundsTooSmall = -2,
    kBadType = -3,
    kAccessOutOfBounds = -4,
    kBufferAllocationTooLarge = -5,
    kBufferExtentsTooLarge = -6,
    kConstraintsMakeRequiredRegionSmaller = -7,
    kConstraintViolated = -8,
    kParamTooSmall = -9,
    kParamTooLarge = -10,
    kOutOfMemory = -11,
    kBufferArgumentIsNull = -12,
    kDebugToFileFailed = -13,
    kNoDeviceInterface = -19,
    kUnalignedHostPointer = -24,
    kBadFold = -25,
    kFoldFactorTooSmall = -26,
    kRequirementFailed = -27,
    kBufferExtentsNegative = -28,
    kSpecializeFail = -31,
    kHostIsNull = -34,
    kBadExternFold = -35,
    kDeviceInterfaceNoDevice = -36,
    kHostAndDeviceDirty = -37,
    kBufferIsNull = -38,
    kDeviceCropFailed = -41,
    kBadDimensions = -43,
    kDeviceDirtyWithNoDeviceSupport = -44,
    kStorageBoundTooSmall = -45,
    kSplitFactorNotPositive = -46,
    kVscaleInvalid = -47,
};

}  // namespace

extern "C" {

void* attnc_abi1_malloc(void* user_context, size_t bytes) {
    auto* task = static_cast<attnc_task*>(user_context);
    return task != nullptr ? attnc::arena_allocate(*task, bytes) : nullptr;
}

void attnc_abi1_free(void* user_context, void* memory) {
    auto* task = static_cast<attnc_task*>(user_context);
    if (task != nullptr) attnc::arena_free(*task, memory);
}

void attnc_abi1_error(void* user_context, const char* text) {
    keep_error(user_context, kGenericError, {text});
}

int attnc_abi1_error_bounds_inference_call_failed(void* user_context, const char* stage, int result) {
    return keep_error(user_context, result != 0 ? result : kGenericError,
                      {"bounds inference of extern stage ", stage, " returned ", result});
}

int attnc_abi1_error_extern_stage_failed(void* user_context, const char* stage, int result) {
    return keep_error(user_context, result != 0 ? result : kGenericError,
                      {"extern stage ", stage, " returned ", result});
}

int attnc_abi1_error_explicit_bounds_too_small(void* user_context, const char* func, const char* var,
                                               int min_bound, int max_bound, int min_required,
                                               int max_required) {
    return keep_error(user_context, kExplicitBoundsTooSmall,
                      {"bounds of ", var, " in ", func, " are ", min_bound, " to ", max_bound, ", wanted ",
                       min_required, " to ", max_required});
}

int attnc_abi1_error_bad_type(void* user_context, const char* func, uint32_t given, uint32_t wanted) {
    return keep_error(user_context, kBadType, {func, " has type bits ", given, ", wanted ", wanted});
}

int attnc_abi1_error_bad_dimensions(void* user_context, const char* func, int32_t given, int32_t wanted) {
    return keep_error(user_context, kBadDimensions, {func, " has ", given, " dimensions, wanted ", wanted});
}

int attnc_abi1_error_access_out_of_bounds(void* user_context, const char* func, int dimension,
                                          int min_touched, int max_touched, int min_valid, int max_valid) {
    return keep_error(user_context, kAccessOutOfBounds,
                      {func, " has ", min_valid, " to ", max_valid, " in dimension ", dimension, ", wanted ",
                       min_touched, " to ", max_touched});
}

int attnc_abi1_error_buffer_allocation_too_large(void* user_context, const char* buffer, uint64_t size,
                                                 uint64_t most) {
    return keep_error(user_context, kBufferAllocationTooLarge,
                      {buffer, " spans ", size, " bytes, at most ", most});
}

int attnc_abi1_error_buffer_extents_negative(void* user_context, const char* buffer, int dimension,
                                             int extent) {
    return keep_error(user_context, kBufferExtentsNegative,
                      {buffer, " has extent ", extent, " in dimension ", dimension});
}

int attnc_abi1_error_buffer_extents_too_large(void* user_context, const char* buffer, int64_t size,
                                              int64_t most) {
    return keep_error(user_context, kBufferExtentsTooLarge,
                      {buffer, " has ", size, " elements, at most ", most});
}

int attnc_abi1_error_constraints_make_required_region_smaller(void* user_context, const char* buffer,
                                                              int dimension, int constrained_min,
                                                              int constrained_extent, int required_min,
                                                              int required_extent) {
    return keep_error(
        user_context, kConstraintsMakeRequiredRegionSmaller,
        {buffer, " is constrained to min ", constrained_min, " and extent ", constrained_extent,
         " in dimension ", dimension, ", wanted min ", required_min, " and extent ", required_extent});
}

int attnc_abi1_error_constraint_violated(void* user_context, const char* var, int value,
                                         const char* constrained_var, int constrained_value) {
    return keep_error(user_context, kConstraintViolated,
                      {var, " is ", value, ", wanted ", constrained_var, ", which is ", constrained_value});
}

int attnc_abi1_error_param_too_small_i64(void* user_context, const char* param, int64_t value,
                                         int64_t least) {
    return keep_error(user_context, kParamTooSmall, {param, " is ", value, ", wanted ", least, " or more"});
}

int attnc_abi1_error_param_too_small_u64(void* user_context, const char* param, uint64_t value,
                                         uint64_t least) {
    return keep_error(user_context, kParamTooSmall, {param, " is ", value, ", wanted ", least, " or more"});
}

int attnc_abi1_error_param_too_small_f64(void* user_context, const char* param, double, double) {
    return keep_error(user_context, kParamTooSmall, {param, " is below its least value"});
}

int attnc_abi1_error_param_too_large_i64(void* user_context, const char* param, int64_t value, int64_t most) {
    return keep_error(user_context, kParamTooLarge, {param, " is ", value, ", wanted ", most, " or less"});
}

int attnc_abi1_error_param_too_large_u64(void* user_context, const char* param, uint64_t value,
                                         uint64_t most) {
    return keep_error(user_context, kParamTooLarge, {param, " is ", value, ", wanted ", most, " or less"});
}

int attnc_abi1_error_param_too_large_f64(void* user_context, const char* param, double, double) {
    return keep_error(user_context, kParamTooLarge, {param, " is above its largest value"});
}

int attnc_abi1_error_out_of_memory(void* user_context) {
    return keep_error(user_context, kOutOfMemory, {"the task's scratch memory is too small"});
}

int attnc_abi1_error_buffer_argument_is_null(void* user_context, const char* buffer) {
    return keep_error(user_context, kBufferArgumentIsNull, {"buffer ", buffer, " is null"});
}

int attnc_abi1_error_debug_to_file_failed(void* user_context, const char* func, const char* file, int code) {
    return keep_error(user_context, kDebugToFileFailed,
                      {"writing ", func, " to ", file, " failed with ", code});
}

int attnc_abi1_error_unaligned_host_ptr(void* user_context, const char* func, int alignment) {
    return keep_error(user_context, kUnalignedHostPointer,
                      {func, " is not aligned to ", alignment, " bytes"});
}

int attnc_abi1_error_host_is_null(void* user_context, const char* func) {
    return keep_error(user_context, kHostIsNull, {func, " has no memory"});
}

int attnc_abi1_error_bad_fold(void* user_context, const char* func, const char* var, const char* loop) {
    return keep_error(user_context, kBadFold, {func, " can't be folded over ", var, " in loop ", loop});
}

int attnc_abi1_error_bad_extern_fold(void* user_context, const char* func, int dimension, int min, int extent,
                                     int valid_min, int factor) {
    return keep_error(user_context, kBadExternFold,
                      {func, " can't be folded by ", factor, " in dimension ", dimension, ": min ", min,
                       ", extent ", extent, ", valid from ", valid_min});
}

int attnc_abi1_error_fold_factor_too_small(void* user_context, const char* func, const char* var, int factor,
                                           const char* loop, int required) {
    return keep_error(user_context, kFoldFactorTooSmall,
                      {"fold factor ", factor, " of ", var, " in ", func, " is too small for loop ", loop,
                       ", wanted ", required});
}

int attnc_abi1_error_requirement_failed(void* user_context, const char* condition, const char* message) {
    return keep_error(user_context, kRequirementFailed, {"requirement ", condition, " failed: ", message});
}

int attnc_abi1_error_specialize_fail(void* user_context, const char* message) {
    return keep_error(user_context, kSpecializeFail, {"no specialisation holds: ", message});
}

int attnc_abi1_error_no_device_interface(void* user_context) {
    return keep_error(user_context, kNoDeviceInterface,
                      {"a buffer has device memory and no device interface"});
}

int attnc_abi1_error_device_interface_no_device(void* user_context) {
    return keep_error(user_context, kDeviceInterfaceNoDevice,
                      {"a buffer has a device interface and no device memory"});
}

int attnc_abi1_error_host_and_device_dirty(void* user_context) {
    return keep_error(user_context, kHostAndDeviceDirty, {"a buffer is dirty on host and device"});
}

int attnc_abi1_error_buffer_is_null(void* user_context, const char* routine) {
    return keep_error(user_context, kBufferIsNull, {"a buffer given to ", routine, " is null"});
}

int attnc_abi1_error_device_dirty_with_no_device_support(void* user_context, const char* buffer) {
    return keep_error(user_context, kDeviceDirtyWithNoDeviceSupport, {buffer, " is dirty on a device"});
}

int attnc_abi1_error_storage_bound_too_small(void* user_context, const char* func, const char* var,
                                             int provided, int required) {
    return keep_error(user_context, kStorageBoundTooSmall,
                      {"storage of ", var, " in ", func, " is bound to ", provided, ", wanted ", required});
}

int attnc_abi1_error_device_crop_failed(void* user_context) {
    return keep_error(user_context, kDeviceCropFailed, {"cropping a device buffer failed"});
}

int attnc_abi1_error_split_factor_not_positive(void* user_context, const char* func, const char* original,
                                               const char* outer, const char* inner, const char* factor_text,
                                               int factor) {
    return keep_error(user_context, kSplitFactorNotPositive,
                      {"split of ", original, " into ", outer, " and ", inner, " in ", func, " by ",
                       factor_text, " is ", factor, ", wanted 1 or more"});
}

int attnc_abi1_error_vscale_invalid(void* user_context, const char* func, int run_time, int compile_time) {
    return keep_error(user_context, kVscaleInvalid,
                      {func, " was compiled for vscale ", compile_time, ", this machine has ", run_time});
}

}  // extern "C"
