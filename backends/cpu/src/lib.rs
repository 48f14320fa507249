//! The CPU backend of GT: kernels and memory for tensors in host memory.
//!
//! This crate must not know sessions, clients or tensor ids. Start at [`CpuBackend`]. `dispatch` implements the trait
//! `gt_backend::Backend` and hands each instruction to the file of its op's class:
//!
//! | file | ops |
//! |---|---|
//! | `elementwise`, `fused` | elementwise ops one by one, or several in one pass, over the inner loops of `kernels` |
//! | `reduce`, `scan`, `sort`, `search`, `index` | along axes: reductions, scans, sorting, gather, scatter |
//! | `rows` | along the last axis in one pass: softmax, norms, losses, attention |
//! | `matmul` | matrix products |
//! | `conv`, `pooling` | windows: convolutions over the inner loops of `register_tiles`, pooling |
//! | `create`, `movement` | creation and random numbers; views, slices and concatenation |
//!
//! Below them lie `backend` (the state they share), `strided` and `pairs` (copies between strides), `lanes` (vector
//! registers), `tile` (scratch buffers in L1), `thread_pool`, `checkpoint` (cancellation of long loops),
//! `memory` (the caching allocator) and `space` (an allocator over a shared segment, for tensors that other processes
//! read).

mod backend;
mod checkpoint;
mod conv;
mod conv_columns;
mod conv_merged;
mod conv_planes;
mod create;
mod dispatch;
mod elementwise;
mod factory;
mod fused;
mod index;
mod kernels;
mod lanes;
mod matmul;
mod matmul_few_rows;
#[cfg(target_arch = "x86_64")]
mod matmul_half;
mod matmul_small;
mod memory;
mod movement;
mod pairs;
mod pooling;
mod reduce;
mod register_tiles;
mod rows;
mod scan;
mod search;
mod sort;
mod space;
mod strided;
mod tensor;
#[cfg(test)]
mod test_tensors;
mod thread_pool;
mod tile;

pub use backend::{CpuBackend, CpuOptions, machine_bytes};
pub use factory::CpuFactory;
pub use memory::trim_heap;
pub use tensor::CpuTensor;
