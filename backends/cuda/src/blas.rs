//! Libraries for matrix products: the interface, and cuBLASLt.

mod autotune;
#[cfg(feature = "emulated")]
pub mod emulated;
pub(crate) mod gemm;
pub(crate) mod lt;

pub use gemm::{Blas, Gemm, GemmMatrix, GemmPointers};
pub use lt::{AUTOTUNE_VARIABLE, CublasLt};
