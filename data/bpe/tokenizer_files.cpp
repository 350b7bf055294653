#include "data/bpe/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/bpe/byte_alphabet.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 30;

// A token as the file spells it.
struct SpelledToken {
  std::string text;
  std::int64_t id = 0;
  bool is_added = false, is_special = false;
};

// --- reading ---

json read_json(const fs::path& path) { return parse_json(read_file(path, kMaxFileBytes), path.string()); }

const json& member(const json& object, const std::string& name) {
  static const json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

std::int64_t read_id(const json& value, const std::string& place, const std::string& token) {
  if (value.is_number_integer() && value >= 0 && value < kMaxVocabulary) return value.get<std::int64_t>();
  fail("{}: token {}: not an id; got {}, want a whole number from 0 to {}", place, shown(token), shown(value),
       kMaxVocabulary - 1);
}

std::vector<SpelledToken> read_token_map(const json& map, const std::string& place) {
  require(map.is_object(), "{}: got {}, want an object of tokens and their ids", place, shown(map));
  std::vector<SpelledToken> tokens;
  for (const auto& [text, id] : map.items()) {
    tokens.push_back({text, read_id(id, place, text), false, false});
  }
  return tokens;
}

// Where in a file something stands, put into words only when it is wrong.
struct Place {
  const std::string& path;
  const char* what;  // such as "line {}"
  std::size_t number;

  std::string text() const { return path + ": " + fmt::format(fmt::runtime(what), number); }
};

class VocabularyBuilder {
 public:
  // Adds the tokens, each of which must have an id of its own.
  void set_tokens(std::vector<SpelledToken> tokens, const std::string& place) {
    id_by_spelling_.reserve(tokens.size());
    std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    for (SpelledToken& token : tokens) {
      const auto next = static_cast<std::int64_t>(vocabulary_.tokens.size());
      if (token.id < next) fail("{}: two tokens have the id {}; one is {}", place, token.id, shown(token.text));
      require(token.id == next, "{}: no token has the id {}; want every id from 0 to {} to have one", place, next,
              tokens.back().id);
      const auto id = static_cast<std::int32_t>(token.id);
      id_by_spelling_.emplace(token.text, id);
      std::optional<std::string> bytes = unspell_bytes(token.text);
      if (token.is_added) {
        vocabulary_.added.push_back({token.text, id, token.is_special});
        bytes = std::move(token.text);
      }
      if (!bytes) fail("{}: token {} spells no bytes and is not an added token", place, shown(token.text));
      vocabulary_.tokens.push_back(std::move(*bytes));
    }
  }

  void add_merge(const std::string& left, const std::string& right, const Place& place) {
    vocabulary_.merges.push_back({find(left, place), find(right, place), find(left + right, place)});
  }

  void set_splits_digits(bool splits_digits) { vocabulary_.splits_digits = splits_digits; }

  Vocabulary finish(const fs::path& path) {
    check(vocabulary_, path.string());
    return std::move(vocabulary_);
  }

 private:
  std::int32_t find(const std::string& spelling, const Place& place) const {
    const auto found = id_by_spelling_.find(spelling);
    if (found == id_by_spelling_.end()) fail("{}: {} is not in the vocabulary", place.text(), shown(spelling));
    return found->second;
  }

  Vocabulary vocabulary_;
  std::unordered_map<std::string, std::int32_t> id_by_spelling_;
};

// "left right": neither holds a space, which the byte alphabet spells otherwise.
std::pair<std::string, std::string> split_merge(std::string_view text, const Place& place) {
  const std::size_t space = text.find(' ');
  const bool is_pair = space != std::string_view::npos && space > 0 && space + 1 < text.size() &&
                       text.find(' ', space + 1) == std::string_view::npos;
  if (!is_pair) {
    fail("{}: not a merge; got {}, want two tokens with one space between", place.text(), shown(std::string(text)));
  }
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

void read_merges_text(const fs::path& path, VocabularyBuilder& builder) {
  const std::string text = read_file(path, kMaxFileBytes);
  const std::string name = path.string();
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const Place place{name, "line {}", number};
    const auto [left, right] = split_merge(line, place);
    builder.add_merge(left, right, place);
  }
}

Vocabulary read_vocab_and_merges(const fs::path& path, const json& file) {
  std::vector<SpelledToken> tokens = read_token_map(file, path.string());
  for (SpelledToken& token : tokens) {
    token.is_added = token.is_special = token.text == kEndOfText || !unspell_bytes(token.text);
  }
  VocabularyBuilder builder;
  builder.set_tokens(std::move(tokens), path.string());
  read_merges_text(path.parent_path() / "merges.txt", builder);
  return builder.finish(path);
}

// Absent and null are the same in these files.
void want(const json& object, const std::string& name, const std::vector<json>& allowed, const std::string& place) {
  const json& value = member(object, name);
  if (value.is_null() || std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list = "null";
  for (const json& one : allowed) list += " or " + shown(one);
  fail("{}: {}: not supported; got {}, want {}", place, name, shown(value), list);
}

// A component of the pipeline must be an object of type ByteLevel; others are refused by the name of their type.
void want_byte_level(const json& component, const std::string& place) {
  require(component.is_object(), "{}: got {}, want an object", place, shown(component));
  require(member(component, "type") == "ByteLevel", "{}: not supported; got {}, want \"ByteLevel\"", place,
          shown(member(component, "type")));
}

void check_normalizer(const json& normalizer, const std::string& path) {
  require(normalizer.is_null(), "{}: normalizer: not supported; got {}, want null", path,
          shown(normalizer.is_object() ? member(normalizer, "type") : normalizer));
}

// ByteLevel, or a sequence of Digits and ByteLevel. Returns whether digits are split.
bool read_pre_tokenizer(const json& whole, const std::string& path) {
  require(!whole.is_null(), "{}: pre_tokenizer: none; want \"ByteLevel\"", path);
  const std::string place = path + ": pre_tokenizer";
  const json* byte_level = &whole;
  bool splits_digits = false;
  if (whole.is_object() && member(whole, "type") == "Sequence") {
    const json& parts = member(whole, "pretokenizers");
    const bool is_pair = parts.is_array() && parts.size() == 2 && parts[0].is_object() &&
                         member(parts[0], "type") == "Digits" && member(parts[0], "individual_digits") == true;
    require(is_pair, "{}: not supported; want the sequence of \"Digits\" with individual_digits and \"ByteLevel\"",
            place);
    splits_digits = true;
    byte_level = &parts[1];
  }
  want_byte_level(*byte_level, place);
  want(*byte_level, "add_prefix_space", {false}, place);
  want(*byte_level, "use_regex", {true}, place);
  return splits_digits;
}

// ByteLevel only moves offsets, and a template without control tokens does nothing; one with them would add ids.
void check_post_processor(const json& processor, const std::string& path) {
  if (processor.is_null()) return;
  const std::string place = path + ": post_processor";
  if (processor.is_object() && member(processor, "type") == "TemplateProcessing") {
    const json& control = member(processor, "special_tokens");
    require(control.is_null() || control.empty(), "{}: not supported; got a template that adds tokens, want none",
            place);
    return;
  }
  want_byte_level(processor, place);
}

// Returns whether digits are split.
bool check_pipeline(const json& file, const std::string& path) {
  check_normalizer(member(file, "normalizer"), path);
  if (!member(file, "decoder").is_null()) want_byte_level(member(file, "decoder"), path + ": decoder");
  check_post_processor(member(file, "post_processor"), path);
  return read_pre_tokenizer(member(file, "pre_tokenizer"), path);
}

const json& check_model(const json& file, const std::string& path) {
  const json& model = member(file, "model");
  require(model.is_object(), "{}: model: got {}, want an object", path, shown(model));
  const std::string place = path + ": model";
  want(model, "type", {"BPE"}, place);
  want(model, "dropout", {0}, place);
  want(model, "continuing_subword_prefix", {""}, place);
  want(model, "end_of_word_suffix", {""}, place);
  want(model, "byte_fallback", {false}, place);
  want(model, "ignore_merges", {false}, place);
  return model;
}

// Marks or appends what added_tokens lists.
void read_added_tokens(const json& list, std::vector<SpelledToken>& tokens, const std::string& path) {
  if (list.is_null()) return;
  require(list.is_array(), "{}: added_tokens: got {}, want an array", path, shown(list));
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < tokens.size(); ++i) index.emplace(tokens[i].text, i);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}: added_tokens[{}]", path, i);
    const json& entry = list[i];
    require(entry.is_object() && member(entry, "content").is_string() && entry["content"] != "",
            "{}: got {}, want an object with a content", place, shown(entry));
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) want(entry, flag, {false}, place);
    const auto text = entry["content"].get<std::string>();
    const std::int64_t id = read_id(member(entry, "id"), place, text);
    const auto [found, is_new] = index.emplace(text, tokens.size());
    if (is_new) tokens.push_back({text, id, true, true});
    SpelledToken& token = tokens[found->second];
    require(token.id == id, "{}: {} has two ids; got {}, and {} before", place, shown(text), id, token.id);
    token.is_added = true;
    token.is_special = member(entry, "special") == true;
  }
}

