//! The functions of `torch.fft`. Each is a composition of the transform of complex rows ([`Op::Fourier`] and its
//! inverse), or of rows of real numbers ([`Op::RealFourier`]) if there is an even number of them. With an odd number,
//! real inputs have zeros as their imaginary parts, and half a spectrum is completed by its symmetry.

use crate::declaration::functions;
use crate::joining::rolled;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{Arg, Attrs, DType, Op, OpError, Scalar, build};

/// The direction of a transform, which its sign and its normalization follow from.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Inverse,
}

impl Direction {
    /// The factor of a transform of `count` points.
    fn factor(self, norm: Option<&str>, count: f64) -> Result<f64> {
        Ok(match (norm.unwrap_or("backward"), self) {
            ("ortho", _) => 1.0 / count.sqrt(),
            ("backward", Direction::Inverse) | ("forward", Direction::Forward) => 1.0 / count,
            ("backward" | "forward", _) => 1.0,
            (other, _) => return Err(OpError::runtime(format!("Invalid normalization mode: \"{other}\""))),
        })
    }
}

/// The input in a dtype that is transformed: complex, or floating-point if `real`.
fn transformable<'g>(name: &str, input: Expr<'g>, real: bool) -> Result<Expr<'g>> {
    let dtype = input.dtype()?.to_float();
    if dtype.is_half() {
        return Err(OpError::runtime(format!("Unsupported dtype {}", dtype.scalar_type_name())));
    }
    if real && dtype.is_complex() {
        return Err(OpError::runtime(format!(
            "{name} expects a real input tensor, but got {}",
            dtype.scalar_type_name()
        )));
    }
    Ok(input.to(if real { dtype } else { dtype.to_complex() }))
}

/// The first `count` elements along an axis; zeros follow if there are fewer.
fn fitted<'g>(g: &'g Builder<'g>, input: Expr<'g>, axis: i64, count: i64) -> Result<Expr<'g>> {
    let meta = input.meta()?;
    let (place, size) = (meta.shape.axis(axis)?, input.size(axis)?);
    if count <= size {
        return Ok(if count == size { input } else { input.narrow(axis, 0, count) });
    }
    let rest = g.full(&meta.shape.with_dim(place, (count - size) as usize), 0.0, meta.dtype);
    Ok(g.cat(&[input, rest], axis))
}

/// The result of an op along an axis, whose rows are real numbers, or the parts of complex ones.
fn along<'g>(g: &'g Builder<'g>, op: Op, input: Expr<'g>, axis: i64) -> Result<Expr<'g>> {
    let rows = input.transpose(axis, -1);
    let (meta, sizes) = (rows.meta()?, rows.sizes()?);
    let [outer @ .., count] = &sizes[..] else {
        return Err(OpError::index(format!("Dimension specified as {axis} but tensor has no dimensions")));
    };
    let (dtype, is_complex) = (meta.dtype, meta.dtype.is_complex());
    let rows =
        if is_complex { rows.reinterpret(dtype.storage()).reshape(&[outer, &[2 * count]].concat()) } else { rows };
    let found = g.emit(op, &[Arg::from(rows)], Attrs::None);
    let found = match op {
        Op::InverseRealFourier => found,
        _ => {
            let pairs = [outer, &[found.size(-1)? / 2, 2]].concat();
            found.reshape(&pairs).reinterpret(dtype.to_complex())
        }
    };
    Ok(found.transpose(axis, -1))
}

/// The transform of complex numbers along an axis, not normalized.
fn transform<'g>(g: &'g Builder<'g>, input: Expr<'g>, axis: i64, direction: Direction) -> Result<Expr<'g>> {
    along(g, if direction == Direction::Forward { Op::Fourier } else { Op::InverseFourier }, input, axis)
}

/// The first half of the spectrum of real numbers along an axis of `count`, not normalized.
fn half_spectrum<'g>(g: &'g Builder<'g>, real: Expr<'g>, axis: i64, count: i64) -> Result<Expr<'g>> {
    if count % 2 == 0 {
        return along(g, Op::RealFourier, real, axis);
    }
    let complex = real.to(real.dtype()?.to_complex());
    Ok(transform(g, complex, axis, Direction::Forward)?.narrow(axis, 0, count / 2 + 1))
}

