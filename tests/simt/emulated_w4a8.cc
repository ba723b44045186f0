#include "emulated_w4a8.h"

#include "device_like.h"
#include "kernels/cuda/w4a8.h"
#include "kernels/cuda/w4a8_kernel.h"

namespace curvq {

W4A8Inputs emulate_quantize_rows(const W4A8Case& c, const simt::Settings& settings,
                                 simt::Report* report) {
  internal::W4A8Launch launch = internal::plan_w4a8(c.weight, c.m, c.ldx, c.ldout);
  DeviceLike<uint16_t> x(c.x);
  DeviceLike<uint8_t> codes(c.m * c.weight.chunks * cuda::kW4A8Cols, 0x77);
  DeviceLike<float> scales(c.m, -1.0f);
  simt::Emulator emulator(settings);
  emulator.readable(x.data(), x.bytes(), "x");
  emulator.writable(codes.data(), codes.bytes(), "codes");
  emulator.writable(scales.data(), scales.bytes(), "scales");
  cuda::QuantizeRowsArgs& args = launch.quantize;
  args.x = x.data();
  args.codes = codes.data();
  args.scales = scales.data();
  const auto run = [&](const std::function<void()>& kernel) {
    emulator.launch({(args.m + cuda::kQuantizeRowWarps - 1) / cuda::kQuantizeRowWarps},
                    cuda::kQuantizeRowWarps * 32, 0, kernel);
  };
  if (c.type == Float16Type::kFloat16)
    run([&args] { cuda::quantize_rows_kernel<true>(args); });
  else
    run([&args] { cuda::quantize_rows_kernel<false>(args); });
  *report = emulator.report();
  return {c.m,
          c.weight.chunks,
          {codes.data(), codes.data() + codes.size()},
          {scales.data(), scales.data() + scales.size()}};
}

simt::Report emulate_w4a8(W4A8Case* c, const W4A8Inputs& x, const simt::Settings& settings) {
  internal::W4A8Launch launch = internal::plan_w4a8(c->weight, c->m, c->ldx, c->ldout);
  DeviceLike<uint8_t> x_codes(x.codes), codes(c->weight.codes), scales(c->weight.scales);
  DeviceLike<float> x_scales(x.scales), bias(c->bias);
  DeviceLike<uint16_t> out(c->out);
  simt::Emulator emulator(settings);
  emulator.readable(x_codes.data(), x_codes.bytes(), "codes of x");
  emulator.readable(x_scales.data(), x_scales.bytes(), "scales of x");
  emulator.readable(codes.data(), codes.bytes(), "codes of w");
  emulator.readable(scales.data(), scales.bytes(), "scales of w");
  emulator.readable(bias.data(), bias.bytes(), "bias");
  emulator.writable(out.data(), out.bytes(), "out");
  cuda::W4A8Args& args = launch.product;
  args.x = x_codes.data();
  args.x_scales = x_scales.data();
  args.codes = codes.data();
  args.scales = scales.data();
  args.bias = bias.size() == 0 ? nullptr : bias.data();
  args.out = out.data();
  const auto run = [&](auto config) {
    using C = decltype(config);
    emulator.launch({args.row_tiles * args.token_tiles}, C::kThreads, C::kSharedBytes,
                    [&args] { cuda::w4a8_kernel<C>(args); });
  };
  if (c->type == Float16Type::kFloat16)
    run(cuda::W4A8Config<true>{});
  else
    run(cuda::W4A8Config<false>{});
  std::copy_n(out.data(), out.size(), c->out.data());
  return emulator.report();
}

}  // namespace curvq
