// The program: finds the command, reads its options, runs it, and turns errors into exit codes.
#include <cstdio>
#include <new>

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/memory.h"
#include "interrupt.h"
#include "nearest.h"

namespace curvq::cli {
namespace {

const std::vector<const Command*> kCommands = {
#define CURVQ_COMMAND_ADDRESS(name) &name,
    CURVQ_COMMANDS(CURVQ_COMMAND_ADDRESS)
#undef CURVQ_COMMAND_ADDRESS
};

std::string help() {
  std::string out =
      "usage: curvq COMMAND ... [options]\n\n"
      "Second-order analysis and post-training quantization of neural networks.\n\ncommands:\n";
  for (const Command* command : kCommands) {
    out += format("  %-10s %s\n", command->name, command->summary);
  }
  out +=
      "\n  curvq COMMAND --help   options of a command\n"
      "  curvq --version        print the version\n\n"
      "exit status: 0 done, 1 internal error, 2 usage, 3 bad or unsupported input, 4 numerical\n"
      "failure, 5 not enough memory or disk, 6 a check failed, 130 interrupted\n";
  return out;
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout)) {
    throw ResourceError("standard output cannot be written");
  }
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command* command : kCommands) {
    if (name == command->name) return *command;
    names.push_back(command->name);
  }
  if (name[0] == '-') {
    throw UsageError("unknown option " + name +
                     "; options go behind the command, see curvq --help");
  }
  const std::string near = nearest(name, names);
  throw UsageError("unknown command '" + name + "'; " +
                   (near.empty() ? "see curvq --help" : "did you mean " + near + "?"));
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return false;
    if (argument == "--help" || argument == "-h") return true;
  }
  return false;
}

int run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    std::fputs(help().c_str(), stderr);
    return 2;
  }
  std::string name = arguments[0];
  arguments.erase(arguments.begin());
  if (name == "--version") {
    print(std::string("curvq ") + CURVQ_VERSION + "\n");
    return 0;
  }
  if (name == "--help" || name == "-h" || name == "help") {
    if (arguments.empty()) {
      print(help());
      return 0;
    }
    name = arguments[0];
    arguments = {"--help"};
  }
  const Command& command = find_command(name);
  Options options(command.name, command.summary);
  command.declare(options);
  options.add_common();
  if (asks_for_help(arguments)) {
    print(options.help());
    return 0;
  }
  options.parse(arguments);
  options.apply_common();
  Output output(options);
  const int exit_code = command.run(options, output);
  output.finish();
  return exit_code;
}

int run_guarded(const std::vector<std::string>& arguments) {
  try {
    return run(arguments);
  } catch (const Error& error) {
    wait_if_interrupted();
    log_error(error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    wait_if_interrupted();
    log_error("out of memory");
    return 5;
  } catch (const std::exception& error) {
    wait_if_interrupted();
    log_error(std::string("internal error: ") + error.what());
    return 1;
  }
}

}  // namespace
}  // namespace curvq::cli

int main(int argc, char** argv) {
  curvq::keep_freed_memory();
  curvq::cli::watch_signals();
  return curvq::cli::run_guarded(std::vector<std::string>(argv + (argc > 0), argv + argc));
}
