//! The interface of a compiler of kernels.

use gt_backend::ExecError;

/// Code for a device: for NVIDIA's, a cubin.
pub type Image = Vec<u8>;

/// What makes an [`Image`] of a source.
pub trait Compiler: Send {
    /// Everything but the source that the image depends on, as one line.
    fn identity(&self) -> String;

    /// Whether starting it is so dear that many kernels should be compiled together.
    fn takes_many(&self) -> bool {
        false
    }

    /// The image of `source`, which may include [`crate::headers::HEADERS`]. `name` is for messages.
    ///
    /// # Errors
    /// [`ExecError::Internal`] with what the compiler says: a source of ours is wrong, or the compiler is.
    fn compile(&self, name: &str, source: &str) -> Result<Image, ExecError>;
}
