// A line of progress on a terminal, for what takes longer than two seconds.
#pragma once

#include <chrono>
#include <string>

namespace attnc {

class Progress {
public:
    explicit Progress(std::string what);  // "compiling kernels"
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();  // takes the line away

    void show(int done, int all);

private:
    std::string what_;
    std::chrono::steady_clock::time_point started_;
    bool terminal_ = false;
    bool shown_ = false;
};

}  // namespace attnc
