// Input: a safetensors file.
#include "curvq/io/safetensors.h"
#include "fuzzing.h"

using namespace curvq;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzzing::MemoryFile memory;
  memory.set(data, size);
  fuzzing::accepts([] {
    const SafetensorsFile file(memory.path());
    int sum = 0;  // of every byte, so that a view out of bounds is noticed
    for (const TensorView& tensor : file.tensors()) {
      fuzzing::require(file.find(tensor.name) == &tensor);
      for (int64_t i = 0; i < tensor.num_bytes(); ++i) sum ^= static_cast<int>(tensor.data[i]);
      fuzzing::accepts([&tensor] { tensor.to_f32(); });
      file.release(tensor);
    }
    static volatile int sink;
    sink = sum;
    fuzzing::accepts([&file] { file.at("model.norm.weight"); });
  });
  return 0;
}
