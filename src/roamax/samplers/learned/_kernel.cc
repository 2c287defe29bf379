// A ReLU network applied to every parameter of a tree: the inner loop of L2E as an XLA custom call.
//
// Parameters come in groups of 64. All hidden units of a group stay in the core's first-level cache, and a block of
// four units by 64 parameters in its registers, so that the arithmetic alone takes time. Groups are shared among the
// threads of XLA. Arguments, all of them float32: features (groups, 64) or (k, groups, 64); their scales (features,
// groups); one base (groups, 64) per output; and each layer's weights (inputs, outputs) and biases. Results: base +
// output, one per base.
//
// Where the processor multiplies pairs of 16-bit whole numbers as fast as single floats (AVX-512 VNNI), a layer
// between hidden units does so: its weights are rounded to 13 bits relative to the largest of each unit, and its inputs
// to 14 bits relative to the largest of each parameter. That changes outputs by about 1e-4 of their size.

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "xla/ffi/api/c_api.h"

namespace {

constexpr int64_t kGroup = 64;
constexpr int64_t kGroupsPerTurn = 4;

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
// The vectors of a block: with 32 registers four, else two.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef float Unaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline Vector Load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
inline void Store(float* to, Vector value) { *reinterpret_cast<Unaligned*>(to) = value; }

#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

// Negative numbers become 0; NaN stays NaN.
inline Vector Positive(Vector x) {
#if defined(__AVX512F__)
  return _mm512_max_ps(_mm512_setzero_ps(), x);  // One instruction, which returns the second operand if one is NaN.
#else
  return x < 0 ? Vector{} : x;
#endif
}

// Keeps the compiler from loading a vector again for each use, which would take as long as the arithmetic.
template <typename T>
inline T InRegister(T x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#endif
  return x;
}

// The 64 numbers of a group: a feature, or a hidden unit.
struct Row {
  alignas(64) float at[kGroup];
};

struct Layer {
  const float* weights;
  const float* biases;
  int64_t inputs, outputs;
  // Whole numbers that are weights divided by their unit's scale, in pairs of inputs; or none.
  std::vector<int32_t> pairs;
  std::vector<float> scales;
};

struct Task {
  std::vector<const float*> features;
  const float* scales;
  std::vector<const float*> bases;
  std::vector<float*> results;
  std::vector<Layer> layers;
  int64_t groups, widest, turns;

