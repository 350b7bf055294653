// Arguments with zero bytes between; what follows --config is the content of the file it names.
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tools/common/cli.h"
#include "tools/common/messages.h"

using namespace taper;

namespace {

struct Values {
  std::string text = "default";
  std::filesystem::path path;
  int64_t whole = 7;
  uint64_t natural = 7;
  double real = 0.5;
  std::vector<std::string> texts;
  std::vector<int64_t> wholes;
  std::string choice = "one";
  bool flag = false, pair = false;
  std::vector<std::string> rest;
};

void parse(const std::vector<const char*>& arguments) {
  Values v;
  Cli cli("program", "Does nothing.");
  cli.option("--text", v.text, "a text").value_name("TEXT");
  cli.option("--path", v.path, "a path").value_name("FILE");
  cli.option("--whole", v.whole, "a number").unit("steps").range(-5, 1000);
  cli.option("--natural", v.natural, "a number");
  const CliOption& real = cli.option("--real", v.real, "a number").above(0).below(1);
  cli.option("--texts", v.texts, "several texts");
  cli.option("--wholes", v.wholes, "several numbers").at_least(1).at_most(1 << 20);
  cli.choice("--choice", v.choice, {"one", "two"}, "one of two");
  const CliOption& flag = cli.flag("--flag", v.flag, "a flag");
  cli.flag_pair("--yes", "--no", v.pair, "one or the other");
  cli.positional("REST", v.rest, "whatever else");
  cli.exclusive({&real, &flag});
  cli.parse(static_cast<int>(arguments.size()), arguments.data());
  fuzz::expect(v.whole >= -5 && v.whole <= 1000 && v.real > 0 && v.real < 1, "values are in range");
  fuzz::expect(v.choice == "one" || v.choice == "two", "a choice is one of its words");
  cli.settings_json();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest = fuzz::as_text(data, size);
  std::vector<std::string> words{"program"};
  while (!rest.empty() && words.size() < 64) {
    words.emplace_back(fuzz::cut_at_zero(rest));
    if (words.back() != "--config") continue;
    // The next word is the file's content.
    words.push_back(fuzz::write_input("config.json", fuzz::cut_at_zero(rest)).string());
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) {
    // Only the files made here are read.
    if (word.starts_with("--config=")) return 0;
    arguments.push_back(word.c_str());
  }
  try {
    fuzz::takes_or_refuses([&] { parse(arguments); });
  } catch (const Exit&) {
  }
  return 0;
}
