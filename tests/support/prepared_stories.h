// A prepared folder of a few thousand tokens, made by the programs themselves, with a vocabulary of 270.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/run_process.h"
#include "tests/support/temp_dir.h"

namespace taper::test {

class PreparedStories {
 public:
  PreparedStories();

  std::string data() const { return path("data"); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  const TempDir& folder() const { return folder_; }

 private:
  TempDir folder_;
};

// Options of pretrain that make its model tiny, on one thread.
std::vector<std::string> tiny_pretrain(const PreparedStories& stories, const std::string& output, int64_t steps);
// Options of an experiment that make its models tiny.
std::vector<std::string> tiny_experiment(const PreparedStories& stories, const std::string& output, int steps);

}  // namespace taper::test
