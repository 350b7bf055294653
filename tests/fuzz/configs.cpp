// The JSON files a model, a data folder or a call may bring along. The first byte says which.
#include "data/prepared_data.h"
#include "model/config.h"
#include "model/hf_config.h"
#include "tests/fuzz/fuzz.h"
#include "tools/common/config_file.h"

using namespace taper;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::as_text(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      fuzz::takes_or_refuses([&] {
        const ModelConfig config = config_from_json(text, "input");
        const std::string again = config_to_json(config);
        fuzz::expect(config_to_json(config_from_json(again, "again")) == again, "a config written is read back");
        fuzz::expect(parameter_count(config) > 0, "a model has parameters");
      });
      break;
    case 1:
      fuzz::takes_or_refuses([&] {
        const HfConfig config = hf_config_from_json(text, "input");
        check_config(config.model, "input");
      });
      break;
    case 2:
      fuzz::write_input("data.json", text);
      fuzz::takes_or_refuses([&] {
        const PreparedManifest manifest = PreparedManifest::read(fuzz::input_path("").string());
        for (const PreparedSplit* split : {&manifest.train, &manifest.valid}) {
          for (const std::string& shard : split->shards) {
            fuzz::expect(shard.find('/') == std::string::npos && shard != "..", "shards lie inside the folder");
          }
        }
      });
      break;
    default:
      fuzz::takes_or_refuses([&] { read_config_file(fuzz::write_input("input.json", text)); });
  }
  return 0;
}
