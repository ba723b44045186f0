// What options there are, and their help.
#include <sstream>
#include <stdexcept>

#include "curvq/core/log.h"
#include "options.h"

namespace curvq::cli {
namespace {

constexpr size_t kHelpColumn = 30, kHelpWidth = 100;

std::string shortest(double value) { return OrderedJson(value).dump(); }

// "  left              text that is wrapped and indented"; `last` is not broken.
std::string help_entry(const std::string& left, const std::string& text,
                       const std::string& last = "") {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  if (!last.empty()) words.push_back(last);

  std::string out = "  " + left;
  size_t column = out.size();
  if (column + 2 > kHelpColumn) {
    out += '\n';
    column = 0;
  }
  out.append(kHelpColumn - column, ' ');
  column = kHelpColumn;
  for (const std::string& word : words) {
    if (column > kHelpColumn && column + 1 + word.size() > kHelpWidth) {
      out += '\n' + std::string(kHelpColumn, ' ');
      column = kHelpColumn;
    }
    if (column > kHelpColumn) out += ' ';
    column += word.size() + (column > kHelpColumn);
    out += word;
  }
  return out + '\n';
}

}  // namespace

Options::Options(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)), group_("options") {}

Options::Declared& Options::declare(Kind kind, std::string name, std::string value_name,
                                    std::string help) {
  if (find(name)) throw std::logic_error("option declared twice: " + name);
  Declared option;
  option.kind = kind;
  option.name = std::move(name);
  option.value_name = std::move(value_name);
  option.help = std::move(help);
  option.group = group_;
  options_.push_back(std::move(option));
  return options_.back();
}

Options& Options::add_positional(std::string name, std::string help) {
  positionals_.push_back({std::move(name), std::move(help), ""});
  return *this;
}

Options& Options::add_optional_positional(std::string name, std::string help) {
  positionals_.push_back({std::move(name), std::move(help), "", /*required=*/false});
  return *this;
}

Options& Options::add_group(std::string title) {
  group_ = std::move(title);
  return *this;
}

Options& Options::add_flag(std::string name, std::string help) {
  declare(Kind::kFlag, std::move(name), "", std::move(help));
  return *this;
}

Options& Options::add_switch(std::string on, std::string off, bool fallback, std::string help) {
  if (find(off)) throw std::logic_error("option declared twice: " + off);
  Declared& option = declare(Kind::kSwitch, std::move(on), "", std::move(help));
  option.off_name = std::move(off);
  option.fallback = fallback ? "true" : "false";
  return *this;
}

Options& Options::add_text(std::string name, std::string value_name, std::string help,
                           std::optional<std::string> fallback) {
  declare(Kind::kText, std::move(name), std::move(value_name), std::move(help)).fallback =
      std::move(fallback);
  return *this;
}

Options& Options::add_output(std::string name, std::string value_name, std::string help) {
  declare(Kind::kOutput, std::move(name), std::move(value_name), std::move(help));
  return *this;
}

Options& Options::add_choice(std::string name, std::vector<std::string> allowed, std::string help,
                             std::optional<std::string> fallback) {
  std::string value_name;
  for (const std::string& value : allowed) value_name += (value_name.empty() ? "" : "|") + value;
  Declared& option =
      declare(Kind::kChoice, std::move(name), std::move(value_name), std::move(help));
  option.allowed = std::move(allowed);
  option.fallback = std::move(fallback);
  return *this;
}

Options& Options::add_integer(std::string name, std::string value_name, std::string help,
                              int64_t min, int64_t max, std::optional<int64_t> fallback) {
  Declared& option =
      declare(Kind::kInteger, std::move(name), std::move(value_name), std::move(help));
  option.min_integer = min;
  option.max_integer = max;
  if (fallback) option.fallback = std::to_string(*fallback);
  return *this;
}

Options& Options::add_number(std::string name, std::string value_name, std::string help, double min,
                             double max, std::optional<double> fallback) {
  Declared& option =
      declare(Kind::kNumber, std::move(name), std::move(value_name), std::move(help));
  option.min = min;
  option.max = max;
  if (fallback) option.fallback = shortest(*fallback);
  return *this;
}

