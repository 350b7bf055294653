// Trains a byte-level BPE tokenizer, and turns text into ids and back.
//
//   tokenizer train --input stories.txt --vocab-size 10000 --output tokenizer
//   tokenizer encode --tokenizer tokenizer < story.txt > ids.json
//   tokenizer decode --tokenizer tokenizer < ids.json

#include "data/tokenizer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "data/bpe/bpe_trainer.h"
#include "data/byte_stream.h"
#include "data/corpus.h"
#include "data/token_files.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/io/json_text.h"
#include "engine/io/staged_output.h"
#include "tools/common/cli.h"
#include "tools/common/open_tokenizer.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

struct TrainOptions {
  std::vector<std::string> inputs;
  std::filesystem::path output;
  std::string field = "text";
  std::int64_t vocabulary_size = 10'000;
  std::int64_t min_count = 1;
  std::int64_t max_bytes = 0;

  explicit TrainOptions(Cli& cli) {
    cli.option("--input", inputs, "text, .jsonl, .zst of either, or folders of them; <|endoftext|> ends a document")
        .value_name("FILE")
        .required();
    cli.option("--output", output,
               "where vocab.json, merges.txt, tokenizer.json and tokenizer_config.json go; absent or empty")
        .value_name("DIR")
        .required();
    cli.option("--vocab-size", vocabulary_size, "most tokens to have: <|endoftext|>, the 256 bytes and the merges")
        .unit("tokens")
        .range(kMinTrainedVocabulary, kMaxVocabulary);
    cli.option("--min-count", min_count, "a pair seen less often never merges").unit("times").at_least(1);
    cli.option("--max-bytes", max_bytes, "learn from about the first so many bytes of text; 0: from all of it")
        .unit("bytes")
        .at_least(0);
    cli.option("--field", field, "where the text is in a line of .jsonl").value_name("NAME");
  }
};

struct CodeOptions {
  std::filesystem::path tokenizer;
  std::string input = "-";

  CodeOptions(Cli& cli, const std::string& what) {
    cli.option("--tokenizer", tokenizer, "folder with tokenizer.json, or vocab.json and merges.txt")
        .value_name("DIR")
        .required();
    cli.option("--input", input, what + "; - is standard input").value_name("FILE");
  }
};

// Says at most every other second how far a long work is.
class Progress {
 public:
  template <class Text>
  void at(Text text) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::seconds(2)) return;
    last_ = now;
    print_message(text());
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Thrown out of reading: enough text was read.
struct EnoughText {};

std::int64_t count_words(const TrainOptions& options, BpeTrainer& trainer) {
  Progress progress;
  CorpusOptions corpus;
  corpus.json_field = options.field;
  corpus.on_progress = [&](std::uint64_t read, std::uint64_t total) {
    progress.at([&] { return fmt::format("counting words: {:.1f} of {:.1f} MB read", read / 1e6, total / 1e6); });
    throw_if_stop_requested();
  };
  std::int64_t bytes = 0;
  try {
    read_corpus(options.inputs, corpus, [&](std::string_view text, bool) {
      trainer.add_text(text);
      bytes += static_cast<std::int64_t>(text.size());
      if (options.max_bytes > 0 && bytes >= options.max_bytes) throw EnoughText();
    });
  } catch (const EnoughText&) {
  }
  return bytes;
}

void train(const TrainOptions& options, const CommonOptions& common) {
  for (const std::string& file : expand_inputs(options.inputs)) {
    require_usage(!is_token_file(file), "--input: {} holds tokens, not text; want the texts they were made of", file);
  }
  StagedOutput output(options.output);
  BpeTrainer trainer;
  const std::int64_t bytes = count_words(options, trainer);
  print_message(
      fmt::format("{} words, {} distinct, in {} bytes of text", trainer.words(), trainer.distinct_words(), bytes));
  Progress progress;
  Vocabulary vocabulary = trainer.train(options.vocabulary_size, options.min_count, [&](std::int64_t tokens) {
    progress.at([&] { return fmt::format("merging: {} of {} tokens", tokens, options.vocabulary_size); });
    throw_if_stop_requested();
  });
  const Tokenizer tokenizer(std::move(vocabulary));
  tokenizer.save(output.path());
  output.commit();
  if (tokenizer.vocab_size() < options.vocabulary_size) {
    print_message(fmt::format("warning: the text has too few pairs that repeat; got {} tokens, asked for {}",
                              tokenizer.vocab_size(), options.vocabulary_size));
  }
  print_message(
      fmt::format("trained {} tokens; written and read back: {}", tokenizer.vocab_size(), options.output.string()));
  if (!common.json) return;
  const nlohmann::json result = {
      {"vocab_size", tokenizer.vocab_size()},           {"asked_vocab_size", options.vocabulary_size},
      {"merges", tokenizer.vocabulary().merges.size()}, {"words", trainer.words()},
      {"distinct_words", trainer.distinct_words()},     {"bytes", bytes}};
  write_result(result.dump() + "\n");
}

void encode(const CodeOptions& options, Special special) {
  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  const std::vector<std::int32_t> ids = tokenizer.encode(read_all(options.input, kMaxTextBytes), special);
  std::string text = "[";
  for (std::size_t i = 0; i < ids.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ",", ids[i]);
  write_result(text + "]\n");
}

std::vector<std::int32_t> parse_ids(const std::string& text, const std::string& name, std::int64_t vocabulary_size) {
  const nlohmann::json list = parse_json(text, name);
  require_usage(list.is_array(), "{}: got JSON of type {}, want one array of ids", name, list.type_name());
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= vocabulary_size) {
      fail_usage("{}: element {}: not an id of this tokenizer; got {}, want a whole number from 0 to {}", name,
                 ids.size(), shown(id), vocabulary_size - 1);
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

void decode(const CodeOptions& options) {
  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  const std::string name = options.input == "-" ? "standard input" : options.input;
  write_result(tokenizer.decode(parse_ids(read_all(options.input, kMaxSmallTextBytes), name, tokenizer.vocab_size())));
}

int run(int argc, char** argv) {
  Cli cli("tokenizer", "Trains a byte-level BPE tokenizer, and turns text into ids and back.");
  Cli& train_cli = cli.command("train", "Learns a vocabulary from text.");
  const TrainOptions train_options(train_cli);
  Cli& encode_cli = cli.command("encode", "Turns text into one JSON array of ids.");
  const CodeOptions encode_options(encode_cli, "the text");
  bool is_special = false;
  encode_cli.flag_pair("--special", "--no-special", is_special, "read <|endoftext|> as the marker, not as text");
  Cli& decode_cli = cli.command("decode", "Turns one JSON array of ids into the bytes they stand for.");
  const CodeOptions decode_options(decode_cli, "the ids");
  const CommonOptions common = cli.parse(argc, argv);

  try {
    if (cli.chosen_command() == "train") {
      train(train_options, common);
    } else if (cli.chosen_command() == "encode") {
      encode(encode_options, is_special ? Special::kMarker : Special::kText);
    } else {
      decode(decode_options);
    }
  } catch (const Stopped&) {
    print_message("stopped; nothing was written");
  }
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
