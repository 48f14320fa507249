//! From source to what a device loads: NVRTC, and what it made before, on disk.

pub(crate) mod compiler;
pub(crate) mod nvrtc;
pub(crate) mod store;

pub use compiler::{Compiler, Image};
pub use nvrtc::Nvrtc;
pub use store::Store;
