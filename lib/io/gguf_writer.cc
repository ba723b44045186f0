#include "curvq/io/gguf_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <type_traits>
#include <unordered_map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "io/posix.h"

namespace curvq {
namespace {

constexpr int64_t kAlignment = 32;  // the format's default

int64_t aligned(int64_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

// The head of the file, as bytes.
class Head {
 public:
  template <class T>
  void add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void add_text(const std::string& text) {
    add(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }

  void add_value(const GgufValue& value) {
    std::visit(
        [this](const auto& v) {
          add(type_number(v));
          add_content(v);
        },
        value);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  static uint32_t type_number(uint32_t) { return 4; }
  static uint32_t type_number(int32_t) { return 5; }
  static uint32_t type_number(float) { return 6; }
  static uint32_t type_number(bool) { return 7; }
  static uint32_t type_number(const std::string&) { return 8; }
  template <class T>
  static uint32_t type_number(const std::vector<T>&) {
    return 9;
  }

  template <class T>
  void add_content(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      add(static_cast<uint8_t>(value));
    } else {
      add(value);
    }
  }
  void add_content(const std::string& text) { add_text(text); }
  template <class T>
  void add_content(const std::vector<T>& values) {
    add(type_number(T{}));
    add(static_cast<uint64_t>(values.size()));
    for (const T& value : values) add_content(value);
  }

  std::string bytes_;
};

struct Slot {
  int64_t offset = 0, bytes = 0;
  bool written = false;
};

}  // namespace

int64_t GgufTensorInfo::num_bytes() const {
  const GgmlTypeInfo& info = ggml_type_info(type);
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % info.block_elements != 0) throw std::logic_error(name + ": rows are no whole blocks");
  return elements / info.block_elements * info.block_bytes;
}

struct GgufWriter::Impl {
  explicit Impl(const std::string& file_path)
      : path(file_path), fd(file_path, O_WRONLY | O_CREAT | O_TRUNC) {}
  std::string path;
  io::FileDescriptor fd;
  std::unordered_map<std::string, Slot> slots;
};

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata,
                       const std::vector<GgufTensorInfo>& tensors)
    : impl_(std::make_unique<Impl>(path)) {
  Head head;
  head.add(uint32_t{0x46554747});  // "GGUF"
  head.add(uint32_t{3});
  head.add(static_cast<uint64_t>(tensors.size()));
  head.add(static_cast<uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    head.add_text(key);
    head.add_value(value);
  }
  int64_t offset = 0;
  for (const GgufTensorInfo& tensor : tensors) {
    head.add_text(tensor.name);
    head.add(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      head.add(static_cast<uint64_t>(*size));
    head.add(static_cast<uint32_t>(tensor.type));
    head.add(static_cast<uint64_t>(offset));
    if (!impl_->slots.emplace(tensor.name, Slot{offset, tensor.num_bytes()}).second)
      throw std::logic_error(path + ": " + tensor.name + " is there twice");
    offset = aligned(offset + tensor.num_bytes());
  }
  const auto start = aligned(static_cast<int64_t>(head.bytes().size()));
  for (auto& [name, slot] : impl_->slots) slot.offset += start;
  io::write_all(impl_->fd.get(), path, head.bytes().data(),
                static_cast<int64_t>(head.bytes().size()), 0);
  if (::ftruncate(impl_->fd.get(), start + offset) != 0)
    throw ResourceError(path + ": cannot be written: " + io::errno_text(errno));
}

GgufWriter::~GgufWriter() = default;

void GgufWriter::write(const std::string& name, const void* data, int64_t bytes) {
  const auto found = impl_->slots.find(name);
  if (found == impl_->slots.end()) throw std::logic_error(impl_->path + ": no tensor " + name);
  Slot& slot = found->second;
  if (slot.written || slot.bytes != bytes) {
    throw std::logic_error(
        format("%s: %s of %lld bytes is written twice or as %lld bytes", impl_->path.c_str(),
               name.c_str(), static_cast<long long>(slot.bytes), static_cast<long long>(bytes)));
  }
  io::write_all(impl_->fd.get(), impl_->path, data, bytes, slot.offset);
  slot.written = true;
}

void GgufWriter::finish() {
  for (const auto& [name, slot] : impl_->slots) {
    if (!slot.written) throw std::logic_error(impl_->path + ": " + name + " was not written");
  }
  io::sync_file(impl_->fd.get(), impl_->path);
  impl_->fd.close();
}

}  // namespace curvq
