#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <set>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/gguf.h"
#include "io/mapping.h"
#include "io/text.h"

namespace curvq {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kDefaultAlignment = 32;
constexpr int kMaxNesting = 4;
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 25;  // in all; vocabularies have 2^18
constexpr uint64_t kMaxNameBytes = 1024;                   // ggml: 64
constexpr uint32_t kMaxDimensions = 4;

enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
constexpr uint32_t kNumValueTypes = 13;
// Bytes that a value takes at least.
constexpr uint64_t kValueBytes[kNumValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

// Reads the file's head from front to end, never beyond it. `what` and `where` name the field.
class Cursor {
 public:
  Cursor(const io::Mapping& file, const std::string& path) : file_(file), path_(path) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.bytes() - at_; }

  [[noreturn]] void reject(const std::string& what, const std::string& why) const {
    throw FormatError(path_ + ": " + what + " " + why);
  }

  void require(uint64_t bytes, const std::string& what) const {
    if (bytes <= left()) return;
    reject(what,
           format("wants %llu bytes at byte %llu, file has %llu left; the file is damaged or "
                  "truncated, fetch it again",
                  static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(at_),
                  static_cast<unsigned long long>(left())));
  }

  template <class T>
  T read(const std::string& what) {
    require(sizeof(T), what);
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  // A count of things that take at least `bytes_each`.
  uint64_t read_count(uint64_t bytes_each, const std::string& what) {
    const auto count = read<uint64_t>(what);
    if (count > left() / bytes_each) {
      reject(what, format("is %llu, which the %llu bytes left in the file cannot hold",
                          static_cast<unsigned long long>(count),
                          static_cast<unsigned long long>(left())));
    }
    return count;
  }

  std::string read_string(const std::string& what) {
    const uint64_t length = read_count(1, "length of " + what);
    std::string text(reinterpret_cast<const char*>(file_.data() + at_), length);
    at_ += length;
    if (const auto bad = io::find_invalid_utf8(text)) {
      reject(what, format("is not UTF-8 (byte %zu)", *bad));
    }
    return text;
  }

  std::string read_name(const std::string& what) {
    std::string name = read_string(what);
    if (name.empty() || name.size() > kMaxNameBytes) {
      reject(what, format("has %zu bytes; 1 to %llu are allowed", name.size(),
                          static_cast<unsigned long long>(kMaxNameBytes)));
    }
    return name;
  }

 private:
  const io::Mapping& file_;
  const std::string& path_;
  uint64_t at_ = 0;
};

// The shortest decimal that rounds to `value`: 1e-05, not 9.9999997e-06.
double shortest_decimal(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double out = value;
  std::from_chars(text, end, out);
  return out;
}

class MetadataReader {
 public:
  explicit MetadataReader(Cursor* cursor) : cursor_(*cursor) {}

  Json read(uint64_t count) {
    Json values = Json::object();
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key =
          cursor_.read_name("key " + std::to_string(i + 1) + " of the metadata");
      const std::string what = "metadata " + io::printable(key);
      Json value = read_value(read_type(what), what, 0);
      if (!values.emplace(key, std::move(value)).second) cursor_.reject(what, "is there twice");
    }
    return values;
  }

 private:
  ValueType read_type(const std::string& what) {
    const auto type = cursor_.read<uint32_t>("type of " + what);
    if (type >= kNumValueTypes) {
      cursor_.reject("type of " + what,
                     format("is %u; 0 to %u are known", type, kNumValueTypes - 1));
    }
    return static_cast<ValueType>(type);
  }

  Json read_value(ValueType type, const std::string& what, int depth) {
    switch (type) {
      case ValueType::kU8:
        return cursor_.read<uint8_t>(what);
      case ValueType::kI8:
        return cursor_.read<int8_t>(what);
      case ValueType::kU16:
        return cursor_.read<uint16_t>(what);
      case ValueType::kI16:
        return cursor_.read<int16_t>(what);
      case ValueType::kU32:
        return cursor_.read<uint32_t>(what);
      case ValueType::kI32:
        return cursor_.read<int32_t>(what);
      case ValueType::kU64:
        return cursor_.read<uint64_t>(what);
      case ValueType::kI64:
        return cursor_.read<int64_t>(what);
      case ValueType::kF32:
        return shortest_decimal(cursor_.read<float>(what));
      case ValueType::kF64:
        return cursor_.read<double>(what);
      case ValueType::kBool: {
        const auto value = cursor_.read<uint8_t>(what);
        if (value > 1) cursor_.reject(what, format("is a bool of value %u", value));
        return value == 1;
      }
      case ValueType::kString:
        return cursor_.read_string(what);
      case ValueType::kArray:
        break;
    }
    return read_array(what, depth + 1);
  }

  Json read_array(const std::string& what, int depth) {
    if (depth > kMaxNesting) {
      cursor_.reject(what, format("has arrays more than %d deep", kMaxNesting));
    }
    const ValueType type = read_type("the elements of " + what);
    const uint64_t count =
        cursor_.read_count(kValueBytes[static_cast<uint32_t>(type)], "length of " + what);
    num_elements_ += count;
    if (num_elements_ > kMaxArrayElements) {
      cursor_.reject(what,
                     format("brings the metadata to %llu array elements; at most %llu are read",
                            static_cast<unsigned long long>(num_elements_),
                            static_cast<unsigned long long>(kMaxArrayElements)));
    }
    Json::array_t values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) values.push_back(read_value(type, what, depth));
    return values;
  }

