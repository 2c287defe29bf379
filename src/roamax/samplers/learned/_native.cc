// The inner loops of learned samplers as XLA custom calls: `roamax_mlp`, a network applied to every parameter,
// `roamax_mlp_slopes`, its derivatives, and `roamax_flatten`, the steps of roam.
//
// All multiply a small matrix by rows of 64 numbers. The rows stay in the core's first-level cache, and a block of four
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

// Inside of a larger function, the innermost loops would run out of registers for addresses.
#define APART __attribute__((noinline))

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

// ---- The network of L2E and its variants.
//
// Arguments, all of them float32: features (groups, 64) or (k, groups, 64); their scales (features, groups); for
// `roamax_mlp`, one base (groups, 64) per output; and each layer's weights (inputs, outputs) and biases. Results of
// `roamax_mlp`: base + output, one per base. Results of `roamax_mlp_slopes`: the outputs (outputs, groups, 64), and the
// slopes (outputs, features, groups, 64), the derivatives of a parameter's outputs by its own scaled features.
//
// Where the processor multiplies pairs of 16-bit whole numbers as fast as single floats (AVX-512 VNNI), a layer
// between hidden units does so: its weights are rounded to 13 bits relative to the largest of each unit, and its inputs
// to 14 bits relative to the largest of each parameter. That changes outputs by less than 5e-4 of their size. It also
// moves hidden units from one side of 0 to the other, which changes slopes by much more. So slopes come after layers in
// floats; only on the way back, where inputs are 0 or 1 and weights can have 15 bits, there are whole numbers.

constexpr int64_t kGroupsPerTurn = 4;

struct Layer {
  int64_t inputs, outputs;
  std::vector<float> weights, biases;
  // Whole numbers that are weights divided by their unit's scale, in pairs of inputs; or none.
  std::vector<int32_t> pairs = {};
  std::vector<float> scales = {};
  float largest_input = 1;
};

struct Network : Task {
  std::vector<const float*> features;
  const float* scales;
  std::vector<const float*> bases;
  std::vector<float*> results, slopes;
  std::vector<Layer> layers;
  // For each output, the way back through the layers before the last one; or none.
  std::vector<std::vector<Layer>> back;
  int64_t groups;

  void Work() override;
};

// What becomes of the sum of a unit, for the numbers of its row from a place on.
struct Unchanged {
  Vector operator()(Vector sum, int64_t, int) const { return sum; }
};

struct Rectified {
  Vector operator()(Vector sum, int64_t, int) const { return Positive(sum); }
};

// Nothing passes back through a hidden unit that is 0.
struct Gated {
  Vector operator()(Vector sum, int64_t unit, int place) const {
    return Load(units[unit].at + place) > 0 ? sum : Vector{};
  }
  const Row* units;
};

// Computes `units` units of a layer, from the given one on, for some parameters of a group.
template <int units, typename Finish>
inline void Block(const Layer& layer, int64_t unit, int start, const Row* inputs, Row* outputs, Finish finish) {
  Vector sums[units][kVectors];
  UNROLLED for (int u = 0; u < units; ++u)
    UNROLLED for (int v = 0; v < kVectors; ++v) sums[u][v] = Vector{} + layer.biases[unit + u];
  Accumulate(sums, layer.weights.data() + unit, layer.outputs, 1, layer.inputs, inputs, start);
  UNROLLED for (int u = 0; u < units; ++u)
    UNROLLED for (int v = 0; v < kVectors; ++v) {
      const int place = start + v * kLanes;
      Store(outputs[unit + u].at + place, finish(sums[u][v], unit + u, place));
    }
}

template <typename Finish>
APART void ApplyFloats(const Layer& layer, const Row* inputs, Row* outputs, Finish finish) {
  for (int start = 0; start < kGroup; start += kVectors * kLanes) {
    int64_t unit = 0;
    for (; unit + 4 <= layer.outputs; unit += 4) Block<4>(layer, unit, start, inputs, outputs, finish);
    for (; unit < layer.outputs; ++unit) Block<1>(layer, unit, start, inputs, outputs, finish);
  }
}

