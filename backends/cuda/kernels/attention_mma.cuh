// Attention of f16 and bf16 and its gradients on tensor cores: FlashAttention-2 (Dao 2023) with Ampere's instructions.
//
// A warp computes 16 R rows of scores for all columns of a tile. A row's scores are then in the registers of four
// lanes, which compute its softmax by shuffles, and the weights are already in the registers that the next product
// takes as its left operand. The next tiles are copied to shared memory asynchronously (double buffering) while the
// current ones are multiplied. Operands have at most D contiguous columns, a multiple of 8, and rows that begin at
// multiples of 16 bytes.
//
// The backward pass recomputes the scores in three kernels: the softmax statistics of each query, the gradient of the
// queries, the gradients of keys and values. No two blocks add to the same element, so the result is deterministic.
//
// Registers limit the occupancy: D = 64 without a mask takes up to 251 of a thread's 255 registers without spills, so a
// multiprocessor holds 2 blocks of 4 warps. Wider tiles would spill, narrower ones do less work between two barriers. A
// mask is read from global memory where it is needed; its tiles are half as wide. See `attention.rs`.
#pragma once
#include "attention.cuh"
#include "mma.cuh"

constexpr int MMA_THREADS = 128;

GT_DEVICE f32 fast_exp2(f32 x) {
#ifdef GT_EMULATED
    return exp2(x);
#else
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// The address of 8 elements (16 bytes) of a staged row. An XOR swizzle permutes them by the row's index, so that the
// same 16 bytes of 8 consecutive rows lie in different banks.
template <int D, typename T>
GT_DEVICE T *staged(T *tile, int row, int eighth) {
    return tile + row * D + (eighth ^ (row & 7)) * 8;
}

// Begins the asynchronous copy of the tile of ROWS rows that starts at `first`; elements past `rows` or `columns` are
// 0.
template <int D, int ROWS, typename T>
GT_DEVICE void stage(T *tile, const Matrix<T> &from, i64 first, i64 rows, i64 columns) {
    constexpr int EIGHTHS = D / 8, APART = MMA_THREADS / EIGHTHS;
    int row = threadIdx.x / EIGHTHS, eighth = threadIdx.x % EIGHTHS;
    const T *at = from.first + (first + row) * from.row + eighth * 8;
    int left = int(rows - first < ROWS ? rows - first : ROWS);
    if (eighth * 8 >= columns) left = 0;
#pragma unroll
    for (int i = 0; i < ROWS / APART; i++, row += APART, at += APART * from.row)
        copy_behind(staged<D>(tile, row, eighth), row < left ? at : from.first, row < left);
}

// Loads 16 R rows of a staged tile, from `first` on, as fragments of a left operand.
template <int D, int R, typename T>
GT_DEVICE void load_rows(u32 (&rows)[R][D / 16][4], T *tile, int first) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            load_matrices<false>(rows[r][k], staged<D>(tile, first + r * 16 + lane % 16, 2 * k + lane / 16));
}

// scores += rows tile^T.
template <int D, int R, int N, typename T>
GT_DEVICE void add_scores(f32 (&scores)[R][N / 8][4], const u32 (&rows)[R][D / 16][4], T *tile) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            u32 right[4];
            load_matrices<false>(right, staged<D>(tile, n * 16 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
            for (int r = 0; r < R; r++) {
                multiply_add<T>(scores[r][2 * n], rows[r][k], right[0], right[1]);
                multiply_add<T>(scores[r][2 * n + 1], rows[r][k], right[2], right[3]);
            }
        }
}

// sums += weights tile, with the weights rounded to T.
template <int D, int R, int N, typename T>
GT_DEVICE void add_products(f32 (&sums)[R][D / 8][4], const f32 (&weights)[R][N / 8][4], T *tile) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        u32 left[R][4];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                left[r][i] = packed<T>(weights[r][2 * k + i / 2][i % 2 * 2], weights[r][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            u32 right[4];
            load_matrices<true>(right, staged<D>(tile, k * 16 + lane % 16, 2 * n + lane / 16));
#pragma unroll
            for (int r = 0; r < R; r++) {
                multiply_add<T>(sums[r][2 * n], left[r], right[0], right[1]);
                multiply_add<T>(sums[r][2 * n + 1], left[r], right[2], right[3]);
            }
        }
    }
}