/// The `count` real numbers along an axis of which the first half of a spectrum is given, not normalized.
fn of_half_spectrum<'g>(g: &'g Builder<'g>, half: Expr<'g>, axis: i64, count: i64) -> Result<Expr<'g>> {
    if count % 2 == 0 {
        return along(g, Op::InverseRealFourier, half, axis);
    }
    let mirrored = count / 2;
    let whole = match mirrored {
        0 => half,
        _ => g.cat(&[half, half.narrow(axis, 1, mirrored).flip(axis).conj()], axis),
    };
    Ok(transform(g, whole, axis, Direction::Inverse)?.real())
}

/// Checks that a tensor of which axes are named has any.
///
/// # Errors
/// A single number.
fn check_has_axes(input: Expr<'_>, dim: Option<&[i64]>) -> Result<()> {
    match dim.and_then(|dim| dim.first()) {
        Some(axis) if input.rank()? == 0 => {
            Err(OpError::index(format!("Dimension specified as {axis} but tensor has no dimensions")))
        }
        _ => Ok(()),
    }
}

/// The axes of a transform, counted from the first, each with its number of points.
fn plan(input: Expr<'_>, s: Option<&[i64]>, dim: Option<&[i64]>) -> Result<Vec<(i64, i64)>> {
    check_has_axes(input, dim)?;
    let shape = input.shape()?;
    let rank = shape.rank() as i64;
    let axes: Vec<i64> = match (dim, s) {
        (Some(dim), _) => dim.iter().map(|axis| shape.axis(*axis).map(|axis| axis as i64)).collect::<Result<_>>()?,
        (None, Some(s)) if s.len() as i64 > rank => {
            return Err(OpError::runtime(format!(
                "Got shape with {} values but input tensor only has {rank} dimensions.",
                s.len()
            )));
        }
        (None, Some(s)) => (rank - s.len() as i64..rank).collect(),
        (None, None) => (0..rank).collect(),
    };
    if let Some(s) = s
        && s.len() != axes.len()
    {
        return Err(OpError::runtime("When given, dim and shape arguments must have the same length"));
    }
    if axes.iter().enumerate().any(|(i, axis)| axes[..i].contains(axis)) {
        return Err(OpError::runtime("FFT dims must be unique"));
    }
    let counts = axes.iter().enumerate().map(|(i, axis)| {
        let own = input.size(*axis)?;
        let count = s.map(|s| s[i]).filter(|count| *count != -1).unwrap_or(own);
        match count {
            1.. => Ok((*axis, count)),
            _ => Err(OpError::runtime(format!("Invalid number of data points ({count}) specified"))),
        }
    });
    counts.collect()
}

/// The number of points of a transform along one axis, if it is given. -1 stands for the size of the axis only where
/// several are given.
fn points_of(n: &Option<i64>) -> Result<Option<&[i64]>> {
    match n {
        Some(wrong @ ..=0) => Err(OpError::runtime(format!("Invalid number of data points ({wrong}) specified"))),
        n => Ok(n.as_ref().map(std::slice::from_ref)),
    }
}

fn points(axes: &[(i64, i64)]) -> f64 {
    axes.iter().map(|(_, count)| *count as f64).product()
}

/// The complex transform along axes.
fn complex_transform<'g>(
    g: &'g Builder<'g>,
    input: Expr<'g>,
    axes: &[(i64, i64)],
    direction: Direction,
    norm: Option<&str>,
) -> Result<Expr<'g>> {
    let mut result = transformable("fft", input, false)?;
    for (axis, count) in axes {
        result = transform(g, fitted(g, result, *axis, *count)?, *axis, direction)?;
    }
    let factor = direction.factor(norm, points(axes))?;
    Ok(if factor == 1.0 { result } else { result * factor })
}