  Cursor& cursor_;
  uint64_t num_elements_ = 0;
};

// Name, dimensions, type; `offset` is behind the start of the data.
GgufTensor read_tensor(Cursor* cursor, uint64_t index, uint64_t* offset, const std::string& path) {
  GgufTensor tensor;
  tensor.name = cursor->read_name("name of tensor " + std::to_string(index + 1));
  const std::string what = "tensor " + io::printable(tensor.name);
  const auto dimensions = cursor->read<uint32_t>(what + ": number of dimensions");
  if (dimensions > kMaxDimensions) {
    cursor->reject(what,
                   format("has %u dimensions; at most %u are allowed", dimensions, kMaxDimensions));
  }
  int64_t elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = cursor->read<uint64_t>(what + ": dimensions");
    if (size == 0 || size > uint64_t{INT64_MAX} ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements)) {
      cursor->reject(what, format("has dimension %u of %llu, which is 0 or too large", i + 1,
                                  static_cast<unsigned long long>(size)));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto number = cursor->read<uint32_t>(what + ": type");
  const auto type = find_ggml_type(number);
  if (!type) {
    throw UnsupportedError(format("%s: %s has type %u, which is not read; read are %s",
                                  path.c_str(), what.c_str(), number, ggml_type_names().c_str()));
  }
  tensor.type = type->type;
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % type->block_elements != 0) {
    cursor->reject(what, format("has rows of %lld elements, no whole blocks of %lld of %s",
                                static_cast<long long>(row),
                                static_cast<long long>(type->block_elements), type->name));
  }
  // As float32 they must fit into memory, too.
  if (elements > INT64_MAX / 8 ||
      __builtin_mul_overflow(elements / type->block_elements, type->block_bytes, &tensor.bytes)) {
    cursor->reject(what, "takes more than 2^63 bytes");
  }
  *offset = cursor->read<uint64_t>(what + ": offset");
  return tensor;
}

uint64_t read_alignment(const Cursor& cursor, const Json& metadata) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return kDefaultAlignment;
  const bool valid = found->is_number_unsigned() && std::has_single_bit(found->get<uint64_t>()) &&
                     found->get<uint64_t>() <= std::numeric_limits<uint32_t>::max();
  if (!valid) {
    cursor.reject("metadata general.alignment",
                  "is " + io::printable(found->dump()) + "; it must be a power of two below 2^32");
  }
  return found->get<uint64_t>();
}

}  // namespace

