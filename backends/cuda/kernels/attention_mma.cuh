// Attention of f16 and bf16, and of f32 rounded to tf32, on tensor cores: FlashAttention-2 (Dao 2023) with Ampere's
// instructions. Its gradients are in `attention_mma_backward.cuh`.
//
// A block of 4 warps computes 64 R rows and loops over tiles of N columns. A warp computes 16 R rows of scores for all
// columns of a tile. A row's scores are then in the registers of four lanes, which compute its softmax by shuffles, and
// the weights are already in the registers that the next product takes as its left operand. The next tiles are copied
// to shared memory asynchronously (double buffering) while the current ones are multiplied. Operands have at most D
// contiguous columns, and rows that begin at multiples of 16 bytes, with zeros up to the next multiple of 16 bytes.
//
// The inner loop's instructions limit the speed: `mma` and `ex2` first, then additions and maxima around them. Scores
// are therefore scaled within the subtraction of the row's maximum (one `fma`), sums are scaled down only if a maximum
// has grown by more than a bound, and masks are looked at only in tiles that have hidden scores. R = 2 loads each
// fragment of the other operand for twice as many products; R = 1 leaves registers for more warps. See `attention.rs`
// for the shapes in use.
#pragma once
#include "attention.cuh"
#include "mma.cuh"

constexpr int MMA_THREADS = 128;
constexpr f32 LOG2_E = 1.4426950408889634f;

GT_DEVICE f32 fast_exp2(f32 x) {
#ifdef GT_EMULATED
    return exp2(x);
#else
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// 1. Tiles in shared memory: rows of BYTES bytes, a power of two from 128 to 1,024, from a multiple of 1 KiB on. A row
// consists of parts of 16 bytes.

// The byte offset of a part of a staged row. An XOR swizzle permutes parts by the row's index, so that the same part of
// 8 consecutive rows lies in different banks. For a `part` of 0 or 1, the offset of `part + 2 k` is that of `part` XOR
// 32 k.
template <int BYTES>
GT_DEVICE u32 staged(int row, int part) {
    return row * BYTES + ((part ^ (row & 7)) << 4);
}

// The lane's offset in a tile for `load_matrices`: of a left operand or a transposed right one, and of a right one.
template <int BYTES>
GT_DEVICE u32 left_offset() {
    int lane = threadIdx.x % 32;
    return staged<BYTES>(lane % 16, lane / 16);
}
template <int BYTES>
GT_DEVICE u32 right_offset() {
    int lane = threadIdx.x % 32;
    return staged<BYTES>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

// The parts that a thread copies: one of every APART rows.
template <int BYTES>
struct Parts {
    static constexpr int IN_ROW = BYTES / 16, APART = MMA_THREADS / IN_ROW;
    int row = threadIdx.x / IN_ROW, part = threadIdx.x % IN_ROW;

    // The offset of the thread's part `i` rows after its first row, for a multiple `i` of APART. Where APART is less
    // than 8, the first row is less than APART, so that adding `i` to it changes only bits that are 0 there.
    __device__ __forceinline__ u32 offset(int i) const {
        return (staged<BYTES>(row, part) ^ ((i & 7) << 4)) + i * BYTES;
    }
};

// Begins the asynchronous copy of the tile of ROWS rows that starts at `first`; parts past `rows` or `columns` are 0.
template <int BYTES, int ROWS, typename T>
GT_DEVICE void stage(Shared tile, const Matrix<T> &from, int first, int rows, int columns) {
    constexpr int APART = Parts<BYTES>::APART, IN_PART = 16 / sizeof(T);
    const Parts<BYTES> parts;
    const T *at = from.first + i64(first + parts.row) * from.row + parts.part * IN_PART;
    int left = parts.part * IN_PART < columns ? rows - first - parts.row : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i += APART, at += APART * from.row)
        copy_behind(tile + parts.offset(i), i < left ? at : from.first, i < left);
}

// Changes the numbers of the parts of a staged tile that this thread has copied: rounds f32 to tf32, and changes the
// sign if NEGATE.
template <int BYTES, int ROWS, bool NEGATE, typename T>
GT_DEVICE void change_staged(T *tile) {
    struct alignas(16) Words {
        u32 of[4];
    };
    constexpr bool TF32 = sizeof(T) == 4;
    const Parts<BYTES> parts;
    if (TF32 || NEGATE)
#pragma unroll
        for (int i = 0; i < ROWS; i += Parts<BYTES>::APART) {
            Words &words = *(Words *)((u8 *)tile + parts.offset(i));
            Words changed = words;
#pragma unroll
            for (int word = 0; word < 4; word++) {
                if (TF32) changed.of[word] = rounded_to_tf32(float_of(changed.of[word]));
                if (NEGATE) changed.of[word] ^= TF32 ? 0x80000000u : 0x80008000u;
            }
            words = changed;
        }
}

// A warp's 16 R rows of a staged tile as fragments of a left operand: KEPT in registers, or loaded for each product.
template <int BYTES, int R, bool KEPT>
struct Rows {
    u32 kept[KEPT ? R : 1][KEPT ? BYTES / 32 : 1][4];
    Shared at;

    __device__ __forceinline__ explicit Rows(Shared tile, int first) : at(tile + first * BYTES + left_offset<BYTES>()) {
        if (KEPT)
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int k = 0; k < BYTES / 32; k++)
                    load_matrices<false>(kept[KEPT ? r : 0][KEPT ? k : 0], (at ^ 32 * k) + r * 16 * BYTES);
    }
    __device__ __forceinline__ void fragments(u32 (&to)[R][4], int k) const {
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (!KEPT) load_matrices<false>(to[r], (at ^ 32 * k) + r * 16 * BYTES);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (KEPT) to[r][i] = kept[KEPT ? r : 0][KEPT ? k : 0][i];
        }
    }
};

