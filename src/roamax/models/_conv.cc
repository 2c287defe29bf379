// Convolutions of images (count, height, width, channels) as XLA custom calls: `roamax_convolve`, which is the gradient
// by the input too, and `roamax_kernel_gradient`.
//
// A turn is a few images. Each is copied into a frame of zeros that stays in the core's caches, so that no loop has to
// look after borders. The sums of a block of results stay in registers, one vector for some features of a pixel. What
// a 2x2 maximum was taken of stays in the caches too: the gradient by a pooled image comes with the place of each
// maximum, 0 to 3, and is put there where it is used.

#include <cstring>
#include <type_traits>
#include <vector>

#include "native.h"

namespace {

using namespace roamax;

// The images of a turn of the kernel's gradient. Its sums are added in the order of the turns, whatever thread takes
// them, so that results are the same to the bit.
constexpr int64_t kImagesPerTurn = 8;
// The most sums in registers; a few more hold factors.
constexpr int kSums = kRegisters * 3 / 4;

struct Shape {
  int64_t height, width, channels;
  int64_t Size() const { return height * width * channels; }
};

// The numbers of features, rounded up to whole vectors.
int64_t Rounded(int64_t features, int lanes) { return (features + lanes - 1) / lanes * lanes; }

// An image in a frame of zeros, which with a stride may be too small for the last line and column.
struct Frame {
  Shape image, frame;
  int64_t top, left;

  // Puts an image into a frame that holds zeros, or another image.
  void Fill(const float* from, float* to) const {
    const int64_t channels = image.channels, rows = std::min(image.height, frame.height - top);
    const int64_t size = std::min(image.width, frame.width - left) * channels;
    for (int64_t a = 0; a < rows; ++a)
      std::memcpy(to + ((top + a) * frame.width + left) * channels, from + a * image.width * channels,
                  size * sizeof(float));
  }
};

// Puts numbers of pooled pixels where their maxima were, and zeros around them, into an image whose pixels and lines
// are so far apart. An odd last line or column is left as it is.
void Unpool(const float* pooled, const int32_t* places, const Shape& image, int64_t step, int64_t line, float* to) {
  const int64_t channels = image.channels;
  for (int64_t a = 0; a < image.height / 2; ++a)
    for (int64_t b = 0; b < image.width / 2; ++b, pooled += channels, places += channels)
      for (int32_t place = 0; place < 4; ++place) {
        float* pixel = to + (2 * a + place / 2) * line + (2 * b + place % 2) * step;
        SIMD for (int64_t c = 0; c < channels; ++c) pixel[c] = places[c] == place ? pooled[c] : 0.0f;
      }
}

// Sets pooled pixels, and the places of their maxima, given two lines of an image. NaN counts as the largest.
void Pool(const float* above, const float* below, int64_t pixels, int64_t channels, float* pooled, int32_t* places) {
  for (int64_t b = 0; b < pixels; ++b, pooled += channels, places += channels) {
    const float *first = above + 2 * b * channels, *third = below + 2 * b * channels;
    SIMD for (int64_t c = 0; c < channels; ++c) {
      const float others[3] = {first[channels + c], third[c], third[channels + c]};
      float most = first[c];
      int32_t place = 0;
      UNROLLED for (int i = 0; i < 3; ++i) {
        const bool larger = others[i] > most || others[i] != others[i];
        most = larger ? others[i] : most;
        place = larger ? i + 1 : place;
      }
      pooled[c] = most;
      places[c] = place;
    }
  }
}

struct Product : Task {
  Frame frame;
  Shape output;
  int64_t count, rows, columns, stride;
  const float *x, *other;
  // Of the pooled images among x and other, or none.
  const int32_t* places;
  float* result;
};

// ---- The convolution.

// Computes `vectors` vectors of features for `pixels` neighbours in a row.
template <int lanes, int pixels, int vectors>
void Block(const float* x, int64_t step, int64_t line, int64_t rows, int64_t row_length, const float* kernel,
           int64_t width, float* y, int64_t features, int64_t kept) {
  using Vector = typename Of<lanes>::Vector;
  Vector sums[pixels][vectors] = {};
  for (int64_t i = 0; i < rows; ++i, x += line)
    for (int64_t k = 0; k < row_length; ++k, kernel += width) {
      Vector weights[vectors];
      UNROLLED for (int v = 0; v < vectors; ++v) weights[v] = InRegister(Load<lanes>(kernel + v * lanes));
      UNROLLED for (int p = 0; p < pixels; ++p)
        UNROLLED for (int v = 0; v < vectors; ++v) sums[p][v] += x[p * step + k] * weights[v];
    }
  UNROLLED for (int p = 0; p < pixels; ++p) {
    float* to = y + p * features;
    if (kept == vectors * lanes) {
      UNROLLED for (int v = 0; v < vectors; ++v) Store<lanes>(to + v * lanes, sums[p][v]);
    } else {
      std::memcpy(to, sums[p], kept * sizeof(float));
    }
  }
}

template <int lanes>
using BlockFunction = void (*)(const float*, int64_t, int64_t, int64_t, int64_t, const float*, int64_t, float*, int64_t,
                               int64_t);

template <int lanes, int vectors>
BlockFunction<lanes> BlockOf(int64_t pixels) {
  switch (pixels) {
#define CASE(number) \
  case number:       \
    if constexpr (number * vectors <= kSums) return Block<lanes, number, vectors>;
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
    CASE(15) CASE(16)
#undef CASE
  }
  return nullptr;
}

template <int lanes>
struct Convolution : Product {
  std::vector<float> kernel;
  int64_t width;
  // The places of maxima, a result if it is pooled.
  int32_t* maxima;

