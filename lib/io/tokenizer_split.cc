#include "io/tokenizer_split.h"

#include <algorithm>

#include "curvq/core/error.h"
#include "io/text.h"

namespace curvq::io {
namespace {

void append_piece(const Piece& whole, size_t begin, size_t end, std::vector<Piece>& pieces) {
  if (begin == end) return;
  const size_t origin = std::clamp<size_t>(whole.origin_bytes, begin, end) - begin;
  pieces.push_back({whole.begin + static_cast<uint32_t>(begin),
                    whole.begin + static_cast<uint32_t>(end), static_cast<uint32_t>(origin),
                    kNoToken});
}

}  // namespace

SplitBehavior split_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw FormatError(where + ": \"behavior\" must be Removed, Isolated, MergedWithPrevious, " +
                    "MergedWithNext or Contiguous, found " + printable(name));
}

void append_pieces(const Piece& piece, const std::vector<Span>& spans, SplitBehavior behavior,
                   bool invert, std::vector<Piece>& pieces) {
  // Spans i .. j - 1 make one piece.
  size_t j = 0;
  for (size_t i = 0; i < spans.size(); i = j) {
    j = i + 1;
    const auto match = [&](size_t k) { return spans[k].match != invert; };
    switch (behavior) {
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kRemoved:
        if (match(i)) continue;
        break;
      case SplitBehavior::kContiguous:
        while (j < spans.size() && match(j) == match(i)) ++j;
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (!match(i) && j < spans.size() && match(j)) ++j;
        break;
      case SplitBehavior::kMergedWithNext:
        if (match(i) && j < spans.size() && !match(j)) ++j;
        break;
    }
    append_piece(piece, spans[i].begin, spans[j - 1].end, pieces);
  }
}

}  // namespace curvq::io