// scores = rows tile^T.
template <typename T, int R, int N, int BYTES, bool KEPT>
GT_DEVICE void multiply_rows(f32 (&scores)[R][N / 8][4], const Rows<BYTES, R, KEPT> &rows, Shared tile) {
    Shared at = tile + right_offset<BYTES>();
#pragma unroll
    for (int k = 0; k < BYTES / 32; k++) {
        u32 left[R][4];
        rows.fragments(left, k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            u32 right[4];
            load_matrices<false>(right, (at ^ 32 * k) + n * 16 * BYTES);
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    f32(&score)[4] = scores[r][2 * n + i];
                    if (k == 0) multiply<T>(score, left[r], right[2 * i], right[2 * i + 1]);
                    else multiply_add<T>(score, left[r], right[2 * i], right[2 * i + 1]);
                }
        }
    }
}

// sums += weights tile, with the weights rounded to T.
template <typename T, int D, int R, int N>
struct Products {
    static __device__ __forceinline__ void add(f32 (&sums)[R][D / 8][4], const f32 (&weights)[R][N / 8][4],
                                               Shared tile) {
        Shared at = tile + left_offset<2 * D>();
#pragma unroll
        for (int k = 0; k < N / 16; k++) {
            u32 left[R][4];
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const f32 *two = weights[r][2 * k + i / 2] + i % 2 * 2;
                    left[r][i] = packed<T>(two[0], two[1]);
                }
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                u32 right[4];
                load_matrices<true>(right, (at ^ 32 * n) + k * 32 * D);
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        multiply_add<T>(sums[r][2 * n + i], left[r], right[2 * i], right[2 * i + 1]);
            }
        }
    }
};

// A lane holds the weights of columns 2 i and 2 i + 1, and of tf32 the product takes those of columns i and i + 4. So
// the rows of the tile take the places in which the columns of the weights lie: a sum does not depend on the order. No
// instruction transposes numbers of 32 bits; the loads of a warp, of rows 2 i, lie in different banks.
template <int D, int R, int N>
struct Products<f32, D, R, N> {
    static __device__ __forceinline__ void add(f32 (&sums)[R][D / 8][4], const f32 (&weights)[R][N / 8][4],
                                               Shared tile) {
        constexpr int BYTES = 4 * D;
        const int lane = threadIdx.x % 32, row = lane % 4 * 2;
        const Shared within = tile + lane / 4 % 4 * 4;
        const Shared even = within + staged<BYTES>(row, lane / 16), odd = within + staged<BYTES>(row + 1, lane / 16);
#pragma unroll
        for (int k = 0; k < N / 8; k++) {
            u32 left[R][4];
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int i = 0; i < 4; i++) left[r][i] = rounded_to_tf32(weights[r][k][i % 2 * 2 + i / 2]);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const u32 upper = load_word((even ^ 32 * n) + k * 8 * BYTES);
                const u32 lower = load_word((odd ^ 32 * n) + k * 8 * BYTES);
#pragma unroll
                for (int r = 0; r < R; r++) multiply_add<f32>(sums[r][n], left[r], upper, lower);
            }
        }
    }
};

