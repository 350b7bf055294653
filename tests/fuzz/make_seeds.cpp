// Writes the inputs that fuzzing starts from, by the project's own writers: make_seeds FOLDER makes FOLDER/TARGET/NAME.
#include <nlohmann/json.hpp>
#include <zstd.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "data/prepared_data.h"
#include "data/token_shards.h"
#include "data/tokenizer.h"
#include "engine/io/atomic_file.h"
#include "engine/io/gguf.h"
#include "engine/io/safetensors.h"
#include "model/config.h"
#include "model/hf_config.h"
#include "tests/fuzz/fuzz.h"
#include "train/checkpoint_manifest.h"

using namespace taper;
namespace fs = std::filesystem;

// This program is linked to what the targets share, but fuzzes nothing.
int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }

namespace {

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Seeds {
 public:
  explicit Seeds(fs::path folder) : folder_(std::move(folder)) {}

  fs::path place(const char* target) const {
    fs::create_directories(folder_ / target);
    return folder_ / target;
  }
  void add(const char* target, const std::string& name, const std::string& bytes) const {
    write_file(place(target) / name, bytes);
  }

 private:
  fs::path folder_;
};

void tensors(const Seeds& seeds) {
  const Tensor matrix = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor ids = Tensor::from(std::vector<int32_t>{1, 2, 3}, {3});
  const fs::path place = seeds.place("safetensors");
  write_safetensors(place / "f32", {{"a.weight", matrix}, {"ids", ids}}, {{"note", "of a test"}});
  write_safetensors(place / "bf16", {{"a.weight", matrix}}, {}, StoredDtype::bf16);
  write_safetensors(place / "f16", {{"a", matrix}, {"b", matrix}}, {}, StoredDtype::f16);
  write_safetensors(place / "empty", {});
  const GgufMetadata metadata = {{"general.architecture", std::string("gpt2")},
                                 {"count", uint32_t{3}},
                                 {"eps", 1e-5f},
                                 {"flag", true},
                                 {"tokens", std::vector<std::string>{"a", "b"}},
                                 {"types", std::vector<int32_t>{1, 3}}};
  write_gguf(seeds.place("gguf") / "f32", metadata, {{"a.weight", matrix, StoredDtype::f32}});
  write_gguf(seeds.place("gguf") / "halves", {}, {{"a", matrix, StoredDtype::f16}, {"b", matrix, StoredDtype::bf16}});
}

Vocabulary small_vocabulary() {
  Vocabulary vocabulary;
  // Those that every vocabulary must have; few, so that an input stays small.
  for (char byte = ' '; byte <= '~'; ++byte) vocabulary.tokens.emplace_back(1, byte);
  const auto merge = [&](int32_t left, int32_t right) {
    const auto id = static_cast<int32_t>(vocabulary.tokens.size());
    vocabulary.tokens.push_back(vocabulary.tokens[static_cast<size_t>(left)] +
                                vocabulary.tokens[static_cast<size_t>(right)]);
    vocabulary.merges.push_back({left, right, id});
    return id;
  };
  merge(merge('a' - ' ', 'b' - ' '), 'c' - ' ');
  vocabulary.added.push_back({std::string(kEndOfText), static_cast<int32_t>(vocabulary.tokens.size()), true});
  vocabulary.tokens.emplace_back(kEndOfText);
  return vocabulary;
}

void tokenizers(const Seeds& seeds) {
  const fs::path place = fuzz::input_path("tokenizer");
  Tokenizer(small_vocabulary()).save(place);
  seeds.add("vocabulary", "whole", '\0' + content(place / "tokenizer.json"));
  seeds.add("vocabulary", "parts", '\1' + content(place / "vocab.json") + '\0' + content(place / "merges.txt"));
  seeds.add("vocabulary", "tiny", "\1{\"a\":0,\"b\":1,\"ab\":2}" + std::string(1, '\0') + "#version: 0.2\na b\n");
  seeds.add("vocabulary", "small",
            std::string("\0", 1) +
                R"({"added_tokens":[{"id":3,"content":"<|endoftext|>","special":true}],"normalizer":null,)"
                R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
                R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]},"decoder":{"type":"ByteLevel"},)"
                R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}})");
}

