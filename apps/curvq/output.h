// What a command gives back: text for people, or one JSON object.
#pragma once

#include <string>
#include <string_view>

#include "curvq/io/json.h"
#include "options.h"

namespace curvq::cli {

class Output {
 public:
  explicit Output(const Options& options);

  // True with --json: standard output holds the JSON object alone.
  bool json_only() const { return json_only_; }
  // True if text() may hold colours: standard output is a terminal and NO_COLOR is not set.
  bool color() const { return color_; }
  // True if the JSON object is wanted at all, on standard output or in a file.
  bool wants_json() const { return json_only_ || !json_file_.empty(); }

  // Prints at once, unless json_only(). Throws ResourceError if standard output takes no more.
  void text(std::string_view text) const;
  // Prints and writes nothing from now on: another process does.
  void silence() { silent_ = true; }
  bool silent() const { return silent_; }

  // What was read, by role: {"model": {"path": ..., "hash": ...}}.
  OrderedJson& inputs() { return inputs_; }
  // Adds {"path": ..., "hash": ...} under `role`. The hash reads all of the data, so it is made
  // only if the JSON is wanted; it is left out of a checkpoint that cannot be opened.
  void add_checkpoint(const std::string& role, const std::string& path, bool with_hash = true);
  OrderedJson& results() { return results_; }

  // schema_version, version, command, options, inputs, results: what --json prints and
  // quantization_report.json holds.
  OrderedJson document() const;
  // Prints the JSON object or writes it to a file, as asked. main calls it after the command.
  void finish() const;

 private:
  void print(std::string_view text) const;

  std::string command_, json_file_;
  bool silent_ = false;
  bool json_only_, color_;
  OrderedJson options_, inputs_ = OrderedJson::object(), results_ = OrderedJson::object();
};

// `text` in bold if `color`.
std::string bold(const std::string& text, bool color);

}  // namespace curvq::cli