template <typename T, int D, int R, int N>
GT_DEVICE void add_products(f32 (&sums)[R][D / 8][4], const f32 (&weights)[R][N / 8][4], Shared tile) {
    Products<T, D, R, N>::add(sums, weights, tile);
}

// 2. Scores. Of the four elements that a lane holds of a 16 by 8 fragment, element `c` is in this row and column.
GT_DEVICE int row_in_matrix(int c) { return threadIdx.x % 32 / 4 + c / 2 * 8; }
GT_DEVICE int column_in_matrix(int c) { return threadIdx.x % 4 * 2 + c % 2; }

// Scales products and adds the mask, in base 2 (times log2(e)). TURNED: rows are keys.
template <bool TURNED, int R, int N, typename T>
GT_DEVICE void add_mask(f32 (&scores)[R][N / 8][4], const Matrix<T> &mask, const AttentionSizes &sizes, int row0,
                        int column0) {
    const f32 scale = f32(sizes.scale) * LOG2_E;
    int rows = int(TURNED ? sizes.keys : sizes.queries), columns = int(TURNED ? sizes.queries : sizes.keys);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int row = row0 + 16 * r + row_in_matrix(c), column = column0 + 8 * n + column_in_matrix(c);
                f32 added = 0.0f;
                if (row < rows && column < columns)
                    added = (TURNED ? mask.at(column, row) : mask.at(row, column)) * LOG2_E;
                scores[r][n][c] = fma(scores[r][n][c], scale, added);
            }
}

// Which keys the rows of a warp attend to, if its first query is `first`.
struct Seen {
    int keys, first;
    bool causal;

    // Whether every query attends to all N keys from `key` on, and whether none of `rows` queries attends to any.
    template <int N>
    __device__ __forceinline__ bool all(int key) const {
        return key + N <= keys && (!causal || key + N - 1 <= first);
    }
    __device__ __forceinline__ bool none(int key, int rows) const { return causal && key >= first + rows; }
};

// Writes negative infinity where a query may not attend to a key.
template <int R, int N>
GT_DEVICE void hide(f32 (&scores)[R][N / 8][4], const Seen &seen, int key) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            // The first hidden key of the lane's row, counted from the lane's first column.
            int query = seen.first + 16 * r + row_in_matrix(2 * lower);
            int hidden = (seen.causal && query + 1 < seen.keys ? query + 1 : seen.keys) - key - column_in_matrix(0);
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++)
                    if (8 * n + c >= hidden) scores[r][n][2 * lower + c] = Ends<f32>::low();
        }
}

// 3. The softmax. Maximum and sum over the four lanes of a row (warp shuffles).
GT_DEVICE f32 largest_of_row(f32 x) {
    x = fmax(x, shuffled_xor(x, 1));
    return fmax(x, shuffled_xor(x, 2));
}
GT_DEVICE f32 sum_of_row(f32 x) {
    x += shuffled_xor(x, 1);
    return x + shuffled_xor(x, 2);
}

// The online softmax of a warp's rows. Exponentials are those of scores minus `base`, a maximum of earlier scores,
// which is replaced where a score exceeds it by more than SLACK powers of two. `sum` is this lane's share only.
template <int R>
struct OnlineSoftmax {
    f32 base[R][2], sum[R][2];

    __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                // The least finite number: an exponential of negative infinity minus it is 0, not NaN.
                base[r][lower] = -3.402823466e38f;
                sum[r][lower] = 0.0f;
            }
    }

    // Replaces scores with exponentials. The scores of a tile times `factor`, which is positive, are in base 2.
    template <int SLACK, int N, int D>
    __device__ __forceinline__ void advance(f32 (&scores)[R][N / 8][4], f32 (&sums)[R][D / 8][4], f32 factor) {
        f32 most[R][2];
        bool grows = false;
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {
                f32 x = scores[r][0][2 * lower];
#pragma unroll
                for (int i = 1; i < N / 4; i++) x = fmax(x, scores[r][i / 2][2 * lower + i % 2]);
                most[r][lower] = largest_of_row(x) * factor;
                grows |= most[r][lower] > base[r][lower] + f32(SLACK);
            }
        if (__any_sync(0xffffffffu, grows))
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++) {
                    f32 to = fmax(base[r][lower], most[r][lower]), down = fast_exp2(base[r][lower] - to);
                    base[r][lower] = to;
                    sum[r][lower] *= down;
#pragma unroll
                    for (int n = 0; n < D / 8; n++) {
                        sums[r][n][2 * lower] *= down;
                        sums[r][n][2 * lower + 1] *= down;
                    }
                }
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    scores[r][n][c] = fast_exp2(fma(scores[r][n][c], factor, -base[r][c / 2]));
                    sum[r][c / 2] += scores[r][n][c];
                }
    }
};

