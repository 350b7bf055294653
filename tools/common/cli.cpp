#include "tools/common/cli.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "engine/core/cpu_features.h"
#include "engine/core/cuda_runtime.h"
#include "engine/core/error.h"
#include "engine/core/nearest.h"
#include "engine/core/profile.h"
#include "engine/core/thread_setting.h"
#include "tools/common/config_file.h"
#include "tools/common/messages.h"
#include "tools/common/option_state.h"

namespace taper {
namespace {

constexpr const char* kVersion = "0.1.0";

std::string join(const std::vector<std::string>& words, const std::string& separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

// "--batch_tokens" is as close to "--batch-tokens" as can be, and dashes in front say nothing.
std::string bare_name(const std::string& name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

}  // namespace

struct Cli::Impl {
  using State = OptionState;

  Impl(const std::string& program, const std::string& purpose) : name(program), app(purpose, program) {
    // Reported here, with the nearest known name.
    app.allow_extras();
    app.set_help_flag();
    app.get_formatter()->column_width(34);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all{"--help", "--version"};
    for (const auto& option : options) {
      if (!option->state_->parsed->get_positional()) all.push_back(option->name());
    }
    return all;
  }

  CliOption* find(const std::string& option_name) const {
    for (const auto& option : options) {
      if (option->name() == option_name) return option.get();
    }
    return nullptr;
  }

  // A value that looks like an option of this program was most likely forgotten; "--name=--other" says it was not.
  void refuse_missing_value(const std::string& argument, const std::string& next) const {
    const CliOption* option = find(argument);
    if (option == nullptr || option->state_->kind == State::Kind::kFlag) return;
    const bool is_missing = next.rfind("--", 0) == 0 && find(next) != nullptr;
    require_usage(!is_missing, "{}: needs a value; got the option {}, want {}", argument, next,
                  option->state_->want_text());
  }

  // "--name=value" as two arguments, so that an empty value stays one.
  std::vector<std::string> split_arguments(int argc, const char* const* argv) const {
    std::vector<std::string> arguments;
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      refuse_missing_value(argument, i + 1 < argc ? argv[i + 1] : "");
      const size_t equals = argument.find('=');
      const CliOption* option = equals == std::string::npos ? nullptr : find(argument.substr(0, equals));
      if (option == nullptr) {
        arguments.push_back(argument);
        continue;
      }
      require_usage(option->state_->kind != State::Kind::kFlag, "{}: takes no value; got '{}'", option->name(),
                    argument.substr(equals + 1));
      arguments.push_back(argument.substr(0, equals));
      arguments.push_back(argument.substr(equals + 1));
    }
    std::reverse(arguments.begin(), arguments.end());
    return arguments;
  }

  void parse_arguments(int argc, const char* const* argv) {
    for (const auto& option : options) option->state_->parsed->description(option->state_->description());
    try {
      app.parse(split_arguments(argc, argv));
    } catch (const CLI::CallForHelp&) {
      write_result(app.help());
      throw Exit{0};
    } catch (const CLI::CallForVersion&) {
      write_result(fmt::format("{} {}\n", name, kVersion));
      throw Exit{0};
    } catch (const CLI::ArgumentMismatch&) {
      // The library stops at an option that ends the line: the last argument.
      const std::string last = argc > 0 ? argv[argc - 1] : "";
      const CliOption* option = find(last);
      fail_usage("{}: needs a value{}{}", last, option == nullptr ? "" : ", want ",
                 option == nullptr ? "" : option->state_->want_text());
    } catch (const CLI::ParseError& error) {
      fail_usage("{}", error.what());
    }
    refuse_unknown(app.remaining());
  }

  std::string nearest_option(const std::string& written) const {
    std::vector<std::string> known;
    for (const std::string& each : names()) known.push_back(bare_name(each));
    return nearest_name(bare_name(written), known);
  }

  void refuse_unknown(const std::vector<std::string>& unknown) const {
    if (unknown.empty()) return;
    const auto option = std::find_if(unknown.begin(), unknown.end(),
                                     [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
    if (option == unknown.end()) fail_usage("'{}': not expected here; see --help", unknown.front());
    const std::string written = option->substr(0, option->find('='));
    fail_usage("{}: unknown option; did you mean --{}? (see --help)", written, nearest_option(written));
  }

  CommonOptions parse_command(int argc, const char* const* argv) {
    std::vector<std::string> known;
    for (const auto& [command_name, command] : commands) known.push_back(command_name);
    require_usage(argc > 1, "a command is needed: {} (see --help)", join(known, " or "));
    const std::string word = argv[1];
    for (const auto& [command_name, command] : commands) {
      if (word != command_name) continue;
      chosen_command = word;
      return command->parse(argc - 1, argv + 1);
    }
    declare_help();
    if (word == "--help" || word == "--version") parse_arguments(2, argv);
    fail_usage("'{}': unknown command; did you mean {}? (see --help)", word, nearest_name(word, known));
  }

  void take_flags() {
    for (const auto& option : options) {
      State& state = *option->state_;
      const std::vector<std::string>& values = state.parsed->results();
      if (values.empty()) continue;
      require_usage(state.is_list || values.size() == 1, "{}: given {} times, want once", state.name, values.size());
      state.take(values);
    }
  }

  void take_config(const std::filesystem::path& path) {
    for (const ConfigEntry& entry : read_config_file(path)) {
      if (entry.key == kVersionKey) continue;
      require_usage(entry.key != "config", "{}: a file of settings names no other; want --config on the command line",
                    entry.place);
      CliOption* option = find("--" + entry.key);
      if (option == nullptr) {
        fail_usage("{}: unknown key '{}'; did you mean '{}'?", entry.place, entry.key, nearest_option(entry.key));
      }
      if (option->is_given()) continue;
      try {
        take_entry(*option->state_, entry);
      } catch (const UsageError& error) {
        fail_usage("{}: {}", entry.place, error.what());
      }
    }
  }

  static void take_entry(State& state, const ConfigEntry& entry) {
    using Kind = ConfigEntry::Kind;
    if (entry.is_list && !state.is_list && !state.takes_commas)
      fail_usage("{}: not a list; want {}", state.name, state.want);
    if (entry.values.empty()) fail_usage("{}: the list is empty; want {}", state.name, state.want);
    const Kind want = state.kind == State::Kind::kFlag     ? Kind::kBool
                      : state.kind == State::Kind::kNumber ? Kind::kNumber
                                                           : Kind::kString;
    if (entry.kind != want) state.refuse("wrong type", join(entry.values, ","));
    state.take(state.takes_commas ? std::vector<std::string>{join(entry.values, ",")} : entry.values);
  }

  void check_presence() const {
    for (const auto& option : options) {
      const State& state = *option->state_;
      require_usage(!state.is_required || state.is_given, "{}: is required, want {}", state.name, state.want);
    }
    for (const auto& group : exclusive_groups) {
      std::vector<std::string> given;
      for (const CliOption* option : group) {
        if (option->is_given()) given.push_back(option->name());
      }
      require_usage(given.size() < 2, "{}: only one of them can be given", join(given, " and "));
    }
  }

  std::string name;
  CLI::App app;
  std::vector<std::unique_ptr<CliOption>> options;
  std::vector<std::vector<const CliOption*>> exclusive_groups;
  std::vector<std::pair<std::string, std::unique_ptr<Cli>>> commands;
  std::string chosen_command;
  std::string group = "Options";

  CommonOptions common;
  std::vector<std::string> precisions{"f32", "bf16"};
  bool can_use_cuda = false;
  std::filesystem::path config;

  CliOption& declare(const std::string& option_name, const std::string& help, State::Kind kind, const char* value_name,
                     std::string want, std::string default_text) {
    auto state = std::make_unique<OptionState>();
    state->name = option_name;
    state->help = help;
    state->kind = kind;
    state->want = std::move(want);
    state->default_text = std::move(default_text);
    const CLI::callback_t accept = [](const CLI::results_t&) { return true; };
    if (kind == State::Kind::kFlag) {
      state->parsed = app.add_flag(option_name);
    } else {
      state->parsed = app.add_option(option_name, accept, help)->type_name(value_name)->expected(1);
    }
    state->parsed->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->group(group);
    options.push_back(std::unique_ptr<CliOption>(new CliOption(std::move(state))));
    return *options.back();
  }

  template <class Number>
  CliOption& declare_number(const std::string& option_name, Number& value, const std::string& help) {
    const bool is_whole = std::is_integral_v<Number>;
    CliOption& option = declare(option_name, help, State::Kind::kNumber, is_whole ? "N" : "X",
                                is_whole ? "a whole number" : "a number", fmt::format("{}", value));
    if (std::is_unsigned_v<Number>) option.state_->low = 0;
    option.state_->current = [&value] { return fmt::format("{}", value); };
    option.state_->assign = [&value, state = option.state_.get()](const std::vector<std::string>& texts) {
      value = state->number<Number>(texts[0]);
    };
    return option;
  }

  void declare_help() {
    group = "Common options";
    app.set_help_flag("--help", "show this and leave")->group(group);
    app.set_version_flag("--version", kVersion, "show the version and leave")->group(group);
  }

  void declare_common() {
    declare_help();
    owner->option("--config", config, "JSON file of option names and values; flags override it").value_name("FILE");
    owner->option("--seed", common.seed, "of every random choice");
    owner->option("--threads", common.threads, "threads of the processor")
        .default_text("all there are")
        .range(1, kMaxThreads);
    owner->choice("--device", common.device, {"auto", "cpu", "cuda"}, "where to compute");
    owner->choice("--precision", common.precision, precisions, "of weights and activations");
    owner->flag("--quiet", common.quiet, "no messages, results only");
    owner->flag("--json", common.json, "results as JSON");
    owner->flag("--profile", common.profile, "report where the time goes");
  }

  Cli* owner = nullptr;
};

Cli::Cli(const std::string& name, const std::string& purpose) : impl_(std::make_unique<Impl>(name, purpose)) {
  impl_->owner = this;
}
Cli::~Cli() = default;

CliOption& Cli::option(const std::string& name, std::string& value, const std::string& help) {
  CliOption& option = impl_->declare(name, help, OptionState::Kind::kText, "TEXT", "a text", value);
  option.state_->current = [&value] { return value; };
  option.state_->assign = [&value](const std::vector<std::string>& texts) { value = texts[0]; };
  return option;
}
CliOption& Cli::option(const std::string& name, std::filesystem::path& value, const std::string& help) {
  CliOption& option = impl_->declare(name, help, OptionState::Kind::kText, "PATH", "a path", value.string());
  option.state_->current = [&value] { return value.string(); };
  option.state_->assign = [&value](const std::vector<std::string>& texts) { value = texts[0]; };
  return option;
}
CliOption& Cli::option(const std::string& name, int& value, const std::string& help) {
  return impl_->declare_number(name, value, help);
}
CliOption& Cli::option(const std::string& name, int64_t& value, const std::string& help) {
  return impl_->declare_number(name, value, help);
}
CliOption& Cli::option(const std::string& name, uint64_t& value, const std::string& help) {
  return impl_->declare_number(name, value, help);
}
CliOption& Cli::option(const std::string& name, double& value, const std::string& help) {
  return impl_->declare_number(name, value, help);
}
CliOption& Cli::option(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  CliOption& option =
      impl_->declare(name, help, OptionState::Kind::kText, "PATH", "one or more values", join(values, " "));
  option.state_->is_list = true;
  option.state_->parsed->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args();
  option.state_->assign = [&values](const std::vector<std::string>& texts) { values = texts; };
  return option;
}
CliOption& Cli::option(const std::string& name, std::vector<int64_t>& values, const std::string& help) {
  CliOption& option =
      impl_->declare(name, help, OptionState::Kind::kNumber, "N,N", "whole numbers with commas between them",
                     fmt::format("{}", fmt::join(values, ",")));
  OptionState* state = option.state_.get();
  state->takes_commas = true;
  state->assign = [&values, state](const std::vector<std::string>& texts) {
    std::vector<int64_t> numbers;
    size_t begin = 0;
    for (size_t end = 0; end != std::string::npos; begin = end + 1) {
      end = texts[0].find(',', begin);
      numbers.push_back(state->number<int64_t>(std::string_view(texts[0]).substr(begin, end - begin)));
    }
    values = numbers;
  };
  return option;
}

CliOption& Cli::choice(const std::string& name, std::string& value, std::vector<std::string> choices,
                       const std::string& help) {
  CliOption& option =
      impl_->declare(name, help, OptionState::Kind::kText, join(choices, "/").c_str(), join(choices, " or "), value);
  option.state_->current = [&value] { return value; };
  option.state_->assign = [&value, choices = std::move(choices), name](const std::vector<std::string>& texts) {
    const bool is_known = std::find(choices.begin(), choices.end(), texts[0]) != choices.end();
    require_usage(is_known, "{}: unknown value; got '{}', want {} (did you mean {}?)", name, texts[0],
                  join(choices, " or "), nearest_name(texts[0], choices));
    value = texts[0];
  };
  return option;
}

CliOption& Cli::flag(const std::string& name, bool& value, const std::string& help) {
  CliOption& option = impl_->declare(name, help, OptionState::Kind::kFlag, "", "true or false", "");
  option.state_->current = [&value] { return value ? "true" : ""; };
  option.state_->assign = [&value](const std::vector<std::string>& texts) { value = texts[0] == "true"; };
  return option;
}

void Cli::flag_pair(const std::string& yes, const std::string& no, bool& value, const std::string& help) {
  const std::string by_default = value ? yes : no;
  CliOption& set = flag(yes, value, fmt::format("{} [default {}]", help, by_default));
  CliOption& clear = flag(no, value, "the contrary of " + yes);
  clear.state_->assign = [&value](const std::vector<std::string>& texts) { value = texts[0] != "true"; };
  exclusive({&set, &clear});
}

CliOption& Cli::positional(const std::string& name, std::string& value, const std::string& help) {
  return option(name, value, help).value_name("");
}
CliOption& Cli::positional(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  return option(name, values, help).value_name("");
}

void Cli::exclusive(std::vector<const CliOption*> options) { impl_->exclusive_groups.push_back(std::move(options)); }
void Cli::allow_int8() { impl_->precisions.push_back("int8"); }
void Cli::allow_cuda() { impl_->can_use_cuda = true; }
void Cli::footer(std::string text) { impl_->app.footer(std::move(text)); }

Cli& Cli::command(const std::string& name, const std::string& purpose) {
  impl_->app.add_subcommand(name, purpose);
  impl_->commands.emplace_back(name, std::make_unique<Cli>(impl_->name + " " + name, purpose));
  return *impl_->commands.back().second;
}

std::string Cli::settings_json(const std::vector<std::string>& without) const {
  nlohmann::ordered_json json;
  json[kVersionKey] = kVersion;
  for (const auto& option : impl_->options) {
    const OptionState& state = *option->state_;
    const std::string text = state.current ? state.current() : "";
    const bool is_left_out = std::find(without.begin(), without.end(), state.name) != without.end();
    const bool is_worked_out_later = !state.is_given && state.default_text != text;
    if (is_left_out || is_worked_out_later || text.empty() || state.name == "--config") continue;
    json[bare_name(state.name)] =
        state.kind == OptionState::Kind::kText ? nlohmann::ordered_json(text) : nlohmann::ordered_json::parse(text);
  }
  // A text that is not UTF-8 has no place in JSON.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

const std::string& Cli::chosen_command() const { return impl_->chosen_command; }

CommonOptions Cli::parse(int argc, const char* const* argv) {
  if (!impl_->commands.empty()) return impl_->parse_command(argc, argv);
  impl_->declare_common();
  impl_->parse_arguments(argc, argv);
  impl_->take_flags();
  if (!impl_->config.empty()) impl_->take_config(impl_->config);
  impl_->check_presence();
  const CommonOptions& common = impl_->common;
  if (common.device == "cuda") {
    require_usage(is_built_with_cuda(), "--device: this build has no CUDA; got cuda, want cpu or auto");
    require_usage(impl_->can_use_cuda, "--device: cuda is not available for {} yet; want cpu or auto", impl_->name);
  }
  if (common.threads > 0) setenv("TAPER_THREADS", std::to_string(common.threads).c_str(), 1);
  // Settings of the environment are options too: looked at before any work.
  threads_asked_for();
  cpu_isa();
  silence_messages(common.quiet);
  if (common.profile) start_profile();
  return common;
}

}  // namespace taper
