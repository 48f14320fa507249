// The element types of tensors, and their conversion between memory and the types that kernels compute in.
//
// C++17 without headers: NVRTC compiles it for devices, and tests compile it with g++ after `emulator.h`, which defines
// GT_EMULATED.
#pragma once

#define GT_DEVICE static __device__ __forceinline__
// A kernel: the most threads of its blocks and, where registers are to be limited for it, how many blocks a
// multiprocessor holds at least.
#define GT_KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

// f16 and bf16 are storage types; kernels compute in f32.
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

GT_DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
GT_DEVICE u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
GT_DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
GT_DEVICE double double_of(u64 bits) { return __longlong_as_double((i64)bits); }

// Conversions between f16 or bf16 and f32: exact, or rounded to nearest even. NaN stays NaN.

GT_DEVICE float widen(bf16 x) { return float_of((u32)x.bits << 16); }

GT_DEVICE float widen(f16 x) {
#ifdef GT_EMULATED
    // The product corrects the exponent's bias and normalizes numbers that are subnormal in f16 (Giesen 2012).
    u32 magnitude = (u32)(x.bits & 0x7fff) << 13;
    u32 finite = bits_of(float_of(magnitude) * float_of((127u + 112u) << 23));
    u32 wide = magnitude >= 0x7c00u << 13 ? 0x7f800000u | magnitude : finite;
    return float_of(wide | (u32)(x.bits & 0x8000) << 16);
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#endif
}

GT_DEVICE bf16 narrow_bf16(float x) {
#if !defined(GT_EMULATED) && __CUDA_ARCH__ >= 800
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    u32 bits = bits_of(x);
    u32 rounded = bits + 0x7fff + (bits >> 16 & 1);
    return bf16{(u16)((x != x ? bits | 0x00400000u : rounded) >> 16)};
#endif
}

GT_DEVICE f16 narrow_f16(float x) {
#ifdef GT_EMULATED
    const u32 least = (127u - 15 + (23 - 10) + 1) << 23;
    u32 bits = bits_of(x);
    u32 magnitude = bits & 0x7fffffffu;
    // The addition rounds at the last bit of a subnormal f16 (Giesen 2012).
    u32 subnormal = bits_of(float_of(magnitude) + float_of(least)) - least;
    u32 normal = (magnitude - ((127u - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    u32 finite = magnitude < 113u << 23 ? subnormal : normal;
    u32 special = magnitude > 0x7f800000u ? 0x7e00 : 0x7c00;
    u32 half = magnitude >= (127u + 16) << 23 ? special : finite;
    return f16{(u16)(half | (bits >> 16 & 0x8000))};
#else
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#endif
}

// The compute type of elements of type T. A bool is one byte in memory, 0 or 1.
template <typename T>
struct Compute {
    typedef T type;
};
template <>
struct Compute<f16> {
    typedef float type;
};
template <>
struct Compute<bf16> {
    typedef float type;
};

// Converts an element to its compute type.
template <typename T>
GT_DEVICE T to_compute(T x) {
    return x;
}
GT_DEVICE float to_compute(f16 x) { return widen(x); }
GT_DEVICE float to_compute(bf16 x) { return widen(x); }

template <typename T>
GT_DEVICE void put(T *at, T x) {
    *at = x;
}
GT_DEVICE void put(f16 *at, float x) { *at = narrow_f16(x); }
GT_DEVICE void put(bf16 *at, float x) { *at = narrow_bf16(x); }

// Loads and stores with conversion.
template <typename T>
GT_DEVICE typename Compute<T>::type load(const T *at) {
    return to_compute(*at);
}
template <typename T>
GT_DEVICE void store(T *at, typename Compute<T>::type x) {
    put(at, x);
}
// A computed number rounded to T and converted back.
template <typename T>
GT_DEVICE typename Compute<T>::type rounded(typename Compute<T>::type x) {
    T stored;
    put(&stored, x);
    return to_compute(stored);
}

// The unsigned type for wrapping arithmetic: signed overflow is undefined, and u16 is promoted to int. Bools compute as
// 0 and 1, and any number that is not 0 converts to true.
template <typename I>
struct Wrapping {
    typedef u32 type;
};
template <>
struct Wrapping<i64> {
    typedef u64 type;
};
template <>
struct Wrapping<u64> {
    typedef u64 type;
};
