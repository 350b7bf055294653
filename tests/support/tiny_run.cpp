#include "tests/support/tiny_run.h"

#include <nlohmann/json.hpp>

#include <initializer_list>
#include <sstream>

#include "engine/core/error.h"
#include "engine/core/random.h"
#include "model/model_folder.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "train/checkpoint.h"

namespace taper::test {

Tokenizer byte_tokenizer() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  return Tokenizer(vocabulary);
}

TokenDataset write_tokens(const std::filesystem::path& path, uint64_t count, uint64_t vocab_size) {
  Random random(count, RandomStream::test);
  std::vector<int32_t> tokens(count);
  for (uint64_t i = 0; i < count; ++i) {
    // Each token follows from the one before, but for one in four.
    const bool follows = i > 0 && random.next_below(4) != 0;
    tokens[i] = static_cast<int32_t>(follows ? (static_cast<uint64_t>(tokens[i - 1]) * 5 + 3) % vocab_size
                                             : random.next_below(vocab_size));
  }
  TokenShardWriter writer(path.string(), {vocab_size, 1});
  writer.append(tokens.data(), tokens.size());
  writer.finish();
  return TokenDataset(path.string(), {path.string()});
}

std::vector<std::string> metrics_of(const std::filesystem::path& run) {
  std::vector<std::string> lines;
  std::istringstream file(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(file, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    json.erase("tokens_per_s");
    lines.push_back(json.dump());
  }
  return lines;
}

std::string state_of(const std::filesystem::path& run, int64_t step) {
  const std::filesystem::path checkpoint = run / ("step-" + std::to_string(step));
  std::string all;
  for (const char* file : {"model.safetensors", "training.safetensors", "training.json", "config.json"}) {
    all += read_file(checkpoint / file);
  }
  for (const std::string& line : metrics_of(run)) all += line + "\n";
  return all;
}

TinyRun::TinyRun(const std::filesystem::path& data_folder)
    : train(write_tokens(data_folder / "train.bin", 3000)),
      valid(write_tokens(data_folder / "valid.bin", 100)),
      tokenizer(byte_tokenizer()),
      config(tiny_config()) {
  config.vocab_size = 256;
  trainer.schedule = make_schedule(12, 1e-2, {0.2, 0.4, 0.7}, true);
  trainer.anchor = 0.1;
  options.batch_windows = 3;
  options.evaluate_every = 5;
  options.save_every = 1;
  options.keeping.last = 100;
  options.seed = 3;
  options.is_quiet = true;
}

RunResult TinyRun::run(const std::filesystem::path& folder, bool resumes) {
  options.folder = folder;
  const FolderLock lock = prepare_run_folder(folder, resumes ? OutputUse::resume : OutputUse::refuse);
  const auto checkpoint = resumes ? newest_checkpoint(folder, [](const std::string&) {}) : std::nullopt;
  require(checkpoint.has_value() == resumes, "{}: no whole checkpoint", folder.string());
  options.checkpoint = checkpoint.value_or("");
  Transformer model = resumes ? load_model(*checkpoint, precision) : Transformer(config, precision);
  if (!resumes) model.initialise(options.seed);
  Trainer it(model, trainer);
  return run_training(model, it, {train, valid, tokenizer}, options);
}

}  // namespace taper::test
