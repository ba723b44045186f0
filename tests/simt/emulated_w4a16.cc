#include "emulated_w4a16.h"

#include <algorithm>
#include <cmath>

#include "curvq/core/error.h"
#include "device_like.h"
#include "kernels/cuda/w4a16.h"
#include "kernels/cuda/w4a16_configs.h"

namespace curvq {
simt::Report emulate(Operands* operands, const Product& product, const simt::Settings& settings) {
  const W4A16Weight& weight = operands->weight;
  internal::W4A16Launch launch =
      internal::plan_w4a16(weight, product.m, operands->ldx, operands->ldout, 1, product.splits);
  DeviceLike<uint16_t> x(operands->x), out(operands->out);
  DeviceLike<uint8_t> codes(weight.codes), meta(weight.meta);
  DeviceLike<float> bias[] = {DeviceLike<float>(operands->bias[0]),
                              DeviceLike<float>(operands->bias[1])};
  DeviceLike<float> partial(launch.partial_floats, NAN);
  DeviceLike<uint32_t> tickets(launch.tickets);

  simt::Emulator emulator(settings);
  emulator.readable(x.data(), x.bytes(), "x");
  emulator.readable(codes.data(), codes.bytes(), "codes");
  emulator.readable(meta.data(), meta.bytes(), "meta");
  for (auto& b : bias) emulator.readable(b.data(), b.bytes(), "bias");
  emulator.writable(out.data(), out.bytes(), "out");
  emulator.writable(partial.data(), partial.bytes(), "partial sums");
  emulator.writable(tickets.data(), tickets.bytes(), "tickets");
  cuda::W4A16Args& args = launch.args;
  args.x = x.data();
  args.codes = codes.data();
  args.meta = meta.data();
  args.out = out.data();
  args.partial = partial.data();
  args.tickets = tickets.data();
  for (int i = 0; i < 2; ++i) {
    DeviceLike<float>& b = bias[weight.pair ? i : 0];
    args.bias[i] = b.size() == 0 ? nullptr : b.data();
  }
  cuda::with_config(launch.format, launch.f16, launch.token_tiles, [&](auto config) {
    using C = decltype(config);
    emulator.launch({args.row_tiles * args.token_tiles, 1, args.splits}, cuda::kThreads,
                    C::kSharedBytes, [&args] { cuda::w4a16_kernel<C>(args); });
  });
  std::copy_n(out.data(), out.size(), operands->out.data());
  const auto zero = [](uint32_t ticket) { return ticket == 0; };
  if (!std::all_of(tickets.data(), tickets.data() + tickets.size(), zero))
    throw std::logic_error("the kernel leaves tickets that are not zero");
  return emulator.report();
}

}  // namespace curvq
