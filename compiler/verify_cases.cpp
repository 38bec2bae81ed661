#include "compiler/verify_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "compiler/build.h"
#include "compiler/device_there.h"
#include "compiler/load_library.h"
#include "compiler/run_apart.h"
#include "compiler/targets.h"
#include "runtime/attnc.h"
#include "support/case_file.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

struct CasePath {
    fs::path file;
    std::string given;  // the folder (or file) of the command line that it comes from
};

std::vector<CasePath> case_paths(const std::string& given) {
    const fs::path path(given);
    if (fs::is_regular_file(path)) return {{path, given}};
    std::error_code error;
    std::vector<CasePath> files;
    for (const auto& entry : fs::directory_iterator(path, error)) {
        if (entry.path().extension() == ".safetensors") files.push_back({entry.path(), given});
    }
    if (error) throw std::runtime_error(fmt::format("cannot read {}: {}", given, error.message()));
    if (files.empty()) throw std::runtime_error(fmt::format("no .safetensors files in {}", given));
    std::sort(files.begin(), files.end(),
              [](const CasePath& a, const CasePath& b) { return a.file < b.file; });
    return files;
}

std::vector<CasePath> chosen_cases(const CaseRequest& request) {
    std::vector<CasePath> chosen;
    std::set<std::string> missing(request.names.begin(), request.names.end());
    for (const std::string& given : request.folders) {
        for (CasePath& path : case_paths(given)) {
            const std::string name = path.file.stem().string();
            missing.erase(name);
            const auto& names = request.names;
            if (names.empty() || std::find(names.begin(), names.end(), name) != names.end())
                chosen.push_back(std::move(path));
        }
    }
    if (!missing.empty()) throw std::runtime_error(fmt::format("there is no case {}", *missing.begin()));
    return chosen;
}

// Libraries by configuration, made as they are needed.
class Libraries {
public:
    Libraries(const CaseRequest& request, fs::path folder) : request_(request), folder_(std::move(folder)) {}

    const attnc_library* get(const Config& config) {
        const std::string key = to_string(config);
        auto found = libraries_.find(key);
        if (found == libraries_.end()) {
            BuildRequest request;
            request.config = config;
            request.targets = request_.targets;
            request.tuning = request_.tuning;
            request.output = folder_;
            request.kernel_cache =
                request_.kernel_cache.empty() ? folder_ / "kernels" : request_.kernel_cache;
            request.installation = request_.installation;
            const BuildResult built = build_library(request);
            found = libraries_.emplace(key, LoadedLibrary(built.archive, request_.installation)).first;
        }
        return found->second.library();
    }

private:
    const CaseRequest& request_;
    fs::path folder_;
    std::map<std::string, LoadedLibrary> libraries_;
};

bool runs_on_this_machine(const attnc_library* library, const std::string& target) {
    for (int64_t n = 0; attnc_library_target_name(library, n) != nullptr; ++n) {
        if (target == attnc_library_target_name(library, n))
            return attnc_library_target_runs(library, n) != 0;
    }
    throw std::runtime_error(fmt::format("the library has no target {}", target));
}

// Runs all cases in a process apart, which notes outcomes in a file. When it dies, the one that it was at has failed, and
// another process goes on behind it.
class CaseRun {
public:
    CaseRun(const CaseRequest& request, fs::path scratch)
        : request_(request),
          scratch_(std::move(scratch)),
          notes_(scratch_ / "outcomes"),
          paths_(chosen_cases(request)),
          targets_(layer_targets(choose_targets(request.targets))),
          kept_back_(targets_ == std::vector<std::string>{kCudaTarget} && !device_is_there()
                         ? "this machine has no CUDA device"
                         : "") {}

    std::vector<Outcome> run() {
        while (next_ < paths_.size()) {
            try {
                run_apart("running it", [&] { return run_the_rest(); });
                read_notes();
                next_ = paths_.size();
            } catch (const std::runtime_error& error) {
                read_notes();
                if (at_ == kNowhere) throw;
                outcomes_.push_back(failure(at_, at_target_, error.what()));
                fmt::print("{}", text_of(outcomes_.back()));
                next_ = at_target_.empty() ? at_ + 1 : at_;
                after_ = at_target_;
            }
        }
        return std::move(outcomes_);
    }

private:
    static constexpr size_t kNowhere = static_cast<size_t>(-1);

