#include "data/gguf_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "data/bpe/byte_alphabet.h"
#include "engine/core/error.h"

namespace taper {
namespace {

// llama_token_type
constexpr std::int32_t kNormalToken = 1, kControlToken = 3, kUserToken = 4, kUnusedToken = 5;

}  // namespace

GgufMetadata gguf_tokenizer(const Tokenizer& tokenizer, std::int64_t vocab_size, std::optional<std::int64_t> bos_id,
                            std::optional<std::int64_t> eos_id) {
  const auto id = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  require_usage(std::ssize(vocabulary.tokens) <= vocab_size,
                "tokenizer: does not fit the model; got {} tokens, want at most {}", vocabulary.tokens.size(),
                vocab_size);
  std::vector<std::string> tokens, merges;
  for (const std::string& token : vocabulary.tokens) tokens.push_back(spell_bytes(token));
  std::vector<std::int32_t> types(tokens.size(), kNormalToken);
  for (const AddedToken& added : vocabulary.added) {
    tokens[static_cast<size_t>(added.id)] = added.text;
    types[static_cast<size_t>(added.id)] = added.is_special ? kControlToken : kUserToken;
  }
  for (const Merge& merge : vocabulary.merges) {
    merges.push_back(tokens[static_cast<size_t>(merge.left)] + " " + tokens[static_cast<size_t>(merge.right)]);
  }
  // Rows of the embedding that no token has.
  for (std::int64_t i = std::ssize(tokens); i < vocab_size; ++i) {
    tokens.push_back("[PAD" + std::to_string(i) + "]");
    types.push_back(kUnusedToken);
  }
  GgufMetadata metadata;
  metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  metadata.emplace_back("tokenizer.ggml.pre", std::string(vocabulary.splits_digits ? "smollm" : "gpt-2"));
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(tokens));
  metadata.emplace_back("tokenizer.ggml.token_type", std::move(types));
  metadata.emplace_back("tokenizer.ggml.merges", std::move(merges));
  if (bos_id) metadata.emplace_back("tokenizer.ggml.bos_token_id", id(*bos_id));
  if (eos_id) metadata.emplace_back("tokenizer.ggml.eos_token_id", id(*eos_id));
  if (const auto end = tokenizer.end_of_text()) metadata.emplace_back("tokenizer.ggml.unknown_token_id", id(*end));
  metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
  return metadata;
}

}  // namespace taper
