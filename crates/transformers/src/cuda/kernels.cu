// Kernels for training in f32 on a GPU, compiled by NVRTC when the first of them is asked for. Rows are contiguous; a warp takes a row
// where there are rows, and sums go through it in a fixed order, so that a step can be repeated to the bit.

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

extern "C" __global__ void add_bias(const float* x, const float* bias, float* y, unsigned long long count,
                                    unsigned int width) {
    for (unsigned long long i = first_element(); i < count; i += all_threads()) y[i] = x[i] + bias[i % width];
}

extern "C" __global__ void softmax(const float* x, float* y, long long rows, int width) {
    long long row = own_row();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    float greatest = -__int_as_float(0x7f800000);
    for (int i = threadIdx.x; i < width; i += WARP) greatest = fmaxf(greatest, x[i]);
    greatest = greatest_of_warp(greatest);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += WARP) sum += expf(x[i] - greatest);
    sum = sum_of_warp(sum);
    for (int i = threadIdx.x; i < width; i += WARP) y[i] = expf(x[i] - greatest) / sum;
}

// To the scores, from the weights y and the gradient of them.
extern "C" __global__ void softmax_backward(const float* y, const float* to_y, float* to_x, long long rows, int width) {
    long long row = own_row();
    if (row >= rows) return;
    y += row * width;
    to_y += row * width;
    to_x += row * width;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += WARP) sum += y[i] * to_y[i];
    sum = sum_of_warp(sum);
    for (int i = threadIdx.x; i < width; i += WARP) to_x[i] = y[i] * (to_y[i] - sum);
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

extern "C" __global__ void norm(const float* x, const float* weight, float* y, long long rows, int width,
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
extern "C" __global__ void norm_backward(const float* x, const float* weight, const float* to_y, float* to_x,
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

// GELU by the error function.
extern "C" __global__ void gelu(const float* x, float* y, unsigned long long count) {
    for (unsigned long long i = first_element(); i < count; i += all_threads())
        y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
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