// The row and column of element `c` of the four elements that a lane holds of a 16 by 8 fragment.
GT_DEVICE int row_in_matrix(int c) { return threadIdx.x % 32 / 4 + c / 2 * 8; }
GT_DEVICE int column_in_matrix(int c) { return threadIdx.x % 4 * 2 + c % 2; }

// Turns products into scores in base 2 (times log2(e)), adds the mask, and writes negative infinity where a query may
// not attend to a key. TURNED: rows are keys.
template <bool MASKED, bool TURNED, int R, int N, typename T>
GT_DEVICE void finish(f32 (&scores)[R][N / 8][4], const Matrix<T> &mask, const AttentionSizes &sizes, i64 row0, i64 column0) {
    const f32 log2_e = 1.4426950408889634f;
    const f32 scale = f32(sizes.scale) * log2_e;
    // The rows and columns left from this tile on, and the index of the first query minus that of the first key.
    auto within = [](i64 x) { return int(x < -1024 ? -1024 : x > 1024 ? 1024 : x); };
    int rows = within((TURNED ? sizes.keys : sizes.queries) - row0);
    int columns = within((TURNED ? sizes.queries : sizes.keys) - column0);
    int behind = sizes.causal ? within(TURNED ? column0 - row0 : row0 - column0) : 1024;
    bool all_seen = rows >= 16 * R && columns >= N && behind >= (TURNED ? 16 * R : N) - 1;
    auto each = [&](auto change) {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    change(scores[r][n][c], 16 * r + row_in_matrix(c), 8 * n + column_in_matrix(c));
    };
    each([&](f32 &score, int, int) { score *= scale; });
    if (MASKED)
        each([&](f32 &score, int row, int column) {
            if (row < rows && column < columns) {
                i64 down = row0 + row, right = column0 + column;
                score += (TURNED ? mask.at(right, down) : mask.at(down, right)) * log2_e;
            }
        });
    if (!all_seen)
        each([&](f32 &score, int row, int column) {
            int query = TURNED ? column : row, key = TURNED ? row : column;
            if (row >= rows || column >= columns || key > query + behind) score = Ends<f32>::low();
        });
}

// Maximum and sum over the four lanes of a row (warp shuffles).
GT_DEVICE f32 largest_of_row(f32 x) {
    x = fmax(x, shuffled_xor(x, 1));
    return fmax(x, shuffled_xor(x, 2));
}
GT_DEVICE f32 sum_of_row(f32 x) {
    x += shuffled_xor(x, 1);
    return x + shuffled_xor(x, 2);
}

// One step of the online softmax of a row: updates its maximum and sum, replaces the scores with exponentials, and
// returns the factor by which the earlier sums must be multiplied. `lower` selects one of the lane's two rows; `sum` is
// this lane's share only.
template <int COUNT>
GT_DEVICE f32 advance_row(f32 &largest, f32 &sum, f32 (&scores)[COUNT][4], int lower) {
    f32 most = largest;
#pragma unroll
    for (int n = 0; n < COUNT; n++) most = fmax(most, fmax(scores[n][2 * lower], scores[n][2 * lower + 1]));
    most = largest_of_row(most);
    // If every score so far is negative infinity, subtracting 0 instead of it makes all exponentials 0, not NaN.
    f32 base = most == Ends<f32>::low() ? 0.0f : most, added = 0.0f;
    f32 factor = fast_exp2(largest - base);
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int c = 2 * lower; c < 2 * lower + 2; c++) {
            scores[n][c] = fast_exp2(scores[n][c] - base);
            added += scores[n][c];
        }
    sum = sum * factor + added;
    largest = most;
    return factor;
}

// Writes contiguous rows, scaled by `upper` and `lower`; the number of columns is even.
template <int D, typename T>
GT_DEVICE void write_rows(T *to, const f32 (&sums)[D / 8][4], f32 upper, f32 lower, i64 row0, i64 rows, i64 columns) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        i64 row = row0 + row_in_matrix(2 * half);
        f32 factor = half ? lower : upper;
        if (row < rows)
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                i64 column = 8 * n + column_in_matrix(0);
                if (column < columns)
                    *(u32 *)(to + row * columns + column) =
                        packed<T>(sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
            }
    }
}

