#include "options.h"

#include <boost/program_options.hpp>
#include <cctype>
#include <stdexcept>

#include "config_file.h"
#include "curvq/core/error.h"
#include "nearest.h"
#include "option_values.h"

namespace curvq::cli {
namespace po = boost::program_options;

const Options::Declared* Options::find(const std::string& name) const {
  for (const Declared& option : options_) {
    if (option.name == name || (!option.off_name.empty() && option.off_name == name)) {
      return &option;
    }
  }
  return nullptr;
}

const Options::Declared& Options::declared(const std::string& name) const {
  for (const Declared& option : options_) {
    if (option.name == name) return option;
  }
  throw std::logic_error(command_ + " asks for undeclared option " + name);
}

std::string Options::nearest_option(const std::string& name) const {
  std::vector<std::string> names = {"help"};
  for (const Declared& option : options_) {
    names.push_back(option.name);
    if (!option.off_name.empty()) names.push_back(option.off_name);
  }
  return nearest(name, names);
}

void Options::store(std::map<std::string, Value>* source, const std::string& spelling,
                    const std::vector<std::string>& texts, const std::string& file) const {
  const Declared& option = *find(spelling);
  const std::string place = file.empty() ? "--" + spelling : file + ": " + spelling;
  Value& value = (*source)[option.name];
  value.file = file;
  if (option.kind == Kind::kFlag || option.kind == Kind::kSwitch) {
    bool on = true;
    if (!file.empty()) on = parse_truth(texts[0], place);
    if (spelling != option.name) on = !on;
    const std::string text = on ? "true" : "false";
    if (option.kind == Kind::kSwitch && !value.texts.empty() && value.texts[0] != text) {
      throw UsageError(place + ": contradicts --" +
                       (spelling == option.name ? option.off_name : option.name));
    }
    value.texts.push_back(text);
    return;
  }
  if (option.kind != Kind::kList && !value.texts.empty()) {
    throw UsageError(place + ": given twice (" + value.texts[0] + " and " + texts[0] + ")");
  }
  value.texts.insert(value.texts.end(), texts.begin(), texts.end());
}

void Options::merge(const std::map<std::string, Value>& source) {
  for (const auto& [name, value] : source) values_.emplace(name, value);
}

void Options::parse_command_line(const std::vector<std::string>& arguments) {
  po::options_description description;
  for (const Declared& option : options_) {
    const bool takes_value = option.kind != Kind::kFlag && option.kind != Kind::kSwitch;
    const auto add = [&](const std::string& names) {
      if (takes_value)
        description.add_options()(names.c_str(), po::value<std::string>());
      else
        description.add_options()(names.c_str(), "");
    };
    add(option.short_name.empty() ? option.name : option.name + "," + option.short_name);
    if (!option.off_name.empty()) add(option.off_name);
  }

  std::map<std::string, Value> source;
  size_t num_positionals = 0;
  const std::string see_help = "see curvq " + command_ + " --help";
  try {
    namespace style = po::command_line_style;
    const auto parsed = po::command_line_parser(arguments)
                            .options(description)
                            .style(style::unix_style & ~style::allow_guessing)
                            .run();
    for (const auto& option : parsed.options) {
      if (option.position_key < 0) {
        store(&source, option.string_key, option.value, "");
        continue;
      }
      for (const std::string& text : option.value) {
        if (num_positionals == positionals_.size()) {
          throw UsageError("unexpected argument '" + text + "'; " + see_help);
        }
        positionals_[num_positionals++].value = text;
      }
    }
  } catch (const po::unknown_option& error) {
    const std::string given = error.get_option_name(), token = given.substr(0, given.find('='));
    const std::string near = nearest_option(token.substr(token.find_first_not_of('-')));
    throw UsageError("unknown option " + token + "; " +
                     (near.empty() ? see_help : "did you mean --" + near + "?"));
  } catch (const po::invalid_command_line_syntax& error) {
    const auto kind = error.kind();
    const bool no_value = kind == po::invalid_syntax::missing_parameter ||
                          kind == po::invalid_syntax::empty_adjacent_parameter;
    throw UsageError(no_value ? error.get_option_name() + " needs a value"
                     : kind == po::invalid_syntax::extra_parameter
                         ? error.get_option_name() + " takes no value"
                         : std::string(error.what()));
  } catch (const po::error& error) {
    throw UsageError(error.what());
  }
  for (size_t i = 0; i < positionals_.size(); ++i) {
    if (i >= num_positionals) {
      if (!positionals_[i].required) continue;
      throw UsageError(command_ + " needs " + positionals_[i].name + ": " + positionals_[i].help);
    }
    if (positionals_[i].value.empty()) throw UsageError(positionals_[i].name + " is empty");
  }
  merge(source);
}

void Options::parse_file(const std::string& path) {
  std::map<std::string, Value> source;
  for (const auto& [key, text] : read_config_file(path)) {
    if (key == "config") throw UsageError(path + ": config: option files cannot name others");
    if (!find(key)) {
      const std::string near = nearest_option(key);
      throw UsageError(path + ": " + key + ": curvq " + command_ + " has no such option" +
                       (near.empty() ? "" : "; did you mean " + near + "?"));
    }
    store(&source, key, {text}, path);
  }
  merge(source);
}

void Options::parse(const std::vector<std::string>& arguments) {
  parse_command_line(arguments);
  std::vector<std::string> files;
  if (values_.count("config")) files = values_["config"].texts;
  for (auto file = files.rbegin(); file != files.rend(); ++file) parse_file(*file);
  for (const Declared& option : options_) {
    if (values_.count(option.name)) check(option);
  }
  if (has("quiet") && has("verbose") && flag("quiet") && flag("verbose")) {
    throw UsageError("--quiet and --verbose contradict each other");
  }
}

std::string Options::where(const std::string& name) const {
  const auto value = values_.find(name);
  if (value == values_.end() || value->second.file.empty()) return "--" + name;
  return value->second.file + ": " + name;
}

void Options::check(const Declared& option) const {
  const std::string place = where(option.name);
  const std::string& text = values_.at(option.name).texts[0];
  switch (option.kind) {
    case Kind::kChoice: {
      std::string allowed;
      for (const std::string& value : option.allowed) {
        if (value == text) return;
        allowed += (allowed.empty() ? "" : ", ") + value;
      }
      throw UsageError(place + " " + text + ": must be one of " + allowed);
    }
    case Kind::kInteger: {
      const auto value = parse_integer(text);
      if (!value || *value < option.min_integer || *value > option.max_integer) {
        throw UsageError(place + " " + text + ": must be " + range_text(option));
      }
      return;
    }
    case Kind::kNumber: {
      const auto value = parse_number(text);
      if (!value || *value < option.min || *value > option.max) {
        throw UsageError(place + " " + text + ": must be " + range_text(option));
      }
      return;
    }
    case Kind::kBytes:
      if (!parse_bytes(text)) {
        throw UsageError(place + " " + text +
                         ": must be a size: bytes, or a number with K, M, G, T (powers of 1024) or "
                         "KB, MB, GB, TB (powers of 1000)");
      }
      return;
    case Kind::kFlag:
    case Kind::kSwitch:
    case Kind::kText:
    case Kind::kOutput:
    case Kind::kList:
      for (const std::string& value : values_.at(option.name).texts) {
        if (value.empty()) throw UsageError(place + ": is empty");
      }
  }
}

const std::string& Options::positional(const std::string& name) const {
  for (const Positional& positional : positionals_) {
    if (positional.name == name) return positional.value;
  }
  throw std::logic_error(command_ + " asks for undeclared argument " + name);
}

bool Options::has(const std::string& name) const {
  const Declared* option = find(name);
  return option && (values_.count(option->name) || option->fallback);
}

bool Options::given(const std::string& name) const { return values_.count(name) != 0; }

const std::string& Options::single(const std::string& name) const {
  const Declared& option = declared(name);
  const auto value = values_.find(name);
  if (value != values_.end()) return value->second.texts[0];
  if (option.fallback) return *option.fallback;
  throw UsageError(command_ + " needs --" + name + " " + option.value_name);
}

bool Options::flag(const std::string& name) const {
  const Declared& option = declared(name);
  if (option.kind == Kind::kFlag && !given(name)) return false;
  return single(name) == "true";
}

std::string Options::text(const std::string& name) const { return single(name); }
int64_t Options::integer(const std::string& name) const { return *parse_integer(single(name)); }
double Options::number(const std::string& name) const { return *parse_number(single(name)); }
int64_t Options::bytes(const std::string& name) const { return *parse_bytes(single(name)); }

std::vector<std::string> Options::list(const std::string& name) const {
  declared(name);
  const auto value = values_.find(name);
  return value == values_.end() ? std::vector<std::string>{} : value->second.texts;
}

int Options::count(const std::string& name) const {
  return flag(name) ? static_cast<int>(list(name).size()) : 0;
}

OrderedJson Options::to_json() const {
  OrderedJson json = OrderedJson::object();
  for (const Positional& positional : positionals_) {
    if (positional.value.empty()) continue;
    std::string key = positional.name;
    for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    json[key] = positional.value;
  }
  for (const Declared& option : options_) {
    const std::string& name = option.name;
    switch (option.kind) {
      case Kind::kFlag:
      case Kind::kSwitch:
        json[name] = flag(name);
        break;
      case Kind::kList:
        json[name] = list(name);
        break;
      default:
        if (!has(name)) break;
        if (option.kind == Kind::kInteger)
          json[name] = integer(name);
        else if (option.kind == Kind::kNumber)
          json[name] = number(name);
        else if (option.kind == Kind::kBytes)
          json[name] = bytes(name);
        else
          json[name] = text(name);
    }
  }
  return json;
}

}  // namespace curvq::cli
