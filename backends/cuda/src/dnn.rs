//! Libraries for convolutions: the interface, and cuDNN.

pub(crate) mod conv;
pub(crate) mod cudnn;
mod descriptors;
#[cfg(feature = "emulated")]
pub mod emulated;

pub use conv::{Conv, ConvPass, ConvPointers, Dnn};
pub use cudnn::Cudnn;
