// Kernels that NVRTC compiles on the first use of any of them. Rows are contiguous. A warp processes one row, if any, and sums in a fixed
// order, so results are reproducible to the bit. Arithmetic is in f32 for every element type.

#define WARP 32

__device__ __forceinline__ float sum_of_warp(float value) {
    for (int gap = WARP / 2; gap > 0; gap /= 2) value += __shfl_xor_sync(0xffffffffu, value, gap);
    return value;
}

__device__ __forceinline__ float greatest_of_warp(float value) {
    for (int gap = WARP / 2; gap > 0; gap /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, gap));
    return value;
}

__device__ __forceinline__ unsigned long long first_element() {
    return (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ unsigned long long all_threads() {
    return (unsigned long long)gridDim.x * blockDim.x;
}

__device__ __forceinline__ long long own_row() {
    return (long long)blockIdx.x * blockDim.y + threadIdx.y;
}

// Inverted dropout: whether element i is kept depends on the seed and on i alone (the finaliser of SplitMix64, 24 bits of it).
extern "C" __global__ void dropout(const float* x, float* y, unsigned long long count, unsigned long long seed,
                                   unsigned int threshold, float kept) {
    for (unsigned long long i = first_element(); i < count; i += all_threads()) {
        unsigned long long bits = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
        bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
        bits ^= bits >> 31;
        y[i] = (unsigned int)(bits >> 40) < threshold ? 0.0f : x[i] * kept;
    }
}

// Halves by their bits, since NVRTC has no headers for them.
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

__device__ __forceinline__ float wide(float value) { return value; }
__device__ __forceinline__ float wide(f16 value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}
__device__ __forceinline__ float wide(bf16 value) { return __uint_as_float((unsigned int)value.bits << 16); }

__device__ __forceinline__ void put(float* at, float value) { *at = value; }
__device__ __forceinline__ void put(f16* at, float value) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(at->bits) : "f"(value));
}
__device__ __forceinline__ void put(bf16* at, float value) {
    // To the nearest, to the even one of two; not a number stays none.
    unsigned int bits = __float_as_uint(value);
    at->bits = value != value ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

template <typename T>
__device__ void add_bias_of(const T* x, const T* bias, T* y, unsigned long long count, unsigned int width) {
    for (unsigned long long i = first_element(); i < count; i += all_threads())
        put(y + i, wide(x[i]) + wide(bias[i % width]));
}

// GELU by the error function.
template <typename T>
__device__ void gelu_of(const T* x, T* y, unsigned long long count) {
    for (unsigned long long i = first_element(); i < count; i += all_threads()) {
        float value = wide(x[i]);
        put(y + i, 0.5f * value * (1.0f + erff(value * 0.70710678f)));
    }
}

// (b, t, heads * width) to (b, heads, t, width), with a bias for each place of heads * width where there is one.
template <typename T>
__device__ void split_heads_of(const T* x, const T* bias, T* y, unsigned int count, unsigned int length,
                               unsigned int heads, unsigned int width, int is_biased) {
    for (unsigned int i = first_element(); i < count; i += all_threads()) {
        unsigned int w = i % width, rest = i / width;
        unsigned int h = rest % heads, row = rest / heads;
        unsigned int to = ((row / length * heads + h) * length + row % length) * width + w;
        if (is_biased) put(y + to, wide(x[i]) + wide(bias[h * width + w]));
        else y[to] = x[i];
    }
}

// (b, heads, t, width) to (b, t, heads * width).
template <typename T>
__device__ void merge_heads_of(const T* x, T* y, unsigned int count, unsigned int length, unsigned int heads,
                               unsigned int width) {
    for (unsigned int i = first_element(); i < count; i += all_threads()) {
        unsigned int w = i % width, rest = i / width;
        unsigned int h = rest % heads, row = rest / heads;
        y[i] = x[((row / length * heads + h) * length + row % length) * width + w];
    }
}

// Softmax over rows of scores (b, heads, t, width), each times `scale`, to which a bias is added. The bias may have one row for all of a
// dimension, whose step is 0 then.
template <typename T>
__device__ void softmax_of(const T* x, const T* bias, T* y, long long rows, int width, float scale, int heads, int length,
                           int step_batch, int step_head, int step_row, int is_biased) {
    long long row = own_row();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    if (is_biased) {
        int head = row / length % heads;
        bias += (row / length / heads) * step_batch + head * step_head + row % length * step_row;
    }
    float greatest = -__int_as_float(0x7f800000), sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += WARP) {
        float score = wide(x[i]) * scale + (is_biased ? wide(bias[i]) : 0.0f);
        greatest = fmaxf(greatest, score);
    }
    greatest = greatest_of_warp(greatest);
    for (int i = threadIdx.x; i < width; i += WARP) {
        float score = wide(x[i]) * scale + (is_biased ? wide(bias[i]) : 0.0f);
        sum += expf(score - greatest);
    }
    sum = sum_of_warp(sum);
    for (int i = threadIdx.x; i < width; i += WARP) {
        float score = wide(x[i]) * scale + (is_biased ? wide(bias[i]) : 0.0f);
        put(y + i, expf(score - greatest) / sum);
    }
}

