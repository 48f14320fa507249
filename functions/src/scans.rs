//! Cumulative operations along an axis, finite differences and numerical integration.

use crate::common::{along_axis, axes_of, check_learns, check_no_bools};
use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{function, in_place_only, method};
use gt_ops::{DType, Op, OpError};

fn scan<'g>(op: Op, input: Expr<'g>, dim: i64, dtype: Option<DType>) -> Result<Expr<'g>> {
    let Some(dtype) = dtype else { return Ok(input.along(op, dim)) };
    let converted = input.to(dtype);
    // A tensor without axes or elements is converted alone.
    if converted.rank()? > 0 && converted.numel()? > 0 {
        check_no_bools(op.name(), converted)?;
    }
    check_learns(input, Some(dtype))?;
    Ok(converted.along(op, dim).to(dtype))
}

/// A scan in the dtype of the tensor that it is written to.
fn scan_in_place<'g>(op: Op, input: Expr<'g>, dim: i64, dtype: Option<DType>) -> Result<Expr<'g>> {
    let own = input.dtype()?;
    match dtype {
        Some(other) if other != own => Err(OpError::runtime(format!(
            "Bad in-place call: input tensor dtype gt.{own} and output tensor dtype gt.{other} should match"
        ))),
        _ => scan(op, input, dim, Some(own)),
    }
}

fn cumulative_extreme<'g>(op: Op, input: Expr<'g>, dim: i64) -> [Expr<'g>; 2] {
    let indices = input.detach().along(op, dim);
    [input.gather(dim, indices), indices]
}

/// The axis and the distance of samples.
fn axis_and_step(name: &str, y: Expr<'_>, x: Option<Expr<'_>>, dx: Option<f64>, dim: i64) -> Result<(usize, f64)> {
    if x.is_some() && dx.is_some() {
        return Err(OpError::type_(format!("{name}() takes one of x and dx")));
    }
    Ok((y.shape()?.axis(dim)?, dx.unwrap_or(1.0)))
}

/// The differences of neighbours along an axis.
pub(crate) fn neighbours<'g>(input: Expr<'g>, axis: i64) -> Result<Expr<'g>> {
    let count = input.size(axis)? - 1;
    let (later, earlier) = (input.narrow(axis, 1, count), input.narrow(axis, 0, count));
    Ok(if input.dtype()? == DType::Bool { later ^ earlier } else { later - earlier })
}

