//! The functions of `torch.fft` that need no complex numbers: frequencies and their shifts.

use crate::declaration::functions;
use crate::joining::rolled;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{DType, Scalar, build};

/// `start, start + 1, …, end - 1`; int64 if no dtype is given.
fn range<'g>(g: &'g Builder<'g>, start: i64, end: i64, dtype: Option<DType>) -> Expr<'g> {
    let dtype = dtype.or(Some(DType::I64));
    g.run(|g| build::arange(g, Scalar::Int(start), Scalar::Int(end), Scalar::Int(1), dtype))
}

/// Each axis rolled by half its size, rounded down, or up with `up`.
fn rolled_by_half<'g>(g: &'g Builder<'g>, input: Expr<'g>, dim: Option<&[i64]>, up: bool) -> Result<Expr<'g>> {
    let all: Vec<i64> = (0..input.rank()? as i64).collect();
    let mut result = input;
    for axis in dim.unwrap_or(&all) {
        let size = input.size(*axis)?;
        let shift = (size + i64::from(up)) / 2;
        if shift > 0 && shift < size {
            result = rolled(g, result, shift, *axis)?;
        }
    }
    Ok(result)
}

functions! {
    /// The zero frequency shifted from the start of each axis to its centre.
    ///
    /// Example:
    ///     >>> gt.fft.fftshift(gt.fft.fftfreq(4))
    ///     tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    [module("fft")]
    fn fftshift(g, input: Expr<'g>, dim: Option<&'g [i64]> = None) -> Result<Expr<'g>> {
        rolled_by_half(g, input, dim, false)
    }

    /// The inverse of `fftshift`.
    ///
    /// Example:
    ///     >>> gt.fft.ifftshift(gt.fft.fftshift(gt.arange(5)))
    ///     tensor([0, 1, 2, 3, 4])
    [module("fft")]
    fn ifftshift(g, input: Expr<'g>, dim: Option<&'g [i64]> = None) -> Result<Expr<'g>> {
        rolled_by_half(g, input, dim, true)
    }

    /// The frequencies of a discrete Fourier transform: 0 and the positive ones, then the negative ones.
    ///
    /// Args:
    ///     n: The number of samples.
    ///     d: The distance between samples.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.fft.fftfreq(4)
    ///     tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    [module("fft").creation().out()]
    fn fftfreq(g, n: i64, d: f64 = 1.0; dtype: Option<DType> = None) -> Expr<'g> {
        let half = n.div_euclid(2);
        g.cat(&[range(g, 0, n - half, dtype), range(g, -half, 0, dtype)], 0) / (n as f64 * d)
    }

    /// The frequencies of a discrete Fourier transform of real samples: 0 and the positive ones.
    ///
    /// Args:
    ///     n: The number of samples.
    ///     d: The distance between samples.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.fft.rfftfreq(4)
    ///     tensor([0.0000, 0.2500, 0.5000])
    [module("fft").creation().out()]
    fn rfftfreq(g, n: i64, d: f64 = 1.0; dtype: Option<DType> = None) -> Expr<'g> {
        range(g, 0, n.div_euclid(2).saturating_add(1), dtype) / (n as f64 * d)
    }
}
