#include "io/hash.h"

#include <xxhash.h>

#include <new>

#include "curvq/core/log.h"

namespace curvq::io {

struct Hasher::State {
  State() : xxh(XXH3_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  XXH3_state_t* xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;

void Hasher::add(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(state_->xxh, data, bytes);
}

void Hasher::add(const std::string& text) {
  add(static_cast<int64_t>(text.size()));
  add(text.data(), text.size());
}

std::string Hasher::hex() const {
  return format("%016llx", static_cast<unsigned long long>(XXH3_64bits_digest(state_->xxh)));
}

}  // namespace curvq::io
