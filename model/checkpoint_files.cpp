#include "model/checkpoint_files.h"

#include <span>
#include <system_error>
#include <utility>

#include "engine/core/error.h"
#include "engine/io/checksum.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxManifestBytes = 1 << 24;
constexpr uint64_t kMaxOtherBytes = uint64_t{1} << 30;  // of a file without tensors

std::string checksum_of(const void* data, size_t bytes) {
  Checksum checksum;
  checksum.add(data, bytes);
  return fmt::format("{:016x}", checksum.value());
}

std::string checksum_of_tensor(const SafetensorsFile& file, const std::string& tensor) {
  const std::span<const std::byte> bytes = file.bytes(tensor);
  return checksum_of(bytes.data(), bytes.size());
}

std::string checksum_of_file(const fs::path& file) {
  const std::string content = read_file(file, kMaxOtherBytes);
  return checksum_of(content.data(), content.size());
}

bool holds_tensors(const fs::path& file) { return file.extension() == ".safetensors"; }

void check_size(const fs::path& file, uint64_t bytes) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  require(error != std::errc::no_such_file_or_directory, "{} is missing", file.string());
  require(!error, "{}: cannot be read: {}", file.string(), error.message());
  require(size == bytes, "{}: is not what was saved; got {} bytes, want {}", file.string(), size, bytes);
}

std::string text_in(const Json& value, const fs::path& manifest, const std::string& name) {
  require(value.is_string(), "{}: the checksum of {} is damaged; got {}, want a text", manifest.string(), shown(name),
          shown(value));
  return value.get<std::string>();
}

}  // namespace

Json read_checkpoint_manifest(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kCheckpointManifest;
  Json json = parse_json<Json>(read_file(file, kMaxManifestBytes), file.string());
  require(json.is_object(), "{}: is damaged; want a JSON object", file.string());
  return json;
}

CheckpointFiles::Saved CheckpointFiles::describe(const fs::path& file) {
  Saved saved;
  saved.bytes = fs::file_size(file);
  if (!holds_tensors(file)) {
    saved.checksum = checksum_of_file(file);
    return saved;
  }
  const SafetensorsFile tensors = SafetensorsFile::open(file);
  for (const std::string& name : tensors.names()) saved.tensors[name] = checksum_of_tensor(tensors, name);
  return saved;
}

CheckpointFiles CheckpointFiles::of_folder(const fs::path& folder) {
  CheckpointFiles files;
  files.folder_ = folder;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files.files_[entry.path().filename().string()] = describe(entry.path());
  }
  return files;
}

CheckpointFiles CheckpointFiles::of_manifest(const Json& manifest, const fs::path& folder) {
  CheckpointFiles files;
  files.folder_ = folder;
  const fs::path source = folder / kCheckpointManifest;
  const Json listed = manifest.value("files", Json::object());
  const Json checksums = manifest.value("checksums", Json::object());
  require(listed.is_object() && checksums.is_object(), "{}: files and checksums are damaged; want objects",
          source.string());
  for (const auto& [name, bytes] : listed.items()) {
    require(is_plain_name(name), "{}: lists {}, which lies outside", source.string(), shown(name));
    require(bytes.is_number_unsigned(), "{}: the size of {} is damaged; got {}, want a whole number", source.string(),
            shown(name), shown(bytes));
    Saved saved;
    saved.bytes = bytes.get<uint64_t>();
    const auto found = checksums.find(name);
    if (found != checksums.end() && found->is_object()) {
      for (const auto& [tensor, value] : found->items()) saved.tensors[tensor] = text_in(value, source, tensor);
    } else if (found != checksums.end()) {
      saved.checksum = text_in(*found, source, name);
    }
    files.files_[name] = std::move(saved);
  }
  return files;
}

CheckpointFiles CheckpointFiles::of_checkpoint(const fs::path& folder) {
  if (!fs::exists(folder / kCheckpointManifest)) return {};
  return of_manifest(read_checkpoint_manifest(folder), folder);
}

void CheckpointFiles::add_to(Json& manifest) const {
  Json files = Json::object(), checksums = Json::object();
  for (const auto& [name, saved] : files_) {
    files[name] = saved.bytes;
    checksums[name] = holds_tensors(name) ? Json(saved.tensors) : Json(saved.checksum);
  }
  manifest["files"] = std::move(files);
  manifest["checksums"] = std::move(checksums);
}

void CheckpointFiles::check_all() const {
  for (const auto& [name, saved] : files_) check_size(folder_ / name, saved.bytes);
  check_without_tensors();
  for (const auto& [name, saved] : files_) {
    if (saved.tensors.empty()) continue;
    const SafetensorsFile file = SafetensorsFile::open(folder_ / name);
    for (const std::string& tensor : file.names()) check_tensor(file, tensor);
    require(file.names().size() == saved.tensors.size(), "{}: is not what was saved; got {} tensors, want {}",
            file.path().string(), file.names().size(), saved.tensors.size());
  }
}

void CheckpointFiles::check_without_tensors() const {
  for (const auto& [name, saved] : files_) {
    const fs::path file = folder_ / name;
    std::error_code ignored;
    if (saved.checksum.empty() || !fs::exists(file, ignored)) continue;
    check_size(file, saved.bytes);
    const std::string got = checksum_of_file(file);
    require(got == saved.checksum, "{}: is not what was saved; got checksum {}, want {}", file.string(), got,
            saved.checksum);
  }
}

void CheckpointFiles::check_tensor(const SafetensorsFile& file, const std::string& tensor) const {
  const auto saved = files_.find(file.path().filename().string());
  if (saved == files_.end() || saved->second.tensors.empty()) return;
  const auto want = saved->second.tensors.find(tensor);
  require(want != saved->second.tensors.end(), "{}: tensor {} is not what was saved; got one more, want none",
          file.path().string(), shown(tensor));
  const std::string got = checksum_of_tensor(file, tensor);
  require(got == want->second, "{}: tensor {} is not what was saved; got checksum {}, want {}", file.path().string(),
          shown(tensor), got, want->second);
}

}  // namespace taper
