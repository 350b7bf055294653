// Prepares a corpus for training: text, JSON lines, .zst of either, folders of these or token files become the token
// shards of a folder, with the tokenizer beside them.
#include "data/prepare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "tools/common/cli.h"
#include "tools/common/open_tokenizer.h"
#include "tools/common/run_tool.h"

namespace {

using Clock = std::chrono::steady_clock;

// A line on stderr every few seconds.
std::function<void(uint64_t, uint64_t, uint64_t)> progress_lines() {
  return [start = Clock::now(), last = Clock::now()](uint64_t read, uint64_t total, uint64_t tokens) mutable {
    const auto now = Clock::now();
    if (now - last < std::chrono::seconds(3)) return;
    last = now;
    const double seconds = std::chrono::duration<double>(now - start).count();
    const double megabytes = static_cast<double>(read) / 1e6;
    const bool has_total = total >= read && total > 0;
    taper::print_message(fmt::format(
        "read {:.0f}{} MB, {} tokens, {:.1f} MB/s{}", megabytes,
        has_total ? fmt::format(" of {:.0f}", static_cast<double>(total) / 1e6) : "", tokens, megabytes / seconds,
        has_total ? fmt::format(", {:.0f} s left", (static_cast<double>(total) / 1e6 - megabytes) * seconds / megabytes)
                  : ""));
  };
}

void print_result(const taper::PreparedManifest& made, const std::string& output, bool is_json) {
  if (is_json) {
    const nlohmann::json json = {{"output", output},
                                 {"tokens", made.train.tokens + made.valid.tokens},
                                 {"train_tokens", made.train.tokens},
                                 {"valid_tokens", made.valid.tokens},
                                 {"train_documents", made.train.documents},
                                 {"valid_documents", made.valid.documents},
                                 {"text_bytes", made.text_bytes},
                                 {"vocabulary_size", made.info.vocabulary_size},
                                 {"split", made.split}};
    taper::write_result(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
    return;
  }
  taper::write_result(fmt::format(
      "training    {:>13} tokens in {} documents\n"
      "validation  {:>13} tokens in {} documents\n"
      "{}\nwritten to {}\n",
      made.train.tokens, made.train.documents, made.valid.tokens, made.valid.documents, made.split, output));
}

}  // namespace

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] {
    std::string tokenizer_path;
    double valid_fraction = taper::kDefaultValidFraction;
    taper::PrepareOptions options;
    taper::Cli cli("prepare", "Turns a corpus into token shards for training.");
    cli.option("--tokenizer", tokenizer_path, "folder of the tokenizer, a model or a run").required().value_name("DIR");
    cli.option("--input", options.input,
               "text, .jsonl, .zst of either, token files (.bin), or folders of these; - is stdin")
        .required()
        .value_name("FILE");
    auto& valid = cli.option("--valid", options.valid, "validation from these files").value_name("FILE");
    auto& fraction = cli.option("--valid-fraction", valid_fraction, "share of the documents kept for validation")
                         .at_least(0)
                         .below(1)
                         .default_text(fmt::format("{}, of corpora of {} tokens or more", taper::kDefaultValidFraction,
                                                   taper::kMinTokensForDefaultSplit));
    cli.exclusive({&valid, &fraction});
    cli.option("--field", options.json_field, "field of a JSON record that holds the text").value_name("NAME");
    cli.flag_pair("--special", "--no-special", options.reads_markers,
                  "whether <|endoftext|> in the text ends a document, or is text");
    cli.option("--output", options.output, "folder to make; absent or empty").required().value_name("DIR");
    cli.footer("A byte-order mark at the start of a file is dropped; line ends and white space are kept as they are.");
    const taper::CommonOptions common = cli.parse(argc, argv);

    options.seed = common.seed;
    if (fraction.is_given()) options.valid_fraction = valid_fraction;
    options.on_progress = progress_lines();
    const taper::Tokenizer tokenizer = taper::open_tokenizer(tokenizer_path);
    const auto made = taper::prepare(tokenizer, options);
    if (!made) {
      taper::print_message("prepare: stopped; nothing was written");
      return 0;
    }
    print_result(*made, options.output, common.json);
    return 0;
  });
}
