// Writes the synthetic corpus: generated stories, one `<|endoftext|>` line after each. Same seed, same bytes.
#include <string>

#include "data/story_generator.h"
#include "engine/core/interrupt.h"
#include "engine/io/atomic_file.h"
#include "tools/common/cli.h"
#include "tools/common/run_tool.h"

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
          taper::throw_if_stop_requested();
        });
      } else {
        taper::AtomicFile file(output);
        taper::generate_stories(common.seed, bytes, [&](std::string_view piece) {
          file.write(piece.data(), piece.size());
          taper::throw_if_stop_requested();
        });
        file.commit();
        taper::print_message("stories: written to " + output);
      }
    } catch (const taper::Stopped&) {
    }
    return 0;
  });
}
