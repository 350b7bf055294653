#include "data/prepared_data.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include "data/byte_stream.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"

namespace taper {
namespace {

constexpr const char* kManifestName = "data.json";
constexpr int kFormat = 1;
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 28;

nlohmann::json to_json(const PreparedSplit& split) {
  return {{"tokens", split.tokens}, {"documents", split.documents}, {"shards", split.shards}};
}

// The library would convert whatever is a number: 1e300, -1 and 3.5 too.
uint64_t count_in(const nlohmann::json& json, const char* key, const std::string& path) {
  const nlohmann::json& value = json.at(key);
  require_usage(value.is_number_unsigned(), "{}: damaged: {} is {}, want a whole number; prepare the folder anew", path,
                key, shown(value));
  return value.get<uint64_t>();
}

PreparedSplit split_from_json(const nlohmann::json& json, const std::string& path) {
  PreparedSplit split{count_in(json, "tokens", path), count_in(json, "documents", path),
                      json.at("shards").get<std::vector<std::string>>()};
  for (const std::string& shard : split.shards) {
    require_usage(is_plain_name(shard), "{}: shard {} lies outside the folder; want a plain name", path, shown(shard));
  }
  return split;
}

std::string manifest_path(const std::string& folder) {
  return (std::filesystem::path(folder) / kManifestName).string();
}

TokenDataset open_split(const std::string& folder, const char* side, PreparedSplit PreparedManifest::*member) {
  const PreparedManifest manifest = PreparedManifest::read(folder);
  const PreparedSplit& split = manifest.*member;
  require_usage(!split.shards.empty(), "{}: this folder has no {} data; prepare it with --valid or --valid-fraction",
                full_path(folder), side);
  std::vector<std::string> paths;
  for (const std::string& shard : split.shards) {
    paths.push_back((std::filesystem::path(folder) / shard).string());
  }
  TokenDataset data(folder + " (" + side + ")", paths);
  require_usage(data.size() == split.tokens && data.info().vocabulary_size == manifest.info.vocabulary_size &&
                    data.info().tokenizer_hash == manifest.info.tokenizer_hash,
                "{}: the {} shards are not those of data.json; got {} tokens of a vocabulary of {}, want {} of {}",
                full_path(folder), side, data.size(), data.info().vocabulary_size, split.tokens,
                manifest.info.vocabulary_size);
  return data;
}

}  // namespace

uint64_t tokenizer_hash(const Tokenizer& tokenizer) {
  // Over the lengths and bytes of the tokens, the merges and the added tokens, each number and byte a word of its own.
  Checksum checksum;
  const auto add = [&](uint64_t word) { checksum.add(&word, sizeof(word)); };
  const auto add_text = [&](std::string_view text) {
    add(text.size());
    for (const char c : text) add(static_cast<unsigned char>(c));
  };
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  for (const std::string& token : vocabulary.tokens) add_text(token);
  for (const Merge& merge : vocabulary.merges) {
    add(static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right));
  }
  for (const AddedToken& token : vocabulary.added) {
    add_text(token.text);
    add(static_cast<uint64_t>(token.id) << 1 | (token.is_special ? 1 : 0));
  }
  return checksum.value();
}

void require_tokenizer_of(const std::string& folder, const TokenDataset& data) {
  const std::optional<Tokenizer> tokenizer = Tokenizer::find(folder);
  require_usage(!tokenizer || tokenizer_hash(*tokenizer) == data.info().tokenizer_hash,
                "{}: was prepared with another tokenizer than that of {}; prepare the texts with --tokenizer {}",
                data.name(), folder, folder);
}

bool is_prepared_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(manifest_path(path), ignored);
}

void PreparedManifest::write(const std::string& folder) const {
  const nlohmann::json json = {{"format", kFormat},
                               {"vocabulary_size", info.vocabulary_size},
                               {"tokenizer_hash", fmt::format("{:016x}", info.tokenizer_hash)},
                               {"train", to_json(train)},
                               {"valid", to_json(valid)},
                               {"text_bytes", text_bytes},
                               {"sources", sources},
                               {"split", split}};
  write_file(manifest_path(folder), json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

PreparedManifest PreparedManifest::read(const std::string& folder) {
  const std::string path = manifest_path(folder);
  require_usage(is_prepared_folder(folder), "{}: not a prepared folder: it has no {}; `prepare` makes one",
                full_path(folder), kManifestName);
  try {
    const nlohmann::json json = parse_json(read_file(path, kMaxManifestBytes), path);
    require_usage(json.at("format") == kFormat, "{}: unknown format; got {}, want {}", path, shown(json.at("format")),
                  kFormat);
    PreparedManifest manifest;
    manifest.info = {count_in(json, "vocabulary_size", path),
                     std::stoull(json.at("tokenizer_hash").get<std::string>(), nullptr, 16)};
    manifest.train = split_from_json(json.at("train"), path);
    manifest.valid = split_from_json(json.at("valid"), path);
    manifest.text_bytes = count_in(json, "text_bytes", path);
    manifest.sources = json.at("sources").get<std::vector<std::string>>();
    manifest.split = json.at("split").get<std::string>();
    return manifest;
  } catch (const UsageError&) {
    throw;
  } catch (const nlohmann::json::exception& e) {
    const std::string reason = e.what();  // after a name of the library's own in brackets
    fail_usage("{}: damaged: {}; prepare the folder anew", path, reason.substr(reason.find("] ") + 2));
  } catch (const std::logic_error&) {
    fail_usage("{}: damaged: tokenizer_hash is no hexadecimal number; prepare the folder anew", path);
  }
}

TokenDataset open_training_data(const std::string& folder) {
  return open_split(folder, "training", &PreparedManifest::train);
}

TokenDataset open_validation_data(const std::string& folder) {
  return open_split(folder, "validation", &PreparedManifest::valid);
}

}  // namespace taper
