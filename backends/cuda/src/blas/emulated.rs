//! A library for matrix products on an emulated device: the CPU multiplies, in the order of the device's streams.

use super::gemm::{Blas, Gemm, GemmMatrix, GemmPointers};
use crate::driver::emulated::Emulated;
use crate::driver::{CudaStream, Result};
use gt_ops::DType;
use half::{bf16, f16};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The library for an [`Emulated`] device.
pub struct EmulatedBlas {
    device: Arc<Emulated>,
    /// How many products it computed.
    pub products: Arc<AtomicU64>,
}

impl EmulatedBlas {
    /// The library for this device.
    pub fn new(device: Arc<Emulated>) -> EmulatedBlas {
        EmulatedBlas { device, products: Arc::default() }
    }
}

impl Blas for EmulatedBlas {
    unsafe fn multiply(&mut self, gemm: &Gemm, pointers: GemmPointers, stream: CudaStream, _: bool) -> Result<bool> {
        let gemm = *gemm;
        let sides = [(&gemm.out, gemm.m, gemm.n), (&gemm.a, gemm.m, gemm.k), (&gemm.b, gemm.k, gemm.n)];
        for ((side, rows, columns), pointer) in sides.into_iter().zip([pointers.out, pointers.a, pointers.b]) {
            // cuBLASLt refuses such a layout.
            assert!(side.step >= if side.turned { rows } else { columns }, "rows overlap in {gemm:?}");
            assert_eq!(pointer % u64::from(side.alignment), 0, "{gemm:?}");
        }
        assert!(!gemm.out.turned && gemm.m * gemm.n * gemm.k > 0, "{gemm:?}");
        if let Some(alignment) = gemm.bias {
            assert!(gemm.batches == 1 && gemm.dtype == gemm.out_dtype, "{gemm:?}");
            assert!(pointers.bias > 0 && pointers.bias.is_multiple_of(u64::from(alignment)), "{gemm:?}");
            if gemm.dtype == DType::F64 {
                // The real library may lack an algorithm that adds a bias.
                return Ok(false);
            }
        }
        self.products.fetch_add(1, Relaxed);
        self.device.enqueue(stream, move || {
            // SAFETY: `multiply` requires pointers to matrices of these layouts that are valid when the stream reaches
            // the product.
            unsafe {
                match gemm.dtype {
                    DType::F16 if gemm.out_dtype == DType::F32 => {
                        multiply(&gemm, pointers, |x: f16| x.into(), |x| x as f32);
                    }
                    DType::BF16 if gemm.out_dtype == DType::F32 => {
                        multiply(&gemm, pointers, |x: bf16| x.into(), |x| x as f32);
                    }
                    DType::F32 if gemm.tf32 => multiply(&gemm, pointers, |x: f32| rounded(x).into(), |x| x as f32),
                    DType::F32 => multiply(&gemm, pointers, |x: f32| x.into(), |x| x as f32),
                    DType::F64 => multiply(&gemm, pointers, |x: f64| x, |x| x),
                    DType::F16 => multiply(&gemm, pointers, |x: f16| x.into(), f16::from_f64),
                    DType::BF16 => multiply(&gemm, pointers, |x: bf16| x.into(), bf16::from_f64),
                    other => unreachable!("no library multiplies {other:?}"),
                }
            }
        })?;
        Ok(true)
    }
}

/// `x` rounded to 11 significant bits, as tensor cores read f32 (TF32).
fn rounded(x: f32) -> f32 {
    f32::from_bits((x.to_bits() + (1 << 12)) & !((1 << 13) - 1))
}

unsafe fn multiply<T: Copy, O>(gemm: &Gemm, pointers: GemmPointers, wide: fn(T) -> f64, narrow: fn(f64) -> O) {
    let GemmPointers { out, a, b, bias } = pointers;
    let [a, b, bias] = [a, b, bias].map(|pointer| pointer as usize as *mut T);
    let out = out as usize as *mut O;
    let at = |side: &GemmMatrix, batch: u64, row: u64, column: u64| {
        let (along, across) = if side.turned { (row, column) } else { (column, row) };
        (batch * side.batch_step + across * side.step + along) as usize
    };
    for batch in 0..gemm.batches {
        // Each row of a, and each column of b, converted to f64.
        let lines = |matrix: *mut T, count: u64, place: &dyn Fn(u64, u64) -> usize| -> Vec<Vec<f64>> {
            // SAFETY: `i` and `j` are below the matrix's sizes, so `place` stays inside it.
            let line = |i| (0..gemm.k).map(|j| wide(unsafe { matrix.add(place(i, j)).read() })).collect();
            (0..count).map(line).collect()
        };
        let rows = lines(a, gemm.m, &|i, j| at(&gemm.a, batch, i, j));
        let columns = lines(b, gemm.n, &|i, j| at(&gemm.b, batch, j, i));
        for (i, row) in rows.iter().enumerate() {
            for (j, column) in columns.iter().enumerate() {
                let sum: f64 = row.iter().zip(column).map(|(x, y)| x * y).sum();
                // SAFETY: a bias has an element for each column.
                let sum = if gemm.bias.is_some() { sum + wide(unsafe { bias.add(j).read() }) } else { sum };
                // SAFETY: `i` and `j` are below the result's sizes, so the offset stays inside it.
                unsafe { out.add(at(&gemm.out, batch, i as u64, j as u64)).write(narrow(sum)) };
            }
        }
    }
}
