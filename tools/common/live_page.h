// A page that shows a run while it goes: curves drawn from the run's metrics.jsonl, at http://127.0.0.1:PORT/. The file
// itself is at /metrics.jsonl?from=BYTE, whole lines, at most kMostBytes at a time. Of the file the page shows numbers
// alone. Other machines cannot reach it, nor pages of other sites in a browser here; requests are small and not many,
// else they are refused (413, 414, 429).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace taper {

class LivePage {
 public:
  static constexpr int kMostAtOnce = 40;  // requests
  static constexpr int kMostPerSecond = 20;
  static constexpr size_t kMostBodyBytes = 1024;         // of a request
  static constexpr size_t kMostBytes = size_t{4} << 20;  // of an answer

  // Serves from a thread of its own until destroyed. UsageError where the port cannot be had.
  LivePage(int port, const std::filesystem::path& run);
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace taper
