// Cutting pieces of text where something matches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "curvq/io/json.h"
#include "io/tokenizer_text.h"

namespace curvq::io {

// What becomes of a match: dropped, a piece of its own, the end of the piece before it, the start
// of the one after it, or one piece with the matches that touch it.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

SplitBehavior split_behavior(const std::string& name, const std::string& where);

// Cuts each piece of `list` that is no token. find(text, spans) appends spans that cover the text;
// with `invert`, what does not match counts as the match.
template <typename Find>
void split_pieces(PieceList& list, SplitBehavior behavior, bool invert, TextWork& work,
                  const Find& find);

// Appends the pieces that the spans of the text of `piece` make.
void append_pieces(const Piece& piece, const std::vector<Span>& spans, SplitBehavior behavior,
                   bool invert, std::vector<Piece>& pieces);

template <typename Find>
void split_pieces(PieceList& list, SplitBehavior behavior, bool invert, TextWork& work,
                  const Find& find) {
  std::vector<Piece> out;
  out.reserve(list.pieces.size());
  for (const Piece& piece : list.pieces) {
    if (piece.token != kNoToken) {
      out.push_back(piece);
      continue;
    }
    work.spans.clear();
    find(list.view(piece), work.spans);
    append_pieces(piece, work.spans, behavior, invert, out);
  }
  list.pieces = std::move(out);
}

}  // namespace curvq::io
