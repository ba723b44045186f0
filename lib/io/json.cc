#include "curvq/io/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "io/text.h"

namespace curvq {
namespace {

constexpr size_t kMaxDepth = 64;

// "line 3, column 7", both counted from 1.
std::string position_string(const std::string& text, size_t offset) {
  offset = std::min(offset, text.size());
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(offset);
  const auto line = 1 + std::count(text.begin(), end, '\n');
  const size_t newline = offset == 0 ? std::string::npos : text.rfind('\n', offset - 1);
  const size_t column = newline == std::string::npos ? offset + 1 : offset - newline;
  return format("line %lld, column %zu", static_cast<long long>(line), column);
}

// Builds the value while it checks depth and keys.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  StrictBuilder(const std::string& text, const std::string& origin)
      : text_(text), origin_(origin) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const auto [entry, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!is_new) throw FormatError(origin_ + ": key \"" + io::printable(name) + "\" occurs twice");
    slot_ = &entry->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& e) override {
    const size_t at = position > 0 ? position - 1 : 0;
    const char* what = e.id == 406 ? "number out of range" : "not valid JSON";
    const std::string near = at < text_.size() ? text_.substr(at, 24) : "";
    throw FormatError(origin_ + ": " + what + " at " + position_string(text_, at) +
                      (near.empty() ? ", the end" : ", near: " + io::printable(near)));
  }

 private:
  template <typename Value>
  Json* insert(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *slot_ = std::forward<Value>(value);
      return slot_;
    }
    auto& array = open_.back()->get_ref<Json::array_t&>();
    array.emplace_back(std::forward<Value>(value));
    return &array.back();
  }

  template <typename Value>
  bool add(Value&& value) {
    insert(std::forward<Value>(value));
    return true;
  }

  bool open(Json container) {
    if (open_.size() == kMaxDepth) {
      throw FormatError(
          format("%s: JSON is nested deeper than %zu levels", origin_.c_str(), kMaxDepth));
    }
    // A container's address stays valid while it is open: its parent grows only after it is closed.
    open_.push_back(insert(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& text_;
  const std::string& origin_;
  Json root_;
  Json* slot_ = nullptr;  // where the value of the last key goes
  std::vector<Json*> open_;
};

// nullptr if the key is missing or null.
const Json* find_value(const Json& object, const char* key, const std::string& origin) {
  if (!object.is_object()) {
    throw FormatError(origin + ": wanted an object with \"" + key + "\", found " +
                      object.type_name());
  }
  const auto entry = object.find(key);
  return entry == object.end() || entry->is_null() ? nullptr : &*entry;
}

[[noreturn]] void wrong_type(const Json& value, const char* key, const char* wanted,
                             const std::string& origin) {
  const std::string found = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  throw FormatError(origin + ": \"" + key + "\" must be " + wanted + ", found " +
                    io::printable(found));
}

int64_t to_int(const Json& value, const char* key, const std::string& origin) {
  const bool too_large = value.is_number_unsigned() &&
                         value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (!value.is_number_integer() || too_large)
    wrong_type(value, key, "an integer of 64 bits", origin);
  return value.get<int64_t>();
}

OrderedJson without_special_numbers(const OrderedJson& value) {
  if (value.is_object()) {
    OrderedJson::object_t out;  // appended to: a look-up of each key would take quadratic time
    for (const auto& [key, item] : value.items())
      out.emplace_back(key, without_special_numbers(item));
    return out;
  }
  if (value.is_array()) {
    OrderedJson out = OrderedJson::array();
    for (const auto& item : value) out.push_back(without_special_numbers(item));
    return out;
  }
  if (!value.is_number_float()) return value;
  const double number = value.get<double>();
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return value;
}

}  // namespace

Json parse_json(const std::string& text, const std::string& origin) {
  // The parser takes a zero byte for the end of its input; JSON does not.
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {
    throw FormatError(origin + ": not valid JSON at " + position_string(text, zero) +
                      ", a zero byte");
  }
  StrictBuilder builder(text, origin);
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

int64_t json_int(const Json& object, const char* key, const std::string& origin) {
  const Json* value = find_value(object, key, origin);
  if (value == nullptr) throw FormatError(origin + ": \"" + key + "\" is missing");
  return to_int(*value, key, origin);
}

int64_t json_int(const Json& object, const char* key, int64_t fallback, const std::string& origin) {
  const Json* value = find_value(object, key, origin);
  return value == nullptr ? fallback : to_int(*value, key, origin);
}

double json_number(const Json& object, const char* key, double fallback,
                   const std::string& origin) {
  const Json* value = find_value(object, key, origin);
  if (value == nullptr) return fallback;
  if (!value->is_number()) wrong_type(*value, key, "a number", origin);
  return value->get<double>();
}

bool json_bool(const Json& object, const char* key, bool fallback, const std::string& origin) {
  const Json* value = find_value(object, key, origin);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) wrong_type(*value, key, "true or false", origin);
  return value->get<bool>();
}

std::string json_string(const Json& object, const char* key, const std::string& fallback,
                        const std::string& origin) {
  const Json* value = find_value(object, key, origin);
  if (value == nullptr) return fallback;
  if (!value->is_string()) wrong_type(*value, key, "a string", origin);
  return value->get<std::string>();
}

std::string dump_json(const OrderedJson& value) {
  return without_special_numbers(value).dump(2, ' ', false, OrderedJson::error_handler_t::replace) +
         "\n";
}

}  // namespace curvq
