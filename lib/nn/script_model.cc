#include "curvq/nn/script_model.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "curvq/core/error.h"
#include "nn/script_layers.h"
#include "nn/torch_errors.h"

namespace curvq {
namespace {

constexpr char kExtra[] = "extra/";

// Equal for tensors that are the same elements in memory.
using Place = std::tuple<const void*, std::vector<int64_t>, std::vector<int64_t>>;
Place place_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.sizes().vec(), tensor.strides().vec()};
}

// Files that were saved beside the module, by name.
torch::jit::ExtraFilesMap extra_files(const std::string& path) {
  torch::jit::ExtraFilesMap files;
  caffe2::serialize::PyTorchStreamReader reader(path);
  for (const std::string& record : reader.getAllRecords()) {
    if (!record.starts_with(kExtra)) continue;
    const auto [data, size] = reader.getRecord(record);
    files[record.substr(sizeof(kExtra) - 1)] =
        std::string(static_cast<const char*>(data.get()), size);
  }
  return files;
}

torch::Tensor attribute(const torch::jit::Module& module, const std::string& path) {
  c10::IValue value = module._ivalue();
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) value = value.toObject()->getAttr(name);
  return value.toTensor();
}

}  // namespace

std::shared_ptr<torch::jit::Module> load_script_module(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) throw UsageError(path + ": no such file");
  try {
    return std::make_shared<torch::jit::Module>(torch::jit::load(path, torch::kCPU));
  } catch (const std::exception& error) {  // std::bad_alloc, too: of a count that a file invents
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    const std::string what = of_torch ? of_torch->what_without_backtrace() : error.what();
    throw FormatError(
        path + ": not a TorchScript file (" + torch_error_line(what) +
        "); such files are written by torch.jit.save(torch.jit.script(module), FILE)");
  }
}

ScriptModel::ScriptModel(const std::string& path) : path_(path), module_(load_script_module(path)) {
  module_->eval();
  std::map<Place, std::string> first_names;
  std::map<std::string, std::string> names;  // of every attribute: that of the first such tensor
  const auto add = [&](const std::string& name, const torch::Tensor& value, bool is_parameter) {
    names[name] =
        value.numel() == 0 ? name : first_names.emplace(place_of(value), name).first->second;
    if (names[name] == name) tensors_.push_back({name, value, is_parameter});
  };
  for (const auto& entry : module_->named_parameters()) add(entry.name, entry.value, true);
  for (const auto& entry : module_->named_buffers()) add(entry.name, entry.value, false);
  std::set<torch::ScalarType> dtypes;
  for (const ScriptTensor& tensor : tensors_) {
    if (tensor.is_parameter && tensor.value.is_floating_point())
      dtypes.insert(tensor.value.scalar_type());
  }
  if (dtypes.size() == 1) dtype_ = *dtypes.begin();
  layers_ = with_torch_errors(path, [&] {
    return internal::find_script_layers(*module_, [&](const std::string& name) {
      const auto known = names.find(name);
      return known == names.end() ? nullptr : find(known->second);
    });
  });
}

std::string ScriptModel::signature() const {
  const auto method = module_->find_method("forward");
  if (!method) return "";
  const c10::FunctionSchema& schema = method->function().getSchema();
  std::vector<c10::Argument> arguments(schema.arguments().begin() + 1, schema.arguments().end());
  std::ostringstream text;
  text << c10::FunctionSchema("forward", "", arguments, schema.returns());
  return text.str();
}

const ScriptTensor* ScriptModel::find(const std::string& name) const {
  const auto tensor = std::find_if(tensors_.begin(), tensors_.end(),
                                   [&](const ScriptTensor& t) { return t.name == name; });
  return tensor == tensors_.end() ? nullptr : &*tensor;
}

torch::Tensor ScriptModel::forward(const torch::Tensor& x) const {
  const auto method = module_->find_method("forward");
  if (!method) throw UnsupportedError(path_ + ": the module has no forward");
  const auto& arguments = method->function().getSchema().arguments();
  const bool one_input =
      arguments.size() >= 2 && std::all_of(arguments.begin() + 2, arguments.end(),
                                           [](const auto& a) { return a.default_value(); });
  if (!one_input) {
    throw UnsupportedError(path_ + ": " + signature() +
                           " is not called with x alone; wrap the module in one that is");
  }
  const torch::NoGradGuard no_grad;
  const torch::jit::GraphOptimizerEnabledGuard plain(false);
  return with_torch_errors(path_, [&] {
    const bool converts = dtype_ && x.is_floating_point();
    const c10::IValue out = module_->forward({converts ? x.to(*dtype_) : x});
    if (!out.isTensor())
      throw UnsupportedError(path_ + ": " + signature() + " does not return one tensor");
    return out.toTensor();
  });
}

void ScriptModel::write(const std::string& path,
                        const std::map<std::string, torch::Tensor>& values) const {
  // Of the file, not of this module, which forward() may have changed.
  const auto module = load_script_module(path_);
  const torch::NoGradGuard no_grad;
  with_torch_errors(path_, [&] {
    for (const auto& [name, value] : values) {
      torch::Tensor target = attribute(*module, name);
      target.copy_(value.reshape(target.sizes()));
    }
    // Into a stream: to a file it would save the file's name, too, which may be a temporary one.
    std::ofstream out(path, std::ios::binary);
    module->save(out, extra_files(path_));
    if (!out.flush()) throw ResourceError(path + ": cannot be written; is the disk full?");
  });
}

}  // namespace curvq
