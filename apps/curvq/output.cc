#include "output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/checkpoint.h"
#include "curvq/io/model_files.h"

namespace curvq::cli {
namespace {

// Raised when a key of the document changes its meaning or goes away.
constexpr int kSchemaVersion = 1;

bool terminal_with_color() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && (!no_color || !*no_color) && term && std::strcmp(term, "dumb");
}

}  // namespace

Output::Output(const Options& options)
    : command_(options.command()),
      json_file_(options.has("json-file") ? options.text("json-file") : ""),
      json_only_(options.flag("json")),
      color_(terminal_with_color()),
      options_(options.to_json()) {}

void Output::print(std::string_view text) const {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout)) {
    throw ResourceError(std::string("standard output cannot be written: ") + std::strerror(errno));
  }
}

void Output::text(std::string_view text) const {
  if (!json_only_ && !silent_) print(text);
}

void Output::add_checkpoint(const std::string& role, const std::string& path, bool with_hash) {
  OrderedJson& input = inputs_[role];
  input["path"] = path;
  if (!with_hash || !wants_json()) return;
  try {
    input["hash"] = is_torchscript(path) ? file_hash(path) : Checkpoint(path).content_hash();
  } catch (const Error& error) {
    log_debug(std::string("no hash: ") + error.what());
  }
}

OrderedJson Output::document() const {
  OrderedJson json;
  json["schema_version"] = kSchemaVersion;
  json["version"] = CURVQ_VERSION;
  json["command"] = command_;
  json["options"] = options_;
  json["inputs"] = inputs_;
  json["results"] = results_;
  return json;
}

void Output::finish() const {
  if (!wants_json() || silent_) return;
  const std::string json = dump_json(document());
  if (!json_file_.empty()) write_file(json_file_, json);
  if (json_only_) print(json);
}

std::string bold(const std::string& text, bool color) {
  return color ? "\033[1m" + text + "\033[0m" : text;
}

}  // namespace curvq::cli
