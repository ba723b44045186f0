#include "curvq/io/model_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/gguf.h"
#include "io/gguf_config.h"
#include "io/hash.h"

namespace curvq {
namespace {

namespace fs = std::filesystem;

// What the program leaves in a directory that it wrote.
constexpr const char* kReports[] = {"quantization_report.json", "pruning_report.json",
                                    "conversion_report.json"};

std::optional<std::string> gguf_file_text(const GgufModel& model, const std::string& name) {
  std::optional<OrderedJson> json;
  if (name == "config.json") json = io::gguf_config(model);
  if (name == "tokenizer.json") json = io::gguf_tokenizer(model);
  if (name == "tokenizer_config.json") json = io::gguf_tokenizer_config(model);
  return json ? std::optional(dump_json(*json)) : std::nullopt;
}

bool is_report(const fs::path& file) {
  return std::find(std::begin(kReports), std::end(kReports), file) != std::end(kReports);
}

}  // namespace

bool is_torchscript(const std::string& path) {
  static const std::set<std::string> extensions = {".pt", ".pth", ".jit", ".ts"};
  return extensions.count(fs::path(path).extension()) > 0 && !fs::is_directory(path);
}

std::string file_hash(const std::string& path) {
  io::Hasher hasher;
  const std::string content = read_file(path);
  hasher.add(content.data(), content.size());
  return hasher.hex();
}

bool is_gguf(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  if (fs::path(path).extension() == ".gguf") return true;
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  file.read(magic, sizeof(magic));
  return file && std::string(magic, sizeof(magic)) == "GGUF";
}

bool is_model(const std::string& path) { return fs::is_directory(path) || is_gguf(path); }

std::optional<std::string> read_model_file(const std::string& model, const std::string& name) {
  if (!fs::exists(model)) throw UsageError(model + ": no such model directory or file");
  if (is_gguf(model)) return gguf_file_text(GgufModel(model), name);
  const std::string path = model + "/" + name;
  return fs::exists(path) ? std::optional(read_file(path)) : std::nullopt;
}

std::string model_file_origin(const std::string& model, const std::string& name) {
  return is_gguf(model) ? model + " (its metadata as " + name + ")" : model + "/" + name;
}

Json read_model_config(const std::string& model) {
  const std::string origin = model_file_origin(model, "config.json");
  if (!is_model(model)) throw UsageError(model + ": no such model directory");
  const auto text = read_model_file(model, "config.json");
  if (!text) throw FormatError(origin + " is missing; a model directory needs it");
  Json json = parse_json(*text, origin);
  if (!json.is_object()) throw FormatError(origin + ": not a JSON object");
  return json;
}

void check_model_target(const std::string& model, const std::string& target, bool overwrite) {
  if (target.empty()) return;
  const std::string from = fs::weakly_canonical(model).string() + "/";
  const std::string to = fs::weakly_canonical(target).string() + "/";
  if (from.starts_with(to) || to.starts_with(from)) {
    throw UsageError(target + ": is, holds or lies in the original model " + model +
                     "; write to another directory");
  }
  if (!overwrite || !fs::is_directory(target) || fs::is_empty(target)) return;
  for (const char* report : kReports) {
    if (fs::exists(target + "/" + report)) return;
  }
  throw UsageError(target +
                   ": was not written by curvq (it has none of its reports), so it is not "
                   "overwritten; remove it or write to another directory");
}

void copy_model_files(const std::string& source, const std::string& target) {
  static const std::set<std::string> kWeights = {
      ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ckpt"};
  if (is_gguf(source)) {
    const GgufModel model(source);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      try {
        if (const auto text = gguf_file_text(model, name)) write_file(target + "/" + name, *text);
      } catch (const UnsupportedError& error) {
        log_warning(error.what() + std::string("; ") + name + " is left out");
      }
    }
    return;
  }
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(
           source, fs::directory_options::follow_directory_symlink, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const fs::path relative = it->path().lexically_relative(source);
    const std::string name = it->path().filename().string();
    if (it->is_directory(error)) {
      if (name[0] == '.') it.disable_recursion_pending();  // .git, .cache
      continue;
    }
    const bool index = name.size() > 11 && name.compare(name.size() - 11, 11, ".index.json") == 0;
    if (kWeights.count(it->path().extension().string()) > 0 || index || relative == "config.json" ||
        is_report(relative) || name[0] == '.') {
      continue;
    }
    fs::create_directories(fs::path(target) / relative.parent_path(), error);
    fs::copy_file(it->path(), fs::path(target) / relative, error);
    if (error) break;
  }
  if (error)
    throw ResourceError(source + ": copying its other files to " + target +
                        " failed: " + error.message());
}

}  // namespace curvq
