// Shards and their index.
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/expert_tensors.h"
#include "eval/verify_context.h"

namespace curvq::verify {
namespace {

namespace fs = std::filesystem;
using Severity = VerifyProblem::Severity;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

std::set<std::string> safetensors_in(const fs::path& directory) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const fs::path name = entry.path().filename();
    if (name.extension() == ".safetensors") names.insert(name);
  }
  return names;
}

// weight_map of the index; nothing if it cannot be read.
std::map<std::string, std::string> read_index(Context* context, int64_t* total_size) {
  std::map<std::string, std::string> shard_of;
  try {
    const Json index = read_json_file(context->directory / kIndex);
    const Json map = index.is_object() ? index.value("weight_map", Json()) : Json();
    if (!map.is_object() || map.empty()) {
      throw FormatError("weight_map is missing, empty, or not an object");
    }
    for (const auto& [tensor, shard] : map.items()) {
      if (!shard.is_string()) throw FormatError("weight_map: " + tensor + ": not a file name");
      const std::string name = shard.get<std::string>();
      if (name != fs::path(name).filename()) {
        throw FormatError("weight_map: " + tensor + ": " + name + " is not in the directory");
      }
      shard_of[tensor] = name;
    }
    const Json metadata = index.value("metadata", Json());
    if (metadata.is_object()) *total_size = json_int(metadata, "total_size", -1, kIndex);
  } catch (const Error& error) {
    context->add_exception(Severity::kUnreadable, kIndex, error.what());
  }
  return shard_of;
}

void open_shard(Context* context, const std::string& name) {
  const fs::path path = context->is_directory ? context->directory / name : fs::path(context->path);
  try {
    context->files.emplace_back(path);
  } catch (const Error& error) {
    context->complete = false;
    context->add_exception(Severity::kUnreadable, name, error.what());
  }
}

// "model-00002-of-00003.safetensors" tells that there are three.
void check_numbering(Context* context, const std::set<std::string>& shards) {
  for (const std::string& name : shards) {
    int number = 0, total = 0, length = 0;
    const int fields =
        std::sscanf(name.c_str(), "model-%5d-of-%5d.safetensors%n", &number, &total, &length);
    if (fields != 2 || length != static_cast<int>(name.size())) continue;
    for (int i = 1; i <= total; ++i) {
      const std::string other = format("model-%05d-of-%05d.safetensors", i, total);
      if (shards.count(other)) continue;
      context->complete = false;
      context->error(
          other, "",
          "missing: " + name + " says that there are " + std::to_string(total) + " shards");
    }
    return;
  }
}

void check_index(Context* context, const std::map<std::string, std::string>& shard_of,
                 int64_t total_size) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : context->tensors) {
    bytes += tensor->num_bytes();
    const std::string file = fs::path(tensor->file).filename();
    const auto listed = shard_of.find(name);
    if (listed == shard_of.end()) {
      context->warning(file, name, std::string("not in ") + kIndex);
    } else if (listed->second != file) {
      context->error(kIndex, name, "listed in " + listed->second + " but stored in " + file);
    }
  }
  if (!context->complete) return;
  for (const auto& [name, shard] : shard_of) {
    if (!context->find(name)) context->error(kIndex, name, "listed in " + shard + " but not there");
  }
  if (total_size >= 0 && total_size != bytes) {
    context->warning(kIndex, "",
                     format("total_size is %lld, the tensors have %lld bytes",
                            static_cast<long long>(total_size), static_cast<long long>(bytes)));
  }
}

}  // namespace

void check_files(Context* context) {
  std::map<std::string, std::string> shard_of;
  std::set<std::string> shards;
  int64_t total_size = -1;
  if (!context->is_directory) {
    shards = {fs::path(context->path).filename()};
  } else {
    const std::set<std::string> present = safetensors_in(context->directory);
    const bool has_index = fs::exists(context->directory / kIndex);
    if (has_index) shard_of = read_index(context, &total_size);
    if (present.count(kSingle)) {
      shards = {kSingle};
      if (has_index) {
        context->warning(kIndex, "", std::string("ignored by loaders that find ") + kSingle);
        shard_of.clear();
      }
    } else if (!shard_of.empty()) {
      for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
      for (const std::string& shard : shards) {
        if (present.count(shard)) continue;
        int64_t lost = 0;
        for (const auto& [tensor, other] : shard_of) lost += other == shard;
        context->complete = false;
        context->error(
            shard, "",
            format("missing: %s lists %lld tensors in it", kIndex, static_cast<long long>(lost)));
      }
      std::erase_if(shards, [&](const std::string& shard) { return !present.count(shard); });
    } else {
      shards = present;
      check_numbering(context, shards);
    }
    for (const std::string& name : present) {
      if (!shards.count(name)) {
        context->warning(
            name, "", "not part of the model; loaders that read every .safetensors trip over it");
      }
    }
    if (present.empty()) {
      context->complete = false;
      context->add(Severity::kUnreadable, kSingle, "",
                   "missing: the directory has no .safetensors");
    }
  }

  context->files.reserve(shards.size());  // tensors of an opened file must not move
  for (const std::string& name : shards) open_shard(context, name);
  for (const SafetensorsFile& file : context->files) {
    for (const TensorView& tensor : file.tensors()) {
      const auto [at, added] = context->tensors.emplace(tensor.name, &tensor);
      if (added) {
        context->file_of[tensor.name] = &file;
      } else {
        context->tensor_error(tensor, "also in " + fs::path(at->second->file).filename().string());
      }
    }
  }
  if (!shard_of.empty()) check_index(context, shard_of, total_size);
}

void split_experts(Context* context) {
  if (!has_fused_experts(context->config)) return;
  std::vector<const TensorView*> tensors;
  for (const auto& [name, tensor] : context->tensors) tensors.push_back(tensor);
  for (const TensorView* tensor : tensors) {
    try {
      for (TensorView& view : expert_views(*tensor)) {
        const TensorView& expert = context->experts.emplace_back(std::move(view));
        context->tensors[expert.name] = &expert;
        context->file_of[expert.name] = context->file_of.at(tensor->name);
        context->tensors.erase(tensor->name);
      }
    } catch (const FormatError& error) {
      context->add_exception(Severity::kError, fs::path(tensor->file).filename(), error.what());
    }
  }
}

}  // namespace curvq::verify
