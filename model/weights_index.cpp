#include "model/weights_index.h"

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/json_text.h"
#include "engine/io/read_file.h"
#include "engine/io/safetensors_header.h"

namespace taper {

std::map<std::string, std::string> read_weights_index(const std::filesystem::path& path) {
  constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 26;
  const std::string file = path.string();
  const nlohmann::json index = parse_json(read_file(path, kMaxIndexBytes), file);
  const bool has_map = index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  require_usage(has_map, "{}: weight_map is missing; want an object of tensors and the files that hold them", file);
  std::map<std::string, std::string> map;
  for (const auto& [name, value] : index["weight_map"].items()) {
    require_usage(value.is_string(), "{}: tensor {}: got {}, want the name of a file", file, quoted_name(name),
                  value.type_name());
    const auto shard = value.get<std::string>();
    require_usage(is_plain_name(shard), "{}: tensor {}: its file lies outside the folder; got {}, want a plain name",
                  file, quoted_name(name), quoted_name(shard));
    map.emplace(name, shard);
  }
  return map;
}

}  // namespace taper
