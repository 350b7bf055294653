#include <doctest/doctest.h>

#include "engine/core/error.h"
#include "tests/support/temp_dir.h"
#include "tools/common/plan.h"

using namespace taper;
using namespace taper::test;

TEST_CASE("plan: what is written is read back") {
  const TempDir folder;
  const std::string text =
      "{\"name\":\"a\",\"program\":\"pretrain\",\"options\":{\"size\":\"1M\",\"steps\":5,\"lr\":0.003}}\n"
      "{\"name\":\"b.1_x-y\",\"program\":\"finetune\",\"options\":{\"allow-unfinished-taper\":true},\"after\":\"a\"}\n";
  const std::vector<PlannedRun> runs = read_plan(folder.write("plan.jsonl", "\n" + text));
  REQUIRE(runs.size() == 2);
  CHECK(runs[1].name == "b.1_x-y");
  CHECK(runs[1].program == "finetune");
  CHECK(runs[1].after == "a");
  CHECK(plan_text(runs) == text);
  CHECK(arguments_of(runs[0].options) == std::vector<std::string>{"--size=1M", "--steps=5", "--lr=0.003"});
  CHECK(arguments_of(runs[1].options) == std::vector<std::string>{"--allow-unfinished-taper"});
  CHECK(arguments_of({{"quick", false}, {"sample-prompt", "--x"}}) == std::vector<std::string>{"--sample-prompt=--x"});
}

TEST_CASE("plan: counts may be numbers or text, and are refused by run and option otherwise") {
  const PlannedRun run{
      "a", "pretrain", {{"steps", 5}, {"context", "256"}, {"threads", "two"}, {"heads", 1.5}, {"width", 0}}, ""};
  CHECK(option_count(run, "steps") == 5);
  CHECK(option_count(run, "context") == 256);
  CHECK_FALSE(option_count(run, "layers").has_value());
  CHECK_THROWS_WITH_AS(option_count(run, "threads"), "plan: a: --threads: got \"two\", want a whole number above 0",
                       UsageError);
  CHECK_THROWS_AS(option_count(run, "heads"), UsageError);
  CHECK_THROWS_AS(option_count(run, "width"), UsageError);
}

TEST_CASE("plan: what is wrong is named with file and line") {
  const TempDir folder;
  const std::string good = R"({"name":"a","program":"pretrain","options":{}})";
  const auto refuses = [&](const std::string& text, const std::string& message) {
    CAPTURE(text);
    try {
      read_plan(folder.write("plan.jsonl", text));
      FAIL_CHECK("it was read");
    } catch (const UsageError& error) {
      CAPTURE(error.what());
      CHECK(std::string(error.what()).find(message) != std::string::npos);
    }
  };
  refuses("", "holds no runs");
  refuses("\n\n", "holds no runs");
  refuses(good + "\n[1]", "plan.jsonl:2: want a JSON object");
  refuses(good + "\n{\"name\":", "plan.jsonl:2: want a JSON object");
  refuses(good + "\n" + good, "plan.jsonl:2: a second run of the name a");
  refuses(R"({"program":"pretrain","options":{}})", ":1: name: want a text");
  refuses(R"({"name":3,"program":"pretrain","options":{}})", ":1: name: want a text");
  for (const char* name : {"", "..", "../a", "a/b", "-a", "a b", ".hidden"}) {
    refuses(R"({"name":")" + std::string(name) + R"(","program":"pretrain","options":{}})", ":1: name: got");
  }
  refuses(R"({"name":"a","program":"sh","options":{}})", "program: got 'sh', want pretrain or finetune");
  refuses(R"({"name":"a","program":"pretrain"})", "options are missing");
  refuses(R"({"name":"a","program":"pretrain","options":[]})", "options: got an array");
  refuses(R"({"name":"a","program":"pretrain","options":{"output":"x"}})", "output is not a plan's to give");
  refuses(R"({"name":"a","program":"pretrain","options":{"steps=3 --x":"x"}})", "is not a plan's to give");
  refuses(R"({"name":"a","program":"pretrain","options":{"steps":null}})", "steps: got null");
  refuses(R"({"name":"a","program":"pretrain","options":{},"after":"a"})", "after: got 'a'");
  refuses(R"({"name":"a","program":"pretrain","options":{},"befor":"a"})", "unknown key; got befor");
}
