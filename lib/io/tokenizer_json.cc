#include "io/tokenizer_json.h"

#include "curvq/core/error.h"
#include "io/text.h"
#include "io/unicode.h"

namespace curvq::io {
namespace {

// Far above what is in use; bounds the work for one text.
constexpr size_t kMaxComponents = 64;

void visit_component(const Json& component, const char* list_key, const std::string& where,
                     const ComponentVisitor& visit, size_t& count) {
  const std::string type = json_required_string(component, "type", where);
  if (type != "Sequence") {
    if (++count > kMaxComponents) {
      throw UnsupportedError(where + ": more than " + std::to_string(kMaxComponents) +
                             " components");
    }
    return visit(component, type, where);
  }
  const Json& list = json_required(component, list_key, where);
  if (!list.is_array()) throw FormatError(where + ": \"" + list_key + "\" must be an array");
  for (size_t i = 0; i < list.size(); ++i) {
    visit_component(list[i], list_key, where + "." + list_key + "[" + std::to_string(i) + "]",
                    visit, count);
  }
}

}  // namespace

const Json& json_required(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) {
    throw FormatError(where + ": wanted an object with \"" + key + "\", found " +
                      object.type_name());
  }
  const auto entry = object.find(key);
  if (entry == object.end()) throw FormatError(where + ": \"" + key + "\" is missing");
  return *entry;
}

std::string json_required_string(const Json& object, const char* key, const std::string& where) {
  const Json& value = json_required(object, key, where);
  if (!value.is_string()) {
    throw FormatError(where + ": \"" + key + "\" must be a string, found " + value.type_name());
  }
  return value.get<std::string>();
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  return out.append(printable(text)).append("\"");
}

Pattern json_pattern(const Json& object, const std::string& where) {
  const Json& pattern = json_required(object, "pattern", where);
  if (pattern.is_object() && pattern.size() == 1) {
    if (pattern.contains("String")) {
      return Pattern::literal(json_required_string(pattern, "String", where + ".pattern"));
    }
    if (pattern.contains("Regex")) {
      return Pattern::regex(json_required_string(pattern, "Regex", where + ".pattern"), where);
    }
  }
  throw FormatError(where + ": \"pattern\" must be {\"String\": ...} or {\"Regex\": ...}");
}

std::string json_character(const Json& object, const char* key, const std::string& where) {
  std::string value = json_required_string(object, key, where);
  size_t position = 0;
  if (!value.empty()) next_code_point(value, position);
  if (value.empty() || position != value.size()) {
    throw FormatError(where + ": \"" + key + "\" must be one character, found \"" +
                      printable(value) + "\"");
  }
  return value;
}

void throw_unsupported(const std::string& where, const std::string& type, const char* handled) {
  throw UnsupportedError(where + ": " + printable(type) + " is not handled; handled are " +
                         handled);
}

void for_each_component(const Json& root, const char* list_key, const std::string& where,
                        const ComponentVisitor& visit) {
  size_t count = 0;
  if (!root.is_null()) visit_component(root, list_key, where, visit, count);
}

}  // namespace curvq::io
