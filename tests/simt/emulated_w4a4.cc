#include "emulated_w4a4.h"

#include "device_like.h"
#include "kernels/cuda/quantize_kernel.h"
#include "kernels/cuda/w4a4.h"
#include "kernels/cuda/w4a4_kernel.h"

namespace curvq {
namespace {

using cuda::BlockScale;

template <class Run>
void with_types(BlockScale scale, Float16Type type, const Run& run) {
  const bool f16 = type == Float16Type::kFloat16;
  if (scale == BlockScale::kE4M3)
    f16 ? run(cuda::W4A4Config<BlockScale::kE4M3, true>{})
        : run(cuda::W4A4Config<BlockScale::kE4M3, false>{});
  else
    f16 ? run(cuda::W4A4Config<BlockScale::kE8M0, true>{})
        : run(cuda::W4A4Config<BlockScale::kE8M0, false>{});
}

}  // namespace

W4A4Matrix emulate_quantize(const W4A4Case& c, const simt::Settings& settings,
                            simt::Report* report) {
  internal::W4A4Launch launch = internal::plan_w4a4(c.weight, c.m, c.ldx, c.ldout);
  // What a kernel leaves out stays as it was.
  DeviceLike<uint16_t> x(c.x);
  DeviceLike<uint8_t> codes(launch.x_code_bytes, 0x77), scales(launch.x_scale_bytes, 0x77);
  simt::Emulator emulator(settings);
  emulator.readable(x.data(), x.bytes(), "x");
  emulator.writable(codes.data(), codes.bytes(), "codes");
  emulator.writable(scales.data(), scales.bytes(), "scales");
  cuda::QuantizeArgs& args = launch.quantize;
  args.x = x.data();
  args.codes = codes.data();
  args.scales = scales.data();
  with_types(launch.scale, c.type, [&](auto config) {
    using C = decltype(config);
    emulator.launch({args.chunks * cuda::scale_words(C::kScale),
                     launch.product.token_tiles * cuda::kQuantizeTilesY},
                    cuda::kQuantizeThreads, 0,
                    [&args] { cuda::quantize_kernel<C::kScale, C::kF16>(args); });
  });
  *report = emulator.report();
  W4A4Matrix rounded;
  rounded.scheme = c.weight.scheme;
  rounded.rows = c.m;
  rounded.cols = c.weight.cols;
  rounded.chunks = c.weight.chunks;
  rounded.codes.assign(codes.data(), codes.data() + codes.size());
  rounded.scales.assign(scales.data(), scales.data() + scales.size());
  rounded.divisor = c.weight.input_divisor;
  return rounded;
}

simt::Report emulate_w4a4(W4A4Case* c, const W4A4Matrix& x, const simt::Settings& settings) {
  internal::W4A4Launch launch = internal::plan_w4a4(c->weight, c->m, c->ldx, c->ldout);
  DeviceLike<uint8_t> x_codes(x.codes), x_scales(x.scales), w_codes(c->weight.codes),
      w_scales(c->weight.scales);
  DeviceLike<float> bias(c->bias);
  DeviceLike<uint16_t> out(c->out);
  simt::Emulator emulator(settings);
  emulator.readable(x_codes.data(), x_codes.bytes(), "codes of x");
  emulator.readable(x_scales.data(), x_scales.bytes(), "scales of x");
  emulator.readable(w_codes.data(), w_codes.bytes(), "codes of w");
  emulator.readable(w_scales.data(), w_scales.bytes(), "scales of w");
  emulator.readable(bias.data(), bias.bytes(), "bias");
  emulator.writable(out.data(), out.bytes(), "out");
  cuda::W4A4Args& args = launch.product;
  args.x.codes = x_codes.data();
  args.x.scales = x_scales.data();
  args.w.codes = w_codes.data();
  args.w.scales = w_scales.data();
  args.bias = bias.size() == 0 ? nullptr : bias.data();
  args.out = out.data();
  with_types(launch.scale, c->type, [&](auto config) {
    using C = decltype(config);
    emulator.launch({args.row_tiles * args.token_tiles}, C::kThreads, C::kSharedBytes,
                    [&args] { cuda::w4a4_kernel<C>(args); });
  });
  std::copy_n(out.data(), out.size(), c->out.data());
  return emulator.report();
}

}  // namespace curvq
