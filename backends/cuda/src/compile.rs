//! Compilation of kernels: the compiler's interface, NVRTC, a store of compiled images on disk, and a file of images
//! that were compiled beforehand.

pub(crate) mod background;
pub(crate) mod compiler;
pub mod nvrtc;
pub mod prebuilt;
pub(crate) mod store;

pub use compiler::{Compiler, Image};
pub use nvrtc::Nvrtc;
pub use prebuilt::{Architecture, Prebuilt};
pub use store::Store;