// The positive factor of scores without a mask: log2(e) times the scale, whose sign is in the queries. A factor of 0
// would make hidden scores NaN.
GT_DEVICE f32 factor_of(const AttentionSizes &sizes) {
    return fmax(fabs(f32(sizes.scale)) * LOG2_E, 1.17549435e-38f);
}

// Writes two numbers side by side by one instruction.
template <typename T>
GT_DEVICE void write_pair(T *to, f32 first, f32 second) {
    *(u32 *)to = packed<T>(first, second);
}
GT_DEVICE void write_pair(f32 *to, f32 first, f32 second) {
    struct alignas(8) Pair {
        f32 first, second;
    };
    *(Pair *)to = {first, second};
}

// Writes contiguous rows, scaled by `upper` and `lower`.
template <int D, typename T>
GT_DEVICE void write_rows(T *to, const f32 (&sums)[D / 8][4], f32 upper, f32 lower, int row0, i64 rows, i64 columns) {
    const bool in_pairs = ((u64)to | (u64)columns * sizeof(T)) % (2 * sizeof(T)) == 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        i64 row = row0 + row_in_matrix(2 * half);
        f32 factor = half ? lower : upper;
        if (row < rows)
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                int column = 8 * n + column_in_matrix(0);
                if (column >= columns) continue;
                T *at = to + row * columns + column;
                f32 first = sums[n][2 * half] * factor, second = sums[n][2 * half + 1] * factor;
                if (in_pairs) {
                    write_pair(at, first, second);
                } else {
                    put(at, first);
                    if (column + 1 < columns) put(at + 1, second);
                }
            }
    }
}

// 4. The forward pass. blockIdx.x enumerates the tiles of queries of every batch, the last tile of each first: with
// `causal` it has the most keys.
template <typename T, int D, int R, int N, bool KEPT, bool MASKED>
GT_DEVICE void attention_mma(T *out, AttentionOperands<T> x, const Walk<6> &batches, const AttentionSizes &sizes) {
    constexpr int ROWS = 64 * R, BYTES = D * sizeof(T), TILE = N * BYTES;
    u8 *memory = (u8 *)dynamic_shared();
    const Shared own = shared_address(memory), keys = own + ROWS * BYTES, values = keys + 2 * TILE;
    const int count = int(sizes.queries), of = int(sizes.keys);
    const int features = int(sizes.features), columns = int(sizes.columns);
    const u32 tiles = u32(count + ROWS - 1) / ROWS, batch = blockIdx.x / tiles;
    const int first = (tiles - 1 - (blockIdx.x - batch * tiles)) * ROWS, warp_row = threadIdx.x / 32 * 16 * R;
    x.move(batches, batch);
    const int end = sizes.causal && first + ROWS < of ? first + ROWS : of;
    const Seen seen = {of, first + warp_row, sizes.causal != 0};
    stage<BYTES, ROWS>(own, x.query, first, count, features);
    stage<BYTES, N>(keys, x.key, 0, of, features);
    stage<BYTES, N>(values, x.value, 0, of, columns);
    wait_for_copies();
    if (!MASKED && sizes.scale < 0) change_staged<BYTES, ROWS, true>((T *)memory);
    else change_staged<BYTES, ROWS, false>((T *)memory);
    __syncthreads();
    const Rows<BYTES, R, KEPT> rows(own, warp_row);
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
        f32 scores[R][N / 8][4];
        multiply_rows<T, R, N>(scores, rows, keys + now);
        if (MASKED) add_mask<false, R, N>(scores, x.mask, sizes, seen.first, key);
        if (!seen.all<N>(key)) hide<R, N>(scores, seen, key);
        softmax.template advance<8, N, D>(scores, sums, factor);
        add_products<T, D, R, N>(sums, scores, values + now);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        f32 share[2];
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            f32 all = sum_of_row(softmax.sum[r][lower]);
            share[lower] = all == 0.0f ? 0.0f : 1.0f / all;
        }
        write_rows<D>(out + batch * sizes.queries * sizes.columns, sums[r], share[0], share[1], seen.first + 16 * r,
                      sizes.queries, sizes.columns);
    }
}
