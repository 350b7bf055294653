#include "tools/common/open_tokenizer.h"

#include "model/model_folder.h"

namespace taper {

Tokenizer open_tokenizer(const std::filesystem::path& folder) {
  const auto checkpoints = complete_checkpoints(folder);
  return Tokenizer::load(checkpoints.empty() || Tokenizer::find(folder) ? folder : checkpoints.front());
}

}  // namespace taper