void read_merges_json(const json& list, VocabularyBuilder& builder, const std::string& path) {
  require(list.is_array(), "{}: model.merges: got {}, want an array", path, shown(list));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Place place{path, "model.merges[{}]", i};
    const json& entry = list[i];
    if (entry.is_string()) {
      const auto [left, right] = split_merge(entry.get_ref<const std::string&>(), place);
      builder.add_merge(left, right, place);
    } else {
      const bool is_pair = entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string();
      if (!is_pair) fail("{}: not a merge; got {}, want a pair of tokens or a text of two", place.text(), shown(entry));
      builder.add_merge(entry[0].get<std::string>(), entry[1].get<std::string>(), place);
    }
  }
}

Vocabulary read_tokenizer_json(const fs::path& path, const json& file) {
  const bool splits_digits = check_pipeline(file, path.string());
  const json& model = check_model(file, path.string());
  std::vector<SpelledToken> tokens = read_token_map(member(model, "vocab"), path.string() + ": model.vocab");
  read_added_tokens(member(file, "added_tokens"), tokens, path.string());
  VocabularyBuilder builder;
  builder.set_tokens(std::move(tokens), path.string());
  read_merges_json(member(model, "merges"), builder, path.string());
  builder.set_splits_digits(splits_digits);
  return builder.finish(path);
}

