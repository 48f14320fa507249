// Attention and its gradients without storing the matrix of scores, as in FlashAttention-2 (Dao 2023).
//
// A block of 256 threads computes one tile of N queries and loops over the keys in tiles of N. Each thread holds M by M
// scores in registers. The softmax is online (Milakov and Gimelshein 2018): where a larger score appears, the sums so
// far are scaled down. The backward pass recomputes the scores: one kernel computes each query's softmax statistics,
// then each block sums the gradient of one tile of queries or keys. No two blocks add to the same element, so the
// result is deterministic. Products are computed in f32 (or f64); `attention_mma.cuh` uses tensor cores for f16 and
// bf16 operands of a suitable layout.
#pragma once
#include "reduce.cuh"

// A strided matrix, one of a batch; strides in elements.
template <typename T>
struct Matrix {
    const T *first;
    i64 row, column;

    __device__ __forceinline__ typename Compute<T>::type at(i64 i, i64 j) const {
        return load(first + i * row + j * column);
    }
};

struct AttentionSizes {
    i64 queries, keys, features, columns, causal;
    f64 scale;
};

template <typename T>
struct AttentionOperands {
    // `mask.first` is null without a mask, `grad.first` and `out.first` in the forward pass.
    Matrix<T> query, key, value, grad, mask, out;

    __device__ __forceinline__ void move(const Walk<6> &batches, i64 batch) {
        i64 offsets[6];
        batches.offsets(batch, offsets);
        query.first += offsets[0];
        key.first += offsets[1];
        value.first += offsets[2];
        if (grad.first) grad.first += offsets[3];
        if (mask.first) mask.first += offsets[4];
        if (out.first) out.first += offsets[5];
    }
};

// 16 bytes of numbers, which one instruction loads. A warp's loads from shared memory take less time than its products
// only if each loads that many.
template <typename C>
struct alignas(16) Pack {
    static constexpr int SIZE = 16 / sizeof(C);
    C of[SIZE];
};

// M: scores per thread along each side of a tile. N: scores of the tile along each side. DEPTH: features that are
// staged in shared memory at a time. Rows in shared memory are one pack longer, so that packs of consecutive rows lie
// in different banks.
template <typename C>
struct Tile {
    static constexpr int M = Pack<C>::SIZE, N = 16 * M, DEPTH = 32, PITCH = DEPTH + M, WIDE_PITCH = N + M;
    static constexpr int STAGE = 2 * N * PITCH > N * WIDE_PITCH ? 2 * N * PITCH : N * WIDE_PITCH;
};

// A thread's rows of a tile are consecutive, as are its columns of a product with weights; its columns of scores are 16
// apart.
template <typename C>
GT_DEVICE int tile_row(int i) {
    return threadIdx.x / 16 * Tile<C>::M + i;
}
template <typename C>
GT_DEVICE int product_column(int j) {
    return threadIdx.x % 16 * Tile<C>::M + j;
}
GT_DEVICE int tile_column(int j) { return threadIdx.x % 16 + 16 * j; }

// Whether packs of a matrix can be loaded: the elements of a row lie side by side, and rows begin at multiples of 16
// bytes.
template <typename C, typename T>
GT_DEVICE bool lies_in_packs(const Matrix<T> &a, i64 columns) {
    return sizeof(T) == sizeof(C) && a.column == 1 && a.row % Pack<C>::SIZE == 0 && columns % Pack<C>::SIZE == 0 &&
           (u64)a.first % sizeof(Pack<C>) == 0;
}

// Copies ROWS rows and COLUMNS columns of a matrix from (`first`, `start`) on to shared memory. Elements past `rows` or
// `columns` are 0.
template <int ROWS, int COLUMNS, int PITCH, typename T, typename C>
GT_DEVICE void stage_tile(C *to, const Matrix<T> &a, i64 first, i64 rows, i64 start, i64 columns, bool in_packs) {
    constexpr int SIZE = Pack<C>::SIZE;
    if (in_packs) {
#pragma unroll
        for (int i = threadIdx.x; i < ROWS * COLUMNS / SIZE; i += 256) {
            int row = i / (COLUMNS / SIZE), column = i % (COLUMNS / SIZE) * SIZE;
            Pack<C> pack = {};
            if (start + column < columns && first + row < rows)
                pack = *(const Pack<C> *)(a.first + (first + row) * a.row + start + column);
            *(Pack<C> *)(to + row * PITCH + column) = pack;
        }
        return;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 256) {
        int row = i / COLUMNS, column = i % COLUMNS;
        bool within = start + column < columns && first + row < rows;
        to[row * PITCH + column] = within ? a.at(first + row, start + column) : C(0);
    }
}

