// These tests call in every way that there is: a buffer that breaks the contract of a kernel is an error of the call.
#include "tests/harness/libraries.h"

namespace attnc::test {
namespace {

[[maybe_unused]] const bool kChecked = [] {
    check_kernel_arguments();
    return true;
}();

}  // namespace
}  // namespace attnc::test
