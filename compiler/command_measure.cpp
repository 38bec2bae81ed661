// attnc measure-candidate: what the process of a measurement runs. Hidden.
#include <memory>

#include "compiler/command.h"
#include "compiler/files.h"
#include "compiler/subprocess.h"
#include "compiler/tune_here.h"

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
        end_with_parent();
        const MeasureRequest request = parse_measure_request(read_file(options->request));
        write_file(options->answer, to_json(measure_here(request)));
    });
}

}  // namespace attnc