// blockIdx.x enumerates the tiles of queries of every batch, the last tile of each first: with `causal` it has the most
// keys.
template <typename T, int D, bool MASKED>
GT_DEVICE void attention_mma(T *out, AttentionOperands<T> x, const Walk<5> &batches, const AttentionSizes &sizes) {
    constexpr int R = D == 64 ? 2 : 1, ROWS = 64 * R, N = D == 64 && !MASKED ? 64 : 32;
    alignas(128) __shared__ T queries[ROWS * D];
    alignas(128) __shared__ T keys[2][N * D];
    alignas(128) __shared__ T values[2][N * D];
    i64 tiles = (sizes.queries + ROWS - 1) / ROWS, batch = blockIdx.x / tiles;
    i64 first = (tiles - 1 - (blockIdx.x - batch * tiles)) * ROWS;
    int warp_row = threadIdx.x / 32 * 16 * R;
    x.move(batches, batch);
    i64 end = sizes.causal && first + ROWS < sizes.keys ? first + ROWS : sizes.keys;
    stage<D, ROWS>(queries, x.query, first, sizes.queries, sizes.features);
    stage<D, N>(keys[0], x.key, 0, sizes.keys, sizes.features);
    stage<D, N>(values[0], x.value, 0, sizes.keys, sizes.columns);
    wait_for_copies();
    __syncthreads();
    u32 rows[R][D / 16][4];
    load_rows<D, R>(rows, queries, warp_row);
    f32 sums[R][D / 8][4] = {}, largest[R][2], sum[R][2] = {};
#pragma unroll
    for (int r = 0; r < R; r++) largest[r][0] = largest[r][1] = Ends<f32>::low();
    int now = 0;
    for (i64 key = 0; key < end; key += N, now ^= 1) {
        // The current tile has arrived, and no warp reads the buffer that the next copy overwrites.
        wait_for_copies();
        __syncthreads();
        if (key + N < end) {
            stage<D, N>(keys[now ^ 1], x.key, key + N, sizes.keys, sizes.features);
            stage<D, N>(values[now ^ 1], x.value, key + N, sizes.keys, sizes.columns);
        }
        f32 scores[R][N / 8][4] = {};
        add_scores<D, R, N>(scores, rows, keys[now]);
        finish<MASKED, false, R, N>(scores, x.mask, sizes, first + warp_row, key);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                f32 factor = advance_row(largest[r][lower], sum[r][lower], scores[r], lower);
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    sums[r][n][2 * lower] *= factor;
                    sums[r][n][2 * lower + 1] *= factor;
                }
            }
        add_products<D, R, N>(sums, scores, values[now]);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        f32 share[2];
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            f32 all = sum_of_row(sum[r][lower]);
            share[lower] = all == 0.0f ? 0.0f : 1.0f / all;
        }
        write_rows<D>(out + batch * sizes.queries * sizes.columns, sums[r], share[0], share[1],
                      first + warp_row + 16 * r, sizes.queries, sizes.columns);
    }
}

// The softmax statistics of a query: a weight is 2 to the power of score - `all` (the base-2 logarithm of the sum of
// exponentials), and `pull` is the sum over the keys of weight times the weight's gradient (D in FlashAttention-2).
struct Query {
    f32 all, pull;
};
enum Part { SOFTMAX, QUERIES, KEYS };

