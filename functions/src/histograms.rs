//! Binary search in sorted rows, histograms and membership.

use crate::common::{along_axis, check_implemented, extremes, filled, repeated, zeros};
use crate::declaration::{TensorOrNumber, functions};
use crate::scans::neighbours;
use gt_ops::build::numbers::fits;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, method};
use gt_ops::{Attrs, DType, Op, OpError, Scalar, Shape, build};

/// The number of elements of a sorted row that are smaller than each wanted element, or with `right` not larger.
fn search<'g>(sorted: Expr<'g>, wanted: Expr<'g>, right: bool) -> Expr<'g> {
    let op = if right { Op::SearchsortedRight } else { Op::Searchsorted };
    sorted.builder().emit(op, &[sorted.into(), wanted.into()], Attrs::None)
}

/// The sum of weights in each bin; elements that are not `inside` count nothing.
fn weighted_counts<'g>(
    inside: Expr<'g>,
    bins: Expr<'g>,
    size: i64,
    weight: Option<Expr<'g>>,
    dtype: DType,
) -> Result<Expr<'g>> {
    let weights = match weight {
        Some(weight) => inside.where_(weight.reshape(&[-1]), 0.0).to(dtype),
        None => inside.to(dtype),
    };
    let none = zeros(inside.builder(), &[size], dtype);
    Ok(none.scatter(Op::ScatterAdd, 0, inside.where_(bins, 0i64), weights))
}

/// The range of a histogram; if `low` equals `high`, that of the elements, widened by `margin` if empty.
fn bin_range(flat: Expr<'_>, low: f64, high: f64, margin: f64) -> Result<(f64, f64)> {
    if low != high {
        return Ok((low, high));
    }
    if flat.numel()? == 0 {
        return Ok((low, high + 1.0));
    }
    let [low, high] = extremes(flat)?.map(Scalar::to_f64);
    Ok(if low == high { (low - margin, high + margin) } else { (low, high) })
}

fn check_histogram_dtype(input: Expr<'_>) -> Result<DType> {
    check_implemented("histogram_cpu", input, DType::is_float)?;
    input.dtype()
}

/// The edges of equally wide bins.
fn even_edges<'g>(g: &'g Builder<'g>, low: f64, high: f64, bins: i64, dtype: DType) -> Expr<'g> {
    g.run(|graph| build::linspace(graph, low, high, bins + 1, dtype))
}

/// Which elements lie between the first and the last edge, the bin of each, and the number of bins.
fn bins_of<'g>(edges: Expr<'g>, line: Expr<'g>) -> Result<(Expr<'g>, Expr<'g>, i64)> {
    let size = edges.numel()? as i64 - 1;
    let inside = line.ge(edges.select(0, 0)) & line.le(edges.select(0, -1));
    Ok((inside, (search(edges, line, true) - 1i64).clamp(0i64, size - 1), size))
}

fn counts_and_edges<'g>(
    input: Expr<'g>,
    edges: Expr<'g>,
    weight: Option<Expr<'g>>,
    density: bool,
) -> Result<[Expr<'g>; 2]> {
    let flat = input.detach().reshape(&[-1]);
    let (inside, bins, size) = bins_of(edges, flat)?;
    let counts = weighted_counts(inside, bins, size, weight, input.dtype()?)?;
    Ok([if density { counts / counts.sum(&[], false) / neighbours(edges, 0)? } else { counts }, edges])
}

/// The bins along an axis of points.
enum Bins<'g> {
    Count(i64),
    Edges(Expr<'g>),
}

