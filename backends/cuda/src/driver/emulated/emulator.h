// CUDA on the CPU, for tests: the functions of CUDA C++ that the kernels use, on the fibers of `fibers.h`.
#pragma once
#include "fibers.h"

static inline void __syncthreads() { emulator::give_way(emulator::AT_BLOCK); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { emulator::give_way(emulator::AT_WARP, mask); }
static inline void __threadfence() {}
static inline void __threadfence_system() {}
template <class T>
static T __shfl_sync(unsigned mask, T value, int lane, int = 32) {
    return emulator::exchange(mask, value, unsigned(lane));
}
template <class T>
static T __shfl_xor_sync(unsigned mask, T value, int lanes, int = 32) {
    return emulator::exchange(mask, value, (threadIdx.x % 32) ^ unsigned(lanes));
}
template <class T>
static T __shfl_down_sync(unsigned mask, T value, unsigned by, int = 32) {
    unsigned lane = threadIdx.x % 32;
    return emulator::exchange(mask, value, lane + by < 32 ? lane + by : lane);
}
template <class T>
static T __shfl_up_sync(unsigned mask, T value, unsigned by, int = 32) {
    unsigned lane = threadIdx.x % 32;
    return emulator::exchange(mask, value, lane >= by ? lane - by : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned votes = 0;
    auto count = [&](auto of) {
        for (unsigned lane = 0; lane < 32; lane++)
            if (mask >> lane & 1) votes |= of(lane) << lane;
    };
    emulator::together(unsigned(predicate != 0), count, mask);
    return votes;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

// One thread of the host runs all threads of the device, so that plain reads and writes are atomic.
#define EMULATOR_ATOMIC(name, params, change)                        \
    template <class T>                                               \
    EMULATOR_REPORTED static T name params {                         \
        EMULATOR_RACES(races_atomic(at, sizeof(T)));                 \
        T old = *at;                                                 \
        change;                                                      \
        return old;                                                  \
    }
EMULATOR_ATOMIC(atomicAdd, (T* at, T value), *at = T(old + value))
EMULATOR_ATOMIC(atomicMax, (T* at, T value), if (value > old) *at = value)
EMULATOR_ATOMIC(atomicMin, (T* at, T value), if (value < old) *at = value)
EMULATOR_ATOMIC(atomicExch, (T* at, T value), *at = value)
EMULATOR_ATOMIC(atomicOr, (T* at, T value), *at = old | value)
EMULATOR_ATOMIC(atomicCAS, (T* at, T expected, T value), if (old == expected) *at = value)
#undef EMULATOR_ATOMIC

template <class To, class From>
static To emulator_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x) { return emulator_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emulator_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emulator_bits<float>(x); }
static inline float __int_as_float(int x) { return emulator_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulator_bits<double>(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
template <class T>
static T __ldg(const T* at) { return *at; }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
static inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
static inline float __fdividef(float a, float b) { return a / b; }
// glibc has a function of this name.
#define __expf(x) std::exp(float(x))
using std::abs; using std::acos; using std::acosh; using std::asin; using std::asinh; using std::atan; using std::atan2;
using std::atanh; using std::ceil; using std::copysign; using std::cos; using std::cosh; using std::erf; using std::erfc;
using std::exp; using std::exp2; using std::expm1; using std::fabs; using std::floor; using std::fma; using std::fmax;
using std::fmin; using std::fmod; using std::isfinite; using std::isinf; using std::isnan; using std::lgamma;
using std::log; using std::log10; using std::log1p; using std::log2; using std::nearbyint; using std::nextafter;
using std::pow; using std::rint; using std::round; using std::signbit; using std::sin; using std::sinh; using std::sqrt;
using std::tan; using std::tanh; using std::tgamma; using std::trunc;
template <class T>
static T min(T a, T b) { return b < a ? b : a; }
template <class T>
static T max(T a, T b) { return a < b ? b : a; }
