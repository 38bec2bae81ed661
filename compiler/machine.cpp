#include "compiler/machine.h"

#include <unistd.h>

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

Machine this_machine() {
    const auto asked = [](int name, long least) { return std::max(::sysconf(name), least); };
    return {.cpu = cpu_model(),
            .cpus = asked(_SC_NPROCESSORS_ONLN, 1),
            .l1d_bytes = asked(_SC_LEVEL1_DCACHE_SIZE, 0),
            .l2_bytes = asked(_SC_LEVEL2_CACHE_SIZE, 0),
            .l3_bytes = asked(_SC_LEVEL3_CACHE_SIZE, 0)};
}

std::string utc_now() {
    const std::time_t time = std::time(nullptr);
    std::tm utc = {};
    ::gmtime_r(&time, &utc);
    char text[32];
    return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

}  // namespace attnc