/// The transform of a real tensor along axes: half of the spectrum along the last of them, the other half being its
/// conjugate.
fn real_transform<'g>(
    g: &'g Builder<'g>,
    name: &str,
    input: Expr<'g>,
    axes: &[(i64, i64)],
    direction: Direction,
    norm: Option<&str>,
) -> Result<Expr<'g>> {
    let Some((axis, count)) = axes.last() else {
        return Err(OpError::runtime(format!("{name} must transform at least one axis")));
    };
    let real = fitted(g, transformable(name, input, true)?, *axis, *count)?;
    let mut result = half_spectrum(g, real, *axis, *count)?;
    for (axis, count) in &axes[..axes.len() - 1] {
        result = transform(g, fitted(g, result, *axis, *count)?, *axis, Direction::Forward)?;
    }
    let factor = direction.factor(norm, points(axes))?;
    let result = if direction == Direction::Inverse { result.conj() } else { result };
    Ok(if factor == 1.0 { result } else { result * factor })
}

/// The real tensor of which half a spectrum is given: along the last of the axes, the other half is its conjugate.
fn real_result<'g>(
    g: &'g Builder<'g>,
    name: &str,
    input: Expr<'g>,
    axes: &[(i64, i64)],
    direction: Direction,
    norm: Option<&str>,
) -> Result<Expr<'g>> {
    let Some((axis, count)) = axes.last() else {
        return Err(OpError::runtime(format!("{name} must transform at least one axis")));
    };
    let mut half = transformable(name, input, false)?;
    // The transform forward of a spectrum is that backward of its conjugate, as the result is real.
    if direction == Direction::Forward {
        half = half.conj();
    }
    for (axis, count) in &axes[..axes.len() - 1] {
        half = transform(g, fitted(g, half, *axis, *count)?, *axis, Direction::Inverse)?;
    }
    let result = of_half_spectrum(g, fitted(g, half, *axis, count / 2 + 1)?, *axis, *count)?;
    let factor = direction.factor(norm, points(axes))?;
    Ok(if factor == 1.0 { result } else { result * factor })
}