/// The number of points in each bin of a grid, and the edges along each axis.
fn grid_counts<'g>(
    input: Expr<'g>,
    bins: &[Bins<'g>],
    range: Option<&[f64]>,
    weight: Option<Expr<'g>>,
    density: bool,
) -> Result<(Expr<'g>, Vec<Expr<'g>>)> {
    let (g, dtype, count) = (input.builder(), input.dtype()?, input.size(-1)?);
    if bins.len() as i64 != count {
        return Err(OpError::runtime(format!(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input. Got {} bins for \
             {count} dimensions.",
            bins.len()
        )));
    }
    if let Some(range) = range
        && range.len() != 2 * bins.len()
    {
        return Err(OpError::runtime(format!(
            "torch.histogramdd(): range must have {} elements, but got {}",
            2 * bins.len(),
            range.len()
        )));
    }
    let points = input.detach().reshape(&[-1, count]);
    let rows = [points.size(0)?];
    let (mut place, mut inside) = (zeros(g, &rows, DType::I64), filled(g, &rows, true, DType::Bool));
    let (mut edges, mut sizes) = (Vec::new(), Vec::new());
    for (axis, bins) in bins.iter().enumerate() {
        let line = points.select(1, axis as i64);
        let own = match bins {
            Bins::Edges(edges) => *edges,
            Bins::Count(bins) => {
                let (low, high) = range.map_or((0.0, 0.0), |range| (range[2 * axis], range[2 * axis + 1]));
                let (low, high) = bin_range(line, low, high, 0.5)?;
                even_edges(g, low, high, *bins, dtype)
            }
        };
        let (here, bin, size) = bins_of(own, line)?;
        (place, inside) = (place * size + bin, inside & here);
        edges.push(own);
        sizes.push(size);
    }
    let all = sizes.iter().fold(1i64, |all, size| all.saturating_mul(*size));
    let mut counts = weighted_counts(inside, place, all, weight, dtype)?.reshape(&sizes);
    if density {
        counts = counts / counts.sum(&[], false);
        for (axis, edges) in edges.iter().enumerate() {
            counts = counts / neighbours(*edges, 0)?.reshape(&along_axis(sizes.len(), axis));
        }
    }
    Ok((counts, edges))
}

