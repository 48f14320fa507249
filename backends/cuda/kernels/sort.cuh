// Argsort of lines. An item is a key, an unsigned integer that grows with the element, and the element's position. No
// two items are equal, so any sorting algorithm is stable. Tiles are sorted in shared memory by a bitonic network
// (Batcher 1968); the sorted runs are then merged, and each block finds its part of both runs by bisection (merge path:
// Green, McColl and Bader 2012).
#pragma once
#include "scan.cuh"

// The item of an 8-byte element. For elements of up to 4 bytes, key and position fit one u64.
struct Item {
    u64 key;
    u32 position;
};
GT_DEVICE bool before_item(u64 a, u64 b) { return a < b; }
GT_DEVICE bool before_item(const Item &a, const Item &b) {
    return a.key < b.key || (a.key == b.key && a.position < b.position);
}
GT_DEVICE u32 position_of(u64 item) { return u32(item); }
GT_DEVICE u32 position_of(const Item &item) { return item.position; }

template <typename T>
struct ItemOf {
    typedef u64 type;
};
template <>
struct ItemOf<i64> {
    typedef Item type;
};
template <>
struct ItemOf<f64> {
    typedef Item type;
};

// Keys preserve the order. Both zeros of floats have the same key; all NaNs have the largest.
GT_DEVICE u32 key_of(bool x) { return x; }
GT_DEVICE u32 key_of(u8 x) { return x; }
GT_DEVICE u32 key_of(i8 x) { return u32(x) ^ 0x80000000u; }
GT_DEVICE u32 key_of(i16 x) { return u32(x) ^ 0x80000000u; }
GT_DEVICE u32 key_of(i32 x) { return u32(x) ^ 0x80000000u; }
GT_DEVICE u64 key_of(i64 x) { return u64(x) ^ 0x8000000000000000ull; }
GT_DEVICE u32 key_of(f32 x) {
    if (x != x) return 0xffffffffu;
    u32 bits = x == 0 ? 0 : bits_of(x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
GT_DEVICE u32 key_of(f16 x) { return key_of(widen(x)); }
GT_DEVICE u32 key_of(bf16 x) { return key_of(widen(x)); }
GT_DEVICE u64 key_of(f64 x) {
    if (x != x) return 0xffffffffffffffffull;
    u64 bits = x == 0 ? 0 : bits_of(x);
    return bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
}

GT_DEVICE u64 item_of(u32 key, bool descending, u32 position) { return u64(descending ? ~key : key) << 32 | position; }
GT_DEVICE Item item_of(u64 key, bool descending, u32 position) { return {descending ? ~key : key, position}; }
GT_DEVICE void last_item(u64 &item) { item = 0xffffffffffffffffull; }
GT_DEVICE void last_item(Item &item) { item = {0xffffffffffffffffull, 0xffffffffu}; }

constexpr int SORT_TILE = 1024;

// Sorts tiles of `width` items, a power of two up to SORT_TILE: a block holds several short lines or one tile. If a
// tile is a whole line, its positions go to `out`; otherwise its sorted run goes to `items`.
template <typename T>
GT_DEVICE void sort_tiles(i64 *out, typename ItemOf<T>::type *items, const T *from, Lines lines, i64 tiles, u32 width,
                          bool descending) {
    typedef typename ItemOf<T>::type I;
    __shared__ I shared[SORT_TILE];
    u32 held = SORT_TILE / width;
    i64 all = lines.lines * tiles;
    for (i64 block = blockIdx.x; block * held < all; block += gridDim.x) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < SORT_TILE; i += blockDim.x) {
            i64 tile = block * held + i / width, line = tile / tiles, at = (tile - line * tiles) * width + i % width;
            last_item(shared[i]);
            if (tile < all && at < lines.count) {
                i64 offsets[2];
                lines.kept.offsets(line, offsets);
                shared[i] = item_of(key_of(from[offsets[0] + at * lines.from_step]), descending, u32(at));
            }
        }
        for (u32 run = 2; run <= width; run *= 2) {
            for (u32 apart = run / 2; apart > 0; apart /= 2) {
                __syncthreads();
                for (u32 pair = threadIdx.x; pair < SORT_TILE / 2; pair += blockDim.x) {
                    u32 low = pair / apart * apart * 2 + pair % apart, high = low + apart;
                    // Every second run is sorted in descending order, so that two adjacent runs form a bitonic one; the
                    // last ascends.
                    bool falls = (low & (width - 1) & run) != 0;
                    I a = shared[low], b = shared[high];
                    if (before_item(b, a) != falls) {
                        shared[low] = b;
                        shared[high] = a;
                    }
                }
            }
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < SORT_TILE; i += blockDim.x) {
            i64 tile = block * held + i / width, line = tile / tiles, at = (tile - line * tiles) * width + i % width;
            if (tile >= all || at >= lines.count) continue;
            if (tiles > 1) {
                items[line * lines.count + at] = shared[i];
            } else {
                i64 offsets[2];
                lines.kept.offsets(line, offsets);
                out[offsets[1] + at * lines.to_step] = position_of(shared[i]);
            }
        }
    }
}

