// One page about experiments, runs and benchmarks: tables with the published figures beside ours, curves, throughput,
// samples of text, settings and the machine. It needs nothing but itself: works offline, in the light and in the dark,
// on a phone and on paper. The same tables as Markdown and as CSV lie beside it. Example:
//   report runs/tinystories-table runs/logit-chasing runs/bench/decode-1M.json --output runs/report.html
// With --pictures FOLDER each plot is there as an SVG of its own as well, with a legend, for a README or a talk.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "tools/common/cli.h"
#include "tools/common/report_page.h"
#include "tools/common/run_tool.h"

namespace taper {
namespace {

constexpr const char* kTitle = "<title>taper: experiments</title>";

std::filesystem::path beside(const std::filesystem::path& page, const char* extension) {
  return std::filesystem::path(page).replace_extension(extension);
}

bool has_title(const std::filesystem::path& path, const std::string& title) {
  if (!std::filesystem::is_regular_file(path)) return false;  // a pipe would be waited for
  std::ifstream file(path, std::ios::binary);
  std::string head(512, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return head.find(title) != std::string::npos;
}

// Only what an earlier call wrote is replaced: the page says whether one did.
void require_own(const std::filesystem::path& page) {
  require_usage(page.extension() == ".html", "--output: got {}, want a name that ends in .html", page.string());
  if (has_title(page, kTitle)) return;
  for (const std::filesystem::path& file : {page, beside(page, ".md"), beside(page, ".csv")}) {
    require_usage(!std::filesystem::exists(file), "--output: {} is there and no report's; want another name",
                  file.string());
  }
}

using Pictures = std::map<std::filesystem::path, std::string>;

// As with the page.
void require_own(const Pictures& pictures) {
  for (const auto& [file, svg] : pictures) {
    require_usage(!std::filesystem::exists(file) || has_title(file, std::string("<title>") + kPictureTitle),
                  "--pictures: {} is there and no report's; want another folder", file.string());
  }
}

int run(int argc, char** argv) {
  std::vector<std::string> paths;
  std::filesystem::path output, picture_folder;
  Cli cli("report", "One self-contained page about experiments, runs and benchmarks.");
  cli.positional("RUN", paths, "folders of experiments and of runs, and files of decode-bench --json").required();
  cli.option("--output", output, "the page; its tables go beside it, as .md and .csv").value_name("FILE").required();
  cli.option("--pictures", picture_folder, "each plot as an SVG of its own goes there")
      .value_name("DIR")
      .default_text("none");
  cli.parse(argc, argv);
  require_own(output);
  require_usage(!std::filesystem::exists(picture_folder) || std::filesystem::is_directory(picture_folder),
                "--pictures: {} is a file; want a folder", picture_folder.string());
  ReportInputs inputs;
  for (const std::string& path : paths) inputs.add(path);
  ReportPage page(!picture_folder.empty());
  for (const std::filesystem::path& folder : inputs.experiments) page.add_experiment(folder);
  page.add_benchmarks(inputs.benchmarks);
  page.add_runs(inputs.runs);
  page.add_machine();
  Pictures pictures;
  for (const auto& [name, svg] : page.pictures()) pictures.emplace(picture_folder / (name + ".svg"), svg);
  require_own(pictures);
  if (!pictures.empty()) std::filesystem::create_directories(picture_folder);
  for (const auto& [file, svg] : pictures) write_file(file, svg);
  write_file(output, page.html());
  write_file(beside(output, ".md"), page.markdown());
  write_file(beside(output, ".csv"), page.csv());
  print_message("report: written to " + output.string());
  return 0;
}

}  // namespace
}  // namespace taper

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] { return taper::run(argc, argv); });
}
