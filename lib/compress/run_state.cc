#include "compress/run_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"

namespace curvq::internal {
namespace {

namespace fs = std::filesystem;

constexpr char kRun[] = "run.json", kStream[] = "stream.safetensors";

std::string block_name(int64_t block) { return "block-" + std::to_string(block) + ".safetensors"; }

TensorInfo info_of(const std::string& name, const torch::Tensor& tensor) {
  return {name, DType::kF32, tensor.sizes().vec()};
}

std::string metadata_of(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end())
    throw FormatError(file.path() + ": no '" + key +
                      "' in its metadata; this is none of a run's files");
  return found->second;
}

TensorInfo mask_info(const RunState::Layer& layer) {
  return {layer.name + ".mask", DType::kU8, {static_cast<int64_t>(layer.mask.size())}};
}

void write_tensors(const std::string& path, const NamedTensors& tensors,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) infos.push_back(info_of(name, tensor));
  AtomicOutput output(path, AtomicOutput::Kind::kFile, /*overwrite=*/true);
  SafetensorsWriter writer(output.path(), std::move(infos), metadata);
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor whole = tensor.contiguous();
    writer.write(name, whole.data_ptr<float>(), static_cast<int64_t>(whole.nbytes()));
  }
  writer.finish();
  output.commit();
}

bool is_within(const std::string& path, const std::string& directory) {
  const auto canonical = [](const std::string& name) {
    const fs::path path = fs::weakly_canonical(fs::absolute(name));
    return path.has_filename() ? path : path.parent_path();
  };
  const fs::path inner = canonical(path), outer = canonical(directory);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace

RunState::RunState(const StateOptions& options, const std::map<std::string, std::string>& inputs)
    : directory_(options.directory), keep_(options.keep) {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) throw ResourceError(directory_ + " cannot be made: " + error.message());
  lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw ResourceError(directory_ + " cannot be opened: " + std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw UsageError(directory_ +
                     ": another process keeps its state there; name another directory");
  }
  OrderedJson run = OrderedJson::object();
  for (const auto& [name, value] : inputs) run[name] = value;
  for (const auto& [name, value] : options.settings) run[name] = value;
  try {
    if (has(kRun)) {
      check(run, options.resume);
      if (has(kStream))
        finished_ = std::stoll(metadata_of(SafetensorsFile(path(kStream)), "blocks"));
      log_info(format("%s: going on behind %lld finished blocks", directory_.c_str(),
                      static_cast<long long>(finished_)));
    } else if (!fs::is_empty(directory_)) {
      throw UsageError(
          directory_ +
          " holds other files; name an empty directory, or one that is to be made, for the state");
    } else {
      write_file(path(kRun), dump_json(run));
    }
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

RunState::~RunState() { ::close(lock_); }

void RunState::check(const OrderedJson& run, bool resume) const {
  if (!resume) {
    throw UsageError(directory_ +
                     " holds the state of a run already; go on with --resume, or remove it");
  }
  const Json before = read_json_file(path(kRun));
  const auto refuse = [&](const std::string& name, const std::string& was, const std::string& is) {
    throw UsageError(directory_ + " holds the state of another run: " + name + " was " + was +
                     " and is " + is + "; start anew in another directory");
  };
  for (const auto& [name, value] : run.items()) {
    const std::string was = json_string(before, name.c_str(), "not set", path(kRun));
    if (was != value.get<std::string>()) refuse(name, was, value.get<std::string>());
  }
  for (const auto& [name, value] : before.items()) {
    if (!run.contains(name))
      refuse(name, json_string(before, name.c_str(), "", path(kRun)), "not set");
  }
}

void RunState::finish_block(const NamedTensors& streams) {
  std::vector<TensorInfo> infos;
  OrderedJson layers = OrderedJson::array();
  for (const Layer& layer : layers_) {
    OrderedJson names = OrderedJson::array();
    for (const TensorData& tensor : layer.tensors) {
      infos.push_back(tensor);
      names.push_back(tensor.name);
    }
    if (!layer.mask.empty()) infos.push_back(mask_info(layer));
    layers.push_back({{"name", layer.name}, {"tensors", names}, {"result", layer.result}});
  }
  const std::string file = path(block_name(finished_));
  AtomicOutput output(file, AtomicOutput::Kind::kFile, /*overwrite=*/true);
  SafetensorsWriter writer(output.path(), std::move(infos), {{"layers", layers.dump()}});
  for (const Layer& layer : layers_) {
    for (const TensorData& tensor : layer.tensors)
      writer.write(tensor.name, tensor.data.data(), static_cast<int64_t>(tensor.data.size()));
    if (!layer.mask.empty())
      writer.write(mask_info(layer).name, layer.mask.data(), mask_info(layer).num_bytes());
  }
  writer.finish();
  output.commit();
  layers_.clear();
  write_tensors(path(kStream), streams, {{"blocks", std::to_string(finished_ + 1)}});
  ++finished_;
}

std::vector<RunState::Layer> RunState::layers_of(int64_t block) const {
  const SafetensorsFile file(path(block_name(block)));
  std::vector<Layer> layers;
  for (const auto& saved : OrderedJson::parse(metadata_of(file, "layers"))) {
    Layer layer{saved["name"], {}, {}, saved["result"]};
    if (const TensorView* mask = file.find(mask_info(layer).name)) {
      layer.mask.resize(mask->num_bytes());
      mask->read(0, mask->num_elements(), layer.mask.data());
    }
    for (const std::string name : saved["tensors"]) {
      const TensorView& view = file.at(name);
      TensorData tensor{static_cast<const TensorInfo&>(view), {}};
      tensor.data.assign(view.data, view.data + view.num_bytes());
      layer.tensors.push_back(std::move(tensor));
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

torch::Tensor RunState::stream(const std::string& name) const {
  const SafetensorsFile file(path(kStream));
  const TensorView& view = file.at(name);
  torch::Tensor tensor = torch::empty(view.shape);
  view.read_f32(0, view.num_elements(), tensor.data_ptr<float>());
  return tensor;
}

bool RunState::has(const std::string& name) const { return fs::exists(path(name)); }

void RunState::save(const std::string& name, const NamedTensors& tensors,
                    const std::map<std::string, std::string>& metadata) const {
  write_tensors(path(name), tensors, metadata);
}

std::map<std::string, torch::Tensor> RunState::load(
    const std::string& name, std::map<std::string, std::string>& metadata) const {
  const auto file = std::make_shared<const SafetensorsFile>(path(name));
  metadata = file->metadata();
  std::map<std::string, torch::Tensor> tensors;
  for (const TensorView& view : file->tensors()) {
    // Nobody writes to them: from_blob() has no form for what is const.
    void* data = const_cast<std::byte*>(view.data);
    tensors[view.name] = torch::from_blob(
        data, view.shape, [file, &view](void*) { file->release(view); }, torch::kFloat32);
  }
  return tensors;
}

void RunState::done() {
  if (keep_) return;
  std::error_code error;
  fs::remove_all(directory_, error);
  if (error) log_warning(directory_ + " cannot be removed: " + error.message());
}

}  // namespace curvq::internal

namespace curvq {

void StateOptions::validate(const std::string& out) const {
  if (directory.empty() || out.empty()) return;
  if (internal::is_within(directory, out) || internal::is_within(out, directory)) {
    throw UsageError(directory + " and the output " + out +
                     " are one inside the other; name another directory for the state");
  }
}

}  // namespace curvq
