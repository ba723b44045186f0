// The files that describe a model beside its weights, by the names they have in a model directory
// of Hugging Face: config.json, generation_config.json, tokenizer.json, tokenizer_config.json. A
// GGUF file has none; what its metadata says is given in their form.
#pragma once

#include <optional>
#include <string>

#include "curvq/io/json.h"

namespace curvq {

// True for a file that begins as a GGUF does or is named as one.
bool is_gguf(const std::string& path);
// True for a name of TorchScript files: *.pt, *.pth, *.jit or *.ts.
bool is_torchscript(const std::string& path);
// A directory or a GGUF: what has read_model_file().
bool is_model(const std::string& path);

// The content of file `name` of `model` (a model directory or a GGUF); nullopt if there is none.
// Throws UsageError if `model` does not exist, FormatError for a GGUF that is damaged,
// UnsupportedError for one whose metadata has no such form (naming the key and its value).
std::optional<std::string> read_model_file(const std::string& model, const std::string& name);

// How messages name that file: "DIR/config.json", "FILE.gguf (its metadata as config.json)".
std::string model_file_origin(const std::string& model, const std::string& name);

// config.json of a model. Throws FormatError, too, if there is none or it is no JSON object.
Json read_model_config(const std::string& model);

// xxh3 (64 bit, hex) of a file's bytes. Throws ResourceError.
std::string file_hash(const std::string& path);

// Copies every file of `source` to the directory `target` but weights, config.json and reports of
// curvq; of a GGUF, the files that its metadata gives.
void copy_model_files(const std::string& source, const std::string& target);

// What may be written to or, with `overwrite`, replaced: an earlier result, never the model itself
// or anything else. Throws UsageError; does nothing for an empty `target`.
void check_model_target(const std::string& model, const std::string& target, bool overwrite);

}  // namespace curvq
