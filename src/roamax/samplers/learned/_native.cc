// The inner loops of learned samplers as XLA custom calls: `roamax_mlp`, the network of L2E, and `roamax_flatten`, the
// steps of roam.
//
// Both multiply a small matrix by rows of 64 numbers. The rows stay in the core's first-level cache, and a block of four
// results of 64 numbers in its registers, so that the arithmetic alone takes time. The work is shared among the threads
// of XLA.

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "native.h"

namespace {

using namespace roamax;

constexpr int64_t kGroup = 64;
// The vectors of a block.
constexpr int kVectors = kRegisters / 8;
using Vector = Of<kLanes>::Vector;

// Negative numbers become 0; NaN stays NaN.
inline Vector Positive(Vector x) {
#if defined(__AVX512F__)
  return _mm512_max_ps(_mm512_setzero_ps(), x);  // One instruction, which returns the second operand if one is NaN.
#else
  return x < 0 ? Vector{} : x;
#endif
}

// The 64 numbers of a group: a feature, or a hidden unit.
struct Row {
  alignas(64) float at[kGroup];
};

// Adds to some numbers of `units` rows the sum of weight * input over `count` rows of inputs. `stride` and `step` are
// the distances between the weights of two inputs, and of two units.
template <int units, int vectors>
inline void Accumulate(Vector (&sums)[units][vectors], const float* weights, int64_t stride, int64_t step, int64_t count,
                       const Row* inputs, int start) {
  for (int64_t i = 0; i < count; ++i, weights += stride) {
    Vector input[vectors];
    UNROLLED for (int v = 0; v < vectors; ++v) input[v] = InRegister(Load(inputs[i].at + start + v * kLanes));
    UNROLLED for (int u = 0; u < units; ++u)
      UNROLLED for (int v = 0; v < vectors; ++v) sums[u][v] += weights[u * step] * input[v];
  }
}

// ---- The network of L2E.
//
// Arguments, all of them float32: features (groups, 64) or (k, groups, 64); their scales (features, groups); one base
// (groups, 64) per output; and each layer's weights (inputs, outputs) and biases. Results: base + output, one per base.
//
// Where the processor multiplies pairs of 16-bit whole numbers as fast as single floats (AVX-512 VNNI), a layer
// between hidden units does so: its weights are rounded to 13 bits relative to the largest of each unit, and its inputs
// to 14 bits relative to the largest of each parameter. That changes outputs by less than 5e-4 of their size.

constexpr int64_t kGroupsPerTurn = 4;

struct Layer {
  const float* weights;
  const float* biases;
  int64_t inputs, outputs;
  // Whole numbers that are weights divided by their unit's scale, in pairs of inputs; or none.
  std::vector<int32_t> pairs;
  std::vector<float> scales;
};

struct Network : Task {
  std::vector<const float*> features;
  const float* scales;
  std::vector<const float*> bases;
  std::vector<float*> results;
  std::vector<Layer> layers;
  int64_t groups, widest;