    Outcome failure(size_t n, const std::string& target, const std::string& reason) const {
        const std::string name = paths_[n].file.stem().string();
        std::string repeat = fmt::format("attnc verify --cases {} --case {}", shell_quoted(paths_[n].given),
                                         shell_quoted(name));
        if (!target.empty()) repeat += " --target " + target;
        return {name, target, Outcome::Kind::kFailed, reason, repeat};
    }

    // --- in the process apart

    int run_the_rest() {
        Libraries libraries(request_, scratch_);
        out_.open(notes_, std::ios::trunc);
        for (size_t n = next_; n < paths_.size(); ++n) {
            run_file(n, libraries, n == next_ ? after_ : "");
        }
        out_ << "end\n" << std::flush;
        if (!out_) throw std::runtime_error(fmt::format("cannot write {}", notes_.string()));
        return 0;
    }

    // The targets behind `after`; "": all.
    void run_file(size_t n, Libraries& libraries, const std::string& after) {
        const std::string name = paths_[n].file.stem().string();
        begin(n, "");
        CaseFile file;
        const attnc_library* library = nullptr;
        std::string skipped;
        try {
            file = read_case(paths_[n].file.string());
            skipped = file.unsupported.empty() ? kept_back_ : file.unsupported;
            if (skipped.empty()) library = libraries.get(file.config);
        } catch (const std::exception& error) {
            return note(failure(n, "", error.what()));
        }
        if (library == nullptr) return note({name, "", Outcome::Kind::kSkipped, skipped, ""});
        auto target = targets_.begin();
        if (!after.empty()) target = std::find(targets_.begin(), targets_.end(), after) + 1;
        for (; target != targets_.end(); ++target) {
            if (!runs_on_this_machine(library, *target)) {
                note({name, *target, Outcome::Kind::kSkipped, "this machine cannot run it", ""});
                continue;
            }
            begin(n, *target);
            note(checked(n, file, library, *target));
        }
    }

    Outcome checked(size_t n, const CaseFile& file, const attnc_library* library, const std::string& target) {
        const std::string name = paths_[n].file.stem().string();
        try {
            const std::string wrong = request_.check(file, library, target);
            return wrong.empty() ? Outcome{name, target, Outcome::Kind::kPassed, "", ""}
                                 : failure(n, target, wrong);
        } catch (const std::exception& error) {
            return failure(n, target, error.what());
        }
    }

    void begin(size_t n, const std::string& target) {
        out_ << "at " << n << ' ' << target << '\n' << std::flush;
    }

    void note(const Outcome& outcome) {
        fmt::print("{}", text_of(outcome));
        std::fflush(stdout);
        out_ << to_json(outcome) << '\n' << std::flush;
    }

    // --- in this one

    void read_notes() {
        at_ = kNowhere;
        std::ifstream notes(notes_);
        for (std::string line; std::getline(notes, line);) {
            if (line.starts_with("at ")) {
                const size_t space = line.find(' ', 3);
                at_ = std::stoul(line.substr(3, space - 3));
                at_target_ = line.substr(space + 1);
            } else if (line != "end") {
                outcomes_.push_back(outcome_from_json(line));
            }
        }
    }

    const CaseRequest& request_;
    fs::path scratch_, notes_;
    std::vector<CasePath> paths_;
    std::vector<std::string> targets_;
    std::string kept_back_;  // why nothing need be built: no target runs here; empty: some does
    std::ofstream out_;
    std::vector<Outcome> outcomes_;
    size_t next_ = 0;        // case to go on with,
    std::string after_;      // behind this target, if not empty
    size_t at_ = kNowhere;   // case that the process apart was at
    std::string at_target_;  // and its target, if it had come to one
};

}  // namespace

std::vector<Outcome> verify_cases(const CaseRequest& request, const fs::path& scratch) {
    return CaseRun(request, scratch).run();
}

}  // namespace attnc
