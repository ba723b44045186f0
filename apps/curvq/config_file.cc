#include "config_file.h"

#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "curvq/core/error.h"
#include "curvq/core/log.h"

namespace curvq::cli {
namespace {

std::string read_text(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw UsageError(path + ": no such option file");
  if (std::filesystem::is_directory(status)) {
    throw UsageError(path + ": is a directory; --config takes an option file");
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || in.bad()) throw UsageError(path + ": the option file cannot be read");
  return text.str();
}

// Program_options cuts a value at any '#'.
void check_hashes(const std::string& path, const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string::npos || line[start] == '#') continue;
    const size_t hash = line.find('#');
    if (hash != std::string::npos && line[hash - 1] != ' ' && line[hash - 1] != '\t') {
      throw UsageError(
          format("%s: line %d: a value in an option file cannot hold '#'; give it on "
                 "the command line, or put a space before a comment",
                 path.c_str(), number));
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_config_file(const std::string& path) {
  namespace po = boost::program_options;
  std::string text = read_text(path);
  if (text.compare(0, 3, "\xEF\xBB\xBF") == 0) text.erase(0, 3);
  check_hashes(path, text);

  std::vector<std::pair<std::string, std::string>> entries;
  try {
    std::istringstream in(text);
    const po::options_description nothing;
    const auto parsed = po::parse_config_file(in, nothing, /*allow_unregistered=*/true);
    for (const auto& option : parsed.options) {
      if (option.value.empty() || option.value[0].empty()) {
        throw UsageError(path + ": " + option.string_key + ": has no value");
      }
      entries.emplace_back(option.string_key, option.value[0]);
    }
  } catch (const po::invalid_syntax& error) {
    throw UsageError(path + ": not of the form 'key = value': " + error.tokens());
  } catch (const po::error& error) {
    throw UsageError(path + ": " + error.what());
  }
  return entries;
}

}  // namespace curvq::cli
