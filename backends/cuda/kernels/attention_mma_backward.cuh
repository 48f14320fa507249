// The gradients of attention of f16, bf16 and tf32 on tensor cores, in two kernels that recompute the scores: the
// gradient of the queries, whose online softmax also gives the statistics that the gradients of keys and values need.
// FlashAttention-2 (Dao 2023) saves two of the seven products by adding to the gradient of the queries atomically; here
// no two blocks add to the same element, so the result is deterministic.
#pragma once
#include "attention_mma.cuh"

// The softmax statistics of a query: a weight is 2 to the power of score - `all` (the base-2 logarithm of the sum of
// exponentials), and `pull` is the sum over the keys of weight times the weight's gradient (D in FlashAttention-2).
struct Query {
    f32 all, pull;
};
struct alignas(16) QueryPair {
    Query of[2];
};

// The statistics of a batch's queries, padded to whole 16 bytes.
GT_DEVICE i64 padded_queries(const AttentionSizes &sizes) { return (sizes.queries + 1) / 2 * 2; }

// This lane's share of the sum over a row of its gradient times its result, which is the `pull` of its query. Four
// lanes share a row.
template <typename T>
GT_DEVICE f32 pull_of_row(const T *grad, const T *out, int columns) {
    constexpr int IN_PART = 16 / sizeof(T);
    struct alignas(16) Part {
        T elements[IN_PART];
    };
    f32 sum = 0.0f;
    for (int at = threadIdx.x % 4 * IN_PART; at < columns; at += 4 * IN_PART) {
        Part g = *(const Part *)(grad + at), o = *(const Part *)(out + at);
#pragma unroll
        for (int i = 0; i < IN_PART; i++) sum = fma(to_compute(g.elements[i]), to_compute(o.elements[i]), sum);
    }
    return sum;
}

// The most powers of two by which an exponential may exceed 1: a gradient times it must not exceed f16's range.
template <typename T>
struct Slack {
    static constexpr int VALUE = 8;
};
template <>
struct Slack<f16> {
    static constexpr int VALUE = 0;
};

// The gradient of queries, and the statistics of their softmax. blockIdx.x enumerates the tiles of queries of every
// batch. `out` holds, for each batch, the gradients of queries, keys and values.
template <typename T, int D, int R, int N, bool KEPT, bool MASKED>
GT_DEVICE void attention_queries_mma(T *out, Query *statistics, AttentionOperands<T> x, const Walk<6> &batches,
                                     const AttentionSizes &sizes) {
    constexpr int ROWS = 64 * R, BYTES = D * sizeof(T), TILE = N * BYTES;
    u8 *memory = (u8 *)dynamic_shared();
    const Shared own = shared_address(memory), own_grads = own + ROWS * BYTES, keys = own_grads + ROWS * BYTES,
                 values = keys + 2 * TILE;
    const int count = int(sizes.queries), of = int(sizes.keys);
    const int features = int(sizes.features), columns = int(sizes.columns);
    const u32 tiles = u32(count + ROWS - 1) / ROWS, batch = blockIdx.x / tiles;
    // With `causal`, the tiles with the most work start first.
    const int first = (tiles - 1 - (blockIdx.x - batch * tiles)) * ROWS, warp_row = threadIdx.x / 32 * 16 * R;
    x.move(batches, batch);
    const int end = sizes.causal && first + ROWS < of ? first + ROWS : of;
    const Seen seen = {of, first + warp_row, sizes.causal != 0};
    stage<BYTES, ROWS>(own, x.query, first, count, features);
    stage<BYTES, ROWS>(own_grads, x.grad, first, count, columns);
    stage<BYTES, N>(keys, x.key, 0, of, features);
    stage<BYTES, N>(values, x.value, 0, of, columns);
    f32 pull[R][2];
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            i64 query = seen.first + 16 * r + row_in_matrix(2 * lower);
            f32 sum = 0.0f;
            if (query < count)
                sum = pull_of_row(x.grad.first + query * x.grad.row, x.out.first + query * x.out.row, columns);
            pull[r][lower] = sum_of_row(sum);
        }
    wait_for_copies();
    if (!MASKED && sizes.scale < 0) change_staged<BYTES, ROWS, true>((T *)memory);
    else change_staged<BYTES, ROWS, false>((T *)memory);
    change_staged<BYTES, ROWS, false>((T *)(memory + ROWS * BYTES));
    __syncthreads();
    const Rows<BYTES, R, KEPT> rows(own, warp_row), grads(own_grads, warp_row);
    const f32 factor = MASKED ? 1.0f : factor_of(sizes);
    f32 sums[R][D / 8][4] = {};
    OnlineSoftmax<R> softmax;
    int now = 0;
    for (int key = 0; key < end; key += N, now ^= TILE) {
        // The current tile has arrived, and no warp reads the buffer that the next copy overwrites.
        wait_for_copies();
        change_staged<BYTES, N, false>((T *)(memory + (keys - own) + now));
        change_staged<BYTES, N, false>((T *)(memory + (values - own) + now));
        __syncthreads();
        if (key + N < end) {
            stage<BYTES, N>(keys + (now ^ TILE), x.key, key + N, of, features);
            stage<BYTES, N>(values + (now ^ TILE), x.value, key + N, of, columns);
        }
        if (seen.none(key, 16 * R)) continue;
        f32 scores[R][N / 8][4], slopes[R][N / 8][4];
        multiply_rows<T, R, N>(scores, rows, keys + now);
        if (MASKED) add_mask<false, R, N>(scores, x.mask, sizes, seen.first, key);
        if (!seen.all<N>(key)) hide<R, N>(scores, seen, key);
        softmax.template advance<Slack<T>::VALUE, N, D>(scores, sums, factor);
        multiply_rows<T, R, N>(slopes, grads, values + now);
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) scores[r][n][c] *= slopes[r][n][c] - pull[r][c / 2];
        add_products<T, D, R, N>(sums, scores, keys + now);
    }
    statistics += batch * padded_queries(sizes);
    T *to = out + batch * (sizes.queries * sizes.features + sizes.keys * (sizes.features + sizes.columns));
