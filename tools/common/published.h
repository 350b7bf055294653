// The published figures that experiments are compared with, with their sources.
#pragma once

#include <string>
#include <vector>

#include "tools/common/result_table.h"

namespace taper {

// For the name of an experiment's program, or "decode-bench" or "last-token-bench"; none where there is nothing
// published to compare with. The notes name the sources.
std::vector<ResultTable> published_figures(const std::string& experiment);

}  // namespace taper
