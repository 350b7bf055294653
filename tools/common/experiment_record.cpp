#include "tools/common/experiment_record.h"

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "tools/common/run_settings.h"

namespace taper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxRecordBytes = 4 << 20;
constexpr int64_t kPublishedVocabulary = 10000;

Json to_json(const Scale& scale) {
  return {{"sizes", scale.sizes},        {"seeds", scale.seeds},
          {"steps", scale.steps},        {"batch_tokens", scale.batch_tokens},
          {"context", scale.context},    {"lr", scale.peak},
          {"warmup", scale.warmup},      {"taper_start", scale.taper_start},
          {"taper_end", scale.taper_end}};
}

Scale scale_from_json(const Json& json) {
  Scale scale;
  scale.sizes = json.at("sizes").get<std::vector<std::string>>();
  scale.seeds = json.at("seeds").get<int64_t>();
  scale.steps = json.at("steps").get<int64_t>();
  scale.batch_tokens = json.at("batch_tokens").get<int64_t>();
  scale.context = json.at("context").get<int64_t>();
  scale.peak = json.at("lr").get<double>();
  scale.warmup = json.at("warmup").get<double>();
  scale.taper_start = json.at("taper_start").get<double>();
  scale.taper_end = json.at("taper_end").get<double>();
  require(!scale.sizes.empty() && scale.seeds >= 1 && scale.seeds <= kMostSeeds && scale.steps >= 1,
          "{}: is damaged; got {} sizes, {} seeds and {} steps", kExperimentFile, scale.sizes.size(), scale.seeds,
          scale.steps);
  return scale;
}

Json read_record(const fs::path& output) {
  const fs::path file = output / kExperimentFile;
  Json json = try_parse_json<Json>(read_file(file, kMaxRecordBytes));
  require(json.is_object() && json.contains("settings") && json["settings"].is_object() && json.contains("scale") &&
              json.contains("scale_table"),
          "{}: is damaged; --overwrite begins anew", file.string());
  return json;
}

void require_same(const Json& now, const Json& begun, const fs::path& output) {
  for (const Json* keys : {&now, &begun}) {
    for (const auto& [key, value] : keys->items()) {
      require_usage(key == kVersionKey || setting_text(now, key) == setting_text(begun, key),
                    "--output: {} holds this experiment with another --{}; got {}, want {}; another folder, or "
                    "--overwrite to begin anew",
                    output.string(), key, setting_text(now, key), setting_text(begun, key));
    }
  }
}

}  // namespace

void write_record(const fs::path& output, const ExperimentRecord& record) {
  Json json;
  json["experiment"] = record.name;
  json["question"] = record.question;
  json["settings"] = record.settings;
  json["scale"] = to_json(record.scale);
  json["scale_table"] = to_json(record.scale_table);
  write_file(output / kExperimentFile, json.dump(2) + "\n");
}

Scale recorded_scale(const fs::path& output, const std::string& name, const Json& settings) {
  const Json record = read_record(output);
  const Json begun = record.value("experiment", Json());
  require_usage(begun == name,
                "--output: {} holds another experiment; got {}, want {}; another folder, or --overwrite "
                "to begin anew",
                output.string(), shown(begun), name);
  require_same(settings, record["settings"], output);
  try {
    return scale_from_json(record["scale"]);
  } catch (const nlohmann::json::exception& error) {
    fail("{}: is damaged: {}", (output / kExperimentFile).string(), error.what());
  }
}

ResultTable recorded_scale_table(const fs::path& output) {
  return table_from_json(read_record(output)["scale_table"], (output / kExperimentFile).string());
}

ResultTable scale_table(const Scale& here, const Scale& full, int64_t vocabulary, const std::string& precision) {
  ResultTable table{"scale",
                    "What was scaled: this run of the experiment beside the published setting",
                    {"", "here", "published"},
                    {},
                    ""};
  const auto add = [&](const char* what, const std::string& ours, const std::string& theirs) {
    table.rows.push_back({text_cell(what), text_cell(ours), text_cell(theirs)});
  };
  const auto tokens = [](const Scale& scale) { return static_cast<double>(scale.steps * scale.batch_tokens); };
  const auto schedule = [](const Scale& scale) {
    return fmt::format("{:g} / {:g} / {:g}", scale.warmup, scale.taper_start, scale.taper_end);
  };
  add("models", fmt::format("{}", fmt::join(here.sizes, " ")), fmt::format("{}", fmt::join(full.sizes, " ")));
  add("seeds", std::to_string(here.seeds), std::to_string(full.seeds));
  add("vocabulary", std::to_string(vocabulary), std::to_string(kPublishedVocabulary));
  add("context", std::to_string(here.context), std::to_string(full.context));
  add("tokens a step", std::to_string(here.batch_tokens), std::to_string(full.batch_tokens));
  add("steps", std::to_string(here.steps), std::to_string(full.steps));
  add("tokens of a run",
      fmt::format("{:.4g} million, {:.2g} % of the published", tokens(here) / 1e6, 100 * tokens(here) / tokens(full)),
      fmt::format("{:.4g} million", tokens(full) / 1e6));
  add("peak learning rate", fmt::format("{:g}", here.peak), fmt::format("{:g}", full.peak));
  add("warm-up / taper start / taper end, parts of the steps", schedule(here), schedule(full));
  table.rows.push_back({text_cell("precision"), text_cell(precision), Cell{}});
  return table;
}

Json write_tables(const fs::path& output, const std::string& name, const std::string& question,
                  const std::vector<ResultTable>& tables) {
  Json json;
  json["experiment"] = name;
  json["question"] = question;
  json["tables"] = Json::array();
  std::string markdown = question + "\n";
  for (const ResultTable& table : tables) {
    json["tables"].push_back(to_json(table));
    markdown += "\n" + to_markdown(table);
    write_file(output / (table.name + ".csv"), to_csv(table));
  }
  write_file(output / kMarkdownFile, markdown);
  write_file(output / kTableFile, json.dump(2) + "\n");
  return json;
}

}  // namespace taper
