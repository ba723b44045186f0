// Second moments of a layer's inputs and output gradients: the two factors of K-FAC, out of plain
// tensors, and the forms into which layers other than linear ones are brought first.
//
// A layer seen as linear: per sample and position r (a token, a pixel; R of them), a row x of
// inputs and the gradient g of one loss term in the layer's output. Its curvature block, parameters
// in the order (out, in[+1]) row-major, is approximated by G (x) A.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>

namespace curvq {

// What is assumed of positions that share the weight (Eschenhagen et al. 2023).
enum class WeightSharing {
  kExpand,  // positions are independent samples: exact where each loss term has its own (tokens)
  kReduce,  // inputs are averaged and gradients summed over positions (one loss term per sample)
};

// inputs [..., in] -> [..., in + 1] with a last 1: the bias as one more column of the weight.
torch::Tensor append_one(const torch::Tensor& inputs);

struct Convolution {
  std::array<int64_t, 2> kernel{1, 1}, stride{1, 1}, padding{0, 0}, dilation{1, 1};
};
// images [n, c, h, w] -> rows [n, R, c * kernel], channels outermost as in the weight
// [out, c, kh, kw]; one group.
torch::Tensor unfold_inputs(const torch::Tensor& images, const Convolution& convolution);
// Gradients in a convolution's output [n, out, h, w] (more leading dimensions are kept) -> [n, R,
// out].
torch::Tensor unfold_gradients(const torch::Tensor& gradients);

// A from inputs [n, R, in] (or [n, in]: R = 1).
//   expand: 1/(n R) sum x x^T        reduce: 1/n sum m m^T, m the mean of x over positions
//   weights [n, R], optional, expand only: 1/(n R) sum q x x^T, E[q x x^T]
// Accumulated in float32 or wider, in the dtype of the inputs. Throws NumericalError for inputs
// that are not finite, UsageError for shapes.
torch::Tensor input_factor(const torch::Tensor& inputs, WeightSharing sharing,
                           const torch::Tensor& weights = {});
// A of an embedding: its inputs are unit vectors, so that A is diagonal; [vocabulary], the share of
// each id among `ids` (any shape).
torch::Tensor embedding_input_factor(const torch::Tensor& ids, int64_t vocabulary);

// G from gradients [..., R, out] of loss terms that are not divided by their number `terms`:
//   expand: 1/terms sum g g^T        reduce: 1/terms sum s s^T, s the sum of g over positions
// Leading dimensions are samples and, for each, draws of the label or columns s of a root of the
// output Hessian, S S^T = H; K-FAC is exact in the label with the latter. Several draws: give
// terms * draws. [n, out] means R = 1.
torch::Tensor output_factor(const torch::Tensor& gradients, WeightSharing sharing, int64_t terms);

// What to send back from the logits [M, C] of a softmax so that sums of g g^T are expectations over
// labels of the model's own distribution (the true Fisher, equal to the Gauss-Newton matrix):
//   exact: the C columns of S = diag(sqrt p) - p sqrt(p)^T, S S^T = diag p - p p^T; [C, M, C]
torch::Tensor softmax_hessian_columns(const torch::Tensor& logits);
//   sampled: p - onehot(y) for `draws` labels y of each row; [draws, M, C]
torch::Tensor sampled_label_gradients(const torch::Tensor& logits, int64_t draws,
                                      torch::Generator generator);

// q = g^T (G + damping mean(diag G) I)^-1 g for gradients [..., out] -> [...]: how much a token
// matters to the loss, in units of the mean token (mean q is near `out`). Attention sinks carry
// most of |g|^2 and hardly any of |x|^2; E[q x x^T] sees them.
torch::Tensor token_weights(const torch::Tensor& gradients, const torch::Tensor& g,
                            double damping = 0.1);

}  // namespace curvq
