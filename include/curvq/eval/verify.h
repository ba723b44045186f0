// Whether a checkpoint would load, and compute what it should.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace curvq {

struct VerifyProblem {
  // kWarning: loaders cope. kError: would not load or not compute rightly. kUnreadable: damaged, or
  // of a kind that curvq does not read, so that there is nothing more to say about it.
  enum class Severity { kWarning, kError, kUnreadable };
  Severity severity = Severity::kError;
  std::string file;    // its name in the directory
  std::string tensor;  // or module; empty if it is about the file
  std::string text;    // one line with the numbers

  // "FILE: TENSOR: TEXT".
  std::string line() const;
};

struct VerifyReport {
  std::vector<VerifyProblem> problems;  // in the order of the checks below
  int64_t num_files = 0, num_tensors = 0, num_quantized_layers = 0, stored_bytes = 0;

  int64_t count(VerifyProblem::Severity severity) const;
};

// Checks a model directory, or a bare .safetensors, in this order:
//   files         every shard opens; index and shards agree; no tensor twice
//   config.json   can be read; quantization_config can be read
//   layers        every tensor that the config asks for is there with its shape and dtype, and no
//                 other; quantized layers have all parts of their layout and layers in `ignore` a
//                 plain weight; fused layers (q/k/v, gate/up) share scheme and NVFP4 tensor scale;
//                 lm_head and tie_word_embeddings agree
//   values        no scale is NaN, infinite, zero or negative; no plain or FP8 weight is NaN or
//                 infinite; compressed_tensors_unpack takes every layer
//   tokens        ids of the tokenizer and of generation_config.json are below vocab_size
// Lists every problem; a shard that cannot be opened does not hide those of the others. Of a bare
// file only values and the parts of layers are checked; of a family that curvq does not know, not
// the names. Of one layer at a time the packed weights are in memory.
// Throws FormatError if the path does not exist.
VerifyReport verify_checkpoint(const std::string& path);

}  // namespace curvq