functions! {
    /// The indices at which elements belong in sorted rows, so that inserting them keeps the order (binary search).
    ///
    /// Args:
    ///     sorted_sequence: One sorted row for all elements, or a row for each row of `input`.
    ///     input: A tensor or a number.
    ///     out_int32: Whether the result is of int32 instead of int64.
    ///     right: Of equal elements, whether the index behind the last is taken instead of that of the first.
    ///     side: `"left"` or `"right"`, another way to write `right`.
    ///     sorter: The indices that sort `sorted_sequence`, if it is not sorted.
    ///
    /// Example:
    ///     >>> gt.searchsorted(gt.tensor([1, 3, 5, 7]), gt.tensor([3, 6, 9]))
    ///     tensor([1, 3, 4])
    [function().out()]
    fn searchsorted(g, sorted_sequence: Expr<'g>, input: TensorOrNumber<'g>; out_int32: bool = false,
        right: bool = false, side: Option<&'g str> = None, sorter: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let right = match side {
            None => right,
            Some("right") => true,
            Some("left") if right => return Err(OpError::runtime(
                "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True",
            )),
            Some("left") => false,
            Some(other) => return Err(OpError::runtime(format!(
                "torch.searchsorted(): side can only be 'left' or 'right' but got {other}"
            ))),
        };
        let mut sorted = sorted_sequence;
        let mut wanted = *input;
        if let Some(number) = input.as_number() {
            // A number and the sequence are promoted to a common dtype.
            let own = sorted.dtype()?;
            let dtype = match own {
                own if number.category() > own.category() => number.natural_dtype(),
                own if fits(number, own) => own,
                own if own.is_float() => DType::F64,
                _ => DType::I64,
            };
            (wanted, sorted) = (g.full(&Shape::SCALAR, number, dtype), sorted.to(dtype));
        }
        let common = wanted.dtype()?.promote(sorted.dtype()?);
        (wanted, sorted) = (wanted.to(common), sorted.to(common));
        if let Some(sorter) = sorter {
            let (sizes, order) = (sorted.sizes()?, sorter.sizes()?);
            if sizes != order {
                return Err(OpError::runtime(format!(
                    "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor \
                     {sizes:?}and got sorter tensor {order:?}"
                )));
            }
            sorted = sorted.gather(-1, sorter);
        }
        let found = search(sorted, wanted, right);
        Ok(if out_int32 { found.to(DType::I32) } else { found })
    }

    /// The index of the bucket of each element, between sorted boundaries.
    ///
    /// Args:
    ///     input: A tensor or a number.
    ///     boundaries: A sorted vector.
    ///     out_int32: Whether the result is of int32 instead of int64.
    ///     right: Whether an element equal to a boundary belongs to the bucket above it.
    ///
    /// Example:
    ///     >>> gt.bucketize(gt.tensor([3, 6, 9]), gt.tensor([1, 3, 5, 7, 9]))
    ///     tensor([1, 3, 4])
    [function().out()]
    fn bucketize(g, input: TensorOrNumber<'g>, boundaries: Expr<'g>; out_int32: bool = false, right: bool = false)
        -> Result<Expr<'g>> {
        let rank = boundaries.rank()?;
        if rank != 1 {
            return Err(OpError::runtime(format!(
                "bucketize(): boundaries tensor must be 1 dimension, but got dim({rank})"
            )));
        }
        searchsorted(g, boundaries, input, out_int32, right, None, None)
    }

    /// The number of occurrences of each integer from 0 to the largest, or the sums of their weights.
    ///
    /// Waits for the largest element, which decides the length of the result.
    ///
    /// Args:
    ///     input: A vector of non-negative integers.
    ///     weights: A weight for each element; each counts 1 if not given.
    ///     minlength: The smallest length of the result.
    ///
    /// Example:
    ///     >>> gt.bincount(gt.tensor([1, 1, 3]))
    ///     tensor([0, 2, 0, 1])
    [method()]
    fn bincount(g, input: Expr<'g>, weights: Option<Expr<'g>> = None, minlength: i64 = 0) -> Result<Expr<'g>> {
        if minlength < 0 {
            return Err(OpError::runtime("minlength should be >= 0"));
        }
        check_implemented("bincount_cpu", input, DType::is_int)?;
        let invalid = || OpError::runtime("bincount only supports 1-d non-negative integral inputs.");
        let meta = input.meta()?;
        if meta.shape.rank() != 1 || !meta.dtype.is_int() {
            return Err(invalid());
        }
        if let Some(weights) = weights
            && weights.shape()? != meta.shape
        {
            return Err(OpError::runtime("weights should be 1-d and have the same length as input"));
        }
        let mut size = minlength;
        if meta.shape.numel() > 0 {
            let [least, most] = extremes(input)?.map(Scalar::to_i64);
            if least < 0 {
                return Err(invalid());
            }
            size = size.max(most.saturating_add(1));
        }
        let weights = match weights {
            None => repeated(g, meta.shape, 1i64, DType::I64),
            Some(weights) if weights.dtype()? == DType::F32 => weights.detach(),
            Some(weights) => weights.detach().to(DType::F64),
        };
        let none = zeros(g, &[size], weights.dtype()?);
        Ok(none.scatter(Op::ScatterAdd, 0, input.to(DType::I64), weights))
    }

    /// The number of elements in each of `bins` equally wide bins.
    ///
    /// Args:
    ///     input: A floating-point tensor.
    ///     bins: The number of bins.
    ///     min: The start of the range.
    ///     max: The end of the range. Where both are equal, the range is that of the elements.
    ///
    /// Example:
    ///     >>> gt.histc(gt.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    ///     tensor([0., 2., 1., 0.])
    [method().out()]
    fn histc(g, input: Expr<'g>, bins: i64 = 100, min: f64 = 0.0, max: f64 = 0.0) -> Result<Expr<'g>> {
        if bins <= 0 {
            return Err(OpError::runtime("torch.histogram(): bins must be > 0"));
        }
        let dtype = check_histogram_dtype(input)?;
        if max < min {
            return Err(OpError::runtime("torch.histc: max must be larger than min"));
        }
        let flat = input.detach().reshape(&[-1]);
        let (low, high) = bin_range(flat, min, max, 1.0)?;
        if !(low.is_finite() && high.is_finite()) {
            let [low, high] = [low, high].map(|bound| format!("{bound:?}").replace("NaN", "nan"));
            return Err(OpError::runtime(format!("torch.histogram: range of [{low}, {high}] is not finite")));
        }
        let inside = flat.ge(low) & flat.le(high);
        let place = ((inside.where_(flat, low) - low) * bins / (high - low)).to(DType::I64).minimum(bins - 1);
        weighted_counts(inside, place, bins, None, dtype)
    }

    /// The number of elements in each bin, and the edges of the bins.
    ///
    /// Args:
    ///     input: A floating-point tensor.
    ///     bins: The number of bins, or a tensor with their edges.
    ///     range: The start and end of the bins; that of the elements if not given.
    ///     weight: A weight for each element.
    ///     density: Whether the histogram integrates to 1.
    ///
    /// Returns:
    ///     A pair `(hist, bin_edges)`.
    ///
    /// Example:
    ///     >>> hist, edges = gt.histogram(gt.tensor([1.0, 2.0, 1.0]), bins=4, range=(0.0, 3.0))
    ///     >>> hist
    ///     tensor([0., 2., 1., 0.])
    [method().out().results(&["hist", "bin_edges"])]
    fn histogram(g, input: Expr<'g>, bins: i64 = 100; range: Option<&'g [f64]> = None, weight: Option<Expr<'g>> = None,
        density: bool = false) -> Result<[Expr<'g>; 2]> {
        let dtype = check_histogram_dtype(input)?;
        let (low, high) = match range {
            None => (0.0, 0.0),
            Some([low, high]) => (*low, *high),
            Some(other) => return Err(OpError::runtime(format!(
                "torch.histogram(): range must have 2 elements, but got {}", other.len()
            ))),
        };
        let (low, high) = bin_range(input.detach().reshape(&[-1]), low, high, 0.5)?;
        counts_and_edges(input, even_edges(g, low, high, bins, dtype), weight, density)
    }

    /// The number of elements in each bin between given edges, and the edges.
    [method().out().named("histogram").results(&["hist", "bin_edges"])]
    fn histogram_between(g, input: Expr<'g>, bins: Expr<'g>; weight: Option<Expr<'g>> = None, density: bool = false)
        -> Result<[Expr<'g>; 2]> {
        check_histogram_dtype(input)?;
        counts_and_edges(input, bins, weight, density)
    }

    /// The number of points in each bin of a grid, and the edges of the bins along each axis.
    ///
    /// Args:
    ///     input: Points: the last axis has their coordinates.
    ///     bins: The number of bins along all axes or along each, or a tensor with the edges for each axis.
    ///     range: The start and end along each axis, one after another; those of the points if not given.
    ///     weight: A weight for each point.
    ///     density: Whether the histogram integrates to 1.
    ///
    /// Returns:
    ///     A pair `(hist, bin_edges)`; the edges are a tuple of vectors.
    ///
    /// Example:
    ///     >>> gt.histogramdd(gt.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]), bins=2).hist
    ///     tensor([[1., 0.],
    ///             [1., 1.]])
    [function().results(&["hist", "bin_edges"])]
    fn histogramdd(g, input: Expr<'g>, bins: i64; range: Option<&'g [f64]> = None, weight: Option<Expr<'g>> = None,
        density: bool = false) -> Result<(Expr<'g>, Vec<Expr<'g>>)> {
        let all: Vec<Bins<'g>> = (0..input.size(-1)?).map(|_| Bins::Count(bins)).collect();
        grid_counts(input, &all, range, weight, density)
    }

    /// The number of points in each bin of a grid with a number of bins along each axis.
    [function().named("histogramdd").results(&["hist", "bin_edges"])]
    fn histogramdd_of_counts(g, input: Expr<'g>, bins: &'g [i64]; range: Option<&'g [f64]> = None,
        weight: Option<Expr<'g>> = None, density: bool = false) -> Result<(Expr<'g>, Vec<Expr<'g>>)> {
        let all: Vec<Bins<'g>> = bins.iter().map(|bins| Bins::Count(*bins)).collect();
        grid_counts(input, &all, range, weight, density)
    }

    /// The number of points in each bin of a grid between given edges.
    [function().named("histogramdd").results(&["hist", "bin_edges"])]
    fn histogramdd_between(g, input: Expr<'g>, bins: Vec<Expr<'g>>; range: Option<&'g [f64]> = None,
        weight: Option<Expr<'g>> = None, density: bool = false) -> Result<(Expr<'g>, Vec<Expr<'g>>)> {
        let all: Vec<Bins<'g>> = bins.into_iter().map(Bins::Edges).collect();
        grid_counts(input, &all, range, weight, density)
    }

    /// Whether each element occurs among the elements of another tensor.
    ///
    /// Args:
    ///     elements: A tensor or a number.
    ///     test_elements: A tensor or a number.
    ///     assume_unique: Accepted for PyTorch's sake.
    ///     invert: Whether the answers are inverted.
    ///
    /// Example:
    ///     >>> gt.isin(gt.tensor([1, 2, 3]), gt.tensor([2, 3]))
    ///     tensor([False,  True,  True])
    [function().out()]
    fn isin(g, elements: TensorOrNumber<'g>, test_elements: TensorOrNumber<'g>; assume_unique: bool = false,
        invert: bool = false) -> Result<Expr<'g>> {
        let found = match (elements.as_number(), test_elements.as_number()) {
            (Some(_), Some(_)) => {
                return Err(OpError::type_("isin(): one of the arguments must be a Tensor"));
            }
            (None, Some(number)) => elements.eq(number),
            (Some(number), None) => test_elements.detach().eq(number).any(&[], false),
            (None, None) => {
                let (shape, count) = (elements.shape()?, elements.numel()? as i64);
                let others = test_elements.detach().reshape(&[-1]);
                let known = others.numel()? as i64;
                if known == 0 {
                    return Ok(g.full(&shape, invert, DType::Bool));
                }
                let both = g.cat(&[elements.detach().reshape(&[-1]), others], 0);
                let (wanted, others) = (both.narrow(0, 0, count), both.narrow(0, count, known));
                let ranked = others.gather(0, others.argsort(0, false));
                let position = search(ranked, wanted, false).minimum(known - 1);
                ranked.gather(0, position).eq(wanted).with_shape(&shape)
            }
        };
        Ok(if invert { found.logical_not() } else { found })
    }
}
