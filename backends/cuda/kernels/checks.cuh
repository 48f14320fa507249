// An error that a kernel detects and the host reads later; see `checks.rs`.
#pragma once
#include "types.cuh"

struct Found {
    i32 kind, axis;
    i64 index, size, position;
    i32 lock, unused;
};

constexpr i32 INDEX_OUT_OF_RANGE = 1;
constexpr i32 ZERO_DIVISION = 2;

// Reports an error at `position`. The error of the smallest position wins, so the report is deterministic. A thread
// that visits its elements in order reports only its first error, because the slot is in host memory and writing it is
// slow.
GT_DEVICE void report(Found *found, i32 kind, i64 index = 0, i32 axis = 0, i64 size = 0, i64 position = 0) {
    volatile Found *shared = found;
    if (shared->kind != 0) {
        __threadfence();
        if (shared->position <= position) return;
    }
    while (atomicCAS(&found->lock, 0, 1) != 0) {
    }
    __threadfence();
    if (shared->kind == 0 || position < shared->position) {
        shared->axis = axis;
        shared->index = index;
        shared->size = size;
        shared->position = position;
        __threadfence_system();
        shared->kind = kind;
    }
    __threadfence_system();
    atomicExch(&found->lock, 0);
}
