// Elementwise kernels over several results, each contiguous and of its own length: a table in the arguments has their
// operands, and `src/graphs/gathered.rs` writes it.
#pragma once
#include "elementwise.cuh"

#ifdef GT_EMULATED
#define __grid_constant__
#endif

// The operands and results of one of the launches that are gathered.
template <int COLUMNS>
struct Part {
    // The address of each operand or the bits of a scalar, then the address of each result.
    u64 columns[COLUMNS];
    u64 count;
    // The first of the part's blocks.
    u32 first;
    // A bit for each operand that has one element, and from bit 16 on one for each that is a scalar.
    u32 masks;

    __device__ __forceinline__ Operand operand(int i) const {
        if (masks >> (16 + i) & 1) return {nullptr, columns[i]};
        return {(const void *)columns[i], 0};
    }
    __device__ __forceinline__ u32 ones() const { return masks & 0xffff; }
};

// The table. A kernel takes it as `__grid_constant__`, since the index of a part is known only when the kernel runs,
// and the compiler would copy the table to each thread's memory otherwise.
template <int COLUMNS, int PARTS>
struct Parts {
    Part<COLUMNS> at[PARTS];

    // The part to which a block belongs.
    __device__ __forceinline__ const Part<COLUMNS> &of(u32 block, u32 parts) const {
        u32 low = 0, high = parts;
        while (high - low > 1) {
            const u32 middle = (low + high) / 2;
            if (at[middle].first <= block) low = middle;
            else high = middle;
        }
        return at[low];
    }
};
