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
