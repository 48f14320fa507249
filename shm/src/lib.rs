//! Lock-free shared memory for GT: sealed segments, rings, doorbells, arenas, the broadcast ring.