  void Work() override;
};

// Computes `units` units of a layer, from the given one on, for some parameters of a group.
template <int units, bool hidden>
inline void Block(const Layer& layer, int64_t unit, int start, const Row* inputs, Row* outputs) {
  Vector sums[units][kVectors];
  UNROLLED for (int u = 0; u < units; ++u)
    UNROLLED for (int v = 0; v < kVectors; ++v) sums[u][v] = Vector{} + layer.biases[unit + u];
  Accumulate(sums, layer.weights + unit, layer.outputs, 1, layer.inputs, inputs, start);
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

void ApplyToGroup(const Network& task, int64_t group, Row* inputs, Row* outputs) {
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

void Network::Work() {
  int64_t turn;
  if (!Claim(&turn)) return;
  std::vector<Row> rows(2 * widest);
  do {
    const int64_t end = std::min(groups, (turn + 1) * kGroupsPerTurn);
    for (int64_t group = turn * kGroupsPerTurn; group < end; ++group)
      ApplyToGroup(*this, group, rows.data(), rows.data() + widest);
    Finish();
  } while (Claim(&turn));
}

// ---- The steps of roam.

constexpr float kTiny = 1e-30f;
constexpr float kShrink = 1.0f / (1 << 20);

// Returns the root mean square, without overflow up to 1e20.
float Size(const float* numbers, int64_t count) {
  Vector sums = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vector small = kShrink * Load(numbers + i);
    sums += small * small;
  }
  double sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  for (; i < count; ++i) sum += double(kShrink * numbers[i]) * double(kShrink * numbers[i]);
  return static_cast<float>(std::sqrt(sum / std::max<int64_t>(1, count))) / kShrink;
}

// Sets the first numbers of each of `units` rows to the sum of weight * input, as `Accumulate` does; or adds it to them.
template <int vectors>
void AddProduct(bool is_first, const float* weights, int64_t stride, int64_t step, int64_t count, const Row* inputs,
                Row* outputs, int64_t units) {
  int64_t first = 0;
  auto block = [&](auto size) {
    constexpr int kUnits = decltype(size)::value;
    Vector sums[kUnits][vectors] = {};
    if (!is_first)
      UNROLLED for (int u = 0; u < kUnits; ++u)
        UNROLLED for (int v = 0; v < vectors; ++v) sums[u][v] = Load(outputs[first + u].at + v * kLanes);
    Accumulate(sums, weights + first * step, stride, step, count, inputs, 0);
    UNROLLED for (int u = 0; u < kUnits; ++u)
      UNROLLED for (int v = 0; v < vectors; ++v) Store(outputs[first + u].at + v * kLanes, sums[u][v]);
    first += kUnits;
  };
  while (first + 4 <= units) block(std::integral_constant<int, 4>());
  while (first < units) block(std::integral_constant<int, 1>());
}

// Sets the first `width` numbers of rows to that sum. Those after them may become anything.
void Product(const float* weights, int64_t stride, int64_t step, int64_t count, const Row* inputs, int64_t width,
             Row* outputs, int64_t units) {
  auto add = width <= kLanes ? AddProduct<1> : width <= 2 * kLanes ? AddProduct<2> : AddProduct<kGroup / kLanes>;
  // So many inputs at a time fit into the first-level cache.
  constexpr int64_t kInputs = 32;
  for (int64_t i = 0; i < count; i += kInputs)
    add(i == 0, weights + i * stride, stride, step, std::min(kInputs, count - i), inputs + i, outputs, units);
}

struct Matrix {
  const float* move;
  float* result;
  int64_t rows, columns, blocks;
  float size;  // Its root mean square.
};

struct Flattening : Task {
  std::vector<Matrix> matrices;
  std::vector<std::pair<const Matrix*, int64_t>> blocks;

  void Work() override;
};

// The coefficients of I, X and X X in both steps, as in _flat.py.
constexpr float kSteps[2][3] = {{6.752f, -18.351f, 13.263f}, {2.538f, -1.875f, 0.441f}};

// Sets the rows of `factor` to a polynomial of X, which is symmetric.
void Polynomial(const Row* x, int64_t side, const float* of, Row* factor) {
  Product(x->at, kGroup, 1, side, x, side, factor, side);
  for (int64_t i = 0; i < side; ++i) {
    SIMD for (int64_t j = 0; j < side; ++j) factor[i].at[j] = of[2] * factor[i].at[j] + of[1] * x[i].at[j];
    factor[i].at[i] += of[0];
  }
}

// Makes the singular values of a block nearly equal, by two steps of the iteration of Muon.
void Flatten(const Matrix& matrix, int64_t block, std::vector<Row>* space) {
  const int64_t rows = matrix.rows, columns = matrix.columns, blocks = matrix.blocks;
  const bool by_columns = rows > columns;
  const int64_t length = by_columns ? rows : columns, shorter = by_columns ? columns : rows;
  const int64_t across = by_columns ? 1 : columns, along = by_columns ? columns : 1;
  // The first blocks have one row or column more.
  const int64_t side = shorter / blocks + (block < shorter % blocks);
  const int64_t first = across * (block * (shorter / blocks) + std::min(block, shorter % blocks));
  const float scale = 1 / (matrix.size + kTiny);

  space->resize(2 * length + 4 * side);
  Row *members = space->data(), *flat = members + length, *x = flat + length;
  Row *one = x + side, *two = one + side, *three = two + side;
  for (int64_t i = 0; i < length; ++i) {
    const float* from = matrix.move + first + i * along;
    if (by_columns)
      SIMD for (int64_t j = 0; j < side; ++j) members[i].at[j] = scale * from[j];
    else
      for (int64_t j = 0; j < side; ++j) members[i].at[j] = scale * from[j * columns];
  }
  Product(members->at, kGroup, 1, length, members, side, x, side);
  float sum = 0;
  for (int64_t i = 0; i < side; ++i)
    _Pragma("omp simd reduction(+ : sum)") for (int64_t j = 0; j < side; ++j) sum += x[i].at[j] * x[i].at[j];
  const float inverse = 1 / (std::sqrt(sum) + kTiny);
  for (int64_t i = 0; i < side; ++i)
    SIMD for (int64_t j = 0; j < side; ++j) x[i].at[j] *= inverse;
  Polynomial(x, side, kSteps[0], one);
  Product(one->at, kGroup, 1, side, x, side, two, side);
  Product(two->at, 1, kGroup, side, one, side, x, side);
  Polynomial(x, side, kSteps[1], two);
  Product(two->at, kGroup, 1, side, one, side, three, side);
  Product(members->at, 1, kGroup, side, three, side, flat, length);
  for (int64_t i = 0; i < length; ++i) {
    float* to = matrix.result + first + i * along;
    if (by_columns)
      SIMD for (int64_t j = 0; j < side; ++j) to[j] = flat[i].at[j];
    else
      for (int64_t j = 0; j < side; ++j) to[j * columns] = flat[i].at[j];
  }
}

void Flattening::Work() {
  std::vector<Row> space;
  for (int64_t turn; Claim(&turn); Finish()) Flatten(*blocks[turn].first, blocks[turn].second, &space);
}

}  // namespace

extern "C" XLA_FFI_Error* roamax_mlp(XLA_FFI_CallFrame* frame) {
  if (TellVersion(frame)) return nullptr;
  Network* task = new Network;
  const int64_t outputs = frame->rets.size;
  int64_t first_layer = frame->args.size;
  while (first_layer >= 2 && Argument(frame, first_layer - 1)->rank == 1) first_layer -= 2;
  const int64_t scales = first_layer - outputs - 1;
  task->groups = Argument(frame, scales)->dims[1];
  task->turns = (task->groups + kGroupsPerTurn - 1) / kGroupsPerTurn;
  task->scales = Numbers(frame, scales);
  for (int64_t i = 0; i < scales; ++i) {
    const XLA_FFI_Buffer* feature = Argument(frame, i);
    const int64_t count = feature->rank == 3 ? feature->dims[0] : 1;
    for (int64_t k = 0; k < count; ++k)
      task->features.push_back(Numbers(frame, i) + k * task->groups * kGroup);
  }
  for (int64_t i = 0; i < outputs; ++i) {
    task->bases.push_back(Numbers(frame, scales + 1 + i));
    task->results.push_back(Result(frame, i));
  }
  task->widest = task->features.size();
  int64_t operations = 0;
  for (int64_t i = first_layer; i < frame->args.size; i += 2) {
    const int64_t* shape = Argument(frame, i)->dims;
    task->layers.push_back({Numbers(frame, i), Numbers(frame, i + 1), shape[0], shape[1], {}, {}});
    if (i != first_layer && i + 2 != frame->args.size) Quantise(&task->layers.back());
    task->widest = std::max(task->widest, shape[1]);
    operations += 2 * task->groups * kGroup * shape[0] * shape[1];
  }
  Share(frame, task, operations);
  task->Release();
  return nullptr;
}

// Arguments: float32 matrices (..., rows, columns). Attribute: the most rows or columns of a block, up to 64.
extern "C" XLA_FFI_Error* roamax_flatten(XLA_FFI_CallFrame* frame) {
  if (TellVersion(frame)) return nullptr;
  Flattening* task = new Flattening;
  const int64_t longest = Attribute(frame, 0);
  for (int64_t i = 0; i < frame->args.size; ++i) {
    const XLA_FFI_Buffer* moves = Argument(frame, i);
    const int64_t rows = moves->dims[moves->rank - 2], columns = moves->dims[moves->rank - 1];
    const int64_t size = rows * columns, blocks = (std::min(rows, columns) + longest - 1) / longest;
    int64_t count = 1;
    for (int64_t axis = 0; axis + 2 < moves->rank; ++axis) count *= moves->dims[axis];
    for (int64_t k = 0; k < count; ++k) {
      const float* move = Numbers(frame, i) + k * size;
      task->matrices.push_back({move, Result(frame, i) + k * size, rows, columns, blocks, Size(move, size)});
    }
  }
  int64_t operations = 0;
  for (const Matrix& matrix : task->matrices) {
    for (int64_t block = 0; block < matrix.blocks; ++block) task->blocks.push_back({&matrix, block});
    const int64_t shorter = std::min(matrix.rows, matrix.columns);
    operations += 4 * matrix.rows * matrix.columns * (shorter / matrix.blocks);
  }
  task->turns = task->blocks.size();
  Share(frame, task, operations);
  for (const Matrix& matrix : task->matrices) {
    const int64_t size = matrix.rows * matrix.columns;
    const float factor = matrix.size / (Size(matrix.result, size) + kTiny);
    SIMD for (int64_t j = 0; j < size; ++j) matrix.result[j] *= factor;
  }
  task->Release();
  return nullptr;
}
