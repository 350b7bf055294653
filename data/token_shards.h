// Token shards: the form in which a prepared corpus is stored and read.
//
// A shard, little-endian:
//   0   8  magic "TAPERTOK"
//   8   4  u32 version = 1
//   12  4  u32 bytes of a token: 2 (vocabularies up to 65,536) or 4
//   16  8  u64 token count N
//   24  8  u64 vocabulary size V, below 2^31
//   32  8  u64 hash of the tokenizer that made the ids
//   40  8  u64 checksum: FNV-1a over the 64-bit words of the tokens (zero-padded), then over words 8..39 of this header
//   48  ..  N tokens, u16 or u32, each below V; nothing follows
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/mapped_file.h"

namespace taper {

struct ShardInfo {
  uint64_t vocabulary_size = 0;
  uint64_t tokenizer_hash = 0;
};

// The shard appears in finish(), whole and on the disk (engine/io/atomic_file.h). Without finish() nothing is left
// behind.
class TokenShardWriter {
 public:
  TokenShardWriter(const std::string& path, const ShardInfo& info);
  ~TokenShardWriter();
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;

  // Error on an id outside the vocabulary or a failed write (a full disk names the file and the bytes).
  void append(const int32_t* tokens, size_t count);
  void finish();
  uint64_t size() const { return count_; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  uint64_t count_ = 0;
};

// A shard mapped into memory, read-only.
class TokenShard {
 public:
  // Checks everything the format promises, the checksum and every id included, with one pass over the file. Errors name
  // the file: missing, not a shard, truncated, trailing bytes, damaged, ids outside the vocabulary.
  explicit TokenShard(const std::string& path);

  uint64_t size() const { return count_; }
  const ShardInfo& info() const { return info_; }
  uint64_t checksum() const { return checksum_; }
  const std::string& path() const { return path_; }
  // Tokens [position, position + count); REQUIRES: within the shard.
  void copy(uint64_t position, uint64_t count, int32_t* out) const;

 private:
  std::string path_;
  ShardInfo info_;
  uint64_t count_ = 0;
  uint64_t checksum_ = 0;
  uint64_t token_bytes_ = 2;
  MappedFile file_;
};

// Several shards as one sequence of tokens. Positions are 64-bit.
class TokenDataset {
 public:
  // Error where the shards disagree in vocabulary or tokenizer. `name` stands for the data in messages.
  TokenDataset(std::string name, const std::vector<std::string>& shard_paths);

  uint64_t size() const { return begins_.back(); }
  const std::string& name() const { return name_; }
  const ShardInfo& info() const { return info_; }
  // Of the shards' checksums: the same for equal data, wherever it lies.
  uint64_t fingerprint() const;
  // Tokens [position, position + count), across shards. Error where the range is outside.
  void copy(uint64_t position, uint64_t count, int32_t* out) const;

 private:
  std::string name_;
  ShardInfo info_;
  std::vector<TokenShard> shards_;
  std::vector<uint64_t> begins_{0};  // begins_[i]: position of shard i; one more at the end
};

}  // namespace taper
