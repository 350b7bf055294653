// Reports R66a, R66b, R66g: nothing wrong in the arguments passes, and what is wrong is named.
#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <new>
#include <stdexcept>

#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "tests/support/run_process.h"
#include "tests/support/temp_dir.h"
#include "tools/common/cli.h"
#include "tools/common/run_tool.h"

using taper::test::ProcessOptions;
using taper::test::ProcessResult;
using taper::test::run_function;
using taper::test::run_process;
using taper::test::TempDir;

namespace {

struct Example {
  int64_t steps = 100;
  double lr = 0.5;
  std::string prompt;
  std::string size = "1M";
  std::vector<std::string> input;
  std::vector<int64_t> batch{1};
  bool special = false;
  taper::CommonOptions common;

  void parse(std::vector<const char*> arguments) {
    taper::Cli cli("example", "An example.");
    cli.option("--steps", steps, "updates").unit("steps").at_least(1);
    cli.option("--lr", lr, "learning rate").above(0).at_most(1);
    cli.option("--prompt", prompt, "text").may_be_empty();
    cli.choice("--size", size, {"1M", "3M"}, "of the model");
    cli.option("--input", input, "files");
    cli.option("--batch", batch, "sequences").at_least(1);
    cli.flag_pair("--special", "--no-special", special, "read markers");
    arguments.insert(arguments.begin(), "example");
    common = cli.parse(static_cast<int>(arguments.size()), arguments.data());
  }
};

// The message of the usage error, empty where there is none.
std::string refusal(const std::vector<const char*>& arguments) {
  try {
    Example().parse(arguments);
  } catch (const taper::UsageError& error) {
    return error.what();
  }
  return "";
}

std::string config_refusal(const std::string& text) {
  const TempDir folder;
  const std::string path = folder.write("c.json", text).string();
  const std::string message = refusal({"--config", path.c_str()});
  // What follows the folder, which differs from run to run.
  return message.substr(message.find("c.json"));
}

ProcessResult run(const std::function<int()>& body, const ProcessOptions& options = {}) {
  return run_function(
      [&] {
        char name[] = "path/to/example";
        char* argv[] = {name, nullptr};
        return taper::run_tool(1, argv, body);
      },
      options);
}

}  // namespace

TEST_CASE("cli: values reach their variables") {
  Example example;
  example.parse({"--steps", "7", "--lr=1e-3", "--input", "a", "b", "--input", "c", "--batch", "1,4,8", "--special",
                 "--size", "3M", "--prompt", "[a, b]", "--seed", "18446744073709551615", "--json"});
  CHECK(example.steps == 7);
  CHECK(example.lr == 1e-3);
  CHECK(example.input == std::vector<std::string>{"a", "b", "c"});
  CHECK(example.batch == std::vector<int64_t>{1, 4, 8});
  CHECK(example.special);
  CHECK(example.size == "3M");
  CHECK(example.prompt == "[a, b]");
  CHECK(example.common.seed == 18446744073709551615U);
  CHECK(example.common.json);
  CHECK_FALSE(example.common.quiet);
}

TEST_CASE("cli: texts may be empty or look like options where that makes sense") {
  Example example;
  example.parse({"--prompt=", "--steps", "5"});
  CHECK(example.prompt == "");
  CHECK(example.steps == 5);
  example.parse({"--prompt", "-5 degrees"});
  CHECK(example.prompt == "-5 degrees");
  example.parse({"--prompt=--steps"});
  CHECK(example.prompt == "--steps");
}

TEST_CASE("cli: unknown names are refused with the nearest known one") {
  CHECK(refusal({"--setps", "3"}) == "--setps: unknown option; did you mean --steps? (see --help)");
  CHECK(refusal({"--spec"}) == "--spec: unknown option; did you mean --special? (see --help)");
  CHECK(refusal({"--qiuet=1"}) == "--qiuet: unknown option; did you mean --quiet? (see --help)");
  CHECK(refusal({"stray"}) == "'stray': not expected here; see --help");
  CHECK(refusal({"--size", "2M"}) == "--size: unknown value; got '2M', want 1M or 3M (did you mean 1M?)");
}

TEST_CASE("cli: numbers are whole texts of the right type within their limits") {
  CHECK(refusal({"--lr", "1e-3x"}) == "--lr: not a number; got '1e-3x', want a number > 0 and <= 1");
  CHECK(refusal({"--steps", "12abc"}) == "--steps: not a whole number; got '12abc', want a whole number >= 1");
  for (const char* text : {"1.5", "1e3", " 1", "1 ", "0x10", "+-1", "one"}) CHECK(refusal({"--steps", text}) != "");
  for (const char* text : {"nan", "inf", "-inf", "1e999", "0", "1.01", "-0.1", ".", "1,5"}) {
    CHECK(refusal({"--lr", text}) != "");
  }
  CHECK(refusal({"--steps", "0"}) == "--steps: out of range; got '0', want a whole number >= 1");
  CHECK(refusal({"--steps", "9223372036854775808"}) ==
        "--steps: too large a number; got '9223372036854775808', want a whole number >= 1");
  CHECK(refusal({"--seed", "-1"}) != "");
  CHECK(refusal({"--threads", "0"}) != "");
  CHECK(refusal({"--batch", "1,,2"}) != "");
  CHECK(refusal({"--batch", "1,2,"}) != "");
}

