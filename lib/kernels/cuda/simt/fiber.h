// Fibers of the emulator: a thread of control that runs until it gives way.
#pragma once

#include <csetjmp>
#include <memory>

namespace curvq::simt {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes this fiber one that will call entry(argument), which must end with leave(). Whatever it
  // ran before is forgotten; no destructors run.
  void start(void (*entry)(void*), void* argument);
  // Runs it until it gives way or leaves. Called from outside of fibers.
  void resume();
  // Called from inside: back to where resume() was called.
  void give_way();
  [[noreturn]] void leave();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::unique_ptr<char[]> stack_;
  jmp_buf inside_, outside_;
  bool running_ = false;
};

}  // namespace curvq::simt
