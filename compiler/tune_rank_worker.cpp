// A rank that tunes what rank 0 gives it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "compiler/files.h"
#include "compiler/interrupt.h"
#include "compiler/machine.h"
#include "compiler/own_target.h"
#include "compiler/subprocess.h"
#include "compiler/tune_ranks.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;
using Kind = RankMessage::Kind;

constexpr std::chrono::milliseconds kPause{20};
constexpr double kLookSeconds = 0.5;              // between two looks at what the tuner has written
constexpr double kRankZeroSilence = 60;           // longer than rank 0 waits for a disk
constexpr std::chrono::hours kAnyTime{24 * 365};  // limits are the tuner's own
constexpr int kSignalled = 128;

std::string host_name() {
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
    return name;
}

cpu_set_t own_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
    return set;
}

// "0,32" or "0-1": of a CPU and its siblings. The CPU alone where the system doesn't say.
std::string siblings_text(int cpu) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string text;
    return std::getline(file, text) ? text : std::to_string(cpu);
}

// Those of the process's CPUs that share a core are one.
std::vector<Core> own_cores() {
    const cpu_set_t set = own_cpus();
    std::map<std::string, Core> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) cores[siblings_text(cpu)].push_back(cpu);
    }
    std::vector<Core> sorted;
    sorted.reserve(cores.size());
    for (const auto& [text, core] : cores) sorted.push_back(core);
    std::sort(sorted.begin(), sorted.end());
    return sorted;
}

// Processes that are started meanwhile run on these CPUs alone.
class OnCpus {
public:
    explicit OnCpus(const std::vector<int>& cpus) : before_(own_cpus()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (const int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
        if (::sched_setaffinity(0, sizeof set, &set) != 0)
            throw std::runtime_error(fmt::format("cannot use cpu {}", fmt::join(cpus, ", ")));
    }
    OnCpus(const OnCpus&) = delete;
    OnCpus& operator=(const OnCpus&) = delete;
    ~OnCpus() { ::sched_setaffinity(0, sizeof before_, &before_); }

private:
    cpu_set_t before_;
};

// The whole lines of a file that weren't there at the last look.
class NewLines {
public:
    explicit NewLines(fs::path path, size_t known = 0) : path_(std::move(path)), at_(known) {}
    std::vector<std::string> look() {
        std::ifstream file(path_, std::ios::binary);
        std::vector<std::string> lines;
        if (!file.seekg(static_cast<std::streamoff>(at_))) return lines;
        for (std::string line; std::getline(file, line) && !file.eof();) {
            at_ += line.size() + 1;
            lines.push_back(line);
        }
        return lines;
    }

private:
    fs::path path_;
    size_t at_;
};

// Rank 0 has said that it is enough, or is gone, while something was done for it.
struct Ended {
    bool all_there = true;
};

class Worker {
public:
    Worker(RankLink& link, const WorkerSetup& setup)
        : link_(link), setup_(setup), rank_zero_(kRankZeroSilence) {}
    void run();

private:
    RankMessage hello() const;
    void look_for_end();
    void beat();
    void do_work(const RankMessage& work);
    RankMessage run_tuner(const RankMessage& work, const fs::path& folder);

