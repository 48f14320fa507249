// The elements of the fake libraries' tensors. The types 0, 1 and 2 are float, double and half in cuBLASLt and in
// cuDNN; every other one is taken for bfloat16.
#pragma once
#include <cstdint>
#include <cstring>

static double get(const void* at, int type, int64_t i) {
    if (type == 0) return ((const float*)at)[i];
    if (type == 1) return ((const double*)at)[i];
    if (type == 2) return double(((const _Float16*)at)[i]);
    uint32_t bits = uint32_t(((const uint16_t*)at)[i]) << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
static void put(void* at, int type, int64_t i, double value) {
    if (type == 0) ((float*)at)[i] = float(value);
    else if (type == 1) ((double*)at)[i] = value;
    else if (type == 2) ((_Float16*)at)[i] = _Float16(float(value));
    else {
        float x = float(value);
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        ((uint16_t*)at)[i] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}
