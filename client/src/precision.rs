//! How exact products must be, for the whole process.

use gt_ops::{Class, Op};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static MATMULS: AtomicBool = AtomicBool::new(false);
static CONVOLUTIONS: AtomicBool = AtomicBool::new(true);

/// Whether products of f32 may be rounded to 11 bits from now on, those of matrices and those of convolutions, where a
/// device is faster with such. At first convolutions' may, as PyTorch has it.
pub fn allow_tf32(matmuls: bool, convolutions: bool) {
    MATMULS.store(matmuls, Relaxed);
    CONVOLUTIONS.store(convolutions, Relaxed);
}

/// Whether those of an instruction may.
#[inline]
pub(crate) fn tf32(op: Op) -> bool {
    match op.row().class {
        Class::Contraction => MATMULS.load(Relaxed),
        Class::Convolution => CONVOLUTIONS.load(Relaxed),
        _ => false,
    }
}
