#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/json.h"
#include "curvq/io/safetensors.h"
#include "io/mapping.h"
#include "io/text.h"

namespace curvq {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation

std::string_view header_text(const io::Mapping& file, const std::string& path) {
  const char* text = reinterpret_cast<const char*>(file.data());
  const uint64_t available = file.bytes() < kLengthBytes ? 0 : file.bytes() - kLengthBytes;
  if (std::string_view(text, std::min<uint64_t>(file.bytes(), 8)) == "version ") {
    throw FormatError(path + ": is a pointer of Git LFS, not the file itself; run git lfs pull");
  }
  uint64_t length = 0;
  if (available > 0) std::memcpy(&length, text, kLengthBytes);
  if (available == 0 || length < 2 || length > kMaxHeaderBytes || text[kLengthBytes] != '{') {
    throw FormatError(format(
        "%s: is not a safetensors file (%llu bytes, header length %llu; a length "
        "of 2 to %llu and '{' must begin it)",
        path.c_str(), static_cast<unsigned long long>(file.bytes()),
        static_cast<unsigned long long>(length), static_cast<unsigned long long>(kMaxHeaderBytes)));
  }
  if (length > available) {
    throw FormatError(
        format("%s: header has %llu bytes, file has %llu behind its length; the file is "
               "truncated, fetch it again",
               path.c_str(), static_cast<unsigned long long>(length),
               static_cast<unsigned long long>(available)));
  }
  return {text + kLengthBytes, length};
}

struct Entry {
  TensorInfo info;
  int64_t begin = 0, end = 0;
};

int64_t size_of(const Json& value, const std::string& where, const char* what) {
  // Negative numbers and fractions have other types.
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    throw FormatError(where + ": " + what + " must be integers from 0 to 2^63-1, found " +
                      io::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  return value.get<int64_t>();
}

const Json& member(const Json& object, const char* key, Json::value_t type,
                   const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || found->type() != type) {
    throw FormatError(where + ": \"" + key + "\" is missing or of the wrong type");
  }
  return *found;
}

Entry parse_entry(const std::string& name, const Json& json, const std::string& path) {
  const std::string where = path + ": " + io::printable(name);
  if (!json.is_object()) throw FormatError(where + ": must be described by an object");
  Entry entry;
  entry.info.name = name;
  const auto& dtype =
      member(json, "dtype", Json::value_t::string, where).get_ref<const std::string&>();
  const auto parsed = parse_dtype(dtype);
  if (!parsed) throw FormatError(where + ": dtype \"" + io::printable(dtype) + "\" is not known");
  entry.info.dtype = *parsed;
  for (const Json& size : member(json, "shape", Json::value_t::array, where)) {
    entry.info.shape.push_back(size_of(size, where, "sizes"));
  }
  const Json& offsets = member(json, "data_offsets", Json::value_t::array, where);
  if (offsets.size() != 2) throw FormatError(where + ": data_offsets must be two integers");
  entry.begin = size_of(offsets[0], where, "data_offsets");
  entry.end = size_of(offsets[1], where, "data_offsets");
  int64_t wanted = 0;
  try {
    wanted = entry.info.num_bytes();
  } catch (const FormatError& e) {
    throw FormatError(path + ": " + e.what());
  }
  if (entry.begin > entry.end || entry.end - entry.begin != wanted) {
    throw FormatError(format(
        "%s: %s %s takes %lld bytes, data_offsets are [%lld, %lld]", where.c_str(), dtype.c_str(),
        io::printable(shape_string(entry.info.shape)).c_str(), static_cast<long long>(wanted),
        static_cast<long long>(entry.begin), static_cast<long long>(entry.end)));
  }
  return entry;
}

// Each begins where the one before ends.
void check_contiguous(const std::vector<Entry>& entries, const std::string& path) {
  int64_t end = 0;
  std::string before = "the start";
  for (const Entry& entry : entries) {
    if (entry.begin != end) {
      throw FormatError(
          format("%s: %s begins at byte %lld, but %s ends at %lld; the data must neither "
                 "overlap nor leave gaps",
                 path.c_str(), io::printable(entry.info.name).c_str(),
                 static_cast<long long>(entry.begin), before.c_str(), static_cast<long long>(end)));
    }
    end = entry.end;
    before = io::printable(entry.info.name);
  }
}

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::string& file_path) : path(file_path), mapping(file_path, "safetensors") {
    const std::string_view text = header_text(mapping, path);
    const Json header = parse_json(std::string(text), path + " header");
    std::vector<Entry> entries;
    entries.reserve(header.size());
    for (const auto& [name, json] : header.items()) {
      if (name == "__metadata__") {
        parse_metadata(json);
      } else {
        entries.push_back(parse_entry(name, json, path));
      }
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.info.name) < std::tie(b.begin, b.end, b.info.name);
    });
    check_contiguous(entries, path);
    const uint64_t start = kLengthBytes + text.size();
    const auto wanted = static_cast<uint64_t>(entries.empty() ? 0 : entries.back().end);
    const uint64_t present = mapping.bytes() - start;
    if (wanted != present) {
      throw FormatError(format("%s: header wants %llu bytes of data, file has %llu; the file is %s",
                               path.c_str(), static_cast<unsigned long long>(wanted),
                               static_cast<unsigned long long>(present),
                               wanted > present ? "truncated, fetch it again"
                                                : "longer than it says, fetch or write it again"));
    }
    add_tensors(std::move(entries), mapping.data() + start);
  }

  void parse_metadata(const Json& json) {
    if (!json.is_object()) throw FormatError(path + ": __metadata__ must be an object of strings");
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) {
        throw FormatError(path + ": __metadata__ \"" + io::printable(key) + "\" must be a string");
      }
      metadata.emplace(key, value.get<std::string>());
    }
  }

  void add_tensors(std::vector<Entry> entries, const std::byte* data) {
    tensors.reserve(entries.size());
    for (Entry& entry : entries) {
      TensorView view;
      static_cast<TensorInfo&>(view) = std::move(entry.info);
      view.data = data + entry.begin;
      view.file = path;
      tensors.push_back(std::move(view));
    }
    by_name.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) by_name.emplace(tensors[i].name, i);
  }

  std::string path;
  io::Mapping mapping;
  std::vector<TensorView> tensors;
  std::unordered_map<std::string_view, size_t> by_name;  // views of tensors[i].name
  std::map<std::string, std::string> metadata;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::string& SafetensorsFile::path() const { return impl_->path; }
const std::vector<TensorView>& SafetensorsFile::tensors() const { return impl_->tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->metadata;
}

const TensorView* SafetensorsFile::find(const std::string& name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : &impl_->tensors[found->second];
}

const TensorView& SafetensorsFile::at(const std::string& name) const {
  if (const TensorView* tensor = find(name)) return *tensor;
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors()) names.push_back(tensor.name);
  throw FormatError(path() + ": has no tensor " + io::printable(name) +
                    io::nearest_names(name, names));
}

void SafetensorsFile::release(const TensorView& tensor) const {
  io::release_pages(tensor.encoding ? tensor.encoding->stored() : tensor.data, tensor.num_bytes());
}

}  // namespace curvq
