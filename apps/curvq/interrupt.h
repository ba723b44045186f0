// What happens on SIGINT, SIGTERM and SIGHUP.
#pragma once

#include <string>

namespace curvq::cli {

// Starts the thread that waits for these signals (those that are ignored stay ignored). When one
// comes, the temporaries of all registered outputs are removed and the process ends with
// 128 + signal, so 130 for SIGINT. Must be called before any other thread starts.
void watch_signals();

// Registers a path that this process writes with AtomicOutput.
void remove_on_interrupt(const std::string& target);

// Does not return if a signal has come: the watching thread is about to end the process.
void wait_if_interrupted();

}  // namespace curvq::cli
