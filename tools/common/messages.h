// What a program says: results on stdout, messages on stderr.
#pragma once

#include <string_view>

namespace taper {

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