constexpr float kLargestInput = 16383, kLargestWeight = 4095;

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
constexpr int64_t kMostInputs = 32;  // With more of them, a sum would not fit into 32 bits.

void Quantise(Layer* layer, float largest_input, float largest_weight) {
  if (layer->inputs > kMostInputs || layer->inputs % 2 != 0 || layer->outputs % 4 != 0) return;
  const std::vector<float>& weights = layer->weights;
  if (!std::all_of(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); })) return;
  layer->pairs.resize(weights.size() / 2);
  layer->scales.resize(layer->outputs);
  layer->largest_input = largest_input;
  for (int64_t unit = 0; unit < layer->outputs; ++unit) {
    float largest = 1e-30f;
    for (int64_t i = 0; i < layer->inputs; ++i)
      largest = std::max(largest, std::fabs(weights[i * layer->outputs + unit]));
    layer->scales[unit] = largest / largest_weight;
    auto whole = [&](int64_t i) {
      return static_cast<int32_t>(std::lrint(weights[i * layer->outputs + unit] / layer->scales[unit]));
    };
    for (int64_t i = 0; i < layer->inputs; i += 2)
      layer->pairs[i / 2 * layer->outputs + unit] = (whole(i) & 0xffff) | static_cast<int32_t>(uint32_t(whole(i + 1)) << 16);
  }
}

// Computes four units of a layer for two vectors of parameters, whose inputs were divided by `scales`.
template <typename Finish>
inline void WholeBlock(const Layer& layer, int64_t unit, int start, const Row* pairs, const __m512* scales,
                       Row* outputs, Finish finish) {
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
      const Vector whole = _mm512_cvtepi32_ps(sums[u][v]);
      const Vector sum = whole * (layer.scales[unit + u] * scales[v]) + layer.biases[unit + u];
      const int place = start + v * kLanes;
      Store(outputs[unit + u].at + place, finish(sum, unit + u, place));
    }
}

// Computes a layer in whole numbers. Its inputs are not negative; half as many rows take their pairs.
template <typename Finish>
APART void ApplyWhole(const Layer& layer, const Row* inputs, Row* pairs, Row* outputs, Finish finish) {
  for (int start = 0; start < kGroup; start += 2 * kLanes) {
    __m512 scales[2];
    UNROLLED for (int v = 0; v < 2; ++v) {
      const float* input = inputs[0].at + start + v * kLanes;
      // As whole numbers, floats >= 0 have the same order, and NaN is the largest.
      __m512i largest = _mm512_castps_si512(_mm512_set1_ps(1e-30f));
      for (int64_t i = 0; i < layer.inputs; ++i)
        largest = _mm512_max_epu32(largest, _mm512_load_si512(input + i * kGroup));
      scales[v] = _mm512_castsi512_ps(largest) * (1 / layer.largest_input);
      const Vector factor = layer.largest_input / _mm512_castsi512_ps(largest);
      // The last bits of 3 * 2^22 + x are those of x, rounded.
      auto whole = [&](int64_t i) { return _mm512_castps_si512(factor * Load(input + i * kGroup) + 12582912.0f); };
      for (int64_t i = 0; i < layer.inputs; i += 2)
        _mm512_store_si512(pairs[i / 2].at + start + v * kLanes,
                           _mm512_mask_blend_epi16(0xaaaaaaaa, whole(i), _mm512_slli_epi32(whole(i + 1), 16)));
    }
    for (int64_t unit = 0; unit < layer.outputs; unit += 4)
      WholeBlock(layer, unit, start, pairs, scales, outputs, finish);
  }
}
#else
void Quantise(Layer*, float, float) {}
template <typename Finish>
void ApplyWhole(const Layer&, const Row*, Row*, Row*, Finish) {}
#endif