#pragma unroll
    for (int r = 0; r < R; r++) {
        f32 share[2];
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            int query = seen.first + 16 * r + row_in_matrix(2 * lower);
            f32 all = sum_of_row(softmax.sum[r][lower]);
            share[lower] = all == 0.0f ? 0.0f : f32(sizes.scale) / all;
            // If every score is negative infinity, `all` is infinite, which makes all weights 0.
            Query found = {-Ends<f32>::low(), 0.0f};
            if (all != 0.0f) found = {softmax.base[r][lower] + log2(all), pull[r][lower]};
            if (query < padded_queries(sizes) && threadIdx.x % 4 == 0) statistics[query] = found;
        }
        write_rows<D>(to, sums[r], share[0], share[1], seen.first + 16 * r, sizes.queries, sizes.features);
    }
}

// Replaces the scores of keys (rows) and queries with weights. `of_lane` are the statistics of the lane's columns;
// `ahead` is the warp's first key, counted from the tile's first query.
template <int R, int N>
GT_DEVICE void weigh(f32 (&scores)[R][N / 8][4], const QueryPair *of_lane, f32 scale, const AttentionSizes &sizes,
                     int ahead) {
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        QueryPair pair = of_lane[4 * n];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                scores[r][n][c] = fast_exp2(fma(scores[r][n][c], scale, -pair.of[c % 2].all));
    }
    if (sizes.causal && ahead + 16 * R - 1 > 0)
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                // The first query that attends to the lane's key, counted from the lane's first column.
                int attends = ahead + 16 * r + row_in_matrix(2 * lower) - column_in_matrix(0);
#pragma unroll
                for (int n = 0; n < N / 8; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++)
                        if (8 * n + c < attends) scores[r][n][2 * lower + c] = 0.0f;
            }
}