  std::atomic<int64_t> next{0}, finished{0};
  std::atomic<int> users{1};
};

// Computes `units` units of a layer, from the given one on, for some parameters of a group.
template <int units, bool hidden>
inline void Block(const Layer& layer, int64_t unit, int start, const Row* inputs, Row* outputs) {
  Vector sums[units][kVectors];
  UNROLLED for (int u = 0; u < units; ++u)
    UNROLLED for (int v = 0; v < kVectors; ++v) sums[u][v] = Vector{} + layer.biases[unit + u];
  const float* weights = layer.weights + unit;
  const int64_t stride = layer.outputs;
  for (int64_t i = 0; i < layer.inputs; ++i, weights += stride) {
    Vector input[kVectors];
    UNROLLED for (int v = 0; v < kVectors; ++v) input[v] = InRegister(Load(inputs[i].at + start + v * kLanes));
    UNROLLED for (int u = 0; u < units; ++u)
      UNROLLED for (int v = 0; v < kVectors; ++v) sums[u][v] += weights[u] * input[v];
  }
  UNROLLED for (int u = 0; u < units; ++u)
    UNROLLED for (int v = 0; v < kVectors; ++v) {
      const Vector sum = sums[u][v];
      Store(outputs[unit + u].at + start + v * kLanes, hidden ? Positive(sum) : sum);
    }
}

template <bool hidden>
void Apply(const Layer& layer, const Row* inputs, Row* outputs) {
  for (int start = 0; start < kGroup; start += kVectors * kLanes) {
    int64_t unit = 0;
    for (; unit + 4 <= layer.outputs; unit += 4) Block<4, hidden>(layer, unit, start, inputs, outputs);
    for (; unit < layer.outputs; ++unit) Block<1, hidden>(layer, unit, start, inputs, outputs);
  }
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
constexpr float kLargestInput = 16383, kLargestWeight = 4095;
constexpr int64_t kMostInputs = 32;  // With more of them, a sum would not fit into 32 bits.

void Quantise(Layer* layer) {
  if (layer->inputs > kMostInputs || layer->inputs % 2 != 0 || layer->outputs % 4 != 0) return;
  const int64_t size = layer->inputs * layer->outputs;
  if (!std::all_of(layer->weights, layer->weights + size, [](float w) { return std::isfinite(w); })) return;
  layer->pairs.resize(size / 2);
  layer->scales.resize(layer->outputs);
  for (int64_t unit = 0; unit < layer->outputs; ++unit) {
    float largest = 1e-30f;
    for (int64_t i = 0; i < layer->inputs; ++i)
      largest = std::max(largest, std::fabs(layer->weights[i * layer->outputs + unit]));
    layer->scales[unit] = largest / kLargestWeight;
    auto whole = [&](int64_t i) {
      return static_cast<int32_t>(std::lrint(layer->weights[i * layer->outputs + unit] / layer->scales[unit]));
    };
    for (int64_t i = 0; i < layer->inputs; i += 2)
      layer->pairs[i / 2 * layer->outputs + unit] = (whole(i) & 0xffff) | static_cast<int32_t>(uint32_t(whole(i + 1)) << 16);
  }
}

// Computes four units of a layer for two vectors of parameters, whose inputs were divided by `scales`.
inline void WholeBlock(const Layer& layer, int64_t unit, int start, const Row* pairs, const __m512* scales, Row* outputs) {
  __m512i sums[4][2] = {};
  const int32_t* weights = layer.pairs.data() + unit;
  const int64_t stride = layer.outputs;
  for (int64_t i = 0; i < layer.inputs / 2; ++i, weights += stride) {
    __m512i input[2];
    UNROLLED for (int v = 0; v < 2; ++v) input[v] = InRegister(_mm512_load_si512(pairs[i].at + start + v * kLanes));
    UNROLLED for (int u = 0; u < 4; ++u)
      UNROLLED for (int v = 0; v < 2; ++v)
        sums[u][v] = _mm512_dpwssd_epi32(sums[u][v], input[v], _mm512_set1_epi32(weights[u]));
  }
  UNROLLED for (int u = 0; u < 4; ++u)
    UNROLLED for (int v = 0; v < 2; ++v) {
      const Vector sum = _mm512_cvtepi32_ps(sums[u][v]);
      Store(outputs[unit + u].at + start + v * kLanes,
            Positive(sum * (layer.scales[unit + u] * scales[v]) + layer.biases[unit + u]));
    }
}

// Computes a layer between hidden units in whole numbers. Its inputs, which are not negative, make room for pairs.
void ApplyWhole(const Layer& layer, Row* inputs, Row* outputs) {
  for (int start = 0; start < kGroup; start += 2 * kLanes) {
    __m512 scales[2];
    UNROLLED for (int v = 0; v < 2; ++v) {
      float* input = inputs[0].at + start + v * kLanes;
      // As whole numbers, floats >= 0 have the same order, and NaN is the largest.
      __m512i largest = _mm512_castps_si512(_mm512_set1_ps(1e-30f));
      for (int64_t i = 0; i < layer.inputs; ++i)
        largest = _mm512_max_epu32(largest, _mm512_load_si512(input + i * kGroup));
      scales[v] = _mm512_castsi512_ps(largest) * (1 / kLargestInput);
      const Vector factor = kLargestInput / _mm512_castsi512_ps(largest);
      // The last bits of 3 * 2^22 + x are those of x, rounded.
      auto whole = [&](int64_t i) { return _mm512_castps_si512(factor * Load(input + i * kGroup) + 12582912.0f); };
      for (int64_t i = 0; i < layer.inputs; i += 2)
        _mm512_store_si512(input + i / 2 * kGroup,
                           _mm512_mask_blend_epi16(0xaaaaaaaa, whole(i), _mm512_slli_epi32(whole(i + 1), 16)));
    }
    for (int64_t unit = 0; unit < layer.outputs; unit += 4) WholeBlock(layer, unit, start, inputs, scales, outputs);
  }
}
#else
void Quantise(Layer*) {}
void ApplyWhole(const Layer&, Row*, Row*) {}
#endif

void ApplyToGroup(const Task& task, int64_t group, Row* inputs, Row* outputs) {
  for (size_t f = 0; f < task.features.size(); ++f) {
    const float scale = task.scales[f * task.groups + group];
    const float* feature = task.features[f] + group * kGroup;
    for (int i = 0; i < kGroup; i += kLanes) Store(inputs[f].at + i, scale * Load(feature + i));
  }
  for (size_t l = 0; l + 1 < task.layers.size(); ++l, std::swap(inputs, outputs))
    if (task.layers[l].pairs.empty())
      Apply<true>(task.layers[l], inputs, outputs);
    else
      ApplyWhole(task.layers[l], inputs, outputs);
  Apply<false>(task.layers.back(), inputs, outputs);
  for (size_t b = 0; b < task.bases.size(); ++b) {
    const float* base = task.bases[b] + group * kGroup;
    float* result = task.results[b] + group * kGroup;
    for (int i = 0; i < kGroup; i += kLanes) Store(result + i, Load(base + i) + Load(outputs[b].at + i));
  }
}

void Work(Task* task) {
  int64_t turn = task->next.fetch_add(1);
  if (turn >= task->turns) return;
  std::vector<Row> rows(2 * task->widest);
  for (; turn < task->turns; turn = task->next.fetch_add(1)) {
    const int64_t end = std::min(task->groups, (turn + 1) * kGroupsPerTurn);
    for (int64_t group = turn * kGroupsPerTurn; group < end; ++group)
      ApplyToGroup(*task, group, rows.data(), rows.data() + task->widest);
    task->finished.fetch_add(1);
  }
}

void Release(Task* task) {
  if (task->users.fetch_sub(1) == 1) delete task;
}

void Help(void* data) {
  Task* task = static_cast<Task*>(data);
  Work(task);
  Release(task);
}

// Shares the task with the threads of XLA. A helper that comes late, or never, finds or leaves nothing to do, so that
// no thread waits for one that has not begun.
void Share(const XLA_FFI_CallFrame* frame, Task* task) {
  const XLA_FFI_Api* api = frame->api;
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args count = {};
  count.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
  count.ctx = frame->ctx;
  count.num_threads = &threads;
  XLA_FFI_Error* error = api->XLA_FFI_ThreadPool_NumThreads(&count);
  for (int64_t helper = 1; error == nullptr && helper < std::min(threads, task->turns); ++helper) {
    task->users.fetch_add(1);
    XLA_FFI_ThreadPool_Schedule_Args args = {};
    args.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
    args.ctx = frame->ctx;
    args.task = Help;
    args.data = task;
    error = api->XLA_FFI_ThreadPool_Schedule(&args);
    if (error != nullptr) task->users.fetch_sub(1);
  }
  if (error != nullptr) {
    XLA_FFI_Error_Destroy_Args args = {};
    args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
    args.error = error;
    api->XLA_FFI_Error_Destroy(&args);
  }
  Work(task);
  while (task->finished.load() < task->turns) std::this_thread::yield();
}

XLA_FFI_Error* Wrong(const XLA_FFI_Api* api, const char* message) {
  XLA_FFI_Error_Create_Args args = {};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message;
  args.errc = XLA_FFI_Error_Code_INVALID_ARGUMENT;
  return api->XLA_FFI_Error_Create(&args);
}

}  // namespace

extern "C" XLA_FFI_Error* roamax_mlp(XLA_FFI_CallFrame* frame) {
  for (auto* extension = frame->extension_start; extension != nullptr; extension = extension->next)
    if (extension->type == XLA_FFI_Extension_Metadata) {
      XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
      metadata->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
      metadata->traits = 0;
      return nullptr;
    }

  auto argument = [&](int64_t i) { return static_cast<const XLA_FFI_Buffer*>(frame->args.args[i]); };
  auto numbers = [&](int64_t i) { return static_cast<const float*>(argument(i)->data); };
  for (int64_t i = 0; i < frame->args.size; ++i)
    if (argument(i)->dtype != XLA_FFI_DataType_F32) return Wrong(frame->api, "arguments must be float32");

  Task* task = new Task;
  const int64_t outputs = frame->rets.size;
  int64_t first_layer = frame->args.size;
  while (first_layer >= 2 && argument(first_layer - 1)->rank == 1) first_layer -= 2;
  const int64_t scales = first_layer - outputs - 1;
  task->groups = argument(scales)->dims[1];
  task->turns = (task->groups + kGroupsPerTurn - 1) / kGroupsPerTurn;
  task->scales = numbers(scales);
  for (int64_t i = 0; i < scales; ++i) {
    const int64_t count = argument(i)->rank == 3 ? argument(i)->dims[0] : 1;
    for (int64_t k = 0; k < count; ++k) task->features.push_back(numbers(i) + k * task->groups * kGroup);
  }
  for (int64_t i = 0; i < outputs; ++i) {
    task->bases.push_back(numbers(scales + 1 + i));
    task->results.push_back(static_cast<float*>(static_cast<XLA_FFI_Buffer*>(frame->rets.rets[i])->data));
  }
  task->widest = task->features.size();
  for (int64_t i = first_layer; i < frame->args.size; i += 2) {
    const int64_t* shape = argument(i)->dims;
    task->layers.push_back({numbers(i), numbers(i + 1), shape[0], shape[1], {}, {}});
    if (i != first_layer && i + 2 != frame->args.size) Quantise(&task->layers.back());
    task->widest = std::max(task->widest, shape[1]);
  }
  Share(frame, task);
  Release(task);
  return nullptr;
}