template <typename Finish>
void Apply(const Layer& layer, const Row* inputs, Row* pairs, Row* outputs, Finish finish) {
  if (layer.pairs.empty())
    ApplyFloats(layer, inputs, outputs, finish);
  else
    ApplyWhole(layer, inputs, pairs, outputs, finish);
}

// Rows for the work of a thread: the features and then the units of each layer, pairs, and both ends of a way back.
struct Space {
  explicit Space(const std::vector<Layer>& layers) {
    int64_t count = layers[0].inputs, widest = count;
    std::vector<int64_t> starts = {0};
    for (const Layer& layer : layers) {
      starts.push_back(count);
      count += layer.outputs;
      widest = std::max(widest, layer.outputs);
    }
    rows.resize(count + 3 * widest);
    for (int64_t start : starts) units.push_back(&rows[start]);
    pairs = &rows[count];
    ends[0] = pairs + widest;
    ends[1] = ends[0] + widest;
  }

  std::vector<Row> rows;
  std::vector<Row*> units;
  Row *pairs, *ends[2];
};

void ApplyToGroup(const Network& task, int64_t group, const Space& space) {
  const size_t last = task.layers.size() - 1;
  for (size_t f = 0; f < task.features.size(); ++f) {
    const float scale = task.scales[f * task.groups + group];
    const float* feature = task.features[f] + group * kGroup;
    for (int i = 0; i < kGroup; i += kLanes) Store(space.units[0][f].at + i, scale * Load(feature + i));
  }
  for (size_t l = 0; l < last; ++l)
    Apply(task.layers[l], space.units[l], space.pairs, space.units[l + 1], Rectified());
  Apply(task.layers[last], space.units[last], space.pairs, space.units[last + 1], Unchanged());
  for (size_t r = 0; r < task.results.size(); ++r) {
    float* result = task.results[r] + group * kGroup;
    for (int i = 0; i < kGroup; i += kLanes) {
      const Vector output = Load(space.units[last + 1][r].at + i);
      Store(result + i, task.bases.empty() ? output : Load(task.bases[r] + group * kGroup + i) + output);
    }
  }
}

// Returns the way back through a layer, from its outputs to its inputs.
Layer Back(const Layer& layer) {
  Layer back = {layer.outputs, layer.inputs, {}, std::vector<float>(layer.inputs)};
  for (int64_t j = 0; j < layer.outputs; ++j)
    for (int64_t i = 0; i < layer.inputs; ++i) back.weights.push_back(layer.weights[i * layer.outputs + j]);
  return back;
}

// Finds the slopes, after `ApplyToGroup`. The last hidden units pass back the weights of an output, the same ones for
// all parameters, or nothing. So the way back through the layer before them has these weights in its own, and inputs
// that say which units pass them.
void FindSlopes(const Network& task, int64_t group, const Space& space) {
  const size_t last = task.layers.size() - 1;
  Row* passes = space.units[last];
  for (int64_t u = 0; u < task.layers[last].inputs; ++u)
    for (int i = 0; i < kGroup; i += kLanes)
      Store(passes[u].at + i, Load(passes[u].at + i) > 0 ? Vector{} + 1 : Vector{});
  auto slope = task.slopes.begin();
  for (const std::vector<Layer>& back : task.back) {
    const Row* from = passes;
    for (size_t l = last; --l > 0; from = space.ends[l % 2])
      Apply(back[l], from, space.pairs, space.ends[l % 2], Gated{space.units[l]});
    Apply(back[0], from, space.pairs, space.ends[0], Unchanged());
    for (int64_t f = 0; f < back[0].outputs; ++f, ++slope)
      for (int i = 0; i < kGroup; i += kLanes) Store(*slope + group * kGroup + i, Load(space.ends[0][f].at + i));
  }
}