struct GgufFile::Impl {
  explicit Impl(const std::string& file_path) : path(file_path), mapping(file_path, "GGUF") {
    Cursor cursor(mapping, path);
    read_version(&cursor);
    // A description takes a name's length, dimensions, type and offset; a value a key and a type.
    const uint64_t num_tensors = cursor.read_count(24, "tensor count");
    const uint64_t num_values = cursor.read_count(13, "metadata count");
    metadata = MetadataReader(&cursor).read(num_values);
    const uint64_t alignment = read_alignment(cursor, metadata);
    std::vector<uint64_t> offsets(num_tensors);
    tensors.reserve(num_tensors);
    std::set<std::string> names;
    for (uint64_t i = 0; i < num_tensors; ++i) {
      tensors.push_back(read_tensor(&cursor, i, &offsets[i], path));
      if (!names.insert(tensors.back().name).second) {
        cursor.reject("tensor " + io::printable(tensors.back().name), "is there twice");
      }
    }
    place(cursor, offsets, alignment);
  }

  void read_version(Cursor* cursor) {
    if (mapping.bytes() < sizeof(kMagic) || cursor->read<uint32_t>("magic") != kMagic) {
      throw FormatError(path + ": is not a GGUF file (it does not begin with \"GGUF\")");
    }
    version = cursor->read<uint32_t>("version");
    if (version == 2 || version == 3) return;
    const bool swapped = version != 0 && (version & 0xffff) == 0;
    throw UnsupportedError(
        path + ": is GGUF " +
        (swapped ? std::string("in big-endian order") : "of version " + std::to_string(version)) +
        "; versions 2 and 3 in little-endian order are read");
  }

  // Each begins where the one before ends, rounded up.
  void place(const Cursor& cursor, const std::vector<uint64_t>& offsets, uint64_t alignment) {
    const auto aligned = [&](uint64_t at) { return (at + alignment - 1) / alignment * alignment; };
    const uint64_t start = aligned(cursor.at());
    uint64_t next = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      GgufTensor& tensor = tensors[i];
      const std::string what = "tensor " + io::printable(tensor.name);
      if (offsets[i] != next) {
        cursor.reject(what, format("has offset %llu, the tensors before it end at %llu",
                                   static_cast<unsigned long long>(offsets[i]),
                                   static_cast<unsigned long long>(next)));
      }
      const uint64_t available =
          start + next > mapping.bytes() ? 0 : mapping.bytes() - start - next;
      const auto bytes = static_cast<uint64_t>(tensor.bytes);
      if (bytes > available) {
        cursor.reject(what, format("takes %llu bytes, file has %llu there; the file is truncated, "
                                   "fetch it again",
                                   static_cast<unsigned long long>(bytes),
                                   static_cast<unsigned long long>(available)));
      }
      tensor.data = mapping.data() + start + next;
      next = aligned(next + bytes);
    }
    if (start + next < mapping.bytes()) {
      throw FormatError(
          format("%s: has %llu bytes, its tensors end at %llu; the file is longer than "
                 "it says, fetch or write it again",
                 path.c_str(), static_cast<unsigned long long>(mapping.bytes()),
                 static_cast<unsigned long long>(start + next)));
    }
  }

  std::string path;
  io::Mapping mapping;
  uint32_t version = 0;
  Json metadata;
  std::vector<GgufTensor> tensors;
};

GgufFile::GgufFile(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
GgufFile::~GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;

const std::string& GgufFile::path() const { return impl_->path; }
uint32_t GgufFile::version() const { return impl_->version; }
const Json& GgufFile::metadata() const { return impl_->metadata; }
const std::vector<GgufTensor>& GgufFile::tensors() const { return impl_->tensors; }

}  // namespace curvq