// The gradients of keys and values. blockIdx.x enumerates the tiles of keys of every batch. A score's rows are keys.
template <typename T, int D, int R, int N, bool KEPT, bool MASKED>
GT_DEVICE void attention_keys_mma(T *out, const Query *statistics, AttentionOperands<T> x, const Walk<6> &batches,
                                  const AttentionSizes &sizes) {
    constexpr int ROWS = 64 * R, BYTES = D * sizeof(T), TILE = N * BYTES, BOTH = N * sizeof(Query);
    u8 *memory = (u8 *)dynamic_shared();
    const Shared own = shared_address(memory), own_values = own + ROWS * BYTES, queries = own_values + ROWS * BYTES,
                 grads = queries + 2 * TILE, of_queries = grads + 2 * TILE;
    const int count = int(sizes.keys), of = int(sizes.queries);
    const int features = int(sizes.features), columns = int(sizes.columns);
    const u32 tiles = u32(count + ROWS - 1) / ROWS, batch = blockIdx.x / tiles;
    const int first = (blockIdx.x - batch * tiles) * ROWS, warp_row = threadIdx.x / 32 * 16 * R;
    x.move(batches, batch);
    statistics += batch * padded_queries(sizes);
    // With `causal`, a query attends only to keys up to its own index.
    const int begin = sizes.causal ? first / N * N : 0;
    auto meet = [&](int now, int query) {
        stage<BYTES, N>(queries + now * TILE, x.query, query, of, features);
        stage<BYTES, N>(grads + now * TILE, x.grad, query, of, columns);
        int pair = 2 * threadIdx.x;
        bool there = query + pair < of;
        if (pair < N) copy_behind(of_queries + now * BOTH + 8 * pair, statistics + (there ? query + pair : 0), there);
    };
    stage<BYTES, ROWS>(own, x.key, first, count, features);
    stage<BYTES, ROWS>(own_values, x.value, first, count, columns);
    if (begin < of) meet(0, begin);
    wait_for_copies();
    change_staged<BYTES, 2 * ROWS, false>((T *)memory);
    __syncthreads();
    const Rows<BYTES, R, KEPT> rows(own, warp_row), values(own_values, warp_row);
    const f32 scale = MASKED ? 1.0f : f32(sizes.scale) * LOG2_E;
    f32 sums[R][D / 8][4] = {}, value_sums[R][D / 8][4] = {};
    int now = 0;
    for (int query = begin; query < of; query += N, now ^= 1) {
        // The current tile has arrived, and no warp reads the buffer that the next copy overwrites.
        wait_for_copies();
        change_staged<BYTES, N, false>((T *)(memory + (queries - own) + now * TILE));
        change_staged<BYTES, N, false>((T *)(memory + (grads - own) + now * TILE));
        __syncthreads();
        if (query + N < of) meet(now ^ 1, query + N);
        // The first key of the warp's, counted from the tile's first query.
        int ahead = first + warp_row - query;
        if (sizes.causal && ahead >= N) continue;
        f32 scores[R][N / 8][4], slopes[R][N / 8][4];
        multiply_rows<T, R, N>(scores, rows, queries + now * TILE);
        if (MASKED) add_mask<true, R, N>(scores, x.mask, sizes, first + warp_row, query);
        multiply_rows<T, R, N>(slopes, values, grads + now * TILE);
        const QueryPair *of_lane = (const QueryPair *)(memory + (of_queries - own) + now * BOTH) + threadIdx.x % 4;
        weigh<R, N>(scores, of_lane, scale, sizes, ahead);
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            QueryPair pair = of_lane[4 * n];
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int c = 0; c < 4; c++) slopes[r][n][c] = scores[r][n][c] * (slopes[r][n][c] - pair.of[c % 2].pull);
        }
        add_products<T, D, R, N>(value_sums, scores, grads + now * TILE);
        add_products<T, D, R, N>(sums, slopes, queries + now * TILE);
    }
    i64 of_keys = sizes.keys * sizes.features;
    T *to = out + batch * (sizes.queries * sizes.features + of_keys + sizes.keys * sizes.columns);
    to += sizes.queries * sizes.features;
    const f32 factor = f32(sizes.scale);
#pragma unroll
    for (int r = 0; r < R; r++) {
        int row = first + warp_row + 16 * r;
        write_rows<D>(to, sums[r], factor, factor, row, sizes.keys, sizes.features);
        write_rows<D>(to + of_keys, value_sums[r], 1.0f, 1.0f, row, sizes.keys, sizes.columns);
    }
}