Options& Options::add_bytes(std::string name, std::string help,
                            std::optional<std::string> fallback) {
  declare(Kind::kBytes, std::move(name), "BYTES", std::move(help)).fallback = std::move(fallback);
  return *this;
}

Options& Options::add_list(std::string name, std::string value_name, std::string help) {
  declare(Kind::kList, std::move(name), std::move(value_name), std::move(help));
  return *this;
}

Options& Options::add_example(std::string example) {
  examples_.push_back(std::move(example));
  return *this;
}

Options& Options::add_threads() {
  return add_integer("threads", "N", "threads; 0: all cores that this process may use", 0, 4096, 0);
}

Options& Options::add_seed() {
  return add_integer("seed", "N", "seed of everything random", 0, INT64_MAX, 0);
}

Options& Options::add_device() {
  return add_text("device", "DEVICE", "where to compute: auto, cpu, cuda or cuda:N", "auto");
}

Options& Options::add_overwrite() { return add_flag("overwrite", "replace output that exists"); }

Options& Options::add_dry_run() {
  return add_flag("dry-run", "check everything, say what would be done, and write nothing");
}

Options& Options::add_state() {
  return add_text("state", "DIR",
                  "keep each finished block in DIR, so that a run that ends early can go on; "
                  "removed at the end")
      .add_flag("resume", "go on from what is in --state, if there is anything");
}

Options& Options::add_max_memory() {
  return add_bytes("max-memory",
                   "give up beforehand if more memory than this would be needed "
                   "(8G, 512M, 16GB)");
}

Options& Options::add_common() {
  add_group("common options");
  add_list("config", "FILE",
           "take options from an INI file; repeatable, later files win over "
           "earlier ones and the command line over all");
  add_flag("json", "print one JSON object on standard output and nothing else");
  add_output("json-file", "FILE", "also write the JSON object to FILE");
  add_text("log-file", "FILE", "append all messages to FILE");
  add_choice("progress", {"auto", "plain", "none"},
             "auto: a moving line on a terminal; plain: lines", "auto");
  add_flag("quiet", "errors only on standard error");
  options_.back().short_name = "q";
  add_flag("verbose", "more messages; twice: even more");
  options_.back().short_name = "v";
  return *this;
}

std::string Options::range_text(const Declared& option) const {
  if (option.kind == Kind::kNumber) {
    return "a number from " + shortest(option.min) + " to " + shortest(option.max);
  }
  const std::string low = std::to_string(option.min_integer);
  return option.max_integer == INT64_MAX
             ? "a whole number of at least " + low
             : "a whole number from " + low + " to " + std::to_string(option.max_integer);
}

std::string Options::help() const {
  std::string out = "usage: curvq " + command_;
  for (const Positional& positional : positionals_)
    out += positional.required ? " " + positional.name : " [" + positional.name + "]";
  out += " [options]\n\n" + summary_ + "\n";
  if (!positionals_.empty()) out += "\narguments:\n";
  for (const Positional& positional : positionals_) {
    out += help_entry(positional.name, positional.help);
  }
  std::string group;
  for (const Declared& option : options_) {
    if (option.group != group) out += "\n" + option.group + ":\n";
    group = option.group;
    std::string left = option.short_name.empty() ? "" : "-" + option.short_name + ", ";
    left += "--" + option.name;
    if (!option.off_name.empty()) left += " | --" + option.off_name;
    if (!option.value_name.empty()) left += " " + option.value_name;
    std::string text = option.help, fallback;
    if (option.kind == Kind::kList && text.find("repeatable") == std::string::npos) {
      text += "; repeatable";
    }
    if (option.kind == Kind::kSwitch) {
      fallback = "--" + (*option.fallback == "true" ? option.name : option.off_name);
    } else if (option.fallback) {
      fallback = *option.fallback;
    }
    out += help_entry(left, text, fallback.empty() ? "" : "(default: " + fallback + ")");
  }
  out += help_entry("-h, --help", "print this text");
  if (!examples_.empty()) out += examples_.size() == 1 ? "\nexample:\n" : "\nexamples:\n";
  for (const std::string& example : examples_) out += "  curvq " + example + "\n";
  return out;
}

}  // namespace curvq::cli
