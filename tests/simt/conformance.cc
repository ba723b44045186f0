#include "conformance.h"

#include <random>

#include "curvq/core/error.h"

namespace curvq::simt {

std::vector<uint32_t> conformance_input() {
  std::mt19937 random(5);
  const auto integer = [&] { return static_cast<float>(random() % 17) - 8; };
  const auto general = [&]() -> uint32_t {
    if (random() % 4 == 0) return random() % 128 | (random() % 2) << 15;       // subnormal
    return (96 + random() % 64) << 7 | random() % 128 | (random() % 2) << 15;  // 2^-31 ... 2^32
  };
  std::vector<uint32_t> in(kWarp * kConformanceIn);
  for (int lane = 0; lane < kWarp; ++lane) {
    uint32_t* w = &in[lane * kConformanceIn];
    for (int i = 0; i < 4; ++i)
      w[i] = f32_to_bf16(integer()) | static_cast<uint32_t>(f32_to_bf16(integer())) << 16;
    for (int i = 4; i < 6; ++i) w[i] = general() | general() << 16;
    w[6] = f32_to_f16(integer()) | static_cast<uint32_t>(f32_to_f16(integer())) << 16;
    w[7] = static_cast<uint32_t>(random());
  }
  return in;
}

std::vector<uint32_t> run_conformance_emulated(const std::vector<uint32_t>& in) {
  std::vector<U32x4> aligned(in.size() / 4);  // on 16 bytes
  std::memcpy(aligned.data(), in.data(), in.size() * 4);
  const auto* from = reinterpret_cast<const uint32_t*>(aligned.data());
  std::vector<uint32_t> out(kWarp * kConformanceOut);
  Emulator emulator({});
  emulator.readable(from, in.size() * 4, "in");
  emulator.writable(out.data(), out.size() * 4, "out");
  emulator.launch({}, kWarp, kWarp * 16, [&] { conformance_kernel<true>(from, out.data()); });
  if (!emulator.report().findings.empty()) throw std::logic_error(emulator.report().str());
  return out;
}

}  // namespace curvq::simt
