#include "curvq/io/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/expert_tensors.h"
#include "curvq/io/gguf.h"
#include "curvq/io/json.h"
#include "curvq/io/model_files.h"
#include "io/hash.h"
#include "io/mapping.h"
#include "io/text.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

// Tensor to shard.
using WeightMap = std::map<std::string, std::string>;

void check_shard_name(const std::string& shard, const std::string& index) {
  const fs::path path(shard);
  const bool escapes = std::find(path.begin(), path.end(), "..") != path.end();
  if (shard.empty() || path.is_absolute() || escapes) {
    throw FormatError(index + ": shard \"" + io::printable(shard) +
                      "\" is outside of the directory; a shard must be a file in it");
  }
}

WeightMap read_index(const std::string& path) {
  const Json json = read_json_file(path);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
    throw FormatError(path + ": \"weight_map\" must be an object that is not empty");
  }
  WeightMap out;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      throw FormatError(path + ": weight_map \"" + io::printable(tensor) +
                        "\" must be a file name");
    }
    check_shard_name(shard.get_ref<const std::string&>(), path);
    out.emplace(tensor, shard.get<std::string>());
  }
  return out;
}

// Names such as model-00001-of-00003.safetensors tell how many there must be.
void check_shards_complete(const std::set<std::string>& shards, const std::string& directory) {
  static const std::regex pattern(R"((.*)-([0-9]{5})-of-([0-9]{5})\.safetensors)");
  for (const std::string& shard : shards) {
    std::smatch parts;
    if (!std::regex_match(shard, parts, pattern)) continue;
    const int total = std::stoi(parts[3]);
    for (int i = 1; i <= total; ++i) {
      const std::string name =
          format("%s-%05d-of-%05d.safetensors", parts[1].str().c_str(), i, total);
      if (shards.count(name) == 0) {
        throw FormatError(directory + ": shard " + name + " is missing; fetch it");
      }
    }
  }
}

std::set<std::string> list_files(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!entry.is_directory()) names.insert(entry.path().filename().string());
  }
  return names;
}

[[noreturn]] void no_weights(const std::string& directory, const std::set<std::string>& names) {
  std::string other;
  for (const std::string& name : names) {
    const std::string extension = fs::path(name).extension();
    const bool weights =
        extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".h5";
    if (extension == ".gguf") other = "; " + name + " is there, which curvq reads by its own path";
    if (weights && other.empty()) other = "; " + name + " is there, but in another format";
  }
  throw FormatError(directory + ": has no weights; looked for " + kSingleName + ", " + kIndexName +
                    " and *.safetensors" + other);
}

// The shards of a model directory, and what its index says of them (empty without one).
std::set<std::string> find_shards(const fs::path& directory, WeightMap* weight_map) {
  if (fs::exists(directory / kSingleName)) return {kSingleName};
  const fs::path index = directory / kIndexName;
  std::set<std::string> shards;
  if (fs::exists(index)) {
    *weight_map = read_index(index);
    for (const auto& [tensor, shard] : *weight_map) shards.insert(shard);
    for (const std::string& shard : shards) {
      if (!fs::exists(directory / shard)) {
        throw FormatError((directory / shard).string() + ": is named by " + kIndexName +
                          " but missing; fetch it");
      }
    }
    return shards;
  }
  const std::set<std::string> names = list_files(directory);
  for (const std::string& name : names) {
    if (fs::path(name).extension() == ".safetensors") shards.insert(name);
  }
  if (shards.empty()) no_weights(directory, names);
  check_shards_complete(shards, directory);
  return shards;
}