// blockIdx.x enumerates the tiles of queries (KEYS: of keys) of every batch. `out` holds, for each batch, the gradients
// of queries, keys and values.
template <typename T, int D, Part PART, bool MASKED>
GT_DEVICE void attention_backward_mma(T *out, Query *softmax, AttentionOperands<T> x, const Walk<5> &batches,
                                      const AttentionSizes &sizes) {
    constexpr bool TURNED = PART == KEYS;
    constexpr int ROWS = 64, N = D == 128 ? 16 : TURNED || MASKED ? 32 : 64;
    // `own` and `own_slopes` hold the block's rows: queries and output gradients or, for KEYS, keys and values. `met`
    // and `met_slopes` double-buffer tiles of the others.
    alignas(128) __shared__ T own[ROWS * D];
    alignas(128) __shared__ T own_slopes[ROWS * D];
    alignas(128) __shared__ T met[2][N * D];
    alignas(128) __shared__ T met_slopes[2][N * D];
    i64 rows = TURNED ? sizes.keys : sizes.queries, others = TURNED ? sizes.queries : sizes.keys;
    i64 tiles = (rows + ROWS - 1) / ROWS, batch = blockIdx.x / tiles, tile = blockIdx.x - batch * tiles;
    // With `causal`, the tiles with the most work start first.
    i64 first = (TURNED ? tile : tiles - 1 - tile) * ROWS;
    int warp_row = threadIdx.x / 32 * 16;
    x.move(batches, batch);
    softmax += batch * sizes.queries;
    i64 begin = sizes.causal && TURNED ? first : 0;
    i64 end = sizes.causal && !TURNED && first + ROWS < others ? first + ROWS : others;
    auto meet = [&](int now, i64 other) {
        stage<D, N>(met[now], TURNED ? x.query : x.key, other, others, sizes.features);
        stage<D, N>(met_slopes[now], TURNED ? x.grad : x.value, other, others, sizes.columns);
    };
    stage<D, ROWS>(own, TURNED ? x.key : x.query, first, rows, sizes.features);
    stage<D, ROWS>(own_slopes, TURNED ? x.value : x.grad, first, rows, sizes.columns);
    if (begin < end) meet(0, begin);
    // The statistics of the lane's two rows.
    f32 largest[2] = {Ends<f32>::low(), Ends<f32>::low()}, sum[2] = {}, pull[2] = {};
    Query of_row[2] = {};
    if (PART == QUERIES)
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            i64 query = first + warp_row + row_in_matrix(2 * lower);
            if (query < rows) of_row[lower] = softmax[query];
        }
    f32 sums[1][D / 8][4] = {}, value_sums[1][D / 8][4] = {};
    int now = 0;
    for (i64 other = begin; other < end; other += N, now ^= 1) {
        // The current tile has arrived, and no warp reads the buffer that the next copy overwrites.
        wait_for_copies();
        __syncthreads();
        if (other + N < end) meet(now ^ 1, other + N);
        Query of_column[N / 8][2];
        if (TURNED)
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                i64 query = other + 8 * (i / 2) + column_in_matrix(i % 2);
                of_column[i / 2][i % 2] = query < others ? softmax[query] : Query{};
            }
        f32 scores[1][N / 8][4] = {}, slopes[1][N / 8][4] = {};
        {
            u32 left[1][D / 16][4];
            load_rows<D, 1>(left, own, warp_row);
            add_scores<D, 1, N>(scores, left, met[now]);
            load_rows<D, 1>(left, own_slopes, warp_row);
            add_scores<D, 1, N>(slopes, left, met_slopes[now]);
        }
        finish<MASKED, TURNED, 1, N>(scores, x.mask, sizes, first + warp_row, other);
        if (PART == SOFTMAX) {
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                f32 factor = advance_row(largest[lower], sum[lower], scores[0], lower), added = 0.0f;
#pragma unroll
                for (int n = 0; n < N / 8; n++)
#pragma unroll
                    for (int c = 2 * lower; c < 2 * lower + 2; c++) added = fma(scores[0][n][c], slopes[0][n][c], added);
                pull[lower] = fma(pull[lower], factor, added);
            }
        } else {
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    Query query = TURNED ? of_column[n][c % 2] : of_row[c / 2];
                    scores[0][n][c] = fast_exp2(scores[0][n][c] - query.all);
                    slopes[0][n][c] = scores[0][n][c] * (slopes[0][n][c] - query.pull);
                }
            add_products<D, 1, N>(sums, slopes, met[now]);
            if (TURNED) add_products<D, 1, N>(value_sums, scores, met_slopes[now]);
        }
    }
    // If `begin >= end`, the copies of `own` and `own_slopes` are still in flight.
    wait_for_copies();
    i64 row0 = first + warp_row, of_queries = sizes.queries * sizes.features, of_keys = sizes.keys * sizes.features;
    if (PART == SOFTMAX) {
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            i64 query = row0 + row_in_matrix(2 * lower);
            f32 all = sum_of_row(sum[lower]), pulled = sum_of_row(pull[lower]);
            // If every score is negative infinity, `all` is infinite, which makes all weights 0.
            Query found = {-Ends<f32>::low(), 0.0f};
            if (all != 0.0f) found = {largest[lower] + log2(all), pulled / all};
            if (query < rows && threadIdx.x % 4 == 0) softmax[query] = found;
        }
        return;
    }
    T *to = out + batch * (of_queries + of_keys + sizes.keys * sizes.columns);
    f32 scale = f32(sizes.scale);
    write_rows<D>(to + (TURNED ? of_queries : 0), sums[0], scale, scale, row0, rows, sizes.features);
    if (TURNED) write_rows<D>(to + of_queries + of_keys, value_sums[0], 1.0f, 1.0f, row0, rows, sizes.columns);
}
