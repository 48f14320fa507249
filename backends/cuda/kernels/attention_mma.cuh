// Attention of halves by tensor cores, and its gradients: FlashAttention-2 (Dao 2023) with the instructions of Ampere.
//
// A warp has 16 rows of scores, or R times as many, for all columns of a tile, so that a row's softmax is among the
// four lanes of a quarter of a matrix; scores turn into weights in the very registers in which the next product takes
// them. Tiles of what the rows meet come into shared memory while those before are computed with. Operands have at
// most D columns, a multiple of 8, that follow each other, and rows that begin at multiples of 16 bytes.
//
// The gradients compute the scores again, with nobody adding to what another wrote, so the result is always the same:
// first what each query's softmax was and how its result pulls, then tiles of queries, and tiles of keys.
//
// Registers decide how much is under way: D = 64 without a mask takes up to 251 of a thread's 255 with no spills, so a
// multiprocessor holds 2 blocks of 4 warps; wider tiles would spill, narrower ones do less between two barriers. A mask,
// which is read where it is needed, has tiles half as wide. See `attention.rs`.
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

// Where 8 elements of a staged row are. Neighbouring rows have them in another order, so that 8 rows of one column are
// in all banks.
template <int D, typename T>
GT_DEVICE T *staged(T *tile, int row, int eighth) {
    return tile + row * D + (eighth ^ (row & 7)) * 8;
}

// Begins to copy a tile of ROWS rows from `first` on; there are so many rows and columns.
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

// Rows of a staged tile from `first` on, as left operands.
template <int D, int R, typename T>
GT_DEVICE void load_rows(u32 (&rows)[R][D / 16][4], T *tile, int first) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            load_matrices<false>(rows[r][k], staged<D>(tile, first + r * 16 + lane % 16, 2 * k + lane / 16));
}

// Adds the products of rows and the rows of a staged tile.
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

// Adds the products of weights, which are rounded to halves, and a staged tile.
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

// What number `c` of a lane's four of a matrix is: its row and column.
GT_DEVICE int row_in_matrix(int c) { return threadIdx.x % 32 / 4 + c / 2 * 8; }
GT_DEVICE int column_in_matrix(int c) { return threadIdx.x % 4 * 2 + c % 2; }

// Scores from products, in powers of 2: negative infinity where a query does not see a key. TURNED: keys are rows.
template <bool MASKED, bool TURNED, int R, int N, typename T>
GT_DEVICE void finish(f32 (&scores)[R][N / 8][4], const Matrix<T> &mask, const Sizes &sizes, i64 row0, i64 column0) {
    const f32 log2_e = 1.4426950408889634f;
    const f32 scale = f32(sizes.scale) * log2_e;
    // How many rows and columns there are from here on, and how much the first query is behind the first key.
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

// The largest, or the sum, of what the four lanes of a row have.
GT_DEVICE f32 largest_of_row(f32 x) {
    x = fmax(x, shuffled_xor(x, 1));
    return fmax(x, shuffled_xor(x, 2));
}
GT_DEVICE f32 sum_of_row(f32 x) {
    x += shuffled_xor(x, 1);
    return x + shuffled_xor(x, 2);
}

// A row's softmax goes on with more scores, which become exponentials; `lower` chooses the row of the lane's two. Returns
// what its past is to be multiplied by; `sum` is of this lane's alone.
template <int COUNT>
GT_DEVICE f32 advance_row(f32 &largest, f32 &sum, f32 (&scores)[COUNT][4], int lower) {
    f32 most = largest;
#pragma unroll
    for (int n = 0; n < COUNT; n++) most = fmax(most, fmax(scores[n][2 * lower], scores[n][2 * lower + 1]));
    most = largest_of_row(most);
    // Of a row that sees nothing, all exponentials are 0.
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

// Writes rows that follow each other; the number of columns is even.
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

// Blocks are tiles of queries of one batch after the other; the last ones, which see most where they are causal, begin.
template <typename T, int D, bool MASKED>
GT_DEVICE void attention_mma(T *out, Operands<T> x, const Walk<5> &batches, const Sizes &sizes) {
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
        // The tile is there, and nobody reads any more what was before the one now.
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

// What a query's softmax was: a weight is 2 to the power of score - `all`; and the sum of its weights times their
// gradients.
struct Query {
    f32 all, pull;
};
enum Part { SOFTMAX, QUERIES, KEYS };

// Blocks are tiles of queries or, for KEYS, of keys, of one batch after the other. A batch's gradients follow each
// other at `out`: queries, keys, values.
template <typename T, int D, Part PART, bool MASKED>
GT_DEVICE void attention_backward_mma(T *out, Query *softmax, Operands<T> x, const Walk<5> &batches,
                                      const Sizes &sizes) {
    constexpr bool TURNED = PART == KEYS;
    constexpr int ROWS = 64, N = D == 128 ? 16 : TURNED || MASKED ? 32 : 64;
    // Rows, and what they meet: queries and gradients, or keys and values.
    alignas(128) __shared__ T own[ROWS * D];
    alignas(128) __shared__ T own_slopes[ROWS * D];
    alignas(128) __shared__ T met[2][N * D];
    alignas(128) __shared__ T met_slopes[2][N * D];
    i64 rows = TURNED ? sizes.keys : sizes.queries, others = TURNED ? sizes.queries : sizes.keys;
    i64 tiles = (rows + ROWS - 1) / ROWS, batch = blockIdx.x / tiles, tile = blockIdx.x - batch * tiles;
    // Those with most to do begin.
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
    // Of the lane's two rows.
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
        // The tile is there, and nobody reads any more what was before the one now.
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
    // What was begun is not left behind.
    wait_for_copies();
    i64 row0 = first + warp_row, of_queries = sizes.queries * sizes.features, of_keys = sizes.keys * sizes.features;
    if (PART == SOFTMAX) {
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            i64 query = row0 + row_in_matrix(2 * lower);
            f32 all = sum_of_row(sum[lower]), pulled = sum_of_row(pull[lower]);
            // Of a query that sees nothing, all weights are 0.
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