/// Twice the heights of the trapezoids between neighbouring samples.
fn trapezoid_heights(y: Expr<'_>, axis: i64) -> Result<Expr<'_>> {
    let count = y.size(axis)? - 1;
    Ok(y.narrow(axis, 1, count) + y.narrow(axis, 0, count))
}

/// Twice the areas of the trapezoids between neighbouring samples at the positions `x`.
fn trapezoid_areas<'g>(y: Expr<'g>, mut x: Expr<'g>, axis: usize) -> Result<Expr<'g>> {
    let (place, rank) = (axis as i64, y.rank()?);
    if x.rank()? == 1 && rank > 1 {
        if x.size(0)? != y.size(place)? {
            return Err(OpError::runtime("trapezoid: There must be one `x` value for each sample point"));
        }
        x = x.reshape(&along_axis(rank, axis));
    }
    Ok(trapezoid_heights(y, place)? * neighbours(x, place - rank as i64)?)
}

/// The distance between neighbouring samples, or the positions of all.
enum Spacing<'g> {
    Even(f64),
    Positions(Expr<'g>),
}

/// The derivative along one axis.
fn derivative<'g>(f: Expr<'g>, axis: usize, spacing: &Spacing<'g>, edge_order: i64) -> Result<Expr<'g>> {
    let place = axis as i64;
    let size = f.size(place)?;
    let part = |t: Expr<'g>, start: i64, count: i64| t.narrow(place, start, count);
    let inside = size - 2;
    // The distances of the two samples nearest to each end, from the end inwards.
    let (inner, ends) = match spacing {
        Spacing::Positions(positions) => {
            let steps = neighbours(*positions, 0)?.reshape(&along_axis(f.rank()?, axis));
            let (before, after) = (part(steps, 0, inside), part(steps, 1, inside));
            let step = |i: i64| part(steps, i, 1);
            let ends = [[step(0), step(inside.min(1))], [step(inside), step((size - 3).max(0))]];
            let middle = part(f, 1, inside) * ((after - before) / (before * after));
            let next = part(f, 2, inside) * (before / (after * (before + after)));
            let last = part(f, 0, inside) * (after / (before * (before + after)));
            (next + middle - last, ends)
        }
        Spacing::Even(step) => {
            let distance = f.builder().number(*step);
            ((part(f, 2, inside) - part(f, 0, inside)) / (2.0 * step), [[distance; 2]; 2])
        }
    };
    let edge = |position: i64, inward: i64, [near, far]: [Expr<'g>; 2]| {
        let (first, second) = (part(f, position, 1), part(f, position + inward, 1));
        let mut slope = (second - first) / near;
        if edge_order == 2 {
            let third = part(f, position + 2 * inward, 1);
            slope = slope + near * (slope - (third - second) / far) / (near + far);
        }
        if inward < 0 { -slope } else { slope }
    };
    Ok(f.builder().cat(&[edge(0, 1, ends[0]), inner, edge(size - 1, -1, ends[1])], place))
}

fn gradients<'g>(
    input: Expr<'g>,
    spacing: Option<Vec<Spacing<'g>>>,
    dim: Option<&[i64]>,
    edge_order: i64,
) -> Result<Vec<Expr<'g>>> {
    if !matches!(edge_order, 1 | 2) {
        return Err(OpError::runtime("torch.gradient only supports edge_order=1 and edge_order=2."));
    }
    let shape = input.shape()?;
    if input.dtype()? == DType::U8 {
        return Err(OpError::not_implemented("torch.gradient does not support uint8 input."));
    }
    let axes = match dim {
        Some(dims) => axes_of(input, dims)?,
        None => (0..shape.rank()).collect(),
    };
    if let Some(axis) = axes.iter().enumerate().find(|(i, axis)| axes[..*i].contains(axis)).map(|(_, axis)| axis) {
        return Err(OpError::runtime(format!("dim {axis} appears multiple times in dims")));
    }
    let spacing = spacing.unwrap_or_else(|| axes.iter().map(|_| Spacing::Even(1.0)).collect());
    if spacing.len() != axes.len() {
        return Err(OpError::runtime(format!(
            "torch.gradient expected spacing to be unspecified, a scalar or a list of length equal to the number of \
             dims, {}, but got a list of length {}",
            axes.len(),
            spacing.len()
        )));
    }
    if axes.iter().any(|axis| shape.dims().get(*axis).is_none_or(|size| *size as i64 <= edge_order)) {
        return Err(OpError::runtime("torch.gradient expected each dimension size to be at least edge_order+1"));
    }
    axes.iter().zip(&spacing).map(|(axis, spacing)| derivative(input, *axis, spacing, edge_order)).collect()
}