  void Prepare() {
    const int64_t features = output.channels, length = rows * columns * frame.image.channels;
    width = Rounded(features, lanes);
    kernel.assign(length * width, 0.0f);
    for (int64_t k = 0; k < length; ++k)
      std::memcpy(&kernel[k * width], other + k * features, features * sizeof(float));
    turns = count;
  }

  void Work() override {
    const int64_t features = output.channels, channels = frame.image.channels;
    const int64_t most = std::min<int64_t>(16, kSums), blocks = (output.width + most - 1) / most;
    const int64_t pixels = (output.width + blocks - 1) / blocks;
    const int vectors = width % (2 * lanes) == 0 && 2 * pixels <= kSums ? 2 : 1;
    const auto block = vectors == 2 ? BlockOf<lanes, 2>(pixels) : BlockOf<lanes, 1>(pixels);
    const int64_t line = frame.frame.width * channels, step = stride * channels;
    std::vector<float> space(frame.frame.Size()), two_lines(maxima ? 2 * output.width * features : 0);
    // Computes one line of the result.
    const auto compute = [&](int64_t a, float* y) {
      for (int64_t n = 0; n < blocks; ++n) {
        // The last block may compute some pixels again.
        const int64_t b = std::min(n * pixels, output.width - pixels);
        for (int64_t o = 0; o < width; o += vectors * lanes)
          block(&space[a * stride * line + b * step], step, line, rows, columns * channels, &kernel[o], width,
                y + b * features + o, features, std::min<int64_t>(vectors * lanes, features - o));
      }
    };
    for (int64_t turn; Claim(&turn); Finish()) {
      if (places) {
        const int64_t pooled = frame.image.height / 2 * (frame.image.width / 2) * channels;
        Unpool(x + turn * pooled, places + turn * pooled, frame.image, channels, line,
               &space[frame.top * line + frame.left * channels]);
      } else {
        frame.Fill(x + turn * frame.image.Size(), space.data());
      }
      if (maxima) {
        const int64_t across = output.width / 2, size = across * features;
        for (int64_t a = 0; a < output.height / 2; ++a) {
          float* below = &two_lines[output.width * features];
          compute(2 * a, two_lines.data());
          compute(2 * a + 1, below);
          const int64_t at = (turn * (output.height / 2) + a) * size;
          Pool(two_lines.data(), below, across, features, result + at, maxima + at);
        }
      } else {
        for (int64_t a = 0; a < output.height; ++a)
          compute(a, result + (turn * output.height + a) * output.width * features);
      }
    }
  }
};

// ---- The gradient by the kernel.

// Adds x[a, b + k] g[a, b] over the pixels of an image, for `rows` rows and `length` places k of the window.
template <int lanes, int rows, int length>
void AddPlaces(const float* x, int64_t line, int64_t row_step, int64_t step, const float* g, int64_t width,
               int64_t height, int64_t across, float* sums, int64_t row_length) {
  using Vector = typename Of<lanes>::Vector;
  Vector total[rows][length];
  UNROLLED for (int i = 0; i < rows; ++i)
    UNROLLED for (int k = 0; k < length; ++k) total[i][k] = Load<lanes>(sums + (i * row_length + k) * width);
  for (int64_t a = 0; a < height; ++a, x += row_step) {
    const float* pixel = x;
    for (int64_t b = 0; b < across; ++b, pixel += step, g += width) {
      const Vector factor = InRegister(Load<lanes>(g));
      UNROLLED for (int i = 0; i < rows; ++i)
        UNROLLED for (int k = 0; k < length; ++k) total[i][k] += pixel[i * line + k] * factor;
    }
  }
  UNROLLED for (int i = 0; i < rows; ++i)
    UNROLLED for (int k = 0; k < length; ++k) Store<lanes>(sums + (i * row_length + k) * width, total[i][k]);
}

template <int lanes>
struct KernelGradient : Product {
  std::vector<float> partial;
  int64_t width, size;