/// The axes of a transform with a real result, whose last axis has by default 2 (m - 1) points of m.
fn plan_real<'g>(input: Expr<'g>, s: Option<&[i64]>, dim: Option<&[i64]>) -> Result<Vec<(i64, i64)>> {
    check_has_axes(input, dim)?;
    let whole = |axis: i64| input.size(axis).map(|size| 2 * (size - 1));
    let mut sizes = match (s, dim) {
        (Some(s), _) => s.to_vec(),
        (None, Some(dim)) => vec![-1; dim.len()],
        (None, None) => vec![-1; input.rank()?],
    };
    let axis = dim.map_or(Some(-1), |dim| dim.last().copied());
    if let (Some(axis), Some(last)) = (axis, sizes.last_mut())
        && *last == -1
    {
        *last = whole(axis)?;
    }
    plan(input, Some(&sizes), dim)
}

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

    /// The discrete Fourier transform along an axis.
    ///
    /// Args:
    ///     input: A tensor.
    ///     n: The number of points along the axis: the input is cut, or padded with zeros, to this size.
    ///     dim: The axis.
    ///     norm: "backward" (the inverse is divided by n), "forward" (the forward transform is) or "ortho" (each by the
    ///         square root of n).
    ///
    /// Returns:
    ///     A complex tensor.
    ///
    /// Example:
    ///     >>> gt.fft.fft(gt.tensor([1.0, 2.0, 3.0, 4.0]))
    ///     tensor([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j])
    [module("fft").out()]
    fn fft(g, input: Expr<'g>, n: Option<i64> = None, dim: i64 = -1, norm: Option<&'g str> = None) -> Result<Expr<'g>> {
        let axes = plan(input, points_of(&n)?, Some(&[dim]))?;
        complex_transform(g, input, &axes, Direction::Forward, norm)
    }

    /// The inverse discrete Fourier transform along an axis.
    ///
    /// Args:
    ///     input: A tensor.
    ///     n: The number of points along the axis: the input is cut, or padded with zeros, to this size.
    ///     dim: The axis.
    ///     norm: "backward" (the inverse is divided by n), "forward" (the forward transform is) or "ortho" (each by the
    ///         square root of n).
    ///
    /// Returns:
    ///     A complex tensor.
    ///
    /// Example:
    ///     >>> gt.fft.ifft(gt.tensor([10.0, 2.0, 4.0, 2.0]))
    ///     tensor([4.5000+0.j, 1.5000+0.j, 2.5000+0.j, 1.5000+0.j])
    [module("fft").out()]
    fn ifft(g, input: Expr<'g>, n: Option<i64> = None, dim: i64 = -1, norm: Option<&'g str> = None) -> Result<Expr<'g>> {
        let axes = plan(input, points_of(&n)?, Some(&[dim]))?;
        complex_transform(g, input, &axes, Direction::Inverse, norm)
    }

    /// The discrete Fourier transform of real numbers along an axis, without the half that follows by symmetry.
    ///
    /// Args:
    ///     input: A tensor of real numbers.
    ///     n: The number of points along the axis: the input is cut, or padded with zeros, to this size.
    ///     dim: The axis.
    ///     norm: "backward" (the inverse is divided by n), "forward" (the forward transform is) or "ortho" (each by the
    ///         square root of n).
    ///
    /// Returns:
    ///     A complex tensor of n / 2 + 1 elements along the axis: the others are their conjugates.
    ///
    /// Example:
    ///     >>> gt.fft.rfft(gt.tensor([1.0, 2.0, 3.0, 4.0]))
    ///     tensor([10.+0.j, -2.+2.j, -2.+0.j])
    [module("fft").out()]
    fn rfft(g, input: Expr<'g>, n: Option<i64> = None, dim: i64 = -1, norm: Option<&'g str> = None) -> Result<Expr<'g>> {
        let axes = plan(input, points_of(&n)?, Some(&[dim]))?;
        real_transform(g, "rfft", input, &axes, Direction::Forward, norm)
    }

    /// The inverse of `gt.fft.rfft`: the real numbers of which half the spectrum is given.
    ///
    /// Args:
    ///     input: A tensor.
    ///     n: The number of points along the axis: the input is cut, or padded with zeros, to n / 2 + 1 elements.
    ///     dim: The axis.
    ///     norm: "backward" (the inverse is divided by n), "forward" (the forward transform is) or "ortho" (each by the
    ///         square root of n).
    ///
    /// Returns:
    ///     A real tensor.
    ///
    /// Example:
    ///     >>> gt.fft.irfft(gt.fft.rfft(gt.tensor([1.0, 2.0, 3.0, 4.0])))
    ///     tensor([1., 2., 3., 4.])
    [module("fft").out()]
    fn irfft(g, input: Expr<'g>, n: Option<i64> = None, dim: i64 = -1, norm: Option<&'g str> = None) -> Result<Expr<'g>> {
        let axes = plan_real(input, points_of(&n)?, Some(&[dim]))?;
        real_result(g, "irfft", input, &axes, Direction::Inverse, norm)
    }

    /// The discrete Fourier transform of half a signal whose other half is its conjugate: real numbers.
    ///
    /// Args:
    ///     input: A tensor.
    ///     n: The number of points along the axis: the input is cut, or padded with zeros, to n / 2 + 1 elements.
    ///     dim: The axis.
    ///     norm: "backward" (the inverse is divided by n), "forward" (the forward transform is) or "ortho" (each by the
    ///         square root of n).
    ///
    /// Returns:
    ///     A real tensor.
    ///
    /// Example:
    ///     >>> gt.fft.hfft(gt.tensor([1.0, 2.0, 3.0]))
    ///     tensor([ 8., -2.,  0., -2.])
    [module("fft").out()]
    fn hfft(g, input: Expr<'g>, n: Option<i64> = None, dim: i64 = -1, norm: Option<&'g str> = None) -> Result<Expr<'g>> {
        let axes = plan_real(input, points_of(&n)?, Some(&[dim]))?;
        real_result(g, "hfft", input, &axes, Direction::Forward, norm)
    }

    /// The inverse of `gt.fft.hfft`: half a signal of which the real spectrum is given.
    ///
    /// Args:
    ///     input: A tensor of real numbers.
    ///     n: The number of points along the axis: the input is cut, or padded with zeros, to this size.
    ///     dim: The axis.
    ///     norm: "backward" (the inverse is divided by n), "forward" (the forward transform is) or "ortho" (each by the
    ///         square root of n).
    ///
    /// Returns:
    ///     A complex tensor of n / 2 + 1 elements along the axis: the others are their conjugates.
    ///
    /// Example:
    ///     >>> gt.fft.ihfft(gt.tensor([4.0, 0.0, 2.0, 0.0]))
    ///     tensor([1.5000-0.j, 0.5000+0.j, 1.5000-0.j])
    [module("fft").out()]
    fn ihfft(g, input: Expr<'g>, n: Option<i64> = None, dim: i64 = -1, norm: Option<&'g str> = None) -> Result<Expr<'g>> {
        let axes = plan(input, points_of(&n)?, Some(&[dim]))?;
        real_transform(g, "ihfft", input, &axes, Direction::Inverse, norm)
    }

    /// The discrete Fourier transform along two axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A complex tensor.
    ///
    /// Example:
    ///     >>> gt.fft.fft2(gt.ones(2, 3)).shape
    ///     gt.Size([2, 3])
    [module("fft").out()]
    fn fft2(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: &'g [i64] = &[-2, -1], norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan(input, s, Some(dim))?;
        complex_transform(g, input, &axes, Direction::Forward, norm)
    }

    /// The discrete Fourier transform along several axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes; all, or as many of the last as `s` has, if not given.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A complex tensor.
    ///
    /// Example:
    ///     >>> gt.fft.fftn(gt.ones(2, 3)).shape
    ///     gt.Size([2, 3])
    [module("fft").out()]
    fn fftn(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: Option<&'g [i64]> = None, norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan(input, s, dim)?;
        complex_transform(g, input, &axes, Direction::Forward, norm)
    }

    /// The inverse discrete Fourier transform along two axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A complex tensor.
    ///
    /// Example:
    ///     >>> gt.fft.ifft2(gt.ones(2, 3)).shape
    ///     gt.Size([2, 3])
    [module("fft").out()]
    fn ifft2(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: &'g [i64] = &[-2, -1], norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan(input, s, Some(dim))?;
        complex_transform(g, input, &axes, Direction::Inverse, norm)
    }

    /// The inverse discrete Fourier transform along several axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes; all, or as many of the last as `s` has, if not given.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A complex tensor.
    ///
    /// Example:
    ///     >>> gt.fft.ifftn(gt.ones(2, 3)).shape
    ///     gt.Size([2, 3])
    [module("fft").out()]
    fn ifftn(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: Option<&'g [i64]> = None, norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan(input, s, dim)?;
        complex_transform(g, input, &axes, Direction::Inverse, norm)
    }

    /// The discrete Fourier transform of real numbers along two axes.
    ///
    /// Args:
    ///     input: A tensor of real numbers.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A complex tensor of half the spectrum along the last axis, n / 2 + 1 elements: the others are conjugates.
    ///
    /// Example:
    ///     >>> gt.fft.rfft2(gt.ones(2, 3)).shape
    ///     gt.Size([2, 2])
    [module("fft").out()]
    fn rfft2(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: &'g [i64] = &[-2, -1], norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan(input, s, Some(dim))?;
        real_transform(g, "rfft2", input, &axes, Direction::Forward, norm)
    }

    /// The discrete Fourier transform of real numbers along several axes.
    ///
    /// Args:
    ///     input: A tensor of real numbers.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes; all, or as many of the last as `s` has, if not given.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A complex tensor of half the spectrum along the last axis, n / 2 + 1 elements: the others are conjugates.
    ///
    /// Example:
    ///     >>> gt.fft.rfftn(gt.ones(2, 3)).shape
    ///     gt.Size([2, 2])
    [module("fft").out()]
    fn rfftn(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: Option<&'g [i64]> = None, norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan(input, s, dim)?;
        real_transform(g, "rfftn", input, &axes, Direction::Forward, norm)
    }

    /// The inverse of the transform of real numbers along two axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A real tensor.
    ///
    /// Example:
    ///     >>> gt.fft.irfft2(gt.ones(2, 3)).shape
    ///     gt.Size([2, 4])
    [module("fft").out()]
    fn irfft2(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: &'g [i64] = &[-2, -1], norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan_real(input, s, Some(dim))?;
        real_result(g, "irfft2", input, &axes, Direction::Inverse, norm)
    }

    /// The inverse of the transform of real numbers along several axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes; all, or as many of the last as `s` has, if not given.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A real tensor.
    ///
    /// Example:
    ///     >>> gt.fft.irfftn(gt.ones(2, 3)).shape
    ///     gt.Size([2, 4])
    [module("fft").out()]
    fn irfftn(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: Option<&'g [i64]> = None, norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan_real(input, s, dim)?;
        real_result(g, "irfftn", input, &axes, Direction::Inverse, norm)
    }

    /// The discrete Fourier transform of half a signal that is conjugate symmetric along two axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A real tensor.
    ///
    /// Example:
    ///     >>> gt.fft.hfft2(gt.ones(2, 3)).shape
    ///     gt.Size([2, 4])
    [module("fft").out()]
    fn hfft2(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: &'g [i64] = &[-2, -1], norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan_real(input, s, Some(dim))?;
        real_result(g, "hfft2", input, &axes, Direction::Forward, norm)
    }

    /// The discrete Fourier transform of half a signal that is conjugate symmetric along several axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes; all, or as many of the last as `s` has, if not given.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A real tensor.
    ///
    /// Example:
    ///     >>> gt.fft.hfftn(gt.ones(2, 3)).shape
    ///     gt.Size([2, 4])
    [module("fft").out()]
    fn hfftn(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: Option<&'g [i64]> = None, norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan_real(input, s, dim)?;
        real_result(g, "hfftn", input, &axes, Direction::Forward, norm)
    }

    /// The inverse of the transform of half a symmetric signal along two axes.
    ///
    /// Args:
    ///     input: A tensor of real numbers.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A complex tensor of half the spectrum along the last axis, n / 2 + 1 elements: the others are conjugates.
    ///
    /// Example:
    ///     >>> gt.fft.ihfft2(gt.ones(2, 3)).shape
    ///     gt.Size([2, 2])
    [module("fft").out()]
    fn ihfft2(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: &'g [i64] = &[-2, -1], norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan(input, s, Some(dim))?;
        real_transform(g, "ihfft2", input, &axes, Direction::Inverse, norm)
    }

    /// The inverse of the transform of half a symmetric signal along several axes.
    ///
    /// Args:
    ///     input: A tensor of real numbers.
    ///     s: The number of points along each axis; -1 keeps a size.
    ///     dim: The axes; all, or as many of the last as `s` has, if not given.
    ///     norm: As for `gt.fft.fft`, with the number of points along all axes.
    ///
    /// Returns:
    ///     A complex tensor of half the spectrum along the last axis, n / 2 + 1 elements: the others are conjugates.
    ///
    /// Example:
    ///     >>> gt.fft.ihfftn(gt.ones(2, 3)).shape
    ///     gt.Size([2, 2])
    [module("fft").out()]
    fn ihfftn(g, input: Expr<'g>, s: Option<&'g [i64]> = None, dim: Option<&'g [i64]> = None, norm: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let axes = plan(input, s, dim)?;
        real_transform(g, "ihfftn", input, &axes, Direction::Inverse, norm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_normalization_makes_the_two_directions_inverse() {
        for norm in [None, Some("backward"), Some("forward"), Some("ortho")] {
            let factors = [Direction::Forward, Direction::Inverse].map(|way| way.factor(norm, 16.0).unwrap());
            assert_eq!(factors[0] * factors[1], 1.0 / 16.0, "{norm:?}");
        }
        let error = Direction::Forward.factor(Some("none"), 16.0).unwrap_err();
        assert_eq!(&*error.message, "Invalid normalization mode: \"none\"");
    }

    #[test]
    fn one_axis_has_at_least_one_point() {
        assert_eq!(points_of(&None), Ok(None));
        assert_eq!(points_of(&Some(3)), Ok(Some(&[3][..])));
        for wrong in [0, -1, i64::MIN] {
            let error = points_of(&Some(wrong)).unwrap_err();
            assert_eq!(*error.message, format!("Invalid number of data points ({wrong}) specified"));
        }
    }
}
