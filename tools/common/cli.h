// The command line all programs share: typed options with defaults and units, and a configuration file the flags
// override.
//
//   int main(int argc, char** argv) {
//     return taper::run_tool(argc, argv, [&] {
//       int64_t steps = 1000;
//       taper::Cli cli("pretrain", "Trains a transformer from scratch.");
//       cli.option("--steps", steps, "updates of the weights").unit("steps").at_least(1);
//       const taper::CommonOptions common = cli.parse(argc, argv);
//       ...
//       return 0;
//     });
//   }
//
// Everything wrong with the arguments throws UsageError before any work: unknown options (with the nearest known one),
// repeated ones, text after a number, values of the wrong type or out of range, empty values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace taper {

struct OptionState;

// In a file of settings: which version wrote it; no option.
inline constexpr const char* kVersionKey = "written-by-version";

struct CommonOptions {
  uint64_t seed = 42;
  int threads = 0;                // 0: the engine's default
  std::string device = "auto";    // auto, cpu or cuda
  std::string precision = "f32";  // f32 or bf16; int8 where the program reads weights only
  bool quiet = false;
  bool json = false;
  bool profile = false;
};

// One option as declared; the setters refine it and may be chained.
class CliOption {
 public:
  CliOption& required();
  CliOption& unit(std::string unit);              // shown by --help beside the default
  CliOption& value_name(std::string value_name);  // what --help calls the value: DIR, FILE, N
  CliOption& default_text(std::string text);      // where the default is worked out later
  CliOption& may_be_empty();
  CliOption& may_be_infinite_or_nan();
  CliOption& at_least(double low);
  CliOption& above(double low);
  CliOption& at_most(double high);
  CliOption& below(double high);
  CliOption& range(double low, double high) { return at_least(low).at_most(high); }

  ~CliOption();

  // After parse(): by flag or by the configuration file.
  bool is_given() const;
  const std::string& name() const;

 private:
  friend class Cli;
  explicit CliOption(std::unique_ptr<OptionState> state);
  std::unique_ptr<OptionState> state_;
};

class Cli {
 public:
  Cli(const std::string& name, const std::string& purpose);
  ~Cli();
  Cli(const Cli&) = delete;
  Cli& operator=(const Cli&) = delete;

  // The variable holds the default and receives the value; it must outlive parse().
  CliOption& option(const std::string& name, std::string& value, const std::string& help);
  CliOption& option(const std::string& name, std::filesystem::path& value, const std::string& help);
  CliOption& option(const std::string& name, int& value, const std::string& help);
  CliOption& option(const std::string& name, int64_t& value, const std::string& help);
  CliOption& option(const std::string& name, uint64_t& value, const std::string& help);
  CliOption& option(const std::string& name, double& value, const std::string& help);
  // Several values, one after the other, in any number: --input A B --input C.
  CliOption& option(const std::string& name, std::vector<std::string>& values, const std::string& help);
  // Whole numbers with commas between them: --batch 1,4.
  CliOption& option(const std::string& name, std::vector<int64_t>& values, const std::string& help);
  // One of these words.
  CliOption& choice(const std::string& name, std::string& value, std::vector<std::string> choices,
                    const std::string& help);
  CliOption& flag(const std::string& name, bool& value, const std::string& help);
  // Two flags that set the value and clear it: --special, --no-special.
  void flag_pair(const std::string& yes, const std::string& no, bool& value, const std::string& help);
  // Arguments without an option's name; at most one such declaration.
  CliOption& positional(const std::string& name, std::string& value, const std::string& help);
  CliOption& positional(const std::string& name, std::vector<std::string>& values, const std::string& help);

  // At most one of these may be given.
  void exclusive(std::vector<const CliOption*> options);
  // This program only reads weights, and can round them to 8 bits.
  void allow_int8();
  // This program can compute on a GPU; to others --device cuda is an error.
  void allow_cuda();
  // Lines shown at the end of --help.
  void footer(std::string text);

  // A program of several commands ("tokenizer encode"): declare each; parse() on the outer one hands the arguments
  // over.
  Cli& command(const std::string& name, const std::string& purpose);
  // After parse(): the command chosen, empty for a program without.
  const std::string& chosen_command() const;

  // After parse(): what the options are set to, with the program's version, as a file for --config that repeats the
  // call. Left out are those named, options without a value, and defaults that are worked out later.
  std::string settings_json(const std::vector<std::string>& without = {}) const;

  // UsageError, besides, for a device that the program or this build does not know. Prints and leaves for --help and
  // --version. --threads is passed on as TAPER_THREADS, so parse before the first parallel work.
  CommonOptions parse(int argc, const char* const* argv);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace taper