void configs(const Seeds& seeds) {
  for (const char* arch : {"taper", "gpt2", "llama"}) {
    const ModelConfig config = named_config("1M", arch);
    seeds.add("configs", arch, '\0' + config_to_json(config));
    HfConfig hf;
    hf.hf_class = arch == std::string("llama") ? HfClass::llama : HfClass::gpt2;
    hf.model = named_config("1M", hf.hf_class == HfClass::llama ? "llama" : "gpt2");
    seeds.add("configs", std::string("hf-") + arch, '\1' + hf_config_to_json(hf, StoredDtype::f32));
  }
  PreparedManifest manifest;
  manifest.info = {260, 0x1234};
  manifest.train = {100, 3, {"train-0.bin"}};
  manifest.valid = {10, 1, {"valid-0.bin"}};
  manifest.sources = {"text.txt"};
  manifest.write(fuzz::input_path("").string());
  seeds.add("configs", "data", '\2' + content(fuzz::input_path("data.json")));
  seeds.add("configs", "options", "\3{\"steps\": 10,\n \"lr\": 1e-3, \"input\": [\"a\", \"b\"], \"greedy\": true}");
}

void checkpoints(const Seeds& seeds) {
  const fs::path folder = fuzz::input_path("checkpoint");
  fs::create_directories(folder);
  write_safetensors(folder / "model.safetensors", {{"a.weight", Tensor::from(std::vector<float>{1, 2}, {2})}});
  const std::string weights = content(folder / "model.safetensors");
  CheckpointManifest manifest;
  manifest.state.step = 7;
  manifest.state.updates = 6;
  manifest.data = {42, 112};
  manifest.state.calibration.scale_target = 1.5;
  const std::string empty = manifest.to_json();
  write_file(folder / "config.json", "{}");
  manifest.files = CheckpointFiles::of_folder(folder);
  seeds.add("checkpoint", "whole", manifest.to_json() + '\0' + weights);
  seeds.add("checkpoint", "empty", empty + '\0' + weights);
  const std::string index =
      R"({"metadata":{"total_size":8},"weight_map":{"a.weight":"a.safetensors","b.weight":"b.safetensors"}})";
  seeds.add("weights_index", "two", index);
}

void corpora(const Seeds& seeds) {
  const std::string lines = "{\"text\": \"One day.\"}\n{\"text\": \"b<|endoftext|>c\", \"more\": [1, {}]}\n\n";
  seeds.add("jsonl", "lines", lines);
  seeds.add("jsonl", "text", "\xEF\xBB\xBFOne day.<|endoftext|>\r\nTwo.\n\xE6\xAD\n");
  std::string frame(ZSTD_compressBound(lines.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), lines.data(), lines.size(), 3));
  seeds.add("zst", "lines", '\0' + frame);
  seeds.add("zst", "two", '\0' + frame + frame);
  seeds.add("zst", "held", '\1' + lines);
}

void shards(const Seeds& seeds) {
  const std::vector<int32_t> tokens = {5, 6, 7, 255, 0};
  for (const uint64_t vocabulary : {uint64_t{256}, uint64_t{100'000}}) {
    const std::string path = fuzz::input_path("seed.bin").string();
    TokenShardWriter writer(path, {vocabulary, 9});
    writer.append(tokens.data(), tokens.size());
    writer.finish();
    seeds.add("shards", std::to_string(vocabulary), '\1' + content(path));
  }
  std::string header(1024, '\0');
  for (const auto& [at, value] : {std::pair{0, 20240520}, {4, 1}, {8, 2}}) {
    header.replace(static_cast<size_t>(at), 4, reinterpret_cast<const char*>(&value), 4);
  }
  seeds.add("shards", "with-header", '\0' + header + std::string("\1\0\2\0", 4));
  seeds.add("shards", "bare", std::string("\0\1\0\2\0", 5));
}

void command_lines(const Seeds& seeds) {
  const auto words = [](std::initializer_list<std::string> list) {
    std::string bytes;
    for (const std::string& word : list) bytes += word + '\0';
    return bytes;
  };
  seeds.add("command_line", "values",
            words({"--text", "a", "--whole", "12", "--real=0.25", "--choice", "two", "--yes"}));
  seeds.add("command_line", "lists", words({"--texts", "a", "b", "--wholes", "1,4", "--path", "x", "more"}));
  seeds.add("command_line", "common", words({"--seed", "1", "--threads", "2", "--device", "cpu", "--json", "--quiet"}));
  seeds.add("command_line", "config", words({"--config", "{\"whole\": 3, \"texts\": [\"a\"]}", "--flag"}));
  seeds.add("command_line", "help", words({"--help"}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Seeds seeds(argv[1]);
  tensors(seeds);
  tokenizers(seeds);
  configs(seeds);
  checkpoints(seeds);
  corpora(seeds);
  shards(seeds);
  command_lines(seeds);
  return 0;
}
