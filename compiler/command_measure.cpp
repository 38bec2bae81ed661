// attnc measure-candidate: what the process of a measurement runs. Hidden.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "compiler/command.h"
#include "compiler/files.h"
#include "compiler/tune_measure.h"

namespace attnc {

void add_measure_command(CLI::App& app) {
    struct Options {
        std::string request, answer;
    };
    CLI::App* command =
        app.add_subcommand("measure-candidate", "Time a candidate of the tuner beside the incumbent");
    command->group("");
    auto options = std::make_shared<Options>();
    command->add_option("request", options->request, "File with the request")->required();
    command->add_option("answer", options->answer, "File for the answer")->required();
    command->footer("Example:\n  attnc measure-candidate request.json answer.json");
    command->callback([options] {
        const pid_t parent = ::getppid();
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) return;
        const MeasureAnswer answer = measure(parse_measure_request(read_file(options->request)));
        write_file(options->answer, to_json(answer));
    });
}

}  // namespace attnc
