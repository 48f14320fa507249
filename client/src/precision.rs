//! How exact products must be, for the whole process.

use gt_ops::{Class, Op};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

const MATMULS: u8 = 1;
const CONVOLUTIONS: u8 = 2;
static ROUNDED: AtomicU8 = AtomicU8::new(CONVOLUTIONS);

/// Whether products of f32 may be rounded to 11 bits from now on, those of matrices and those of convolutions, where a
/// device is faster with such. At first convolutions' may, as PyTorch has it.
pub fn allow_tf32(matmuls: bool, convolutions: bool) {
    ROUNDED.store(MATMULS * u8::from(matmuls) + CONVOLUTIONS * u8::from(convolutions), Relaxed);
}

/// Whether those of an instruction may.
#[inline]
pub(crate) fn tf32(op: Op) -> bool {
    let rounded = ROUNDED.load(Relaxed);
    rounded != 0
        && match op.row().class {
            Class::Contraction => rounded & MATMULS != 0,
            Class::Convolution => rounded & CONVOLUTIONS != 0,
            _ => false,
        }
}
