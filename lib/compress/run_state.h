// The files of a run that goes block by block (StateOptions):
//   run.json                what the run is of
//   gradients.safetensors   what came out of the pass for gradients
//   block-N.safetensors     results of block N
//   stream.safetensors      calibration tokens behind the last finished block
// Each appears under its name when it is whole, the stream behind its block, and is replaced by the
// next; so a process may be killed at any moment.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "curvq/compress/run_state.h"
#include "curvq/io/json.h"
#include "curvq/io/safetensors.h"

namespace curvq::internal {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

class RunState {
 public:
  // Takes the directory for this process. `inputs` are compared as the settings are. Throws
  // UsageError if there is a run already and options.resume is not set, if it is of other inputs or
  // settings (naming the first), or if another process has it; ResourceError if it cannot be
  // written.
  RunState(const StateOptions& options, const std::map<std::string, std::string>& inputs);
  ~RunState();
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  int64_t finished_blocks() const { return finished_; }

  // A layer of the block that is being worked on; `result` is read back by who wrote it.
  struct Layer {
    std::string name;
    std::vector<TensorData> tensors;
    std::vector<uint8_t> mask;  // one byte a weight; empty if nothing is pruned
    OrderedJson result;
  };
  void add(Layer layer) { layers_.push_back(std::move(layer)); }
  // Keeps the layers added, and `streams`, which the next block starts from.
  void finish_block(const NamedTensors& streams);
  std::vector<Layer> layers_of(int64_t block) const;
  // Of the last finished block; a copy.
  torch::Tensor stream(const std::string& name) const;

  bool has(const std::string& name) const;
  void save(const std::string& name, const NamedTensors& tensors,  // float32
            const std::map<std::string, std::string>& metadata) const;
  // Views of a file that save() wrote, mapped as long as they live, by name. A tensor leaves
  // memory when the last that has it goes.
  std::map<std::string, torch::Tensor> load(const std::string& name,
                                            std::map<std::string, std::string>& metadata) const;

  // Removes the directory, unless it is to be kept.
  void done();

 private:
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void check(const OrderedJson& run, bool resume) const;

  std::string directory_;
  bool keep_;
  int lock_ = -1;
  int64_t finished_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace curvq::internal
