#include "compiler/machine.h"

#include <algorithm>
#include <ctime>
#include <fstream>

namespace attnc {

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
    }
    return "unknown";
}

std::string utc_now() {
    const std::time_t time = std::time(nullptr);
    std::tm utc = {};
    ::gmtime_r(&time, &utc);
    char text[32];
    return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

}  // namespace attnc
