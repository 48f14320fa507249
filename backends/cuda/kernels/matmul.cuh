// Matrix products of integers, and of floats where no library such as cuBLASLt is available.
//
// A block computes a 64 by 64 tile of the result, each thread 4 by 4 elements of it in registers. Tiles of both
// operands are staged in shared memory, 16 terms of the sums at a time, so each element read from memory serves 64
// products.
#pragma once
#include "types.cuh"
#include "walk.cuh"

constexpr int TILE = 64, TERMS = 16, EACH = 4;
// Threads of a block, one for each 4 by 4 part of the tile.
constexpr int MATMUL_THREADS = (TILE / EACH) * (TILE / EACH);

// The first element of a matrix and the strides of its rows and columns, in elements.
template <typename T>
struct Matrix {
    T* at;
    i64 row_step, column_step;
};

GT_DEVICE f32 add_product(f32 a, f32 b, f32 sum) { return fma(a, b, sum); }
GT_DEVICE f64 add_product(f64 a, f64 b, f64 sum) { return fma(a, b, sum); }
// Integers wrap. For narrow integers the low bits of the 32-bit product are the result.
template <typename T>
GT_DEVICE T add_product(T a, T b, T sum) {
    typedef typename Wrapping<T>::type U;
    return T(U(sum) + U(a) * U(b));
}

// Stages the TILE by TERMS tile at (row, column) of a `rows` by `columns` matrix in shared memory, transposed; elements
// past the matrix are 0.
template <typename T, typename C>
GT_DEVICE void bring(C (*to)[TILE + 1], Matrix<const T> from, i64 row, i64 column, i64 rows, i64 columns) {
    // Consecutive threads read consecutive elements (coalesced), whether the matrix is row-major or column-major.
    const bool along_columns = from.column_step == 1;
    // Not unrolled, since holding all addresses would take twice the registers.
#pragma unroll 1
    for (int i = int(threadIdx.x); i < TILE * TERMS; i += MATMUL_THREADS) {
        int r = along_columns ? i / TERMS : i % TILE, c = along_columns ? i % TERMS : i / TILE;
        bool inside = row + r < rows && column + c < columns;
        const T* at = from.at + (row + r) * from.row_step + (column + c) * from.column_step;
        to[c][r] = inside ? load(at) : C(0);
    }
}

// out = a b for m by k and k by n matrices, in a batch; the operands of `batch` are out, a, b. A bias of n elements,
// unless it is null, is added to each row before the sums are rounded.
template <typename T, typename R>
GT_DEVICE void matmul(R* out, const T* a, const T* b, const T* bias, i64 m, i64 n, i64 k, i64 a_row, i64 a_column,
                      i64 b_row, i64 b_column, i64 batches, const Walk<3>& batch) {
    typedef typename Compute<T>::type C;
    // Padded by one element, so that threads that write a column of the tile access different banks.
    __shared__ C left[TERMS][TILE + 1], right[TERMS][TILE + 1];
    const i64 tiles_across = (n + TILE - 1) / TILE;
    const i64 row = blockIdx.x / tiles_across * TILE, column = blockIdx.x % tiles_across * TILE;
    const int y = int(threadIdx.x) / (TILE / EACH) * EACH, x = int(threadIdx.x) % (TILE / EACH) * EACH;
    for (i64 which = blockIdx.z; which < batches; which += gridDim.z) {
        i64 at[3];
        batch.offsets(which, at);
        Matrix<const T> from_a = {a + at[1], a_row, a_column};
        // `b` is passed transposed, so that `bring` stages it as it does `a`.
        Matrix<const T> from_b = {b + at[2], b_column, b_row};
        C sums[EACH][EACH];
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) sums[i][j] = C(0);
        for (i64 term = 0; term < k; term += TERMS) {
            bring(left, from_a, row, term, m, k);
            bring(right, from_b, column, term, n, k);
            __syncthreads();
// Unrolling all terms would take so many registers that few blocks would fit a multiprocessor.
#pragma unroll 4
            for (int t = 0; t < TERMS; t++) {
                C l[EACH], r[EACH];
                for (int i = 0; i < EACH; i++) l[i] = left[t][y + i];
                for (int j = 0; j < EACH; j++) r[j] = right[t][x + j];
                for (int i = 0; i < EACH; i++)
                    for (int j = 0; j < EACH; j++) sums[i][j] = add_product(l[i], r[j], sums[i][j]);
            }
            __syncthreads();
        }
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++)
                if (row + y + i < m && column + x + j < n) {
                    const i64 own = column + x + j;
                    const C sum = bias ? C(sums[i][j] + load(bias + own)) : sums[i][j];
                    store(out + at[0] + (row + y + i) * n + own, sum);
                }
    }
}
