// What every program does around its work: errors as one line and an exit code, signals, results and messages.
#pragma once

#include <functional>
#include <string_view>

namespace taper {

// Runs a program's body and turns what it throws into one line on stderr, "NAME: text", and an exit code: 2 for
// UsageError, 1 for any other failure, 130 where SIGINT or SIGTERM ended the work early (the body returns 0 then), else
// what the body returns. Results that cannot be written to stdout are a failure.
int run_tool(int argc, char** argv, const std::function<int()>& body);

// Results, to stdout at once; throws Error where they cannot be written.
void write_result(std::string_view bytes);

// A line for people, to stderr; silent with --quiet.
void print_message(std::string_view line);

// Switches print_message off; Cli::parse does it for --quiet.
void silence_messages(bool is_quiet);

// Thrown to end the program with this code and no message, once all is said: after --help, for one.
struct Exit {
  int code = 0;
};

}  // namespace taper