#define FOR_NUMBERS(T)                                                                                                 \
    extern "C" __global__ void add_bias_##T(const T* x, const T* bias, T* y, unsigned long long count,                 \
                                            unsigned int width) {                                                      \
        add_bias_of<T>(x, bias, y, count, width);                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void gelu_##T(const T* x, T* y, unsigned long long count) { gelu_of<T>(x, y, count); }       \
    extern "C" __global__ void split_heads_##T(const T* x, const T* bias, T* y, unsigned int count,                    \
                                               unsigned int length, unsigned int heads, unsigned int width,            \
                                               int is_biased) {                                                        \
        split_heads_of<T>(x, bias, y, count, length, heads, width, is_biased);                                         \
    }                                                                                                                  \
    extern "C" __global__ void merge_heads_##T(const T* x, T* y, unsigned int count, unsigned int length,              \
                                               unsigned int heads, unsigned int width) {                               \
        merge_heads_of<T>(x, y, count, length, heads, width);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void softmax_##T(const T* x, const T* bias, T* y, long long rows, int width, float scale,    \
                                           int heads, int length, int step_batch, int step_head, int step_row,         \
                                           int is_biased) {                                                            \
        softmax_of<T>(x, bias, y, rows, width, scale, heads, length, step_batch, step_head, step_row, is_biased);      \
    }

typedef float f32;
FOR_NUMBERS(f32)
FOR_NUMBERS(f16)
FOR_NUMBERS(bf16)

// To the scores, from the weights y and the gradient of them.
extern "C" __global__ void softmax_backward(const float* y, const float* to_y, float* to_x, long long rows, int width,
                                            float scale) {
    long long row = own_row();
    if (row >= rows) return;
    y += row * width;
    to_y += row * width;
    to_x += row * width;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += WARP) sum += y[i] * to_y[i];
    sum = sum_of_warp(sum);
    for (int i = threadIdx.x; i < width; i += WARP) to_x[i] = scale * y[i] * (to_y[i] - sum);
}

// Mean (0 for the root mean square alone) and the reciprocal of the deviation of a row.
__device__ __forceinline__ void statistics(const float* x, int width, float epsilon, int centred, float* mean,
                                           float* scale) {
    float sum = 0.0f;
    if (centred) {
        for (int i = threadIdx.x; i < width; i += WARP) sum += x[i];
        sum = sum_of_warp(sum) / width;
    }
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += WARP) squares += (x[i] - sum) * (x[i] - sum);
    *mean = sum;
    *scale = rsqrtf(sum_of_warp(squares) / width + epsilon);
}

extern "C" __global__ void normalise(const float* x, const float* weight, float* y, long long rows, int width,
                                float epsilon, int centred) {
    long long row = own_row();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    float mean, scale;
    statistics(x, width, epsilon, centred, &mean, &scale);
    for (int i = threadIdx.x; i < width; i += WARP) y[i] = (x[i] - mean) * scale * weight[i];
}

// To the input; and what its sums over rows are to the weight, the gradient times the normalised input.
extern "C" __global__ void normalise_backward(const float* x, const float* weight, const float* to_y, float* to_x,
                                         float* to_weight, long long rows, int width, float epsilon, int centred) {
    long long row = own_row();
    if (row >= rows) return;
    x += row * width;
    to_y += row * width;
    to_x += row * width;
    to_weight += row * width;
    float mean, scale;
    statistics(x, width, epsilon, centred, &mean, &scale);
    float sum = 0.0f, along = 0.0f;
    for (int i = threadIdx.x; i < width; i += WARP) {
        float gradient = to_y[i] * weight[i];
        sum += gradient;
        along += gradient * (x[i] - mean) * scale;
    }
    sum = centred ? sum_of_warp(sum) / width : 0.0f;
    along = sum_of_warp(along) / width;
    for (int i = threadIdx.x; i < width; i += WARP) {
        float normed = (x[i] - mean) * scale;
        to_x[i] = scale * (to_y[i] * weight[i] - sum - normed * along);
        to_weight[i] = to_y[i] * normed;
    }
}

extern "C" __global__ void gelu_backward(const float* x, const float* to_y, float* to_x, unsigned long long count) {
    for (unsigned long long i = first_element(); i < count; i += all_threads()) {
        float below = 0.5f * (1.0f + erff(x[i] * 0.70710678f));
        float density = 0.39894228f * expf(-0.5f * x[i] * x[i]);
        to_x[i] = to_y[i] * (below + x[i] * density);
    }
}

// The sum of squares of the portion of each block, in f64. A block has 256 threads.
extern "C" __global__ void squares(const float* x, double* sums, unsigned long long count) {
    __shared__ double of_threads[256];
    double sum = 0.0;
    for (unsigned long long i = first_element(); i < count; i += all_threads()) sum += (double)x[i] * x[i];
    of_threads[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) of_threads[threadIdx.x] += of_threads[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = of_threads[0];
}

// As `AdamStep` of the kernels for CPUs.
extern "C" __global__ void adam(float* values, const float* gradients, float* first, float* second,
                                unsigned long long count, float beta1, float beta2, float epsilon, float rate,
                                float keep, float first_scale, float second_scale) {
    for (unsigned long long i = first_element(); i < count; i += all_threads()) {
        float gradient = gradients[i];
        float mean = beta1 * first[i] + (1.0f - beta1) * gradient;
        float square = beta2 * second[i] + (1.0f - beta2) * gradient * gradient;
        first[i] = mean;
        second[i] = square;
        values[i] = keep * values[i] - rate * (mean * first_scale) / (sqrtf(square * second_scale) + epsilon);
    }
}
