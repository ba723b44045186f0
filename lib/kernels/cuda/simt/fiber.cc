// longjmp checks of fortified builds take a change of stacks for a mistake.
#undef _FORTIFY_SOURCE

#include "kernels/cuda/simt/fiber.h"

#include <ucontext.h>

#include <cstdint>

namespace curvq::simt {
namespace {

constexpr size_t kStackBytes = 256 << 10;

void (*pending_entry)(void*);
void* pending_argument;

void enter() { pending_entry(pending_argument); }

}  // namespace

struct Fiber::Context {
  ucontext_t context;
  void (*entry)(void*);
  void* argument;
};

Fiber::Fiber() : context_(new Context), stack_(new char[kStackBytes]) {}
Fiber::~Fiber() = default;

void Fiber::start(void (*entry)(void*), void* argument) {
  getcontext(&context_->context);
  context_->context.uc_stack.ss_sp = stack_.get();
  context_->context.uc_stack.ss_size = kStackBytes;
  context_->context.uc_link = nullptr;
  makecontext(&context_->context, enter, 0);
  context_->entry = entry;
  context_->argument = argument;
  running_ = false;
}

// The first entry needs a context for its new stack; after that _setjmp and _longjmp do, which make
// no system calls.
void Fiber::resume() {
  if (_setjmp(outside_) != 0) return;
  if (running_) _longjmp(inside_, 1);
  running_ = true;
  pending_entry = context_->entry;
  pending_argument = context_->argument;
  setcontext(&context_->context);
}

void Fiber::give_way() {
  if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
}

void Fiber::leave() { _longjmp(outside_, 1); }

}  // namespace curvq::simt
