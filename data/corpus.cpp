#include "data/corpus.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "data/byte_stream.h"
#include "engine/core/error.h"
#include "engine/io/json_text.h"

namespace fs = std::filesystem;

namespace taper {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 16;
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Whether the text may end in a white space of Unicode. All of these start with C2, E1 9A, E2 80, E2 81 or E3 80; the
// signs that share these bytes are taken for spaces too, which only costs a place to cut.
bool may_end_in_space(std::string_view text) {
  const auto byte = [&](size_t from_end) {
    return from_end <= text.size() ? static_cast<unsigned char>(text[text.size() - from_end]) : 0;
  };
  if (byte(1) < 0x80) return text.empty() || is_ascii_space(text.back());
  const unsigned lead = byte(3) << 8 | byte(2);
  return byte(2) == 0xC2 || lead == 0xE19A || lead == 0xE280 || lead == 0xE281 || lead == 0xE380;
}

// The last place in [1, limit] where a piece may end, or 0.
size_t last_safe_cut(std::string_view text, size_t limit) {
  for (size_t at = std::min(limit, text.size() - 1); at > 0; --at) {
    if (is_ascii_space(text[at]) && !may_end_in_space(text.substr(0, at))) return at;
  }
  return 0;
}

// Cuts a stream of text at the markers and hands the pieces on.
class DocumentCutter {
 public:
  DocumentCutter(const CorpusOptions& options, const CorpusSink& sink, CorpusCounts& counts)
      : options_(options), sink_(sink), counts_(counts) {}

  void begin_file(const std::string& name) {
    file_ = name;
    boundary_is_due_ = has_open_document_;
  }

  void add(std::string_view text) {
    if (text.empty()) return;
    if (boundary_is_due_) emit({}, true);
    buffer_.append(text);
    size_t begin = 0;
    if (!options_.marker.empty()) begin = emit_marked_documents();
    if (buffer_.size() - begin > kPieceBytes) begin += emit_safe_piece(begin);
    buffer_.erase(0, begin);
    searched_ = buffer_.size() >= options_.marker.size() ? buffer_.size() - options_.marker.size() + 1 : 0;
    if (options_.marker.empty()) searched_ = 0;
  }

  void end_text() {
    if (!buffer_.empty()) emit(buffer_, false);
    buffer_.clear();
    searched_ = 0;
  }

  void end_record() {
    emit(buffer_, true);
    buffer_.clear();
    searched_ = 0;
  }

 private:
  // Returns where the text after the last marker begins.
  size_t emit_marked_documents() {
    size_t begin = 0;
    for (size_t from = searched_;;) {
      const size_t at = buffer_.find(options_.marker, from);
      if (at == std::string::npos) return begin;
      emit(std::string_view(buffer_).substr(begin, at - begin), true);
      begin = from = at + options_.marker.size();
    }
  }

  // Returns the length of the piece, 0 where there is no place to cut yet.
  size_t emit_safe_piece(size_t begin) {
    const std::string_view rest = std::string_view(buffer_).substr(begin);
    // A marker may have begun in the last bytes. A text without any place to cut is looked at again only when it has
    // grown by a piece, else a long one would take quadratic time.
    if (rest.size() < next_cut_size_) return 0;
    const size_t cut = last_safe_cut(rest, rest.size() - std::max<size_t>(options_.marker.size(), 1));
    if (cut == 0) {
      require(rest.size() <= options_.max_record_bytes,
              "{}: a run of text without white space is too long; got more than {} bytes", file_,
              options_.max_record_bytes);
      next_cut_size_ = 2 * rest.size();
      return 0;
    }
    next_cut_size_ = 0;
    emit(rest.substr(0, cut), false);
    return cut;
  }

  void emit(std::string_view text, bool document_ends) {
    counts_.bytes += text.size();
    boundary_is_due_ = false;
    if (document_ends) {
      next_cut_size_ = 0;
      ++counts_.documents;
      has_open_document_ = false;
    } else if (!has_open_document_) {
      has_open_document_ = !std::all_of(text.begin(), text.end(), is_ascii_space);
    }
    sink_(text, document_ends);
  }

 public:
  bool has_open_document() const { return has_open_document_; }

