// Writes the synthetic corpus: generated stories, one `<|endoftext|>` line after each. Same seed, same bytes.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "data/byte_stream.h"
#include "data/story_generator.h"
#include "engine/core/error.h"
#include "engine/core/interrupt.h"
#include "tools/common/cli.h"
#include "tools/common/run_tool.h"

namespace {

struct Stopped {};

// To a temporary name first, so that the file is complete where it exists.
void write_stories(uint64_t seed, uint64_t bytes, const std::string& path) {
  const std::string temporary = path + ".partial";
  try {
    std::ofstream out(temporary, std::ios::binary);
    taper::require(out.is_open(), "{}: cannot be written", taper::full_path(temporary));
    taper::generate_stories(seed, bytes, [&](std::string_view piece) {
      out << piece;
      taper::require(out.good(), "{}: writing failed", taper::full_path(temporary));
      if (taper::stop_requested()) throw Stopped{};
    });
    out.close();
    taper::require(out.good(), "{}: writing failed", taper::full_path(temporary));
    std::filesystem::rename(temporary, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return taper::run_tool(argc, argv, [&] {
    double megabytes = 10;
    std::string output = "-";
    taper::Cli cli("stories",
                   "Writes generated children's stories, a synthetic corpus for training without a download.");
    cli.option("--megabytes", megabytes, "how much; the last story is written to its end")
        .unit("MB")
        .above(0)
        .at_most(1e6);
    cli.option("--output", output, "file to write; - is stdout").value_name("FILE");
    const taper::CommonOptions common = cli.parse(argc, argv);
    const auto bytes = static_cast<uint64_t>(megabytes * 1e6);
    try {
      if (output == "-") {
        taper::generate_stories(common.seed, bytes, [](std::string_view piece) {
          taper::write_result(piece);
          if (taper::stop_requested()) throw Stopped{};
        });
      } else {
        write_stories(common.seed, bytes, output);
        taper::print_message("stories: written to " + output);
      }
    } catch (const Stopped&) {
    }
    return 0;
  });
}
