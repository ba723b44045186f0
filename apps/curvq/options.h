// Options of one subcommand: declared once, read from the command line and from INI files, checked
// before the command runs, and handed out typed.
//
// The command line wins over files, a later file over an earlier one; a repeatable option is
// replaced as a whole, never joined over sources. Boost.Program_options splits the command line
// and the files; abbreviations are not guessed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "curvq/io/json.h"

namespace curvq::cli {

class Options {
 public:
  Options(std::string command, std::string summary);

  // --- Declaring. Names have no dashes; `value_name` is what --help shows ("DIR"). ---

  // Arguments without a name, required, in this order.
  Options& add_positional(std::string name, std::string help);
  // One that may be left out; behind the required ones. positional() is then empty.
  Options& add_optional_positional(std::string name, std::string help);
  // Title under which the options declared next are shown.
  Options& add_group(std::string title);
  // No value on the command line; `name = true|false` in a file.
  Options& add_flag(std::string name, std::string help);
  // Two spellings of one truth: --symmetric and --asymmetric. Read with flag(on).
  Options& add_switch(std::string on, std::string off, bool fallback, std::string help);
  Options& add_text(std::string name, std::string value_name, std::string help,
                    std::optional<std::string> fallback = std::nullopt);
  // A path that the command writes with AtomicOutput; what is unfinished goes when interrupted.
  Options& add_output(std::string name, std::string value_name, std::string help);
  Options& add_choice(std::string name, std::vector<std::string> allowed, std::string help,
                      std::optional<std::string> fallback = std::nullopt);
  // Whole numbers in [min, max].
  Options& add_integer(std::string name, std::string value_name, std::string help, int64_t min,
                       int64_t max, std::optional<int64_t> fallback = std::nullopt);
  // Finite numbers in [min, max].
  Options& add_number(std::string name, std::string value_name, std::string help, double min,
                      double max, std::optional<double> fallback = std::nullopt);
  // Sizes: 4096, 512M or 512MiB (powers of 1024), 5GB (powers of 1000).
  Options& add_bytes(std::string name, std::string help,
                     std::optional<std::string> fallback = std::nullopt);
  // Repeatable; empty unless given.
  Options& add_list(std::string name, std::string value_name, std::string help);
  // Shown by --help, without the leading "curvq ".
  Options& add_example(std::string example);

  // Options that several commands honour, each declared where it is honoured.
  Options& add_threads();
  Options& add_seed();
  Options& add_device();
  Options& add_overwrite();
  Options& add_dry_run();
  Options& add_max_memory();
  Options& add_state();  // --state and --resume, for read_state()
  // What main declares for every command: --config, --json, --json-file, --log-file, --progress,
  // --quiet, --verbose.
  Options& add_common();

  // --- Reading ---

  // Throws UsageError for whatever does not fit, naming the option (or file and key), the value
  // and what is allowed.
  void parse(const std::vector<std::string>& arguments);
  // Puts --threads, --device, --log-file, --progress, --quiet and --verbose into effect and has the
  // temporaries of outputs removed on a signal. Throws UnsupportedError for a device that this
  // build does not have.
  void apply_common() const;
  // Text of --help.
  std::string help() const;

  const std::string& command() const { return command_; }
  const std::string& positional(const std::string& name) const;
  // True if the option is declared and has a value, given or default.
  bool has(const std::string& name) const;
  // True if the user gave it, on the command line or in a file.
  bool given(const std::string& name) const;

  // Values. Asking for one that has neither a value nor a default throws UsageError ("quantize
  // needs --out DIR"); asking for an undeclared one, std::logic_error.
  bool flag(const std::string& name) const;
  std::string text(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  int64_t bytes(const std::string& name) const;
  std::vector<std::string> list(const std::string& name) const;
  // How often a flag was given (-v -v).
  int count(const std::string& name) const;

  // "--damping", or "nvfp4.ini: damping" if it came from there: how to begin a UsageError about
  // the value of an option.
  std::string where(const std::string& name) const;

  // All options that have a value and all positionals, typed, in the order of their declaration.
  OrderedJson to_json() const;

 private:
  enum class Kind { kFlag, kSwitch, kText, kOutput, kChoice, kInteger, kNumber, kBytes, kList };
  struct Declared {
    Kind kind;
    std::string name, off_name, short_name, value_name, help, group;
    std::optional<std::string> fallback;
    std::vector<std::string> allowed;
    double min = 0, max = 0;
    int64_t min_integer = 0, max_integer = 0;
  };
  struct Value {
    std::vector<std::string> texts;
    std::string file;  // empty: the command line
  };
  struct Positional {
    std::string name, help, value;
    bool required = true;
  };

  Declared& declare(Kind kind, std::string name, std::string value_name, std::string help);
  const Declared& declared(const std::string& name) const;
  // Also finds the second spelling of a switch.
  const Declared* find(const std::string& name) const;
  std::string nearest_option(const std::string& name) const;
  void parse_command_line(const std::vector<std::string>& arguments);
  void parse_file(const std::string& path);
  // Adds what one source gave to what stronger sources left open.
  void merge(const std::map<std::string, Value>& source);
  void store(std::map<std::string, Value>* source, const std::string& spelling,
             const std::vector<std::string>& texts, const std::string& file) const;
  void check(const Declared& option) const;
  const std::string& single(const std::string& name) const;
  std::string range_text(const Declared& option) const;

  std::string command_, summary_, group_;
  std::vector<Declared> options_;
  std::vector<Positional> positionals_;
  std::vector<std::string> examples_;
  std::map<std::string, Value> values_;
};

}  // namespace curvq::cli
