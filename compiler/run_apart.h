// Runs something in a forked process, so that a crash in it is one line and not the end of the command.
#pragma once

#include <functional>
#include <string>

namespace attnc {

// Returns what `work` returned, in the parent. What `work` throws arrives as std::runtime_error; a crash does too, as
// "<what> crashed: signal 11 (Segmentation fault)". Call it without other threads running. Throws Interrupted.
int run_apart(const std::string& what, const std::function<int()>& work);

}  // namespace attnc
