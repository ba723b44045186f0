// Names and row orders of tensors in GGUF files and in model directories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "curvq/io/gguf.h"

namespace curvq::io {

// Row i of the first half of a head of 2 half_head rows is stored as the head's row 2 i, of the
// second half as 2 i + 1; half_head 0: as row i.
inline int64_t stored_row(int64_t row, int64_t half_head) {
  if (half_head == 0) return row;
  const int64_t in_head = row % (2 * half_head);
  return row - in_head + in_head % half_head * 2 + in_head / half_head;
}

// Of one model: what its architecture calls things.
class GgufNames {
 public:
  // Throws FormatError if llama's head counts do not fit to the shapes of q and k.
  explicit GgufNames(const GgufModel& model);

  // "model.layers.0.self_attn.q_proj.weight" for "blk.0.attn_q.weight"; names that the architecture
  // has not are kept.
  std::string model_name(const std::string& name) const;
  // Rows of half a head, if the rows of a head's two halves alternate in `tensor`; 0 otherwise.
  int64_t half_head(const GgufTensor& tensor) const;
  // Whether the tensor is part of what config.json says.
  bool is_configuration(const std::string& name) const;

 private:
  std::string path_;
  bool is_llama_ = false;
  int64_t num_heads_ = 0, num_kv_heads_ = 0;
};

// The inverse of model_name(): nullopt for a tensor of another kind of model.
std::optional<std::string> gguf_tensor_name(const std::string& model_name);

}  // namespace curvq::io
