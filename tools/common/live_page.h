// A page that shows a run while it goes: curves drawn from the run's metrics.jsonl, at http://127.0.0.1:PORT/. The file
// itself is at /metrics.jsonl.
#pragma once

#include <filesystem>
#include <memory>

namespace taper {

class LivePage {
 public:
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
