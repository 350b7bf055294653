#include "tools/common/live_page.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "engine/core/error.h"
#include "train/metrics.h"

namespace taper {
namespace {

constexpr const char* kPage = R"html(<!doctype html>
<meta charset="utf-8"><title>training run</title>
<style>body{font:14px sans-serif;margin:2em}canvas{border:1px solid #ccc;margin:0 1em 1em 0}</style>
<h1>training run</h1><p id="last"></p><div id="curves"></div>
<script>
const keys = ["loss", "valid_loss", "gate", "lr", "scale", "grad_norm", "logit_rms", "radial_loss"];
function draw(key, lines) {
  let canvas = document.getElementById(key);
  if (!canvas) {
    canvas = document.createElement("canvas");
    canvas.id = key; canvas.width = 420; canvas.height = 200;
    document.getElementById("curves").append(canvas);
  }
  const points = lines.filter(l => typeof l[key] == "number").map(l => [l.step, l[key]]);
  const g = canvas.getContext("2d");
  g.clearRect(0, 0, 420, 200);
  if (!points.length) return;
  const ys = points.map(p => p[1]), low = Math.min(...ys), high = Math.max(...ys), end = points.at(-1)[0] || 1;
  g.fillText(`${key} ${ys.at(-1).toPrecision(4)}  (${low.toPrecision(4)} to ${high.toPrecision(4)})`, 8, 14);
  g.beginPath();
  for (const [x, y] of points) g.lineTo(8 + 404 * x / end, 190 - 165 * (y - low) / (high - low || 1));
  g.stroke();
}
let lines = [], at = 0;
async function load() {
  for (;;) {
    const answer = await fetch("metrics.jsonl?from=" + at);
    if (answer.status == 416) { lines = []; at = 0; return; }
    if (!answer.ok) return;
    const bytes = await answer.arrayBuffer();
    if (!bytes.byteLength) return;
    at += bytes.byteLength;
    for (const line of new TextDecoder().decode(bytes).split("\n")) if (line) lines.push(JSON.parse(line));
  }
}
async function refresh() {
  // A file that began anew in the middle of what was read is read from its start.
  try { await load(); } catch (error) { lines = []; at = 0; return; }
  for (const key of keys) draw(key, lines);
  const step = lines.filter(l => "loss" in l).at(-1);
  if (step) document.getElementById("last").textContent = `step ${step.step}, ${step.tokens_per_s} tokens/s`;
}
refresh(); setInterval(refresh, 3000);
</script>
)html";

// So many requests at once, and so many a second in the long run.
class RateLimit {
 public:
  bool allows_one_more() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    left_ = std::min<double>(LivePage::kMostAtOnce, left_ + seconds * LivePage::kMostPerSecond);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

 private:
  std::mutex mutex_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double left_ = LivePage::kMostAtOnce;
};

// A page of elsewhere may have its own name lead to this machine; its scripts would then read ours.
bool names_this_machine(std::string_view host) {
  host = host.substr(0, host.find(':'));
  return host == "127.0.0.1" || host == "localhost";
}

// Whole lines from this byte on, a part of the file at a time; none where it has not so many bytes.
std::optional<std::string> lines_from(const std::filesystem::path& path, uint64_t begin) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || begin > size) return {};
  std::string text(std::min<uint64_t>(size - begin, LivePage::kMostBytes), '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  text.resize(text.rfind('\n') + 1);  // to nothing where there is no end of a line
  return text;
}

}  // namespace

struct LivePage::Server {
  httplib::Server http;
  RateLimit rate;
  std::atomic<bool> has_ended = false;
  std::thread thread;

  // Small requests from this machine, few at a time.
  void set_limits() {
    // The library's own options let several processes share a port, each request going to any of them.
    http.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http.new_task_queue = [] { return new httplib::ThreadPool(2); };
    http.set_payload_max_length(kMostBodyBytes);
    http.set_read_timeout(2);
    http.set_write_timeout(2);
    http.set_keep_alive_timeout(1);
    http.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                              {"Content-Security-Policy",
                               "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
                               "style-src 'unsafe-inline'"}});
    http.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      using Response = httplib::Server::HandlerResponse;
      response.status = !names_this_machine(request.get_header_value("Host")) ? 403
                        : !rate.allows_one_more()                             ? 429
                                                                              : -1;
      return response.status == -1 ? Response::Unhandled : Response::Handled;
    });
  }

  void serve(const std::filesystem::path& metrics) {
    http.Get("/",
             [](const httplib::Request&, httplib::Response& response) { response.set_content(kPage, "text/html"); });
    http.Get("/metrics.jsonl", [metrics](const httplib::Request& request, httplib::Response& response) {
      const std::string from = request.get_param_value("from");
      uint64_t begin = 0;
      const auto [rest, error] = std::from_chars(from.data(), from.data() + from.size(), begin);
      const bool is_number = from.empty() || (error == std::errc() && rest == from.data() + from.size());
      const std::optional<std::string> lines = is_number ? lines_from(metrics, begin) : std::nullopt;
      if (lines) response.set_content(*lines, "application/x-ndjson");
      if (!lines) response.status = is_number ? 416 : 400;
    });
  }
};

LivePage::LivePage(int port, const std::filesystem::path& run) : server_(std::make_unique<Server>()) {
  server_->set_limits();
  server_->serve(run / kMetricsFile);
  require_usage(server_->http.bind_to_port("127.0.0.1", port), "--live: port {} cannot be had; want a free one", port);
  server_->thread = std::thread([server = server_.get()] {
    server->http.listen_after_bind();
    server->has_ended = true;
  });
}

LivePage::~LivePage() {
  // A stop before the listener runs would be lost. It ends by itself where the system takes its socket away.
  while (!server_->http.is_running() && !server_->has_ended) std::this_thread::yield();
  server_->http.stop();
  server_->thread.join();
}

}  // namespace taper