void check_index(const WeightMap& weight_map, const Checkpoint& checkpoint) {
  if (weight_map.empty()) return;
  const fs::path directory(checkpoint.path());
  for (const auto& [name, shard] : weight_map) {
    const TensorView* tensor = checkpoint.find(name);
    const std::string expected = directory / shard;
    if (tensor == nullptr || tensor->file != expected) {
      throw FormatError((directory / kIndexName).string() + ": says that " + io::printable(name) +
                        " is in " + io::printable(shard) + ", " +
                        (tensor == nullptr ? "no shard has it" : "it is in " + tensor->file));
    }
  }
  for (const TensorView* tensor : checkpoint.tensors()) {
    if (weight_map.count(tensor->name) == 0) {
      log_warning(tensor->file + ": " + io::printable(tensor->name) + " is not in " + kIndexName);
    }
  }
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(path) {
  WeightMap weight_map;
  try {
    if (!fs::exists(path)) throw UsageError(path + ": does not exist");
    is_directory_ = fs::is_directory(path);
    if (is_directory_) {
      for (const std::string& shard : find_shards(path, &weight_map)) {
        files_.emplace_back(fs::path(path) / shard);
      }
    } else if (curvq::is_gguf(path)) {
      gguf_ = std::make_shared<const GgufModel>(path);
    } else {
      files_.emplace_back(path);
    }
  } catch (const fs::filesystem_error& e) {
    throw ResourceError(path + ": cannot be read: " + e.code().message());
  }
  const auto add = [this](const TensorView& tensor) {
    const auto [entry, is_new] = by_name_.emplace(tensor.name, &tensor);
    if (!is_new) {
      throw FormatError(tensor.file + ": " + io::printable(tensor.name) + " is also in " +
                        entry->second->file);
    }
  };
  if (gguf_) std::for_each(gguf_->tensors().begin(), gguf_->tensors().end(), add);
  for (const SafetensorsFile& file : files_) {
    std::for_each(file.tensors().begin(), file.tensors().end(), add);
  }
  for (const auto& [name, tensor] : by_name_) tensors_.push_back(tensor);
  check_index(weight_map, *this);
  if (is_directory_) split_experts();
}

void Checkpoint::split_experts() {
  const auto config = read_model_file(path_, "config.json");
  if (!config || !has_fused_experts(parse_json(*config, path_ + "/config.json"))) return;
  const auto experts = std::make_shared<std::vector<TensorView>>();
  for (const TensorView* tensor : tensors_) {
    std::vector<TensorView> views = expert_views(*tensor);
    if (views.empty()) continue;
    by_name_.erase(tensor->name);
    std::move(views.begin(), views.end(), std::back_inserter(*experts));
  }
  for (const TensorView& view : *experts) {
    if (by_name_.emplace(view.name, &view).second) continue;
    throw FormatError(view.file + ": " + io::printable(view.name) +
                      " is there beside the tensor that holds all experts");
  }
  experts_ = experts;
  tensors_.clear();
  for (const auto& [name, tensor] : by_name_) tensors_.push_back(tensor);
}

size_t Checkpoint::num_files() const { return gguf_ ? gguf_->num_files() : files_.size(); }

const std::map<std::string, std::string>& Checkpoint::metadata() const {
  static const std::map<std::string, std::string> none;
  return gguf_ ? none : files_.front().metadata();
}

const TensorView* Checkpoint::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const TensorView& Checkpoint::at(const std::string& name) const {
  if (const TensorView* tensor = find(name)) return *tensor;
  std::vector<std::string_view> names;
  for (const auto& [known, tensor] : by_name_) names.push_back(known);
  throw FormatError(path_ + ": has no tensor " + io::printable(name) +
                    io::nearest_names(name, names));
}

void Checkpoint::release(const TensorView& tensor) const {
  io::release_pages(tensor.encoding ? tensor.encoding->stored() : tensor.data,
                    tensor.stored_bytes());
}

std::string Checkpoint::content_hash() const {
  io::Hasher hasher;
  std::vector<std::byte> decoded;
  for (const TensorView* tensor : tensors_) {
    hasher.add(tensor->name);
    hasher.add(std::string(dtype_name(tensor->dtype)));
    hasher.add(static_cast<int64_t>(tensor->shape.size()));
    for (const int64_t size : tensor->shape) hasher.add(size);
    hasher.add(tensor->bytes(&decoded), static_cast<size_t>(tensor->num_bytes()));
    release(*tensor);
  }
  return hasher.hex();
}

}  // namespace curvq
