#include "data/prepare.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <filesystem>
#include <memory>

#include "data/byte_stream.h"
#include "data/corpus.h"
#include "data/token_files.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/io/staged_output.h"

namespace fs = std::filesystem;

namespace taper {
namespace {

constexpr uint64_t kShardTokens = uint64_t{1} << 28;
constexpr size_t kGroupBytes = size_t{1} << 16;  // text that a thread encodes at a time
constexpr size_t kGroupsPerThread = 8;

// A sequence of tokens with the ends of its documents, spread over shards PREFIX-00000.bin and so on.
class TokenSequence {
 public:
  TokenSequence(const fs::path& folder, std::string prefix, const ShardInfo& info)
      : folder_(folder), prefix_(std::move(prefix)), info_(info) {
    open_shard();
  }

  void append(const int32_t* tokens, size_t count) {
    if (count > 0) last_ = tokens[count - 1];
    size_ += count;
    while (count > 0) {
      const size_t part = std::min<uint64_t>(count, kShardTokens - writer_->size());
      writer_->append(tokens, part);
      tokens += part;
      count -= part;
      if (writer_->size() == kShardTokens) {
        writer_->finish();
        open_shard();
      }
    }
  }

  void end_document() { ends_.push_back(size_); }
  // What stands after the last document belongs to it.
  void extend_last_document() {
    if (!ends_.empty()) ends_.back() = size_;
  }
  void finish() {
    if (ends_.empty() ? size_ > 0 : ends_.back() < size_) end_document();
    writer_->finish();
  }
  // Only after finish(): the shards get another name.
  void rename(const std::string& prefix) {
    for (std::string& shard : shards_) {
      const std::string renamed = prefix + shard.substr(prefix_.size());
      fs::rename((folder_ / shard).string(), (folder_ / renamed).string());
      shard = renamed;
    }
    prefix_ = prefix;
  }

  uint64_t size() const { return size_; }
  int32_t last() const { return last_; }
  const std::vector<uint64_t>& document_ends() const { return ends_; }
  const std::vector<std::string>& shards() const { return shards_; }
  PreparedSplit split() const { return {size_, ends_.size(), size_ > 0 ? shards_ : std::vector<std::string>{}}; }

 private:
  void open_shard() {
    shards_.push_back(fmt::format("{}-{:05}.bin", prefix_, shards_.size()));
    writer_ = std::make_unique<TokenShardWriter>((folder_ / shards_.back()).string(), info_);
  }

  const fs::path& folder_;
  std::string prefix_;
  ShardInfo info_;
  std::vector<std::string> shards_;
  std::unique_ptr<TokenShardWriter> writer_;
  uint64_t size_ = 0;
  int32_t last_ = -1;
  std::vector<uint64_t> ends_;
};

// Gathers pieces of text, encodes them on all threads, and appends the ids in the order of the text.
class ParallelEncoder {
 public:
  ParallelEncoder(const Tokenizer& tokenizer, int32_t marker, Special special, TokenSequence& out)
      : tokenizer_(tokenizer), marker_(marker), special_(special), out_(out) {}

  void add(std::string_view text, bool document_ends) {
    if (groups_.empty() || groups_.back().text.size() >= kGroupBytes) {
      if (groups_.size() >= kGroupsPerThread * static_cast<size_t>(thread_count())) flush();
      groups_.emplace_back();
    }
    Group& group = groups_.back();
    group.text += text;
    group.pieces.push_back({group.text.size(), document_ends});
  }