functions! {
    /// The cumulative sum along an axis: `output[i] = input[0] + ... + input[i]`.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     dtype: The dtype to convert the input to before. Without it, bools and integers add up as int64.
    ///
    /// Example:
    ///     >>> gt.cumsum(gt.tensor([1, 2, 3]), dim=0)
    ///     tensor([1, 3, 6])
    [method().out()]
    fn cumsum(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        scan(Op::Cumsum, input, dim, dtype)
    }

    /// The cumulative sum along an axis, in the tensor's own dtype.
    [in_place_only().named("cumsum")]
    fn cumsum_in_place(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        scan_in_place(Op::Cumsum, input, dim, dtype)
    }

    /// The cumulative product along an axis: `output[i] = input[0] * ... * input[i]`.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     dtype: The dtype to convert the input to before. Without it, bools and integers multiply as int64.
    ///
    /// Example:
    ///     >>> gt.cumprod(gt.tensor([1, 2, 3, 4]), dim=0)
    ///     tensor([ 1,  2,  6, 24])
    [method().out()]
    fn cumprod(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        scan(Op::Cumprod, input, dim, dtype)
    }

    /// The cumulative product along an axis, in the tensor's own dtype.
    [in_place_only().named("cumprod")]
    fn cumprod_in_place(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        scan_in_place(Op::Cumprod, input, dim, dtype)
    }

    /// The logarithm of the cumulative sum of exponentials along an axis, without overflow.
    ///
    /// Example:
    ///     >>> gt.logcumsumexp(gt.tensor([0.0, 0.0, 0.0]), dim=0)
    ///     tensor([0.0000, 0.6931, 1.0986])
    [method().out()]
    fn logcumsumexp(g, input: Expr<'g>, dim: i64) -> Expr<'g> {
        input.along(Op::Logcumsumexp, dim)
    }

    /// The cumulative maximum along an axis, and its indices: of equal elements, the last.
    ///
    /// Returns:
    ///     A pair `(values, indices)`.
    ///
    /// Example:
    ///     >>> values, indices = gt.cummax(gt.tensor([1, 3, 2, 3]), dim=0)
    ///     >>> values, indices
    ///     (tensor([1, 3, 3, 3]), tensor([0, 1, 1, 3]))
    [method().out().results(&["values", "indices"])]
    fn cummax(g, input: Expr<'g>, dim: i64) -> [Expr<'g>; 2] {
        cumulative_extreme(Op::Cumargmax, input, dim)
    }

    /// The cumulative minimum along an axis, and its indices: of equal elements, the last.
    ///
    /// Returns:
    ///     A pair `(values, indices)`.
    ///
    /// Example:
    ///     >>> gt.cummin(gt.tensor([3, 1, 2]), dim=0).values
    ///     tensor([3, 1, 1])
    [method().out().results(&["values", "indices"])]
    fn cummin(g, input: Expr<'g>, dim: i64) -> [Expr<'g>; 2] {
        cumulative_extreme(Op::Cumargmin, input, dim)
    }

    /// The differences of neighbours along an axis: `output[i] = input[i + 1] - input[i]`.
    ///
    /// Args:
    ///     input: A tensor.
    ///     n: How often differences are taken.
    ///     dim: The axis.
    ///     prepend: Elements to put in front first.
    ///     append: Elements to put behind first.
    ///
    /// Example:
    ///     >>> gt.diff(gt.tensor([1, 3, 6]))
    ///     tensor([2, 3])
    [method().out()]
    fn diff(g, input: Expr<'g>, n: i64 = 1, dim: i64 = -1, prepend: Option<Expr<'g>> = None,
        append: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        if input.rank()? == 0 {
            return Err(OpError::runtime("diff expects input to be at least one-dimensional"));
        }
        if n < 0 {
            return Err(OpError::runtime(format!("order must be non-negative but got {n}")));
        }
        let axis = input.shape()?.axis(dim)? as i64;
        if n == 0 {
            return Ok(input.copied());
        }
        let mut result = input;
        if prepend.is_some() || append.is_some() {
            let parts: Vec<Expr<'g>> = [prepend, Some(input), append].into_iter().flatten().collect();
            result = g.cat(&parts, axis);
        }
        for _ in 0..n.min(result.size(axis)?) {
            result = neighbours(result, axis)?;
        }
        Ok(result)
    }

    /// The integral of samples along an axis by the trapezoidal rule.
    ///
    /// Args:
    ///     y: The samples.
    ///     x: The positions of the samples.
    ///     dx: The distance between samples if there is no `x`; 1 if not given.
    ///     dim: The axis.
    ///
    /// Example:
    ///     >>> gt.trapezoid(gt.tensor([1.0, 5.0, 10.0]))
    ///     tensor(10.5000)
    [function().aliases(&["trapz"]).wide()]
    fn trapezoid(g, y: Expr<'g>, x: Option<Expr<'g>> = None; dx: Option<f64> = None, dim: i64 = -1)
        -> Result<Expr<'g>> {
        if y.dtype()? == DType::Bool {
            return Err(OpError::not_implemented("trapezoid: received a bool input for `y`, but bool is not supported"));
        }
        let (axis, step) = axis_and_step("trapezoid", y, x, dx, dim)?;
        if y.size(axis as i64)? == 0 {
            let dtype = y.dtype()?;
            return Ok(y.sum(&[axis as i64], false).to(if dtype.is_float() { dtype } else { DType::F32 }));
        }
        let place = axis as i64;
        let Some(x) = x else {
            // All samples count whole but the two at the ends. A sum of integers is one of int64.
            let ends = y.select(place, 0) + y.select(place, -1);
            return Ok((y.sum(&[place], false) - ends * 0.5) * step);
        };
        Ok(trapezoid_areas(y, x, axis)?.sum(&[place], false) / 2.0)
    }

    /// The cumulative integral of samples along an axis by the trapezoidal rule; shorter by one than the samples.
    ///
    /// Example:
    ///     >>> gt.cumulative_trapezoid(gt.tensor([1.0, 5.0, 10.0]))
    ///     tensor([ 3.0000, 10.5000])
    [function().wide()]
    fn cumulative_trapezoid(g, y: Expr<'g>, x: Option<Expr<'g>> = None; dx: Option<f64> = None, dim: i64 = -1)
        -> Result<Expr<'g>> {
        let (axis, step) = axis_and_step("cumulative_trapezoid", y, x, dx, dim)?;
        let place = axis as i64;
        Ok(match x {
            None => (trapezoid_heights(y, place)? * (step / 2.0)).cumsum(place),
            Some(x) => trapezoid_areas(y, x, axis)?.cumsum(place) / 2.0,
        })
    }

    /// The derivative of samples along each axis: central differences, and one-sided ones of an order at the ends.
    ///
    /// Args:
    ///     input: The samples.
    ///     spacing: The distance between samples, or their positions as a vector; one for all axes or one for each.
    ///     dim: The axes; all if not given.
    ///     edge_order: The order of the differences at the ends, 1 or 2.
    ///
    /// Returns:
    ///     A tuple with a tensor for each axis.
    ///
    /// Example:
    ///     >>> gt.gradient(gt.tensor([1.0, 2.0, 4.0, 7.0]))
    ///     (tensor([1.0000, 1.5000, 2.5000, 3.0000]),)
    [function().wide()]
    fn gradient(g, input: Expr<'g>; spacing: Option<f64> = None, dim: Option<&'g [i64]> = None, edge_order: i64 = 1)
        -> Result<Vec<Expr<'g>>> {
        let axes = dim.map_or(input.rank()?, <[i64]>::len);
        let spacing = spacing.map(|step| (0..axes).map(|_| Spacing::Even(step)).collect());
        gradients(input, spacing, dim, edge_order)
    }

    /// The derivative of samples along each axis, whose distances differ from axis to axis.
    [function().named("gradient").wide()]
    fn gradient_of_steps(g, input: Expr<'g>; spacing: &'g [f64], dim: Option<&'g [i64]> = None, edge_order: i64 = 1)
        -> Result<Vec<Expr<'g>>> {
        gradients(input, Some(spacing.iter().map(|step| Spacing::Even(*step)).collect()), dim, edge_order)
    }

    /// The derivative of samples along each axis, whose positions are vectors.
    [function().named("gradient").wide()]
    fn gradient_of_positions(g, input: Expr<'g>; spacing: Vec<Expr<'g>>, dim: Option<&'g [i64]> = None,
        edge_order: i64 = 1) -> Result<Vec<Expr<'g>>> {
        gradients(input, Some(spacing.into_iter().map(Spacing::Positions).collect()), dim, edge_order)
    }
}
