#pragma once

#include <string>

#include "curvq/core/error.h"

namespace curvq {

// work(), with the layer's name in front of what a NumericalError says.
template <typename Work>
auto naming(const std::string& layer, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const NumericalError& error) {
    throw NumericalError(layer + ": " + error.what());
  }
}

}  // namespace curvq
