#include <doctest/doctest.h>
#include <httplib.h>

#include <optional>

#include "engine/core/error.h"
#include "tests/support/temp_dir.h"
#include "tools/common/live_page.h"

using namespace taper;
using namespace taper::test;

TEST_CASE("live page: serves the page and the metrics, nothing else") {
  const TempDir run;
  run.write("metrics.jsonl", "{\"step\":0}\n");
  std::optional<LivePage> page;
  int port = 38471;
  for (; !page && port < 38571; ++port) {
    try {
      page.emplace(port, run.path());
    } catch (const UsageError&) {
      continue;
    }
    break;
  }
  REQUIRE(page.has_value());
  httplib::Client client("127.0.0.1", port);
  const auto metrics = client.Get("/metrics.jsonl");
  REQUIRE(metrics);
  CHECK(metrics->body == "{\"step\":0}\n");
  const auto html = client.Get("/");
  REQUIRE(html);
  CHECK(html->body.find("metrics.jsonl") != std::string::npos);
  CHECK(client.Get("/../etc/passwd")->status == 404);
}
