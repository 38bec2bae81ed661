#include "runtime/attnc.h"

extern "C" int attnc_version(void) { return ATTNC_VERSION; }

extern "C" const char* attnc_status_text(attnc_status status) {
    switch (status) {
        case ATTNC_OK:
            return "success";
        case ATTNC_NULL_ARGUMENT:
            return "a pointer that is needed is null";
        case ATTNC_BAD_STRUCT_SIZE:
            return "a struct_size is unknown to this runtime";
        case ATTNC_BAD_LIBRARY:
            return "the library's table is not one that this runtime serves";
        case ATTNC_BAD_DTYPE:
            return "a tensor has the wrong element type";
        case ATTNC_BAD_RANK:
            return "a tensor has the wrong rank";
        case ATTNC_BAD_EXTENT:
            return "a tensor has a wrong extent";
        case ATTNC_BAD_STRIDE:
            return "a tensor has a wrong stride";
        case ATTNC_BAD_VALUE:
            return "a number is out of its range";
        case ATTNC_MISSING_TENSOR:
            return "a tensor is missing";
        case ATTNC_UNEXPECTED_TENSOR:
            return "a tensor has no use here";
        case ATTNC_NOT_SUPPORTED:
            return "the library was not compiled for this";
        case ATTNC_OVERLAP:
            return "an output overlaps other memory of the call";
        case ATTNC_TOO_LARGE:
            return "a size is too large";
        case ATTNC_WORKSPACE_TOO_SMALL:
            return "the workspace is too small";
        case ATTNC_WORKSPACE_MISALIGNED:
            return "the workspace is not aligned";
        case ATTNC_OUT_OF_MEMORY:
            return "out of memory";
        case ATTNC_NO_TARGET:
            return "no target of the library can run here";
        case ATTNC_NO_DEVICE:
            return "no device";
        case ATTNC_EXECUTOR_FAILED:
            return "the executor did not run all tasks";
        case ATTNC_KERNEL_FAILED:
            return "a kernel refused its arguments";
        case ATTNC_DEVICE_FAILED:
            return "the device's driver refused a call";
    }
    return "unknown status";
}