  void flush() {
    std::atomic<size_t> next{0};
    std::vector<std::exception_ptr> errors(groups_.size());
    parallel_team([&](const Worker&) {
      for (size_t i; (i = next++) < groups_.size();) {
        try {
          encode(groups_[i]);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }
    });
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    for (const Group& group : groups_) {
      size_t done = 0;
      for (const size_t end : group.document_ends) {
        out_.append(group.ids.data() + done, end - done);
        out_.end_document();
        done = end;
      }
      out_.append(group.ids.data() + done, group.ids.size() - done);
    }
    groups_.clear();
    throw_if_stop_requested();
  }

 private:
  struct Piece {
    size_t end;  // in the group's text
    bool document_ends;
  };
  struct Group {
    std::string text;
    std::vector<Piece> pieces;
    std::vector<int32_t> ids;
    std::vector<size_t> document_ends;  // in ids
  };

  void encode(Group& group) const {
    size_t begin = 0;
    for (const Piece& piece : group.pieces) {
      tokenizer_.encode(std::string_view(group.text).substr(begin, piece.end - begin), special_, group.ids);
      begin = piece.end;
      if (!piece.document_ends) continue;
      group.ids.push_back(marker_);
      group.document_ends.push_back(group.ids.size());
    }
  }

  const Tokenizer& tokenizer_;
  int32_t marker_;
  Special special_;
  TokenSequence& out_;
  std::vector<Group> groups_;
};

// One preparation: its tokenizer, options and folder.
class Preparation {
 public:
  Preparation(const Tokenizer& tokenizer, const PrepareOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        marker_(marker_of(tokenizer)),
        output_(options.output),
        folder_(output_.path()) {
    output_.make_folder();
    manifest_.info = {static_cast<uint64_t>(tokenizer.vocab_size()), tokenizer_hash(tokenizer)};
  }

  PreparedManifest run(const std::vector<std::string>& input, const std::vector<std::string>& valid) {
    const double fraction = options_.valid_fraction.value_or(kDefaultValidFraction);
    TokenSequence all(folder_, "all", manifest_.info);
    read(input, all);
    require_usage(all.size() > 0, "input: no text in {}; want at least one character",
                  input.size() == 1 ? name_of(input[0]) : fmt::format("the {} files", input.size()));
    const bool is_too_small = !options_.valid_fraction && all.size() < kMinTokensForDefaultSplit;
    if (!valid.empty()) {
      TokenSequence held_out(folder_, "valid", manifest_.info);
      read(valid, held_out);
      require_usage(held_out.size() > 0, "valid: no text in the validation files; want at least one character");
      manifest_.valid = held_out.split();
      manifest_.split = "validation from files of its own";
    } else if (fraction == 0 || is_too_small) {
      manifest_.split = is_too_small
                            ? fmt::format("no validation: less than {} tokens and no --valid or --valid-fraction",
                                          kMinTokensForDefaultSplit)
                            : "no validation";
    } else {
      hold_out(all, fraction);
      return finish();
    }
    all.rename("train");
    manifest_.train = all.split();
    return finish();
  }

 private:
  static std::string name_of(const std::string& file) { return file == "-" ? "standard input" : full_path(file); }

  static int32_t marker_of(const Tokenizer& tokenizer) {
    const auto marker = tokenizer.end_of_text();
    require_usage(marker.has_value(), "tokenizer: it has no {} token, which separates documents; use another tokenizer",
                  kEndOfText);
    return *marker;
  }

  void read(const std::vector<std::string>& files, TokenSequence& out) {
    // Runs of text files are one corpus; a token file stands alone.
    for (size_t begin = 0; begin < files.size();) {
      size_t end = begin + 1;
      if (out.size() > 0 && out.last() != marker_) {
        out.append(&marker_, 1);
        out.end_document();
      }
      if (is_token_file(files[begin])) {
        read_tokens(files[begin], out);
      } else {
        while (end < files.size() && !is_token_file(files[end])) ++end;
        read_text(
            {files.begin() + static_cast<std::ptrdiff_t>(begin), files.begin() + static_cast<std::ptrdiff_t>(end)},
            out);
      }
      begin = end;
    }
    manifest_.sources.insert(manifest_.sources.end(), files.begin(), files.end());
    out.finish();
  }

  void read_tokens(const std::string& file, TokenSequence& out) {
    read_token_file(file, manifest_.info.vocabulary_size, [&](const int32_t* tokens, size_t count) {
      for (const int32_t* end = tokens + count; tokens != end;) {
        const int32_t* stop = std::find(tokens, end, marker_);
        const bool document_ends = stop != end;
        stop += document_ends ? 1 : 0;
        out.append(tokens, static_cast<size_t>(stop - tokens));
        if (document_ends) out.end_document();
        tokens = stop;
      }
      throw_if_stop_requested();
    });
  }

  void read_text(const std::vector<std::string>& files, TokenSequence& out) {
    CorpusOptions corpus;
    corpus.json_field = options_.json_field;
    if (!options_.reads_markers) corpus.marker.clear();
    if (options_.on_progress) {
      corpus.on_progress = [&](uint64_t read, uint64_t total) { options_.on_progress(read, total, out.size()); };
    }
    ParallelEncoder encoder(tokenizer_, marker_, options_.reads_markers ? Special::kMarker : Special::kText, out);
    const size_t documents_before = out.document_ends().size();
    const CorpusCounts counts = read_corpus(
        files, corpus, [&](std::string_view text, bool document_ends) { encoder.add(text, document_ends); });
    encoder.flush();
    // Only white space stands after the last marker: a line end, mostly.
    if (counts.documents == out.document_ends().size() - documents_before) out.extend_last_document();
    manifest_.text_bytes += counts.bytes;
  }

  // Deals the documents out to training and validation.
  void hold_out(const TokenSequence& all, double fraction) {
    std::vector<std::string> paths;
    for (const std::string& shard : all.shards()) paths.push_back((folder_ / shard).string());
    const TokenDataset data(options_.output, paths);
    TokenSequence train(folder_, "train", manifest_.info);
    TokenSequence valid(folder_, "valid", manifest_.info);
    const uint64_t documents = all.document_ends().size();
    const double share = fraction * static_cast<double>(documents);
    if (share < 1) {
      const auto kept = static_cast<uint64_t>(std::llround(fraction * static_cast<double>(all.size())));
      copy(data, 0, all.size() - kept, train);
      copy(data, all.size() - kept, all.size(), valid);
      manifest_.split = fmt::format("validation is the last {} of {} tokens", kept, all.size());
    } else {
      // Rounding up must not leave nothing to train on.
      const auto chosen = std::min(static_cast<uint64_t>(std::llround(share)), documents - 1);
      deal_documents(data, all.document_ends(), chosen, train, valid);
      manifest_.split =
          fmt::format("validation is {} of {} documents, drawn with seed {}", chosen, documents, options_.seed);
    }
    require_usage(train.size() > 0,
                  "valid-fraction: nothing is left to train on; got {} of {} tokens in {} documents for validation",
                  valid.size(), all.size(), documents);
    train.finish();
    valid.finish();
    manifest_.train = train.split();
    manifest_.valid = valid.split();
    for (const std::string& path : paths) fs::remove(path);
  }

  // Selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S): exactly `chosen` documents, each
  // set of them equally likely, in one pass.
  void deal_documents(const TokenDataset& data, const std::vector<uint64_t>& ends, uint64_t chosen,
                      TokenSequence& train, TokenSequence& valid) const {
    Random random(options_.seed, RandomStream::data_split);
    uint64_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const bool is_valid = random.next_below(ends.size() - i) < chosen;
      chosen -= is_valid ? 1 : 0;
      TokenSequence& side = is_valid ? valid : train;
      copy(data, begin, ends[i], side);
      side.end_document();
      begin = ends[i];
    }
  }

  static void copy(const TokenDataset& data, uint64_t begin, uint64_t end, TokenSequence& out) {
    std::vector<int32_t> tokens;
    while (begin < end) {
      tokens.resize(std::min<uint64_t>(end - begin, uint64_t{1} << 18));
      data.copy(begin, tokens.size(), tokens.data());
      out.append(tokens.data(), tokens.size());
      begin += tokens.size();
    }
    throw_if_stop_requested();
  }

  PreparedManifest finish() {
    tokenizer_.save(folder_);
    manifest_.write(folder_.string());
    output_.commit();
    return manifest_;
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  int32_t marker_;
  StagedOutput output_;
  const fs::path& folder_;
  PreparedManifest manifest_;
};

}  // namespace

std::optional<PreparedManifest> prepare(const Tokenizer& tokenizer, const PrepareOptions& options) {
  // Looked up first, so that a wrong path costs no work and leaves no trace.
  const std::vector<std::string> input = expand_inputs(options.input);
  const std::vector<std::string> valid =
      options.valid.empty() ? std::vector<std::string>{} : expand_inputs(options.valid);
  try {
    return Preparation(tokenizer, options).run(input, valid);
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

}  // namespace taper
