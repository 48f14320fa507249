// Random numbers, equal to the CPU's; `ops/src/philox.rs` defines which word of which block each element takes.
#pragma once
#include "types.cuh"

struct Words {
    u32 at[4];
};

// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw 2011).
GT_DEVICE Words philox(u64 seed, u64 stream, u64 block) {
    u32 c0 = u32(block), c1 = u32(block >> 32), c2 = u32(stream), c3 = u32(stream >> 32);
    u32 k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words{{c0, c1, c2, c3}};
}

// The upper `bits` bits of a word, at most 24, as a float in [0, 1).
GT_DEVICE float unit(u32 word, int bits) { return float(word >> (32 - bits)) * float_of(u32(127 - bits) << 23); }

// The upper 53 bits of two words as a double in [0, 1).
GT_DEVICE double unit(u32 low, u32 high) {
    return double((u64(high) << 32 | low) >> 11) * (1.0 / double(1ull << 53));
}
