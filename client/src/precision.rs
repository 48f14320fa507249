//! Whether matrix products, attention and convolutions of f32 may use TF32, for the whole process.

use gt_ops::{AttrKind, Class, Op};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static MATMULS: AtomicBool = AtomicBool::new(false);
static CONVOLUTIONS: AtomicBool = AtomicBool::new(true);

/// Allows devices to compute matrix products and convolutions of f32 with TF32, whose factors have 11 significant bits.
/// The defaults are PyTorch's: convolutions may, matrix products may not. Attention is matrix products.
pub fn allow_tf32(matmuls: bool, convolutions: bool) {
    MATMULS.store(matmuls, Relaxed);
    CONVOLUTIONS.store(convolutions, Relaxed);
}

/// Whether an instruction of `op` may use TF32.
#[inline]
pub(crate) fn allows_tf32(op: Op) -> bool {
    let row = op.row();
    match row.class {
        Class::Contraction => MATMULS.load(Relaxed),
        Class::Convolution => CONVOLUTIONS.load(Relaxed),
        _ => row.attrs == AttrKind::Attention && MATMULS.load(Relaxed),
    }
}
