// The trace and the Frobenius norm of an operator, estimated from products with random vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "curvq/curvature/linear_operator.h"
#include "curvq/curvature/statistics.h"

namespace curvq {

struct TraceOptions {
  ProbeKind probe = ProbeKind::kRademacher;
  // Random vectors, 2 or more. With a tolerance: how many before it is looked at.
  int64_t probes = 30;
  // Stop when standard error <= tolerance * |value|; 0: stop after `probes`.
  double tolerance = 0;
  int64_t max_probes = 1000;  // give up on the tolerance here
  // Hutchinson: this many Lanczos vectors are taken out of the probes and their part of the trace
  // computed exactly, for as many products more. Worth it (4, say) where a few eigenvalues
  // dominate: on a matrix of rank one it removes the whole variance.
  int64_t deflate = 0;

  void validate() const;  // throws UsageError naming field, value and bound
};

// Of the diagonal block H_bb of a segment b.
struct SegmentTrace {
  Segment segment;
  Estimate trace;
  Estimate frobenius;  // hutchinson_trace: of the rows, ||H_b.||_F; segment_traces: ||H_bb||_F
};

struct TraceResult {
  Estimate trace;
  Estimate frobenius;                  // hutchinson_trace only; NaN otherwise
  std::vector<SegmentTrace> segments;  // hutchinson_trace and segment_traces
  torch::Tensor samples;               // hutchinson_trace: [probes], whose mean is the trace
  int64_t products = 0;                // H v computed
  bool converged = false;              // the tolerance was reached, or none was set
};

// Hutchinson (1990): tr H = E z^T H z, and ||H||_F^2 = E ||H z||^2 from the same products (its
// root, with the error by the delta method). The trace of segment b is E z_b^T (H z)_b: free, but
// with the noise of all blocks H_bc in it, which its standard error shows; see segment_traces for
// less. Samples are independent, the stop looks at |value|, so that a negative trace is no
// different. Throws UsageError for bad options, NumericalError for products that are not finite.
TraceResult hutchinson_trace(LinearOperator& op, const TraceOptions& options,
                             torch::Generator generator);

// Traces of diagonal blocks with probes of their own, z_b^T H_bb z_b with z zero outside b: one
// product a block and probe, without the noise of other blocks. `segments` may be any disjoint
// stretches; empty: those of the operator. `trace` is the sum over segments, its error theirs
// added in squares. The tolerance is asked of each segment (against the larger of its own value
// and the mean over segments), blocks that reached it draw no more probes.
TraceResult segment_traces(LinearOperator& op, std::vector<Segment> segments,
                           const TraceOptions& options, torch::Generator generator);

// Hutch++ (Meyer, Musco, Musco, Woodruff 2021): some `products` find a subspace, as many give its
// trace exactly, the rest is Hutchinson outside of it, whose sample error is reported. 6 products
// or more; a quarter, a quarter and a half of them rather than thirds, for a usable error bar. Fast
// where the spectrum decays, worse than Hutchinson where it is flat: compare standard errors.
TraceResult hutch_plus_plus_trace(LinearOperator& op, int64_t products, ProbeKind probe,
                                  torch::Generator generator);

// XTrace (Epperly, Tropp, Webber 2024), with normal probes and its normalisation of residuals: each
// of products / 2 probes is held out of the subspace that the others span. 6 products or more. The
// samples are exchangeable, not independent: the reported error is the jackknife's, which is too
// large rather than too small.
// A matrix whose rank is below products / 2 is found out and its trace exact to rounding.
TraceResult xtrace(LinearOperator& op, int64_t products, torch::Generator generator);

}  // namespace curvq
