// A checkpoint's training.json, then after a zero byte the model.safetensors beside it.
#include "engine/io/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "train/checkpoint_manifest.h"

using namespace taper;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest = fuzz::as_text(data, size);
  fuzz::write_input(kCheckpointManifest, fuzz::cut_at_zero(rest));
  const auto weights = fuzz::write_input("model.safetensors", rest);
  const auto folder = fuzz::input_path("");
  fuzz::takes_or_refuses([&] {
    const CheckpointManifest manifest = CheckpointManifest::read(folder);
    fuzz::expect(manifest.state.step >= 0 && manifest.state.updates >= 0, "counts are not negative");
    const std::string again = manifest.to_json();
    fuzz::write_input(kCheckpointManifest, again);
    fuzz::expect(CheckpointManifest::read(folder).to_json() == again, "a manifest written is read back");
    fuzz::takes_or_refuses([&] { manifest.files.check_all(); });
    fuzz::takes_or_refuses([&] { manifest.files.check_without_tensors(); });
    const SafetensorsFile file = SafetensorsFile::open(weights);
    for (const std::string& name : file.names()) {
      fuzz::takes_or_refuses([&] { manifest.files.check_tensor(file, name); });
    }
  });
  return 0;
}