void Network::Work() {
  int64_t turn;
  if (!Claim(&turn)) return;
  const Space space(layers);
  do {
    const int64_t end = std::min(groups, (turn + 1) * kGroupsPerTurn);
    for (int64_t group = turn * kGroupsPerTurn; group < end; ++group) {
      ApplyToGroup(*this, group, space);
      if (!back.empty()) FindSlopes(*this, group, space);
    }
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

// Reads features, scales and layers, with so many arguments between scales and layers.
Network* ReadNetwork(const XLA_FFI_CallFrame* frame, int64_t bases) {
  Network* task = new Network;
  int64_t first_layer = frame->args.size;
  while (first_layer >= 2 && Argument(frame, first_layer - 1)->rank == 1) first_layer -= 2;
  const int64_t scales = first_layer - bases - 1;
  task->groups = Argument(frame, scales)->dims[1];
  task->turns = (task->groups + kGroupsPerTurn - 1) / kGroupsPerTurn;
  task->scales = Numbers(frame, scales);
  for (int64_t i = 0; i < scales; ++i) {
    const XLA_FFI_Buffer* feature = Argument(frame, i);
    const int64_t count = feature->rank == 3 ? feature->dims[0] : 1;
    for (int64_t k = 0; k < count; ++k) task->features.push_back(Numbers(frame, i) + k * task->groups * kGroup);
  }
  for (int64_t i = 0; i < bases; ++i) task->bases.push_back(Numbers(frame, scales + 1 + i));
  for (int64_t i = first_layer; i < frame->args.size; i += 2) {
    const int64_t inputs = Argument(frame, i)->dims[0], outputs = Argument(frame, i)->dims[1];
    const float *weights = Numbers(frame, i), *biases = Numbers(frame, i + 1);
    task->layers.push_back({inputs, outputs, {weights, weights + inputs * outputs}, {biases, biases + outputs}});
  }
  return task;
}

XLA_FFI_Error* Run(const XLA_FFI_CallFrame* frame, Network* task) {
  int64_t products = 0;
  for (const Layer& layer : task->layers) products += layer.weights.size();
  for (const std::vector<Layer>& back : task->back)
    for (const Layer& layer : back) products += layer.weights.size();
  Share(frame, task, 2 * task->groups * kGroup * products);
  task->Release();
  return nullptr;
}

}  // namespace

extern "C" XLA_FFI_Error* roamax_mlp(XLA_FFI_CallFrame* frame) {
  if (TellVersion(frame)) return nullptr;
  Network* task = ReadNetwork(frame, frame->rets.size);
  for (size_t l = 1; l + 1 < task->layers.size(); ++l) Quantise(&task->layers[l], kLargestInput, kLargestWeight);
  for (int64_t i = 0; i < frame->rets.size; ++i) task->results.push_back(Result(frame, i));
  return Run(frame, task);
}

extern "C" XLA_FFI_Error* roamax_mlp_slopes(XLA_FFI_CallFrame* frame) {
  if (TellVersion(frame)) return nullptr;
  Network* task = ReadNetwork(frame, 0);
  const std::vector<Layer>& layers = task->layers;
  const int64_t outputs = layers.back().outputs, size = task->groups * kGroup;
  for (int64_t i = 0; i < outputs; ++i) task->results.push_back(Result(frame, 0) + i * size);
  for (int64_t i = 0; i < outputs * layers[0].inputs; ++i) task->slopes.push_back(Result(frame, 1) + i * size);
  for (int64_t o = 0; o < outputs; ++o) {
    std::vector<Layer> back;
    for (size_t l = 0; l + 1 < layers.size(); ++l) back.push_back(Back(layers[l]));
    std::vector<float>& weights = back.back().weights;
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] *= layers.back().weights[i / back.back().outputs * outputs + o];
    if (back.size() > 1) Quantise(&back.back(), 1, 32767);
    task->back.push_back(std::move(back));
  }
  return Run(frame, task);
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