// scores += a b^T for the tile of `a` that starts at row `a_first` and the tile of `b` that starts at `b_first`. Rows
// past `a_rows` or `b_rows` count as 0.
template <typename T, typename C, int M>
GT_DEVICE void add_scores(C (&scores)[M][M], C *stage, const Matrix<T> &a, i64 a_first, i64 a_rows, const Matrix<T> &b,
                          i64 b_first, i64 b_rows, i64 depth) {
    constexpr int N = Tile<C>::N, DEPTH = Tile<C>::DEPTH, PITCH = Tile<C>::PITCH;
    C *left = stage, *right = stage + N * PITCH;
    bool a_packs = lies_in_packs<C>(a, depth), b_packs = lies_in_packs<C>(b, depth);
    for (i64 start = 0; start < depth; start += DEPTH) {
        __syncthreads();
        stage_tile<N, DEPTH, PITCH>(left, a, a_first, a_rows, start, depth, a_packs);
        stage_tile<N, DEPTH, PITCH>(right, b, b_first, b_rows, start, depth, b_packs);
        __syncthreads();
#pragma unroll 2
        for (int d = 0; d < DEPTH; d += M) {
            Pack<C> x[M], y[M];
#pragma unroll
            for (int i = 0; i < M; i++) x[i] = *(const Pack<C> *)(left + tile_row<C>(i) * PITCH + d);
#pragma unroll
            for (int j = 0; j < M; j++) y[j] = *(const Pack<C> *)(right + tile_column(j) * PITCH + d);
#pragma unroll
            for (int k = 0; k < M; k++)
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < M; j++) scores[i][j] = fma(x[i].of[k], y[j].of[k], scores[i][j]);
        }
    }
}

// Writes a tile of weights to shared memory, where `add_products` reads them after its first barrier.
template <typename C, int M>
GT_DEVICE void write_weights(C *weights, const C (&tile)[M][M]) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < M; j++) weights[tile_row<C>(i) * Tile<C>::WIDE_PITCH + tile_column(j)] = tile[i][j];
}

// sums += weights b for the N rows of `b` that start at `first`, and E tiles of columns that start at `column`.
template <typename T, typename C, int E, int M>
GT_DEVICE void add_products(C (&sums)[E][M][M], C *weights, const C (&tile)[M][M], C *stage, const Matrix<T> &b,
                            i64 first, i64 rows, i64 column, i64 columns) {
    constexpr int N = Tile<C>::N, PITCH = Tile<C>::WIDE_PITCH;
    bool in_packs = lies_in_packs<C>(b, columns);
    __syncthreads();
    write_weights(weights, tile);
#pragma unroll
    for (int e = 0; e < E; e++) {
        i64 start = column + e * N;
        if (start >= columns) break;
        if (e > 0) __syncthreads();
        stage_tile<N, N, PITCH>(stage, b, first, rows, start, columns, in_packs);
        __syncthreads();
#pragma unroll 2
        for (int k = 0; k < N; k += M) {
            Pack<C> x[M], y[M];
#pragma unroll
            for (int i = 0; i < M; i++) x[i] = *(const Pack<C> *)(weights + tile_row<C>(i) * PITCH + k);
#pragma unroll
            for (int i = 0; i < M; i++) y[i] = *(const Pack<C> *)(stage + (k + i) * PITCH + product_column<C>(0));
#pragma unroll
            for (int l = 0; l < M; l++)
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < M; j++) sums[e][i][j] = fma(x[i].of[l], y[l].of[j], sums[e][i][j]);
        }
    }
}

// Scales the product of a query and a key and adds the mask; negative infinity where the query may not attend to the
// key.
template <typename T, typename C>
GT_DEVICE C finished(C product, const Matrix<T> &mask, const AttentionSizes &sizes, i64 query, i64 key) {
    bool seen = query < sizes.queries && key < sizes.keys && (!sizes.causal || key <= query);
    if (!seen) return Ends<C>::low();
    C score = product * C(sizes.scale);
    return mask.first ? score + mask.at(query, key) : score;
}

