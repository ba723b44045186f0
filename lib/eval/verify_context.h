// What the checks of verify_checkpoint share.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "curvq/eval/verify.h"
#include "curvq/io/compressed_tensors.h"
#include "curvq/io/json.h"
#include "curvq/io/safetensors.h"
#include "curvq/nn/decoder_config.h"

namespace curvq::verify {

// A quantized layer whose parts have the dtypes and shapes of its scheme.
struct QuantizedLayer {
  std::string name;
  Scheme scheme;
  int64_t rows = 0, cols = 0;
};

struct Context {
  std::string path;  // as given
  std::filesystem::path directory;
  bool is_directory = false;
  bool complete = true;  // every shard is there and could be opened
  VerifyReport report;

  std::vector<SafetensorsFile> files;
  std::deque<TensorView> experts;  // parts of tensors that hold all of a block's
  std::map<std::string, const TensorView*> tensors;
  std::map<std::string, const SafetensorsFile*> file_of;

  Json config;                           // null without a config.json
  std::optional<DecoderConfig> decoder;  // set for a known family
  std::optional<QuantizationConfig> quantization;
  bool quantization_unread = false;
  int64_t vocab_size = -1;

  std::vector<QuantizedLayer> layers;
  std::set<std::string> accounted;  // tensors that belong to something

  const TensorView* find(const std::string& name) const;
  void add(VerifyProblem::Severity severity, const std::string& file, const std::string& tensor,
           const std::string& text);
  void error(const std::string& file, const std::string& tensor, const std::string& text);
  void warning(const std::string& file, const std::string& tensor, const std::string& text);
  // An exception's text, which begins with the file's path.
  void add_exception(VerifyProblem::Severity severity, const std::string& file,
                     const std::string& what);
  // The problem is about `tensor` as stored.
  void tensor_error(const TensorView& tensor, const std::string& text);
};

void check_files(Context* context);
void check_config(Context* context);
void split_experts(Context* context);
void check_layers(Context* context);
void check_fused_layers(Context* context);
void check_values(Context* context);
void check_tokens(Context* context);

}  // namespace curvq::verify