 private:
  const CorpusOptions& options_;
  const CorpusSink& sink_;
  CorpusCounts& counts_;
  std::string file_;
  std::string buffer_;
  size_t searched_ = 0;  // no marker begins before this place of the buffer
  size_t next_cut_size_ = 0;
  bool boundary_is_due_ = false;
  bool has_open_document_ = false;
};

// One line of a .jsonl file. The field's text is a document; markers inside it end documents too.
void add_json_record(std::string_view line, const std::string& name, uint64_t number, const CorpusOptions& options,
                     DocumentCutter& cutter) {
  if (std::all_of(line.begin(), line.end(), is_ascii_space)) return;
  nlohmann::json record;
  try {
    record = parse_json(line, fmt::format("{}, line {}", name, number));
  } catch (const UsageError& e) {
    fail("{}", e.what());  // found amid the work: a failure, no wrong use
  }
  require(record.is_object(), "{}, line {}: wrong JSON type; got {}, want one object a line", name, number,
          record.type_name());
  const auto field = record.find(options.json_field);
  if (field == record.end()) {
    std::string present;
    for (const auto& item : record.items()) present += (present.empty() ? "" : ", ") + item.key();
    fail("{}, line {}: no field '{}'; the record has: {} (choose one with --field)", name, number, options.json_field,
         present.empty() ? "nothing" : present);
  }
  require(field->is_string(), "{}, line {}: field '{}' has the wrong type; got {}, want string", name, number,
          options.json_field, field->type_name());
  cutter.add(field->get_ref<const std::string&>());
  cutter.end_record();
}

// Reads a file in blocks, without a byte-order mark at its start, and reports progress.
template <class OnBlock>
void for_each_block(ByteStream& stream, const std::function<void(uint64_t)>& on_progress, OnBlock on_block) {
  std::vector<char> block(kBlockBytes);
  bool is_first = true;
  while (const size_t size = stream.read(block.data(), block.size())) {
    std::string_view text(block.data(), size);
    if (is_first && text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
    is_first = false;
    on_block(text);
    if (on_progress) on_progress(stream.bytes_consumed());
  }
}

void read_json_lines(ByteStream& stream, const CorpusOptions& options, const std::function<void(uint64_t)>& on_progress,
                     DocumentCutter& cutter) {
  std::string line;
  uint64_t number = 1;
  for_each_block(stream, on_progress, [&](std::string_view text) {
    for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
      line.append(text.substr(0, end));
      add_json_record(line, stream.name(), number++, options, cutter);
      line.clear();
    }
    line.append(text);
    require(line.size() <= options.max_record_bytes, "{}, line {}: a record is too long; got more than {} bytes",
            stream.name(), number, options.max_record_bytes);
  });
  add_json_record(line, stream.name(), number, options, cutter);
}

bool is_json_lines(std::string name) {
  if (has_suffix(name, ".zst")) name.resize(name.size() - 4);
  return has_suffix(name, ".jsonl") || has_suffix(name, ".ndjson") || has_suffix(name, ".json");
}

bool is_readable_kind(std::string name) {
  if (has_suffix(name, ".bin")) return true;
  if (has_suffix(name, ".zst")) name.resize(name.size() - 4);
  for (const char* suffix : {".txt", ".text", ".md", ".jsonl", ".ndjson"}) {
    if (has_suffix(name, suffix)) return true;
  }
  return false;
}

void add_folder(const std::string& folder, std::vector<std::string>& files) {
  const size_t first = files.size();
  std::error_code error;
  auto it = fs::recursive_directory_iterator(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.front() == '.') {
      if (it->is_directory(error)) it.disable_recursion_pending();
    } else if (it->is_regular_file(error) && is_readable_kind(name)) {
      files.push_back(it->path().string());
    }
  }
  require_usage(!error, "{}: the folder cannot be read: {}", full_path(folder), error.message());
  require_usage(files.size() > first,
                "{}: no corpus file in this folder; want .txt, .text, .md, .jsonl, .ndjson, .zst of these, or .bin",
                full_path(folder));
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end());
}

}  // namespace

std::vector<std::string> expand_inputs(const std::vector<std::string>& paths) {
  require_usage(!paths.empty(), "corpus: no input given; want at least one file or folder");
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (path == "-") {
      files.push_back(path);
    } else if (fs::is_directory(path, error)) {
      add_folder(path, files);
    } else {
      require_usage(fs::exists(path, error), "{}: no such file or folder", full_path(path));
      files.push_back(path);
    }
  }
  return files;
}

CorpusCounts read_corpus(const std::vector<std::string>& paths, const CorpusOptions& options, const CorpusSink& sink) {
  const std::vector<std::string> files = expand_inputs(paths);
  uint64_t total = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const uint64_t size = file == "-" ? 0 : fs::file_size(file, error);
    if (!error) total += size;
  }
  CorpusCounts counts;
  DocumentCutter cutter(options, sink, counts);
  uint64_t done = 0;
  const auto on_progress = [&](uint64_t read) {
    if (options.on_progress) options.on_progress(done + read, total);
  };
  for (const std::string& file : files) {
    ByteStream stream(file);
    cutter.begin_file(stream.name());
    if (is_json_lines(file)) {
      read_json_lines(stream, options, on_progress, cutter);
    } else {
      for_each_block(stream, on_progress, [&](std::string_view text) { cutter.add(text); });
      cutter.end_text();
    }
    done += stream.bytes_consumed();
    ++counts.files;
  }
  counts.documents += cutter.has_open_document() ? 1 : 0;
  return counts;
}

}  // namespace taper