// Maximum and sum over the 16 threads of a tile's row (warp shuffles).
template <typename C>
GT_DEVICE C row_largest(C x) {
    for (u32 lanes = 8; lanes > 0; lanes /= 2) x = maximum(x, shuffled_xor(x, lanes));
    return x;
}
template <typename C>
GT_DEVICE C row_sum(C x) {
    for (u32 lanes = 8; lanes > 0; lanes /= 2) x += shuffled_xor(x, lanes);
    return x;
}

// One step of the online softmax of a row: updates its maximum and sum, replaces the scores with exponentials, and
// returns the factor by which the earlier sums must be multiplied.
template <typename C, int M>
GT_DEVICE C advance(C &largest, C &sum, C (&scores)[M]) {
    C most = scores[0];
#pragma unroll
    for (int j = 1; j < M; j++) most = maximum(most, scores[j]);
    most = maximum(largest, row_largest(most));
    // If every score so far is negative infinity, subtracting 0 instead of it makes all exponentials 0, not NaN.
    C base = most == Ends<C>::low() ? C(0) : most, added = C(0);
    C factor = exp(largest - base);
#pragma unroll
    for (int j = 0; j < M; j++) {
        scores[j] = exp(scores[j] - base);
        added += scores[j];
    }
    sum = sum * factor + row_sum(added);
    largest = most;
    return factor;
}

// blockIdx.x enumerates the tiles of queries of every batch, blockIdx.y groups of E tiles of columns.
template <typename T, int E>
GT_DEVICE void attention(T *out, AttentionOperands<T> x, const Walk<6> &batches, const AttentionSizes &sizes) {
    typedef typename Compute<T>::type C;
    constexpr int M = Tile<C>::M, N = Tile<C>::N;
    alignas(16) __shared__ C stage[Tile<C>::STAGE];
    alignas(16) __shared__ C weights[N * Tile<C>::WIDE_PITCH];
    i64 tiles = (sizes.queries + N - 1) / N, batch = blockIdx.x / tiles, first = (blockIdx.x - batch * tiles) * N;
    i64 column = i64(blockIdx.y) * E * N;
    x.move(batches, batch);
    C largest[M], sum[M], sums[E][M][M];
#pragma unroll
    for (int i = 0; i < M; i++) {
        largest[i] = Ends<C>::low();
        sum[i] = C(0);
#pragma unroll
        for (int e = 0; e < E; e++)
#pragma unroll
            for (int j = 0; j < M; j++) sums[e][i][j] = C(0);
    }
    i64 last = sizes.causal && first + N < sizes.keys ? first + N : sizes.keys;
    for (i64 key = 0; key < last; key += N) {
        C scores[M][M] = {};
        add_scores(scores, stage, x.query, first, sizes.queries, x.key, key, sizes.keys, sizes.features);
#pragma unroll
        for (int i = 0; i < M; i++) {
#pragma unroll
            for (int j = 0; j < M; j++)
                scores[i][j] =
                    finished(scores[i][j], x.mask, sizes, first + tile_row<C>(i), key + tile_column(j));
            C factor = advance(largest[i], sum[i], scores[i]);
#pragma unroll
            for (int e = 0; e < E; e++)
#pragma unroll
                for (int j = 0; j < M; j++) sums[e][i][j] *= factor;
        }
        add_products(sums, weights, scores, stage, x.value, key, sizes.keys, column, sizes.columns);
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
        i64 row = first + tile_row<C>(i);
        C share = sum[i] == C(0) ? C(0) : C(1) / sum[i];
        T *to = out + (batch * sizes.queries + row) * sizes.columns;
#pragma unroll
        for (int e = 0; e < E; e++)
#pragma unroll
            for (int j = 0; j < M; j++) {
                i64 at = column + e * N + product_column<C>(j);
                if (row < sizes.queries && at < sizes.columns) store(to + at, sums[e][i][j] * share);
            }
    }
}

// The softmax statistics of a query: a weight is exp(score - largest) * share, and `pull` is the sum over the keys of
// weight times the weight's gradient, which equals that of the result times its gradient (D in FlashAttention-2).
template <typename C>
struct Softmax {
    C largest, share, pull;
};

