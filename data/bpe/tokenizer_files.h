// The files of a byte-level BPE tokenizer, as Hugging Face's and OpenAI's programs write and read them.
//
//   vocab.json             {"token": id, ...}, tokens spelt in the byte alphabet (byte_alphabet.h)
//   merges.txt             "#version: 0.2", then a merge a line, earliest first: left, space, right
//   tokenizer.json         both in one, with the added tokens and the splitting rule: ByteLevel with its regex,
//   GPT-2's,
//                          or Digits (each by itself) before it
//   tokenizer_config.json  the class and the control tokens, for transformers
//
// In a vocab.json without a tokenizer.json, <|endoftext|> and what is not spelt in the byte alphabet are control
// tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "data/bpe/vocabulary.h"

namespace taper {

// Reads a file of the first or third kind (the first with merges.txt beside it), or a folder: its tokenizer.json, else
// its vocab.json. Throws UsageError where there is none. Throws Error naming file and place where one is damaged,
// contradicts itself, or asks for what this tokenizer does not do: a normalizer, another pre-tokenizer or model,
// dropout, trimming added tokens.
Vocabulary read_vocabulary(const std::filesystem::path& file_or_folder);

// Writes the four files, each beside its place and then renamed, tokenizer.json last since readers prefer it; then
// reads the folder back and compares. Throws Error naming what could not be written or came back different.
void write_vocabulary(const Vocabulary& vocabulary, const std::filesystem::path& folder,
                      std::optional<std::int64_t> max_tokens);

}  // namespace taper
