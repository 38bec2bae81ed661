// What a call says of a configuration or a schedule that it refuses.
#pragma once

#include <functional>
#include <string>

#include "stages/config.h"

namespace attnc {

inline std::string error_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace attnc
