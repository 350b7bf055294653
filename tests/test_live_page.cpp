#include <doctest/doctest.h>
#include <httplib.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "engine/core/error.h"
#include "tests/support/temp_dir.h"
#include "tools/common/live_page.h"

using namespace taper;
using namespace taper::test;

namespace {

class ServedRun {
 public:
  explicit ServedRun(const std::string& metrics) {
    folder_.write("metrics.jsonl", metrics);
    for (port = 38471; !page_; ++port) {
      try {
        page_ = std::make_unique<LivePage>(port, folder_.path());
        break;
      } catch (const UsageError&) {
        REQUIRE(port < 38571);
      }
    }
  }
  httplib::Result get(const std::string& path, const httplib::Headers& headers = {}) const {
    return httplib::Client("127.0.0.1", port).Get(path, headers);
  }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  void close() { page_.reset(); }

  int port = 0;

 private:
  TempDir folder_;
  std::unique_ptr<LivePage> page_;
};

}  // namespace

TEST_CASE("live page: serves the page and the metrics, nothing else") {
  const ServedRun run("{\"step\":0}\n");
  const auto metrics = run.get("/metrics.jsonl");
  REQUIRE(metrics);
  CHECK(metrics->body == "{\"step\":0}\n");
  const auto html = run.get("/");
  REQUIRE(html);
  CHECK(html->body.find("metrics.jsonl") != std::string::npos);
  for (const char* path : {"/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/config.json", "/metrics"}) {
    CAPTURE(path);
    CHECK(run.get(path)->status == 404);
  }
}

TEST_CASE("live page: whole lines from a byte on, a part at a time") {
  const ServedRun run("{\"step\":0}\n{\"step\":1}\n{\"st");
  CHECK(run.get("/metrics.jsonl?from=0")->body == "{\"step\":0}\n{\"step\":1}\n");
  CHECK(run.get("/metrics.jsonl?from=11")->body == "{\"step\":1}\n");
  CHECK(run.get("/metrics.jsonl?from=22")->body.empty());
  CHECK(run.get("/metrics.jsonl?from=22")->status == 200);
  CHECK(run.get("/metrics.jsonl?from=99")->status == 416);
  for (const char* from : {"-1", "1x", "99999999999999999999", "%00"}) {
    CAPTURE(from);
    CHECK(run.get(std::string("/metrics.jsonl?from=") + from)->status == 400);
  }
  const std::string line = std::string(1000, ' ') + "\n";
  std::string all;
  while (all.size() <= LivePage::kMostBytes) all += line;
  std::ofstream(run.metrics(), std::ios::binary) << all;
  const std::string first = run.get("/metrics.jsonl?from=0")->body;
  CHECK(first.size() == LivePage::kMostBytes / line.size() * line.size());
  CHECK(first + run.get("/metrics.jsonl?from=" + std::to_string(first.size()))->body == all);
}

TEST_CASE("live page: listens to this machine alone") {
  const ServedRun run("");
  // The kernel's own list: address and port in hexadecimal, 0A for a socket that listens.
  char port[8];
  std::snprintf(port, sizeof port, ":%04X", static_cast<unsigned>(run.port));
  std::ifstream sockets("/proc/net/tcp");
  int found = 0;
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    if (state != "0A" || !local.ends_with(port)) continue;
    ++found;
    CHECK(local.starts_with("0100007F"));
  }
  CHECK(found == 1);
  // A name that leads here is not enough: pages of elsewhere can have one.
  CHECK(run.get("/", {{"Host", "elsewhere.example"}})->status == 403);
  CHECK(run.get("/", {{"Host", "127.0.0.1.elsewhere.example:80"}})->status == 403);
  CHECK(run.get("/", {{"Host", "localhost:8080"}})->status == 200);
  const auto page = run.get("/");
  CHECK(page->get_header_value("Content-Security-Policy").starts_with("default-src 'none'"));
  CHECK_FALSE(page->has_header("Access-Control-Allow-Origin"));
}

TEST_CASE("live page: large requests and many are refused, and later ones served") {
  const ServedRun run("{\"step\":0}\n");
  httplib::Client client("127.0.0.1", run.port);
  CHECK(client.Post("/", std::string(LivePage::kMostBodyBytes + 1, 'x'), "text/plain")->status == 413);
  CHECK(client.Post("/", "x", "text/plain")->status == 404);
  CHECK(run.get("/" + std::string(10'000, 'x'))->status == 414);
  client.set_keep_alive(true);
  const auto is_refused = [&] { return client.Get("/metrics.jsonl")->status == 429; };
  int asked = 1;
  while (!is_refused() && asked < 2000) ++asked;
  CHECK(asked > LivePage::kMostAtOnce / 2);
  CHECK(asked < 2000);
  int waited = 0;
  for (; is_refused() && waited < 200; ++waited) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1000 / LivePage::kMostPerSecond));
  }
  CHECK(waited < 200);
}

TEST_CASE("live page: one that has lost its socket ends all the same") {
  ServedRun run("");
  int lost = 0;
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    int listens = 0;
    sockaddr_in address = {};
    socklen_t size = sizeof listens, address_size = sizeof address;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &address_size);
    if (ntohs(address.sin_port) == run.port && shutdown(descriptor, SHUT_RDWR) == 0) ++lost;
  }
  CHECK(lost == 1);
  while (run.get("/")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  run.close();
}
