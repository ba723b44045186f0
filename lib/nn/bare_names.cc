#include "curvq/nn/bare_names.h"

namespace curvq {

void adopt_bare_names(DecoderNames& names, const std::function<bool(const std::string&)>& has) {
  const std::string base = names.embedding.substr(0, names.embedding.find('.') + 1);
  if (has(names.embedding + ".weight") || !has(names.embedding.substr(base.size()) + ".weight"))
    return;
  for (std::string* name : {&names.embedding, &names.positions, &names.final_norm, &names.blocks}) {
    if (name->starts_with(base)) name->erase(0, base.size());
  }
}

}  // namespace curvq