template <typename T>
GT_DEVICE void attention_softmax(Softmax<typename Compute<T>::type> *out, AttentionOperands<T> x,
                                 const Walk<6> &batches, const AttentionSizes &sizes) {
    typedef typename Compute<T>::type C;
    constexpr int M = Tile<C>::M, N = Tile<C>::N;
    alignas(16) __shared__ C stage[Tile<C>::STAGE];
    i64 tiles = (sizes.queries + N - 1) / N, batch = blockIdx.x / tiles, first = (blockIdx.x - batch * tiles) * N;
    x.move(batches, batch);
    C largest[M], sum[M];
#pragma unroll
    for (int i = 0; i < M; i++) {
        largest[i] = Ends<C>::low();
        sum[i] = C(0);
    }
    i64 last = sizes.causal && first + N < sizes.keys ? first + N : sizes.keys;
    for (i64 key = 0; key < last; key += N) {
        C scores[M][M] = {};
        add_scores(scores, stage, x.query, first, sizes.queries, x.key, key, sizes.keys, sizes.features);
#pragma unroll
        for (int i = 0; i < M; i++) {
#pragma unroll
            for (int j = 0; j < M; j++)
                scores[i][j] =
                    finished(scores[i][j], x.mask, sizes, first + tile_row<C>(i), key + tile_column(j));
            advance(largest[i], sum[i], scores[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
        i64 row = first + tile_row<C>(i);
        C share = sum[i] == C(0) ? C(0) : C(1) / sum[i], pull = C(0);
        C base = largest[i] == Ends<C>::low() ? C(0) : largest[i];
        if (row < sizes.queries)
            for (i64 at = threadIdx.x % 16; at < sizes.columns; at += 16)
                pull = fma(x.grad.at(row, at), x.out.at(row, at), pull);
        pull = row_sum(pull);
        if (row < sizes.queries && threadIdx.x % 16 == 0) out[batch * sizes.queries + row] = {base, share, pull};
    }
}

// Computes the gradient of a tile of queries, of keys (TURNED: the rows of tiles are keys) or, if `of_values`, of
// values, for E tiles of columns that start at `column`. The rows of `to` are contiguous.
template <typename T, int E, bool TURNED>
GT_DEVICE void attention_gradient(T *to, const Softmax<typename Compute<T>::type> *softmax, AttentionOperands<T> x,
                                  const AttentionSizes &sizes, bool of_values, i64 first, i64 column) {
    typedef typename Compute<T>::type C;
    constexpr int M = Tile<C>::M, N = Tile<C>::N;
    alignas(16) __shared__ C stage[Tile<C>::STAGE];
    alignas(16) __shared__ C weights[N * Tile<C>::WIDE_PITCH];
    i64 rows = TURNED ? sizes.keys : sizes.queries, others = TURNED ? sizes.queries : sizes.keys;
    i64 columns = of_values ? sizes.columns : sizes.features;
    Matrix<T> source = of_values ? x.grad : TURNED ? x.query : x.key;
    C sums[E][M][M] = {};
    // With `causal`, a query attends only to keys up to its own index.
    i64 begin = sizes.causal && TURNED ? first : 0;
    i64 end = sizes.causal && !TURNED && first + N < others ? first + N : others;
    for (i64 other = begin; other < end; other += N) {
        C scores[M][M] = {}, slopes[M][M] = {};
        add_scores(scores, stage, TURNED ? x.key : x.query, first, rows, TURNED ? x.query : x.key, other, others,
                   sizes.features);
        if (!of_values)
            add_scores(slopes, stage, TURNED ? x.value : x.grad, first, rows, TURNED ? x.grad : x.value, other, others,
                       sizes.columns);
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < M; j++) {
                i64 row = first + tile_row<C>(i), at = other + tile_column(j);
                i64 query = TURNED ? at : row, key = TURNED ? row : at;
                C score = finished(scores[i][j], x.mask, sizes, query, key), weight = C(0);
                if (score != Ends<C>::low()) {
                    Softmax<C> s = softmax[query];
                    weight = exp(score - s.largest) * s.share;
                    if (!of_values) weight = weight * (slopes[i][j] - s.pull) * C(sizes.scale);
                }
                scores[i][j] = weight;
            }
        add_products(sums, weights, scores, stage, source, other, others, column, columns);
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
        i64 row = first + tile_row<C>(i);
#pragma unroll
        for (int e = 0; e < E; e++)
#pragma unroll
            for (int j = 0; j < M; j++) {
                i64 at = column + e * N + product_column<C>(j);
                if (row < rows && at < columns) store(to + row * columns + at, sums[e][i][j]);
            }
    }
}

// Computes the gradients of keys and of values of a tile of keys, of which both have at most E tiles of columns, from
// the same scores.
template <typename T, int E>
GT_DEVICE void attention_keys_and_values(T *out, const Softmax<typename Compute<T>::type> *softmax,
                                         AttentionOperands<T> x, const Walk<6> &batches,
                                         const AttentionSizes &sizes) {
    typedef typename Compute<T>::type C;
    constexpr int M = Tile<C>::M, N = Tile<C>::N;
    alignas(16) __shared__ C stage[Tile<C>::STAGE];
    alignas(16) __shared__ C weights[N * Tile<C>::WIDE_PITCH];
    i64 tiles = (sizes.keys + N - 1) / N, batch = blockIdx.x / tiles, first = (blockIdx.x - batch * tiles) * N;
    x.move(batches, batch);
    softmax += batch * sizes.queries;
    C sums[E][M][M] = {}, value_sums[E][M][M] = {};
    for (i64 query = sizes.causal ? first : 0; query < sizes.queries; query += N) {
        C scores[M][M] = {}, slopes[M][M] = {};
        add_scores(scores, stage, x.key, first, sizes.keys, x.query, query, sizes.queries, sizes.features);
        add_scores(slopes, stage, x.value, first, sizes.keys, x.grad, query, sizes.queries, sizes.columns);
#pragma unroll
        for (int j = 0; j < M; j++) {
            i64 at = query + tile_column(j);
            Softmax<C> s = {};
            if (at < sizes.queries) s = softmax[at];
#pragma unroll
            for (int i = 0; i < M; i++) {
                C score = finished(scores[i][j], x.mask, sizes, at, first + tile_row<C>(i));
                scores[i][j] = score == Ends<C>::low() ? C(0) : exp(score - s.largest) * s.share;
                slopes[i][j] = scores[i][j] * (slopes[i][j] - s.pull) * C(sizes.scale);
            }
        }
        add_products(value_sums, weights, scores, stage, x.grad, query, sizes.queries, 0, sizes.columns);
        add_products(sums, weights, slopes, stage, x.query, query, sizes.queries, 0, sizes.features);
    }
    i64 of_queries = sizes.queries * sizes.features, of_keys = sizes.keys * sizes.features;
    T *to = out + batch * (of_queries + of_keys + sizes.keys * sizes.columns) + of_queries;
    auto write = [&](T *to, const C(&sums)[E][M][M], i64 columns) {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int e = 0; e < E; e++)
#pragma unroll
                for (int j = 0; j < M; j++) {
                    i64 row = first + tile_row<C>(i), at = e * N + product_column<C>(j);
                    if (row < sizes.keys && at < columns) store(to + row * columns + at, sums[e][i][j]);
                }
    };
    write(to, sums, sizes.features);
    write(to + of_keys, value_sums, sizes.columns);
}

// blockIdx.x enumerates the tiles of rows of every batch, blockIdx.y groups of E tiles of columns; with TURNED, the
// first groups are those of the values' gradient, the rest those of the keys'. `out` holds, for each batch, the
// gradients of queries, keys and values.
template <typename T, int E, bool TURNED>
GT_DEVICE void attention_backward(T *out, const Softmax<typename Compute<T>::type> *softmax, AttentionOperands<T> x,
                                  const Walk<6> &batches, const AttentionSizes &sizes) {
    typedef typename Compute<T>::type C;
    constexpr int N = Tile<C>::N;
    i64 tiles = ((TURNED ? sizes.keys : sizes.queries) + N - 1) / N;
    i64 batch = blockIdx.x / tiles, first = (blockIdx.x - batch * tiles) * N;
    x.move(batches, batch);
    i64 of_queries = sizes.queries * sizes.features, of_keys = sizes.keys * sizes.features;
    T *to = out + batch * (of_queries + of_keys + sizes.keys * sizes.columns);
    i64 value_blocks = TURNED ? (sizes.columns + E * N - 1) / (E * N) : 0;
    bool of_values = blockIdx.y < value_blocks;
    if (TURNED) to += of_values ? of_queries + of_keys : of_queries;
    i64 column = (i64(blockIdx.y) - (of_values ? 0 : value_blocks)) * E * N;
    attention_gradient<T, E, TURNED>(to, softmax + batch * sizes.queries, x, sizes, of_values, first, column);
}
