// A tokenizer from wherever a user may point.
#pragma once

#include <filesystem>

#include "data/tokenizer.h"

namespace taper {

// Of a folder with a tokenizer's files, a model's among them, or of a run: its newest complete checkpoint's. Errors are
// those of Tokenizer::load.
Tokenizer open_tokenizer(const std::filesystem::path& folder);

}  // namespace taper
