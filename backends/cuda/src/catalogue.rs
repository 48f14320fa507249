//! The list of every kernel, so that a test compiles them all without a device.

use crate::template::{KernelKey, Template};

/// Every template, by the file that launches it.
#[rustfmt::skip]
pub static TEMPLATES: &[&[&Template]] = &[
    crate::columns::TEMPLATES,
    crate::create::TEMPLATES,
    crate::elementwise::TEMPLATES,
    crate::matmul::TEMPLATES,
    crate::index::TEMPLATES,
    crate::strided::TEMPLATES,
    crate::reduce::TEMPLATES,
    crate::rows::TEMPLATES,
    crate::scan::TEMPLATES,
    crate::search::TEMPLATES,
    crate::sort::TEMPLATES,
    crate::transfer::TEMPLATES,
    crate::window::TEMPLATES,
    crate::convolution::TEMPLATES,
];

/// The keys of every kernel but those of fused programs, which have no key.
pub fn catalogue() -> Vec<KernelKey> {
    TEMPLATES.iter().copied().flatten().flat_map(|template| (template.catalogue)()).collect()
}

/// The instructions that a kernel is written for, so that a test finds a compiler that does not use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Loads of 16 bytes from a tensor.
    pub loads_16_bytes: bool,
    /// Products by tensor cores, of fragments that are loaded as matrices.
    pub tensor_cores: bool,
    /// Copies of 16 bytes to shared memory that nobody waits for at once.
    pub copies_behind: bool,
}

/// The claims of a kernel.
pub fn claims(key: &KernelKey) -> Claims {
    let on_tensor_cores = crate::rows::is_on_tensor_cores(key);
    let by_vectors = [crate::elementwise::by_16_bytes, crate::reduce::by_16_bytes, crate::rows::by_16_bytes];
    Claims {
        loads_16_bytes: by_vectors.iter().any(|has| has(key)),
        tensor_cores: on_tensor_cores,
        copies_behind: on_tensor_cores,
    }
}

/// The shared memory that a launch of the kernel adds to that of its source, in bytes.
pub fn dynamic_shared_bytes(key: &KernelKey) -> u32 {
    crate::rows::dynamic_shared_bytes(key)
}
