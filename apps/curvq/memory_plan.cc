#include "memory_plan.h"

#include <torch/torch.h>

#include <algorithm>

#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/core/memory.h"
#include "curvq/curvature/statistics.h"
#include "curvq/report/numbers.h"
#include "curvq/report/table.h"
#include "hessian_kfac.h"

namespace curvq::cli {
namespace {

// Vectors of the parameters' size that the estimators hold at most.
int64_t num_vectors(const std::vector<std::string>& what, const Options& options, int64_t n) {
  if (options.flag("exact")) return 3 * n;  // the matrix, and what its eigenvectors need
  int64_t most = 2;
  for (const std::string& name : what) {
    if (name == "eigen")
      most = std::max(most, std::max<int64_t>(2 * options.integer("top-k") + 10, 20));
    if (name == "density") most = std::max(most, options.integer("steps") + 2);
    if (name == "diagonal") {  // probes, products and samples
      most = std::max(most, 1 + 3 * std::min(options.integer("probes"), probes_at_once(n)));
    }
    if (name == "trace" && options.integer("deflate") > 0)
      most = std::max(most, 2 * options.integer("deflate") + 4);
  }
  return std::min(most + 2, n + 2);
}

}  // namespace

OrderedJson MemoryPlan::json() const {
  return {{"total_bytes", total_bytes()},
          {"program_bytes", program_bytes},
          {"weights_bytes", weights_bytes},
          {"vectors_bytes", vectors_bytes},
          {"activations_bytes", activations_bytes},
          {"graph_bytes", graph_bytes},
          {"chunk_size", chunk_size},
          {"keeps_graph", keeps_graph}};
}

std::string MemoryPlan::text(bool color) const {
  Table table({{"memory"}, {"bytes", Table::Align::kRight}});
  table.add_row(
      {"program, weights (" + bytes_text(weights_bytes) + ") and data", bytes_text(program_bytes)});
  table.add_row({"vectors of estimators", bytes_text(vectors_bytes)});
  table.add_row({"activations of a chunk", bytes_text(activations_bytes)});
  table.add_row({"gradient and graph, with the heap's gaps", bytes_text(graph_bytes)});
  table.add_rule();
  table.add_row({"at the peak", bytes_text(total_bytes())});
  return table.str(color) + format("%lld samples go through the model together%s\n",
                                   static_cast<long long>(chunk_size),
                                   keeps_graph ? ", the graph is kept for all products" : "");
}

void MemoryPlan::check(const std::string& remedy) const {
  if (limit_bytes == 0 || total_bytes() <= limit_bytes) return;
  throw ResourceError(format("%s would be needed with %lld samples a chunk, --max-memory is %s; ",
                             bytes_text(total_bytes()).c_str(), static_cast<long long>(chunk_size),
                             bytes_text(limit_bytes).c_str()) +
                      remedy);
}

MemoryPlan plan_memory(const Problem& problem, Curvature curvature,
                       const std::vector<std::string>& what, const Options& options) {
  MemoryPlan plan;
  const int64_t n = problem.dimension();
  plan.vectors_bytes = num_vectors(what, options, n) * n *
                       static_cast<int64_t>(problem.options().dtype().itemsize());
  const int64_t asked = problem.problem_options().chunk_size, all = problem.num_samples();
  plan.chunk_size = asked > 0 ? std::min(asked, all) : all;
  plan.keeps_graph = plan.chunk_size == all;
  const auto fill_in = [&] {
    MemoryModel model =
        measure_memory(problem, curvature, {.kept_graphs = plan.keeps_graph ? 1 : 0});
    for (MemoryModel::Line& moment : model.moments) {
      moment.fixed *= 1 + model.gaps;
      moment.per_sample *= 1 + model.gaps;
    }
    plan.program_bytes = model.resident_bytes;
    plan.weights_bytes = model.weights_bytes;
    plan.activations_bytes = model.activations_bytes(plan.chunk_size);
    plan.graph_bytes = model.graph_bytes(plan.chunk_size);
    return model;
  };
  fill_in();
  if (!options.has("max-memory")) return plan;
  plan.limit_bytes = options.bytes("max-memory");
  if (plan.total_bytes() <= plan.limit_bytes) return plan;
  plan.keeps_graph = false;
  const MemoryModel fresh = fill_in();
  if (asked > 0 || plan.total_bytes() <= plan.limit_bytes) return plan;
  // What the model's total counts, but the plan under other names.
  const int64_t elsewhere = fresh.weights_bytes + fresh.vectors_bytes;
  const int64_t left = plan.limit_bytes - plan.program_bytes - plan.vectors_bytes + elsewhere;
  plan.chunk_size = fresh.total_bytes(1) <= left ? fresh.largest_chunk(left, all) : 1;
  plan.activations_bytes = fresh.activations_bytes(plan.chunk_size);
  plan.graph_bytes = fresh.graph_bytes(plan.chunk_size);
  return plan;
}

MemoryPlan plan_kfac_memory(const DecoderModel& model, const Batch& tokens,
                            const Options& options) {
  const DecoderConfig& c = model.config();
  const KfacOptions kfac = kfac_options(options);
  const int64_t bytes = options.text("dtype") == "float64" ? 8 : 4;
  const int64_t length = tokens.inputs.size(1), all = tokens.inputs.numel();
  const int64_t passes = kfac.labels == KfacLabels::kSampled ? kfac.draws
                         : kfac.labels == KfacLabels::kExact ? length * c.vocab_size
                                                             : 1;
  MemoryPlan plan;
  reset_peak_resident();
  plan.program_bytes = peak_resident_bytes();  // now
  plan.chunk_size = std::max<int64_t>(1, kKfacChunkTokens / length);
  int64_t weights = 0, factors = 0, largest = 0;
  for (const auto& group : block_linears(c, 0)) {
    for (const LinearInfo& linear : group) {
      const int64_t in = linear.in_features + linear.has_bias, out = linear.out_features;
      weights += in * out;
      factors += in * in + out * out;
      largest = std::max({largest, in * in, out * out});
    }
  }
  plan.weights_bytes = bytes * (weights + c.vocab_size * c.hidden_size);
  plan.program_bytes += plan.weights_bytes;
  // The stream ahead of each block and its gradients.
  plan.vectors_bytes = bytes * (c.num_layers + 1 + passes) * all * c.hidden_size;
  // With a product, its mean and a sum that are under way.
  plan.graph_bytes = bytes * (factors + 3 * largest);
  // Floats a token that a block's graph holds: norms and residual stream, attention (inputs,
  // outputs, the leaves added to these and their gradients, rotations, repeated keys), mlp.
  const int64_t queries = c.num_heads * c.head_dim, keys = c.num_kv_heads * c.head_dim;
  const int64_t block = 14 * c.hidden_size + 9 * queries + 6 * keys + 11 * c.intermediate_size;
  const int64_t chunk_tokens = std::min(all, plan.chunk_size * length);
  // A window's logits, their softmax and what is sent back.
  const int64_t logits =
      length * c.vocab_size * (4 + (kfac.labels == KfacLabels::kExact ? c.vocab_size : passes));
  plan.activations_bytes = bytes * std::max(chunk_tokens * block, logits);
  if (options.has("max-memory")) plan.limit_bytes = options.bytes("max-memory");
  return plan;
}

}  // namespace curvq::cli
