#include "tools/common/live_page.h"

#include <httplib.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "engine/core/error.h"

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
async function refresh() {
  const text = await (await fetch("metrics.jsonl")).text();
  const lines = text.split("\n").slice(0, -1).map(l => JSON.parse(l));
  for (const key of keys) draw(key, lines);
  const step = lines.filter(l => "loss" in l).at(-1);
  if (step) document.getElementById("last").textContent = `step ${step.step}, ${step.tokens_per_s} tokens/s`;
}
refresh(); setInterval(refresh, 3000);
</script>
)html";

}  // namespace

struct LivePage::Server {
  httplib::Server http;
  std::thread thread;
};

LivePage::LivePage(int port, const std::filesystem::path& run) : server_(std::make_unique<Server>()) {
  server_->http.Get(
      "/", [](const httplib::Request&, httplib::Response& response) { response.set_content(kPage, "text/html"); });
  server_->http.Get("/metrics.jsonl", [run](const httplib::Request&, httplib::Response& response) {
    std::ifstream file(run / "metrics.jsonl", std::ios::binary);
    response.set_content(std::string(std::istreambuf_iterator<char>(file), {}), "application/x-ndjson");
  });
  require_usage(server_->http.bind_to_port("127.0.0.1", port), "--live: port {} cannot be had; want a free one", port);
  server_->thread = std::thread([this] { server_->http.listen_after_bind(); });
}

LivePage::~LivePage() {
  // A stop before the listener runs would be lost.
  while (!server_->http.is_running()) std::this_thread::yield();
  server_->http.stop();
  server_->thread.join();
}

}  // namespace taper
