#include "data/token_shards.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"

namespace taper {
namespace {

constexpr char kMagic[9] = "TAPERTOK";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kHeaderBytes = 48;
constexpr uint64_t kNarrowVocabulary = 65536;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t token_bytes;
  uint64_t count;
  uint64_t vocabulary_size;
  uint64_t tokenizer_hash;
  uint64_t checksum;
};
static_assert(sizeof(Header) == kHeaderBytes);

uint64_t finish_checksum(Checksum checksum, const Header& header) {
  checksum.add(reinterpret_cast<const char*>(&header) + 8, 32);
  return checksum.value();
}

// The largest id of the tokens, which need not be aligned.
template <class Id>
uint64_t largest_id(const std::byte* data, uint64_t count) {
  Id largest = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Id id;
    std::memcpy(&id, data + i * sizeof(Id), sizeof(Id));
    largest = std::max(largest, id);
  }
  return largest;
}

}  // namespace

struct TokenShardWriter::Impl {
  std::string path;
  ShardInfo info;
  size_t token_bytes;
  AtomicFile file;
  Checksum checksum;
  std::vector<unsigned char> buffer;  // a multiple of 8 bytes goes into the checksum at a time

  Impl(const std::string& where, const ShardInfo& what)
      : path(where), info(what), token_bytes(what.vocabulary_size <= kNarrowVocabulary ? 2 : 4), file(where) {
    const std::array<char, kHeaderBytes> blank{};
    file.write(blank.data(), blank.size());
  }

  void flush(size_t bytes) {
    if (bytes == 0) return;
    checksum.add(buffer.data(), bytes);
    file.write(buffer.data(), bytes);
    buffer.erase(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
};

TokenShardWriter::TokenShardWriter(const std::string& path, const ShardInfo& info)
    : impl_(std::make_unique<Impl>(path, info)) {}

TokenShardWriter::~TokenShardWriter() = default;

void TokenShardWriter::append(const int32_t* tokens, size_t count) {
  constexpr size_t kFlushBytes = size_t{1} << 20;
  for (size_t i = 0; i < count; ++i) {
    require(tokens[i] >= 0 && static_cast<uint64_t>(tokens[i]) < impl_->info.vocabulary_size,
            "{}: token {} is outside the vocabulary; got id {}, want below {}", impl_->path, count_ + i, tokens[i],
            impl_->info.vocabulary_size);
    // Little-endian: the low bytes come first, so the narrow form is a prefix of the wide one.
    const auto* bytes = reinterpret_cast<const unsigned char*>(&tokens[i]);
    impl_->buffer.insert(impl_->buffer.end(), bytes, bytes + impl_->token_bytes);
    if (impl_->buffer.size() == kFlushBytes) impl_->flush(kFlushBytes);
  }
  count_ += count;
}

void TokenShardWriter::finish() {
  Impl& w = *impl_;
  w.flush(w.buffer.size());
  Header header{
      {}, kVersion, static_cast<uint32_t>(w.token_bytes), count_, w.info.vocabulary_size, w.info.tokenizer_hash, 0};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.checksum = finish_checksum(w.checksum, header);
  w.file.rewrite_start(&header, sizeof(header));
  w.file.commit();
}

TokenShard::TokenShard(const std::string& path) : path_(path), file_(path) {
  Header header{};
  const bool has_header = file_.size() >= kHeaderBytes;
  if (has_header) std::memcpy(&header, file_.data(), kHeaderBytes);
  require(has_header && std::memcmp(header.magic, kMagic, sizeof(header.magic)) == 0,
          "{}: not a token shard; got {} bytes without its magic, want \"{}\"", path, file_.size(), kMagic);
  require(header.version == kVersion, "{}: unknown version of token shards; got {}, want {}", path, header.version,
          kVersion);
  require(header.token_bytes == 2 || header.token_bytes == 4, "{}: wrong token width; got {} bytes, want 2 or 4", path,
          header.token_bytes);
  const uint64_t present = file_.size() - kHeaderBytes;
  // Divided, not multiplied: a count near 2^64 must not wrap around to a size that fits.
  require(present % header.token_bytes == 0 && present / header.token_bytes == header.count,
          "{}: the header states {} tokens of {} bytes, but {} bytes follow it ({})", path, header.count,
          header.token_bytes, present, present / header.token_bytes < header.count ? "truncated" : "trailing bytes");
  require(header.vocabulary_size <= INT32_MAX, "{}: vocabulary too large; got {}, want at most {}", path,
          header.vocabulary_size, INT32_MAX);
  const std::byte* data = file_.data() + kHeaderBytes;
  Checksum checksum;
  checksum.add(data, present);
  require(finish_checksum(checksum, header) == header.checksum, "{}: damaged: the checksum does not match", path);
  const uint64_t largest =
      header.token_bytes == 2 ? largest_id<uint16_t>(data, header.count) : largest_id<uint32_t>(data, header.count);
  require(header.count == 0 || largest < header.vocabulary_size,
          "{}: token outside the vocabulary; got id {}, want below {}", path, largest, header.vocabulary_size);
  info_ = {header.vocabulary_size, header.tokenizer_hash};
  count_ = header.count;
  checksum_ = header.checksum;
  token_bytes_ = header.token_bytes;
}

void TokenShard::copy(uint64_t position, uint64_t count, int32_t* out) const {
  if (count == 0) return;
  const std::byte* from = file_.data() + kHeaderBytes + position * token_bytes_;
  if (token_bytes_ == sizeof(int32_t)) {
    std::memcpy(out, from, count * sizeof(int32_t));
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    uint16_t id;
    std::memcpy(&id, from + i * sizeof(id), sizeof(id));
    out[i] = id;
  }
}

TokenDataset::TokenDataset(std::string name, const std::vector<std::string>& shard_paths) : name_(std::move(name)) {
  for (const std::string& path : shard_paths) {
    TokenShard shard(path);
    if (shards_.empty()) info_ = shard.info();
    require(
        shard.info().vocabulary_size == info_.vocabulary_size && shard.info().tokenizer_hash == info_.tokenizer_hash,
        "{}: made with another tokenizer than {}; prepare both with one tokenizer", path, shard_paths.front());
    begins_.push_back(begins_.back() + shard.size());
    shards_.push_back(std::move(shard));
  }
}

uint64_t TokenDataset::fingerprint() const {
  Checksum checksum;
  for (const TokenShard& shard : shards_) {
    const uint64_t part = shard.checksum();
    checksum.add(&part, sizeof(part));
  }
  return checksum.value();
}

void TokenDataset::copy(uint64_t position, uint64_t count, int32_t* out) const {
  require(position <= size() && count <= size() - position, "{}: tokens outside the data; got [{}, +{}), want below {}",
          name_, position, count, size());
  auto shard = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), position) - begins_.begin()) - 1;
  while (count > 0) {
    const uint64_t part = std::min(count, begins_[shard + 1] - position);
    shards_[shard].copy(position - begins_[shard], part, out);
    out += part;
    position += part;
    count -= part;
    ++shard;
  }
}

}  // namespace taper
