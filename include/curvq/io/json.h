// Reading JSON that nobody vouches for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace curvq {

using Json = nlohmann::json;
// Keeps the order of keys; used for everything curvq writes.
using OrderedJson = nlohmann::ordered_json;

// Parses; throws FormatError naming `origin` (usually the file) and the position for a syntax
// error, nesting deeper than 64 levels, or duplicate keys.
Json parse_json(const std::string& text, const std::string& origin);
Json read_json_file(const std::string& path);

// Typed access with clear errors: FormatError naming origin, key, and what was found, if the key
// holds another type or (for the forms without a fallback) is missing. null counts as missing.
int64_t json_int(const Json& object, const char* key, const std::string& origin);
int64_t json_int(const Json& object, const char* key, int64_t fallback, const std::string& origin);
double json_number(const Json& object, const char* key, double fallback, const std::string& origin);
bool json_bool(const Json& object, const char* key, bool fallback, const std::string& origin);
std::string json_string(const Json& object, const char* key, const std::string& fallback,
                        const std::string& origin);

// Pretty-printed JSON with a final newline. A number that is not finite is written as a string
// ("nan", "inf", "-inf"), never as null.
std::string dump_json(const OrderedJson& value);

}  // namespace curvq