TEST_CASE("cli: missing, empty, repeated and contradicting options are refused") {
  CHECK(refusal({"--steps"}) == "--steps: needs a value, want a whole number >= 1");
  CHECK(refusal({"--steps", "--lr", "1"}) == "--steps: needs a value; got the option --lr, want a whole number >= 1");
  CHECK(refusal({"--steps="}) == "--steps: the value is empty; want a whole number >= 1");
  CHECK(refusal({"--input", ""}) == "--input: the value is empty; want one or more values");
  CHECK(refusal({"--lr", "1", "--lr", "1"}) == "--lr: given 2 times, want once");
  CHECK(refusal({"--json", "--json"}) == "--json: given 2 times, want once");
  CHECK(refusal({"--json=1"}) == "--json: takes no value; got '1'");
  CHECK(refusal({"--special", "--no-special"}) == "--special and --no-special: only one of them can be given");
}

TEST_CASE("cli: required options are required, from flag or file") {
  std::filesystem::path data;
  taper::Cli cli("example", "An example.");
  cli.option("--data", data, "folder").required();
  const char* arguments[] = {"example"};
  CHECK_THROWS_WITH_AS(cli.parse(1, arguments), "--data: is required, want a path", taper::UsageError);
}

TEST_CASE("cli: commands take the rest of the line") {
  std::string input = "-";
  taper::Cli cli("example", "An example.");
  cli.command("encode", "Encodes.").option("--input", input, "file");
  cli.command("decode", "Decodes.");
  const char* arguments[] = {"example", "encode", "--input", "x", "--json"};
  CHECK(cli.parse(5, arguments).json);
  CHECK(cli.chosen_command() == "encode");
  CHECK(input == "x");
  const char* misspelt[] = {"example", "encoed"};
  CHECK_THROWS_WITH_AS(cli.parse(2, misspelt), "'encoed': unknown command; did you mean encode? (see --help)",
                       taper::UsageError);
}

TEST_CASE("cli: flags override the configuration file") {
  const TempDir folder;
  const std::string path =
      folder.write("c.json", R"({"steps": 7, "lr": 0.25, "input": ["a", "b"], "batch": [2, 3], "no_special": false})");
  Example example;
  example.parse({"--steps", "9", "--config", path.c_str()});
  CHECK(example.steps == 9);
  CHECK(example.lr == 0.25);
  CHECK(example.input == std::vector<std::string>{"a", "b"});
  CHECK(example.batch == std::vector<int64_t>{2, 3});
  CHECK(example.special);
}

TEST_CASE("cli: faults in the configuration file are placed by line and column") {
  CHECK(config_refusal("{\n  \"stesp\": 7}") == "c.json:2:3: unknown key 'stesp'; did you mean 'steps'?");
  CHECK(config_refusal("{\"lr\": 1,\n \"steps\": \"7\"}") ==
        "c.json:2:2: --steps: wrong type; got '7', want a whole number >= 1");
  CHECK(config_refusal("{\"steps\": 0}") == "c.json:1:2: --steps: out of range; got '0', want a whole number >= 1");
  CHECK(config_refusal("{\"steps\": 1,\n\n\"steps\": 2}") == "c.json:3:1: 'steps' is given twice");
  for (const char* text :
       {"", "[]", "7", "{", "{\"steps\": 1,}", "{\"steps\": {}}", "{\"steps\": null}", "{\"steps\": []}",
        "{\"json\": \"true\"}", "{\"prompt\": 3}", "{\"config\": \"c\"}", "{\"st\xff\": 1}", "{\"input\": [\"a\", 1]}",
        "{\"input\": [[\"a\"]]}", "{} x", "{\"steps\": 1.5}"}) {
    CAPTURE(text);
    CHECK(config_refusal(text).rfind("c.json:1:", 0) == 0);
  }
  CHECK(refusal({"--config", "/nowhere/c.json"}) == "--config: /nowhere/c.json cannot be read");
  CHECK(refusal({"--config", "/"}) == "--config: / cannot be read");
  CHECK(config_refusal(std::string(2'000'000, ' ')).find("too large; got more than 1048576 bytes") !=
        std::string::npos);
}

TEST_CASE("cli: help names defaults and units on stdout and leaves with 0") {
  for (const char* flag : {"--help", "--version"}) {
    const ProcessResult result = run([&] {
      Example().parse({flag});
      return 1;
    });
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
    if (flag == std::string("--help")) CHECK(result.out.find("[default 100 steps; >= 1]") != std::string::npos);
    if (flag == std::string("--version")) CHECK(result.out == "example 0.1.0\n");
  }
}

