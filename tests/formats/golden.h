// Golden files of other packages: a safetensors reader for tests, tensors widened to float32 on
// request.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "curvq/formats/dtype.h"

namespace curvq::testing {

struct GoldenTensor {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;

  int64_t rows() const { return shape.at(0); }
  int64_t cols() const { return shape.at(1); }
  std::vector<float> f32() const {
    std::vector<float> values(bytes.size() / dtype_bytes(dtype));
    convert_to_f32(dtype, bytes.data(), values.size(), values.data());
    return values;
  }
};

class Golden {
 public:
  explicit Golden(const std::string& name) {
    const std::string path = std::string(CURVQ_TEST_DATA) + "/formats/" + name + ".safetensors";
    std::ifstream in(path, std::ios::binary);
    uint64_t header_bytes = 0;
    in.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
    if (!in) throw std::runtime_error("cannot read " + path);
    std::string header(header_bytes, ' ');
    in.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const std::string data((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const nlohmann::json entries = nlohmann::json::parse(header);
    for (const auto& [key, entry] : entries.items()) {
      if (key == "__metadata__") continue;
      const auto offsets = entry["data_offsets"].get<std::vector<size_t>>();
      tensors_[key] = {
          parse_dtype(entry["dtype"].get<std::string>()).value(),
          entry["shape"].get<std::vector<int64_t>>(),
          std::vector<uint8_t>(data.begin() + static_cast<std::ptrdiff_t>(offsets[0]),
                               data.begin() + static_cast<std::ptrdiff_t>(offsets[1]))};
      cases_.insert(key.substr(0, key.find('/')));
    }
  }

  const std::set<std::string>& cases() const { return cases_; }
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  const GoldenTensor& operator[](const std::string& name) const { return tensors_.at(name); }

 private:
  std::map<std::string, GoldenTensor> tensors_;
  std::set<std::string> cases_;
};

}  // namespace curvq::testing
