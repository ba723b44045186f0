#include "curvq/curvature/process_group.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string>

#include "curvq/core/error.h"
#include "curvq/core/log.h"

#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace curvq {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    throw UsageError(std::string(name) +
                     " is not set but WORLD_SIZE is; several processes need RANK, WORLD_SIZE, "
                     "MASTER_ADDR and MASTER_PORT");
  }
  return value;
}

int number(const char* name, int least, int most) {
  const std::string text = variable(name);
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (errno != 0 || *end != '\0' || value < least || value > most) {
    throw UsageError(
        format("%s is '%s', it must be a number from %d to %d", name, text.c_str(), least, most));
  }
  return static_cast<int>(value);
}

#ifdef USE_C10D_GLOO
// NCCL between GPUs where LibTorch, built with it, sees one; Gloo between CPUs.
class C10dGroup : public ProcessGroup {
 public:
  C10dGroup(int rank, int size, const std::string& address, int port,
            std::chrono::milliseconds timeout)
      : rank_(rank), size_(size) {
    attempt("joining the other processes at " + address + ":" + std::to_string(port), [&] {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(port);
      options.isServer = rank == 0;
      options.numWorkers = static_cast<size_t>(size);
      options.timeout = timeout;
      connect(c10::make_intrusive<c10d::TCPStore>(address, options), timeout);
    });
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void sum(torch::Tensor& tensor) override {
    attempt("adding up over processes", [&] {
      std::vector<torch::Tensor> there = {tensor.to(device_)};
      backend_->allreduce(there)->wait();
      if (!there[0].is_same(tensor)) tensor.copy_(there[0]);
    });
  }

 private:
  void connect(const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout) {
#ifdef USE_C10D_NCCL
    if (torch::cuda::is_available()) {
      device_ = torch::Device(torch::kCUDA, static_cast<int8_t>(local_rank()));
      const auto options = c10d::ProcessGroupNCCL::Options::create();
      options->timeout = timeout;
      backend_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank_, size_, options);
      return;
    }
#endif
    const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices = {c10d::ProcessGroupGloo::createDefaultDevice()};
    options->threads = 1;
    backend_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank_, size_, options);
  }

#ifdef USE_C10D_NCCL
  // This process's GPU: torchrun numbers the processes of a machine.
  int local_rank() const {
    const int gpus = static_cast<int>(torch::cuda::device_count());
    return std::getenv("LOCAL_RANK") == nullptr ? rank_ % gpus : number("LOCAL_RANK", 0, gpus - 1);
  }
#endif

  template <typename Work>
  void attempt(const std::string& what, Work&& work) const {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      std::string reason = error.what();
      reason = reason.substr(0, reason.find('\n'));
      throw ResourceError(
          format("rank %d of %d: %s failed: %s; a process is gone, or did not come "
                 "in time",
                 rank_, size_, what.c_str(), reason.c_str()));
    }
  }

  int rank_, size_;
  torch::Device device_{torch::kCPU};
  c10::intrusive_ptr<c10d::Backend> backend_;
};
#endif

}  // namespace

std::unique_ptr<ProcessGroup> ProcessGroup::from_environment(std::chrono::milliseconds timeout) {
  if (std::getenv("WORLD_SIZE") == nullptr) return nullptr;
  const int size = number("WORLD_SIZE", 1, 1 << 16);
  const int rank = number("RANK", 0, size - 1);
  const std::string address = variable("MASTER_ADDR");
  const int port = number("MASTER_PORT", 1, 65535);
#ifdef USE_C10D_GLOO
  return std::make_unique<C10dGroup>(rank, size, address, port, timeout);
#else
  throw UnsupportedError(
      "WORLD_SIZE is set, but curvq was built without Gloo's headers (libgloo-dev) and runs in one "
      "process only");
#endif
}

double ProcessGroup::sum(double value) {
  torch::Tensor tensor = torch::full({1}, value, torch::kFloat64);
  sum(tensor);
  return tensor.item<double>();
}

SampleRange part_of(int64_t samples, const ProcessGroup& group) {
  const int64_t rank = group.rank(), size = group.size();
  if (samples < size) {
    throw UsageError(format("%lld samples are fewer than the %lld processes",
                            static_cast<long long>(samples), static_cast<long long>(size)));
  }
  const int64_t first = samples * rank / size;
  return {first, samples * (rank + 1) / size - first};
}

torch::Tensor DistributedOperator::apply(const torch::Tensor& vectors) {
  torch::Tensor products = local_.apply(vectors).mul_(share_).contiguous();
  group_.sum(products);
  return products;
}

void join_factors(LayerFactors& layer, double sample_share, double term_share,
                  ProcessGroup& group) {
  torch::Tensor a = (layer.factors.a * sample_share).contiguous(),
                g = (layer.factors.g * term_share).contiguous();
  group.sum(a);
  group.sum(g);
  layer.factors = {a, g};
  layer.num_inputs = std::llround(group.sum(static_cast<double>(layer.num_inputs)));
}

}  // namespace curvq