  void Prepare() {
    width = Rounded(output.channels, lanes);
    size = rows * columns * frame.image.channels * width;
    turns = (count + kImagesPerTurn - 1) / kImagesPerTurn;
    partial.assign(turns * size, 0.0f);
  }

  void Work() override {
    const int64_t pixels = output.height * output.width, features = output.channels;
    std::vector<float> space(frame.frame.Size()), padded(width == features && !places ? 0 : pixels * width);
    for (int64_t turn; Claim(&turn); Finish())
      for (int64_t n = turn * kImagesPerTurn; n < std::min(count, (turn + 1) * kImagesPerTurn); ++n) {
        frame.Fill(x + n * frame.image.Size(), space.data());
        const float* g = other + n * output.Size();
        if (places) {
          const int64_t pooled = output.height / 2 * (output.width / 2) * features;
          Unpool(other + n * pooled, places + n * pooled, output, width, output.width * width, padded.data());
          g = padded.data();
        } else if (width != features) {
          for (int64_t p = 0; p < pixels; ++p)
            std::memcpy(&padded[p * width], g + p * features, features * sizeof(float));
          g = padded.data();
        }
        AddImage(space.data(), g, &partial[turn * size]);
      }
  }

  void AddImage(const float* x, const float* g, float* sums) const {
    const int64_t channels = frame.image.channels, row_length = columns * channels;
    const int64_t line = frame.frame.width * channels, row_step = stride * line, step = stride * channels;
    for (int64_t o = 0; o < width; o += lanes) {
#define ADD(number_of_rows, length)                                                                               \
  AddPlaces<lanes, number_of_rows, length>(x + i * line + k, line, row_step, step, g + o, width, output.height, \
                                           output.width, sums + (i * row_length + k) * width + o, row_length)
      int64_t i = 0, k = 0;
      if (rows == 3 && row_length == 3) {
        ADD(3, 3);
        continue;
      }
      if (kSums >= 24 && rows == 3 && row_length == 9) {
        ADD(3, 9);
        continue;
      }
      for (i = 0; i < rows; ++i)
        for (k = 0; k < row_length;) {
          const int64_t left = row_length - k;
          if (kSums >= 24 && left >= 24) ADD(1, 24), k += 24;
          else if (left >= 12) ADD(1, 12), k += 12;
          else if (left >= 9) ADD(1, 9), k += 9;
          else if (left >= 6) ADD(1, 6), k += 6;
          else if (left >= 3) ADD(1, 3), k += 3;
          else ADD(1, 1), k += 1;
        }
#undef ADD
    }
  }

  void AddUp() const {
    const int64_t features = output.channels;
    for (int64_t k = 0; k < size / width; ++k)
      for (int64_t o = 0; o < features; ++o) {
        float sum = 0;
        for (int64_t turn = 0; turn < turns; ++turn) sum += partial[turn * size + k * width + o];
        result[k * features + o] = sum;
      }
  }
};

const XLA_FFI_Buffer* ResultBuffer(const XLA_FFI_CallFrame* frame) {
  return static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0]);
}

