//! The interface of a compiler of kernels.

use gt_backend::ExecError;

/// Code that a device loads: for NVIDIA's, a cubin.
pub type Image = Vec<u8>;

/// A compiler of CUDA C++.
pub trait Compiler: Send + Sync {
    /// Everything but the source that the image depends on, as one line.
    fn identity(&self) -> String;

    /// Whether its start takes so long that kernels should be compiled together.
    fn takes_many(&self) -> bool {
        false
    }

    /// Compiles `source`, which may include [`crate::headers::HEADERS`], to an image. `name` is for messages.
    ///
    /// # Errors
    /// [`ExecError::Internal`] with the compiler's messages.
    fn compile(&self, name: &str, source: &str) -> Result<Image, ExecError>;
}
