// What functions in C++ that XLA calls share: work in turns for the threads of XLA, and the arguments of a call.

#ifndef ROAMAX_NATIVE_H_
#define ROAMAX_NATIVE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "xla/ffi/api/c_api.h"

namespace roamax {

// The most numbers in a vector of the processor, and its vector registers.
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

template <int lanes>
struct Of {
  typedef float Vector __attribute__((vector_size(4 * lanes)));
  typedef float Unaligned __attribute__((vector_size(4 * lanes), aligned(4), may_alias));
};

template <int lanes = kLanes>
inline typename Of<lanes>::Vector Load(const float* from) {
  return *reinterpret_cast<const typename Of<lanes>::Unaligned*>(from);
}

template <int lanes = kLanes>
inline void Store(float* to, typename Of<lanes>::Vector value) {
  *reinterpret_cast<typename Of<lanes>::Unaligned*>(to) = value;
}

#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 32")
#endif

#define SIMD _Pragma("omp simd")

// Keeps the compiler from loading a vector again for each use, which would take as long as the arithmetic.
template <typename T>
inline T InRegister(T x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#endif
  return x;
}

// Work in turns, which threads claim one by one.
class Task {
 public:
  virtual ~Task() = default;
  // Takes turns until none is left.
  virtual void Work() = 0;

  bool Claim(int64_t* turn) { return (*turn = next_.fetch_add(1)) < turns; }
  void Finish() { finished_.fetch_add(1); }
  bool IsFinished() const { return finished_.load() >= turns; }
  void Keep() { users_.fetch_add(1); }
  void Release() {
    if (users_.fetch_sub(1) == 1) delete this;
  }

  int64_t turns = 0;

 private:
  std::atomic<int64_t> next_{0}, finished_{0};
  std::atomic<int> users_{1};
};

inline void Help(void* data) {
  Task* task = static_cast<Task*>(data);
  task->Work();
  task->Release();
}

// With less work, to wake up another thread and to wait for it takes longer than its share.
constexpr int64_t kOperationsPerThread = 1 << 21;

// Shares a task of so many operations with the threads of XLA, and returns when all turns are over. A helper that comes
// late finds nothing to do, so that no thread waits for one that has not begun.
inline void Share(const XLA_FFI_CallFrame* frame, Task* task, int64_t operations) {
  const XLA_FFI_Api* api = frame->api;
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args count = {};
  count.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
  count.ctx = frame->ctx;
  count.num_threads = &threads;
  XLA_FFI_Error* error = api->XLA_FFI_ThreadPool_NumThreads(&count);
  threads = std::min({threads, task->turns, operations / kOperationsPerThread});
  for (int64_t helper = 1; error == nullptr && helper < threads; ++helper) {
    task->Keep();
    XLA_FFI_ThreadPool_Schedule_Args args = {};
    args.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
    args.ctx = frame->ctx;
    args.task = Help;
    args.data = task;
    error = api->XLA_FFI_ThreadPool_Schedule(&args);
    if (error != nullptr) task->Release();
  }
  if (error != nullptr) {
    XLA_FFI_Error_Destroy_Args args = {};
    args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
    args.error = error;
    api->XLA_FFI_Error_Destroy(&args);
  }
  task->Work();
  while (!task->IsFinished()) std::this_thread::yield();
}

// Answers XLA's question for the version of its interface, which comes before any call.
inline bool TellVersion(const XLA_FFI_CallFrame* frame) {
  for (auto* extension = frame->extension_start; extension != nullptr; extension = extension->next)
    if (extension->type == XLA_FFI_Extension_Metadata) {
      XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
      metadata->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
      metadata->traits = 0;
      return true;
    }
  return false;
}

inline const XLA_FFI_Buffer* Argument(const XLA_FFI_CallFrame* frame, int64_t i) {
  return static_cast<const XLA_FFI_Buffer*>(frame->args.args[i]);
}

inline const float* Numbers(const XLA_FFI_CallFrame* frame, int64_t i) {
  return static_cast<const float*>(Argument(frame, i)->data);
}

inline float* Result(const XLA_FFI_CallFrame* frame, int64_t i) {
  return static_cast<float*>(static_cast<XLA_FFI_Buffer*>(frame->rets.rets[i])->data);
}

inline int64_t Attribute(const XLA_FFI_CallFrame* frame, int64_t i) {
  return *static_cast<const int64_t*>(static_cast<XLA_FFI_Scalar*>(frame->attrs.attrs[i])->value);
}

}  // namespace roamax

#endif  // ROAMAX_NATIVE_H_
