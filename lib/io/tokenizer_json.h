// Reading the components of tokenizer.json.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "curvq/io/json.h"
#include "io/tokenizer_pattern.h"

namespace curvq::io {

// The value of `key`; throws FormatError if it is missing. `where` is the file and the path of the
// object in it, in all functions here.
const Json& json_required(const Json& object, const char* key, const std::string& where);
std::string json_required_string(const Json& object, const char* key, const std::string& where);

// Text from the file, for messages.
std::string in_quotes(std::string_view text);

// {"String": "literal"} or {"Regex": "expression"} under `pattern`.
Pattern json_pattern(const Json& object, const std::string& where);
// One character under `key`.
std::string json_character(const Json& object, const char* key, const std::string& where);

[[noreturn]] void throw_unsupported(const std::string& where, const std::string& type,
                                    const char* handled);

// Calls visit(component, its type, its place) for `root` (nothing if null), or for each member if
// it is a Sequence, which holds them under `list_key`; Sequences may be nested.
using ComponentVisitor =
    std::function<void(const Json& component, const std::string& type, const std::string& where)>;
void for_each_component(const Json& root, const char* list_key, const std::string& where,
                        const ComponentVisitor& visit);

}  // namespace curvq::io