// The number of items of run `a` among the first `rank` of the merged runs (merge path).
template <typename I>
GT_DEVICE i64 share_of(const I *a, i64 a_count, const I *b, i64 b_count, i64 rank) {
    i64 low = rank > b_count ? rank - b_count : 0, high = rank < a_count ? rank : a_count;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (before_item(a[middle], b[rank - 1 - middle])) low = middle + 1;
        else high = middle;
    }
    return low;
}

constexpr int MERGED = SORT_TILE / 256;

// Merges pairs of runs of `run` items; a block writes SORT_TILE items of the result. In the last merge, positions go to
// `out`.
template <typename T>
GT_DEVICE void merge_runs(i64 *out, typename ItemOf<T>::type *to, const typename ItemOf<T>::type *from, Lines lines,
                          i64 run, i64 tiles) {
    typedef typename ItemOf<T>::type I;
    __shared__ I shared[SORT_TILE];
    __shared__ i64 shares[2];
    for (i64 block = blockIdx.x; block < lines.lines * tiles; block += gridDim.x) {
        i64 line = block / tiles, begin = (block - line * tiles) * SORT_TILE;
        i64 pair = begin / (2 * run) * (2 * run), offsets[2];
        lines.kept.offsets(line, offsets);
        const I *a = from + line * lines.count + pair;
        i64 left = lines.count - pair, a_count = left < run ? left : run;
        i64 b_count = left - a_count < run ? left - a_count : run;
        const I *b = a + a_count;
        i64 first = begin - pair, last = first + SORT_TILE < a_count + b_count ? first + SORT_TILE : a_count + b_count;
        __syncthreads();
        if (threadIdx.x < 2) shares[threadIdx.x] = share_of(a, a_count, b, b_count, threadIdx.x == 0 ? first : last);
        __syncthreads();
        i64 a_first = shares[0], b_first = first - a_first;
        u32 a_here = u32(shares[1] - a_first), count = u32(last - first);
        for (u32 i = threadIdx.x; i < count; i += 256)
            shared[i] = i < a_here ? a[a_first + i] : b[b_first + (i - a_here)];
        __syncthreads();
        u32 mine = threadIdx.x * MERGED < count ? threadIdx.x * MERGED : count;
        u32 i = u32(share_of(shared, a_here, shared + a_here, count - a_here, mine)), j = mine - i + a_here;
        for (u32 at = mine; at < mine + MERGED && at < count; at++) {
            bool first_run = i < a_here && (j >= count || before_item(shared[i], shared[j]));
            I item = shared[first_run ? i++ : j++];
            if (out) out[offsets[1] + (begin + at) * lines.to_step] = position_of(item);
            else to[line * lines.count + begin + at] = item;
        }
    }
}
