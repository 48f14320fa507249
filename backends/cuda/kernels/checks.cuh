// What a kernel finds wrong and the host learns later: see `checks.rs`.
#pragma once
#include "types.cuh"

struct Found {
    i32 kind, axis;
    i64 index, size;
};

constexpr i32 INDEX_OUT_OF_RANGE = 1;
constexpr i32 ZERO_DIVISION = 2;

// The first thread that finds something says so; the host looks once the kernel has ended.
GT_DEVICE void report(Found* found, i32 kind, i64 index = 0, i32 axis = 0, i64 size = 0) {
    if (atomicCAS(&found->kind, 0, kind) == 0) {
        found->index = index;
        found->axis = axis;
        found->size = size;
        __threadfence_system();
    }
}