TEST_CASE("cli: every failure is one line and an exit code") {
  const auto code_and_text = [](const std::function<int()>& body) {
    const ProcessResult result = run(body);
    CHECK(result.out == "");
    return std::to_string(result.exit_code) + " " + result.err;
  };
  CHECK(code_and_text([]() -> int { taper::fail("a: b"); }) == "1 example: a: b\n");
  CHECK(code_and_text([]() -> int { taper::fail("example: b"); }) == "1 example: b\n");
  CHECK(code_and_text([]() -> int { taper::fail_usage("a: b"); }) == "2 example: a: b\n");
  CHECK(code_and_text([]() -> int { throw std::runtime_error("c"); }) == "1 example: c\n");
  CHECK(code_and_text([]() -> int { throw std::bad_alloc(); }).rfind("1 example: out of memory", 0) == 0);
  CHECK(code_and_text([]() -> int {
          throw std::filesystem::filesystem_error("status", "a/b", std::make_error_code(std::errc::permission_denied));
        }) == "1 example: a/b: Permission denied\n");
  CHECK(code_and_text([] { return 0; }) == "0 ");
  CHECK(code_and_text([]() -> int { taper::fail("a\nb\x1B[1m"); }) == "1 example: a\\x0Ab\\x1B[1m\n");
  const std::string cut = code_and_text([]() -> int { taper::fail("{}", std::string(100000, 'a')); });
  CHECK(cut.size() < 2100);
  CHECK(cut.substr(cut.size() - 5) == "a...\n");
}

TEST_CASE("cli: settings of the environment are looked at before any work") {
  const auto refusal_with = [](const char* name, const char* value) {
    ProcessOptions options;
    options.environment = {{name, value}};
    return run(
               [] {
                 Example().parse({});
                 return 0;
               },
               options)
        .err;
  };
  for (const char* value : {"x", "0", "-1", "3x", "1025", "99999999999999999999"}) {
    CAPTURE(value);
    CHECK(refusal_with("TAPER_THREADS", value) ==
          fmt::format("example: TAPER_THREADS: got '{}', want a whole number from 1 to 1024\n", value));
  }
  CHECK(refusal_with("TAPER_THREADS", "1024") == "");
  CHECK(refusal_with("TAPER_THREADS", "") == "");
  CHECK(refusal({"--threads", "1025"}).find("<= 1024") != std::string::npos);
}

TEST_CASE("cli: settings are written as JSON even where a text is not UTF-8") {
  std::string prompt;
  taper::Cli cli("example", "An example.");
  cli.option("--prompt", prompt, "text");
  const char* arguments[] = {"example", "--prompt", "caf\xE9"};
  cli.parse(3, arguments);
  CHECK(cli.settings_json().find("\"prompt\": \"caf\xEF\xBF\xBD\"") != std::string::npos);
}

TEST_CASE("cli: results that cannot be written are a failure") {
  const auto write = [] {
    taper::write_result("result\n");
    return 0;
  };
  CHECK(run(write).out == "result\n");
  const ProcessResult full = run([&] {
    std::freopen("/dev/full", "w", stdout);
    return write();
  });
  CHECK(full.exit_code == 1);
  CHECK(full.err == "example: stdout: cannot be written: No space left on device\n");
  const ProcessResult closed = run_function([&] {
    close(STDOUT_FILENO);
    char name[] = "example";
    char* argv[] = {name, nullptr};
    return taper::run_tool(1, argv, write);
  });
  CHECK(closed.exit_code == 1);
  CHECK(closed.err == "example: stdout: cannot be written: Bad file descriptor\n");
}

// No test, but the program of the next one.
TEST_CASE("cli program: stopped twice" * doctest::skip()) {
  char name[] = "example";
  char* argv[] = {name, nullptr};
  std::exit(taper::run_tool(1, argv, [] {
    std::raise(SIGINT);
    // The thread sanitizer hands signals over when the program next waits, two of a kind as one.
    while (!taper::stop_requested()) usleep(1000);
    std::raise(SIGINT);
    for (int i = 0; i < 2000; ++i) usleep(1000);
    taper::print_message("too late");
    return 0;
  }));
}

TEST_CASE("cli: the first signal asks for a stop, the second leaves at once") {
  ProcessOptions options;
  options.signal_after = "ready";
  for (const int signal : {SIGINT, SIGTERM}) {
    options.signal = signal;
    const ProcessResult stopped = run(
        [] {
          taper::print_message("ready");
          while (!taper::stop_requested()) usleep(1000);
          taper::print_message("saved");
          return 0;
        },
        options);
    CHECK(stopped.exit_code == 130);
    CHECK(stopped.err == "ready\nsaved\n");
  }
  // As a program of its own: the thread sanitizer hands no second signal to a child that was only forked.
  const ProcessResult left = run_process("/proc/self/exe", {"--no-skip", "--test-case=cli program: stopped twice"});
  CHECK(left.exit_code == 130);
  CHECK(left.err == "");
}
