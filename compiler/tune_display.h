// What a person sees of the tuner: a log of what was found and, on a terminal, a line below it of where the search is.
#pragma once

#include <string>

#include "compiler/tune_session.h"

namespace attnc {

// Where a part's search is, after a trial; `peak`: of the best.
std::string progress_text(const TuneEvent& event, double peak);

class TuneDisplay {
public:
    TuneDisplay();
    TuneDisplay(const TuneDisplay&) = delete;
    TuneDisplay& operator=(const TuneDisplay&) = delete;
    ~TuneDisplay();  // takes the line away

    void line(const std::string& text);  // of the log
    void begin(const TunedPart& part, const std::string& start);
    void skip(const TunedPart& part, const std::string& why);
    void trial(const TuneEvent& event);
    void end(const TunedPart& part, const std::string& best, double ratio, bool finished);

private:
    void clear();
    void show(const std::string& text);  // below the log, on a terminal

    bool terminal_;
    bool shown_ = false;
    int64_t trials_ = 0, failed_ = 0, known_ = 0;
    double peak_ = 0;
};

}  // namespace attnc