    RankLink& link_;
    const WorkerSetup& setup_;
    Silence rank_zero_;
    std::optional<RankMessage> work_;  // that has come
    double last_beat_ = 0;
};

RankMessage Worker::hello() const {
    RankMessage message;
    message.kind = Kind::kHello;
    message.host = host_name();
    message.versions = setup_.versions;
    message.machine = this_machine();
    message.cores = own_cores();
    try {
        message.target = own_target(setup_.target);
    } catch (const std::runtime_error& error) {
        message.text = error.what();
    }
    return message;
}

void Worker::beat() {
    const double now = steady_seconds();
    if (now - last_beat_ < 1) return;
    last_beat_ = now;
    link_.send(0, {});
}

void Worker::look_for_end() {
    check_interrupt();
    while (auto received = link_.receive()) {
        rank_zero_.heard();
        if (received->message.kind == Kind::kEnd) throw Ended{received->message.all_there};
        if (received->message.kind == Kind::kDamaged)
            throw std::runtime_error(
                fmt::format("rank 0 sent what is no message ({})", received->message.text));
        if (received->message.kind == Kind::kWork) work_ = std::move(received->message);
    }
    if (rank_zero_.is_too_long()) throw std::runtime_error("rank 0 is gone");
    beat();
}

// The tuner as anybody runs it, with files of its own; what it writes is told as it comes.
RankMessage Worker::run_tuner(const RankMessage& work, const fs::path& folder) {
    const fs::path journal = folder / "journal", database = folder / "db";
    std::string known;
    for (const std::string& line : work.lines) known += line + "\n";
    write_file(journal, known);
    NewLines trials(journal, known.size());
    std::set<std::string> told;
    double last_look = 0;
    const auto tell = [&] {
        if (const std::vector<std::string> lines = trials.look(); !lines.empty()) {
            RankMessage message;
            message.kind = Kind::kTrials, message.lines = lines;
            link_.send(0, message);
        }
        RankMessage records;
        records.kind = Kind::kRecords;
        for (const std::string& line : NewLines(database).look()) {
            if (told.insert(line).second) records.lines.push_back(line);
        }
        if (!records.lines.empty()) link_.send(0, records);
    };
    std::vector<std::string> command = {setup_.command.string(), "tune"};
    command.insert(command.end(), work.arguments.begin(), work.arguments.end());
    for (const std::string& argument :
         {std::string("--under-rank"), std::string("--db"), database.string(), std::string("--journal"),
          journal.string(), std::string("--kernel-cache"),
          (setup_.kernel_cache.empty() ? folder / "kernels" : setup_.kernel_cache).string()})
        command.push_back(argument);
    const OnCpus cpus(work.cores.at(0));
    const ProcessResult result = run_process(command, kAnyTime, [&] {
        look_for_end();
        if (steady_seconds() - last_look < kLookSeconds) return;
        last_look = steady_seconds();
        tell();
    });
    tell();
    RankMessage answer;
    answer.work = work.work;
    answer.text = result.output;
    answer.kind = Kind::kDone;
    if (result.succeeded()) return answer;
    // Who is ended from outside has no say in it; whoever ends by itself has.
    const bool killed = result.signal != 0 || result.exit_code > kSignalled;
    answer.kind = killed ? Kind::kLost : Kind::kFailed;
    std::string reason = last_line(result.output);
    if (reason.starts_with("attnc: ")) reason.erase(0, std::string("attnc: ").size());
    answer.text =
        killed || reason.empty() ? "the tuner ended with " + describe_failure(result, kAnyTime) : reason;
    return answer;
}

void Worker::do_work(const RankMessage& work) {
    RankMessage answer;
    try {
        const TemporaryFolder folder(system_temporary_folder());
        answer = run_tuner(work, folder.path());
    } catch (const Interrupted&) {
        throw;
    } catch (const std::runtime_error& error) {  // a full disk, say: of this rank, not of the work
        answer.kind = Kind::kLost;
        answer.work = work.work;
        answer.text = error.what();
    }
    link_.send(0, answer);
}

void Worker::run() {
    link_.send(0, hello());
    try {
        for (;;) {
            look_for_end();
            if (work_) {
                const RankMessage work = *work_;
                work_.reset();
                do_work(work);
            }
            std::this_thread::sleep_for(kPause);
        }
    } catch (const Ended& ended) {
        RankMessage answer;
        answer.kind = Kind::kEnd;
        link_.send(0, answer);
        link_.end(ended.all_there);
    }
}

}  // namespace

void work_for_ranks(RankLink& link, const WorkerSetup& setup) { Worker(link, setup).run(); }

}  // namespace attnc