// The attributes of a call, in the order of the alphabet: the height and width of what is pooled, if anything is; the
// zeros above an image and on its left; and the stride.
enum { kHeight, kLeft, kStride, kTop, kWidth };

// Sets what all products have in common: images are of the shape `image`, and become those of the shape `output`.
template <typename Kind>
void Run(const XLA_FFI_CallFrame* frame, Kind* task, const Shape& image, const Shape& output, const int64_t* kernel) {
  const int64_t stride = Attribute(frame, kStride);
  task->count = Argument(frame, 0)->dims[0], task->rows = kernel[0], task->columns = kernel[1], task->stride = stride;
  task->output = output;
  const Shape framed = {(output.height - 1) * stride + kernel[0], (output.width - 1) * stride + kernel[1],
                        image.channels};
  task->frame = {image, framed, Attribute(frame, kTop), Attribute(frame, kLeft)};
  task->x = Numbers(frame, 0), task->other = Numbers(frame, 1), task->result = Result(frame, 0);
  task->places = frame->args.size == 3 ? static_cast<const int32_t*>(Argument(frame, 2)->data) : nullptr;
  task->Prepare();
  Share(frame, task, 2 * task->count * output.Size() * kernel[0] * kernel[1] * image.channels);
}

Shape ShapeOf(const XLA_FFI_Buffer* images) { return {images->dims[1], images->dims[2], images->dims[3]}; }

// The shape of images before they were pooled.
Shape Unpooled(const XLA_FFI_CallFrame* frame, const XLA_FFI_Buffer* images) {
  return {Attribute(frame, kHeight), Attribute(frame, kWidth), images->dims[3]};
}

template <int lanes>
void Convolve(const XLA_FFI_CallFrame* frame) {
  auto* task = new Convolution<lanes>;
  const XLA_FFI_Buffer *x = Argument(frame, 0), *y = ResultBuffer(frame);
  const bool pools = frame->rets.size == 2;
  task->maxima = pools ? static_cast<int32_t*>(static_cast<XLA_FFI_Buffer*>(frame->rets.rets[1])->data) : nullptr;
  Run(frame, task, frame->args.size == 3 ? Unpooled(frame, x) : ShapeOf(x), pools ? Unpooled(frame, y) : ShapeOf(y),
      Argument(frame, 1)->dims);
  task->Release();
}

template <int lanes>
void ComputeKernelGradient(const XLA_FFI_CallFrame* frame) {
  auto* task = new KernelGradient<lanes>;
  const XLA_FFI_Buffer* g = Argument(frame, 1);
  Run(frame, task, ShapeOf(Argument(frame, 0)), frame->args.size == 3 ? Unpooled(frame, g) : ShapeOf(g),
      ResultBuffer(frame)->dims);
  task->AddUp();
  task->Release();
}

// Calls a function with the lanes of a vector, as a constant, that suit so many features.
template <typename Function>
void WithLanes(int64_t features, Function call) {
  if (features <= 4) call(std::integral_constant<int, 4>());
  else if (features <= 8) call(std::integral_constant<int, std::min(8, kLanes)>());
  else call(std::integral_constant<int, kLanes>());
}

}  // namespace

// Arguments: float32 images and kernel (rows, columns, channels, features); for pooled images, the places of maxima.
// Results: images; if there is another, they are pooled, and it has the places of maxima.
extern "C" XLA_FFI_Error* roamax_convolve(XLA_FFI_CallFrame* frame) {
  if (TellVersion(frame)) return nullptr;
  WithLanes(Argument(frame, 1)->dims[3], [&](auto lanes) { Convolve<decltype(lanes)::value>(frame); });
  return nullptr;
}

// Arguments: float32 images x and g, and if g is pooled, the places of maxima. Result: the kernel's gradient.
extern "C" XLA_FFI_Error* roamax_kernel_gradient(XLA_FFI_CallFrame* frame) {
  if (TellVersion(frame)) return nullptr;
  WithLanes(Argument(frame, 1)->dims[3], [&](auto lanes) { ComputeKernelGradient<decltype(lanes)::value>(frame); });
  return nullptr;
}
