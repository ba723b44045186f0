#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <stdexcept>
#include <unordered_map>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/atomic_output.h"
#include "curvq/io/json.h"
#include "curvq/io/safetensors.h"
#include "io/posix.h"
#include "io/text.h"

namespace curvq {
namespace {

struct Slot {
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;
  bool written = false;
};

// Gives the file its full size on the disk, so that no later write can run out of space.
void reserve(const io::FileDescriptor& fd, const std::string& path, int64_t bytes) {
  int error = 0;
  do {
    error = ::fallocate(fd.get(), 0, 0, bytes) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS) {
    // A file system that cannot reserve: the best that is left is to ask it.
    require_disk_space(path, bytes);
    error = ::ftruncate(fd.get(), bytes) == 0 ? 0 : errno;
  }
  if (error == 0) return;
  throw ResourceError(format("%s: cannot be made %lld bytes long, %lld are free: %s", path.c_str(),
                             static_cast<long long>(bytes),
                             static_cast<long long>(io::free_bytes(path)),
                             io::errno_text(error).c_str()));
}

}  // namespace

struct SafetensorsWriter::Impl {
  Impl(const std::string& file_path, const std::vector<TensorInfo>& tensors,
       const std::map<std::string, std::string>& metadata)
      : path(file_path),
        header(lay_out(tensors, metadata)),
        fd(path, O_WRONLY | O_CREAT | O_TRUNC) {}

  // Fills `slots` and returns the length and the header.
  std::string lay_out(const std::vector<TensorInfo>& tensors,
                      const std::map<std::string, std::string>& metadata) {
    OrderedJson::object_t json;
    if (!metadata.empty()) json.emplace_back("__metadata__", metadata);
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
    std::stable_sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
      return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
    });
    for (const TensorInfo* tensor : order) {
      const int64_t bytes = tensor->num_bytes();
      if (!slots.emplace(tensor->name, Slot{data_bytes, bytes}).second ||
          tensor->name == "__metadata__") {
        throw std::logic_error(path + ": tensor name " + tensor->name + " is taken");
      }
      json.emplace_back(tensor->name,
                        OrderedJson{{"dtype", dtype_name(tensor->dtype)},
                                    {"shape", tensor->shape},
                                    {"data_offsets", {data_bytes, data_bytes + bytes}}});
      data_bytes += bytes;
    }
    std::string text;
    try {
      text = OrderedJson(std::move(json)).dump();
    } catch (const OrderedJson::type_error&) {
      throw UsageError(path + ": a tensor name or metadata entry is not UTF-8");
    }
    text.append((8 - text.size() % 8) % 8, ' ');
    std::string length(8, '\0');
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
    for (auto& [name, slot] : slots)
      slot.offset += static_cast<int64_t>(length.size() + text.size());
    return length + text;
  }

  std::string path;
  std::unordered_map<std::string, Slot> slots;
  int64_t data_bytes = 0;
  std::string header;
  io::FileDescriptor fd;
  bool finished = false;
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : impl_(std::make_unique<Impl>(path, tensors, metadata)) {
  try {
    const auto header_bytes = static_cast<int64_t>(impl_->header.size());
    reserve(impl_->fd, path, header_bytes + impl_->data_bytes);
    io::write_all(impl_->fd.get(), path, impl_->header.data(), header_bytes, 0);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!impl_->finished) ::unlink(impl_->path.c_str());
}

void SafetensorsWriter::write(const std::string& name, const void* data, int64_t bytes) {
  const auto found = impl_->slots.find(name);
  if (found == impl_->slots.end()) throw std::logic_error(impl_->path + ": no tensor " + name);
  Slot& slot = found->second;
  if (slot.written) throw std::logic_error(impl_->path + ": " + name + " is written twice");
  if (slot.bytes != bytes) {
    throw std::logic_error(format("%s: %s has %lld bytes, given %lld", impl_->path.c_str(),
                                  name.c_str(), static_cast<long long>(slot.bytes),
                                  static_cast<long long>(bytes)));
  }
  io::write_all(impl_->fd.get(), impl_->path, data, bytes, slot.offset);
  slot.written = true;
}

void SafetensorsWriter::write(const TensorView& tensor) {
  std::vector<std::byte> decoded;
  write(tensor.name, tensor.bytes(&decoded), tensor.num_bytes());
}

void SafetensorsWriter::finish() {
  for (const auto& [name, slot] : impl_->slots) {
    if (!slot.written) throw std::logic_error(impl_->path + ": " + name + " was not written");
  }
  io::sync_file(impl_->fd.get(), impl_->path);
  impl_->fd.close();
  impl_->finished = true;
}

}  // namespace curvq