// --- writing ---

std::string quoted(const std::string& text) { return json(text).dump(); }

// Every token as a file spells it, by id.
std::vector<std::string> spell_tokens(const Vocabulary& v) {
  std::vector<std::string> spellings;
  for (const std::string& token : v.tokens) spellings.push_back(spell_bytes(token));
  for (const AddedToken& added : v.added) spellings[static_cast<std::size_t>(added.id)] = added.text;
  return spellings;
}

// The list in id order: json objects would sort it by spelling.
std::string vocab_text(const std::vector<std::string>& spellings) {
  std::string text = "{";
  for (std::size_t id = 0; id < spellings.size(); ++id) {
    text += fmt::format("{}{}:{}", id == 0 ? "" : ",", quoted(spellings[id]), id);
  }
  return text + "}";
}

std::string merge_text(const Merge& merge, const std::vector<std::string>& spellings) {
  return spellings[static_cast<std::size_t>(merge.left)] + " " + spellings[static_cast<std::size_t>(merge.right)];
}

std::string tokenizer_json_text(const Vocabulary& v, const std::vector<std::string>& spellings) {
  json added = json::array();
  for (const AddedToken& token : v.added) {
    added.push_back({{"id", token.id},
                     {"content", token.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", token.is_special}});
  }
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const json splitter =
      v.splits_digits
          ? json{{"type", "Sequence"},
                 {"pretokenizers", json::array({{{"type", "Digits"}, {"individual_digits", true}}, byte_level})}}
          : byte_level;
  std::string merges;
  for (const Merge& merge : v.merges) merges += (merges.empty() ? "" : ",\n") + quoted(merge_text(merge, spellings));
  return fmt::format(R"({{"version":"1.0","truncation":null,"padding":null,
"added_tokens":{},
"normalizer":null,
"pre_tokenizer":{splitter},
"post_processor":{byte_level},
"decoder":{byte_level},
"model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
"vocab":{vocab},
"merges":[{merges}]}}}}
)",
                     added.dump(), fmt::arg("byte_level", byte_level.dump()), fmt::arg("splitter", splitter.dump()),
                     fmt::arg("vocab", vocab_text(spellings)), fmt::arg("merges", merges));
}

std::string config_text(const Vocabulary& v, std::optional<std::int64_t> max_tokens) {
  // The value by which transformers says that there is no limit.
  json config = {{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", false}, {"model_max_length", 1e30}};
  if (max_tokens) config["model_max_length"] = *max_tokens;
  const bool has_end =
      std::any_of(v.added.begin(), v.added.end(), [](const AddedToken& token) { return token.text == kEndOfText; });
  for (const char* name : {"bos_token", "eos_token", "unk_token"}) {
    config[name] = has_end ? json(kEndOfText) : json(nullptr);
  }
  return config.dump(2) + "\n";
}

}  // namespace

Vocabulary read_vocabulary(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const char* name : {"tokenizer.json", "vocab.json"}) {
      if (fs::exists(path / name, error)) return read_vocabulary(path / name);
    }
    fail_usage("{}: no tokenizer in this folder; want tokenizer.json, or vocab.json with merges.txt", path.string());
  }
  const json file = read_json(path);
  require(file.is_object(), "{}: got {}, want an object", path.string(), shown(file));
  // In a vocab.json "model" may be a token like others.
  const bool is_whole = member(file, "model").is_structured();
  return is_whole ? read_tokenizer_json(path, file) : read_vocab_and_merges(path, file);
}

void write_vocabulary(const Vocabulary& v, const fs::path& folder, std::optional<std::int64_t> max_tokens) {
  check(v, "vocabulary");
  std::error_code error;
  fs::create_directories(folder, error);
  require(fs::is_directory(folder, error), "{}: cannot make this folder: {}", folder.string(), error.message());
  const std::vector<std::string> spellings = spell_tokens(v);
  std::string merges = "#version: 0.2\n";
  for (const Merge& merge : v.merges) merges += merge_text(merge, spellings) + "\n";
  const std::pair<const char*, std::string> files[] = {{"vocab.json", vocab_text(spellings)},
                                                       {"merges.txt", merges},
                                                       {"tokenizer_config.json", config_text(v, max_tokens)},
                                                       {"tokenizer.json", tokenizer_json_text(v, spellings)}};
  for (const auto& [name, text] : files) write_file(folder / name, text);
  for (const auto& [name, text] : files) {
    require(read_file(folder / name, kMaxFileBytes) == text, "{}: read back, it is not what was written",
            (folder / name).string());
  }
  require(read_vocabulary(folder) == v, "{}: read back, the tokenizer is another", folder.string());
}

}  // namespace taper
