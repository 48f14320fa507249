//! Compilation of kernels: the compiler's interface, NVRTC, and a store of compiled images on disk.

pub(crate) mod background;
pub(crate) mod compiler;
pub(crate) mod nvrtc;
pub(crate) mod store;

pub use compiler::{Compiler, Image};
pub use nvrtc::Nvrtc;
pub use store::Store;