// The same where a warp's registers do not hold both sums of its rows (D = 256). A block has 32 rows: two warps sum the
// gradient of the values, and two that of the keys of the same rows. The former compute the weights and pass them to
// the latter, which meanwhile compute the weights' gradients; so nothing is computed twice.
template <typename T, int D, int N, bool MASKED>
GT_DEVICE void attention_keys_by_pairs_mma(T *out, const Query *statistics, AttentionOperands<T> x,
                                           const Walk<6> &batches, const AttentionSizes &sizes) {
    constexpr int ROWS = 32, BYTES = D * sizeof(T), TILE = N * BYTES, BOTH = N * sizeof(Query);
    struct alignas(16) Four {
        f32 of[4];
    };
    u8 *memory = (u8 *)dynamic_shared();
    const Shared own = shared_address(memory);
    constexpr int OWN = ROWS * BYTES, QUERIES = 2 * OWN, GRADS = QUERIES + 2 * TILE, STATISTICS = GRADS + 2 * TILE;
    const int count = int(sizes.keys), of = int(sizes.queries);
    const int features = int(sizes.features), columns = int(sizes.columns);
    const u32 tiles = u32(count + ROWS - 1) / ROWS, batch = blockIdx.x / tiles;
    const int warp = threadIdx.x / 32, first = (blockIdx.x - batch * tiles) * ROWS, warp_row = warp % 2 * 16;
    const bool of_values = warp < 2;
    Four *passed = (Four *)(memory + STATISTICS + 2 * BOTH) + warp % 2 * (4 * N) + threadIdx.x % 32;
    x.move(batches, batch);
    statistics += batch * padded_queries(sizes);
    // With `causal`, a query attends only to keys up to its own index.
    const int begin = sizes.causal ? first / N * N : 0;
    auto meet = [&](int now, int query) {
        stage<BYTES, N>(own + QUERIES + now * TILE, x.query, query, of, features);
        stage<BYTES, N>(own + GRADS + now * TILE, x.grad, query, of, columns);
        int pair = 2 * threadIdx.x;
        bool there = query + pair < of;
        if (pair < N)
            copy_behind(own + STATISTICS + now * BOTH + 8 * pair, statistics + (there ? query + pair : 0), there);
    };
    stage<BYTES, ROWS>(own, x.key, first, count, features);
    stage<BYTES, ROWS>(own + OWN, x.value, first, count, columns);
    if (begin < of) meet(0, begin);
    wait_for_copies();
    change_staged<BYTES, 2 * ROWS, false>((T *)memory);
    __syncthreads();
    const Rows<BYTES, 1, false> rows(own + (of_values ? 0 : OWN), warp_row);
    const f32 scale = MASKED ? 1.0f : f32(sizes.scale) * LOG2_E;
    f32 sums[1][D / 8][4] = {};
    int now = 0;
    for (int query = begin; query < of; query += N, now ^= 1) {
        // The current tile has arrived, and no warp reads the buffer that the next copy overwrites.
        wait_for_copies();
        change_staged<BYTES, N, false>((T *)(memory + QUERIES + now * TILE));
        change_staged<BYTES, N, false>((T *)(memory + GRADS + now * TILE));
        __syncthreads();
        if (query + N < of) meet(now ^ 1, query + N);
        const int ahead = first + warp_row - query;
        const bool hidden = sizes.causal && ahead >= N;
        const Shared queries = own + QUERIES + now * TILE, grads = own + GRADS + now * TILE;
        const QueryPair *of_lane = (const QueryPair *)(memory + STATISTICS + now * BOTH) + threadIdx.x % 4;
        // Scores, then weights, of the warps of values; the gradients of weights, then of scores, of the others.
        f32 scores[1][N / 8][4];
        if (!hidden) {
            multiply_rows<T, 1, N>(scores, rows, of_values ? queries : grads);
            if (of_values) {
                if (MASKED) add_mask<true, 1, N>(scores, x.mask, sizes, first + warp_row, query);
                weigh<1, N>(scores, of_lane, scale, sizes, ahead);
#pragma unroll
                for (int n = 0; n < N / 8; n++)
                    passed[32 * n] = {{scores[0][n][0], scores[0][n][1], scores[0][n][2], scores[0][n][3]}};
            }
        }
        __syncthreads();
        if (hidden) continue;
        if (!of_values)
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                QueryPair pair = of_lane[4 * n];
                Four weights = passed[32 * n];
#pragma unroll
                for (int c = 0; c < 4; c++)
                    scores[0][n][c] = weights.of[c] * (scores[0][n][c] - pair.of[c % 2].pull);
            }
        add_products<T, D, 1, N>(sums, scores, of_values ? grads : queries);
    }
    i64 of_keys = sizes.keys * sizes.features;
    T *to = out + batch * (sizes.queries * sizes.features + of_keys + sizes.keys * sizes.columns);
    to += sizes.queries * sizes.features + (of_values ? of_keys : 0);
    const f32 factor = of_values ? 1.0f : f32(sizes.scale);
    const i64 written = of_values ? sizes.columns : sizes.features;
    write_rows<D>(to, sums[0], factor, factor, first + warp_row, sizes.keys, written);
}
