//! Resizing by interpolation. Each axis is resampled separately, by a matrix of interpolation weights or, if it is long
//! and each result lies between two elements, from these.

use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{DType, Op, OpError};
use std::f64::consts::PI;

/// Along an axis of so many elements, points between two of them are computed from these two, not by a matrix.
const LONG: i64 = 64;
/// Along an axis of at least so many elements for each that a result is computed from, results are computed from these
/// elements, not by a matrix.
const LONG_TAP: i64 = 32;

/// A matrix whose rows hold the weights of an axis's elements for each element of the output, most of them 0.
#[derive(Debug)]
pub(crate) struct Weights {
    columns: i64,
    /// The weights of each row other than 0, and their columns in rising order.
    rows: Vec<Vec<(i64, f64)>>,
}

impl Weights {
    fn new(size: i64, wanted: i64) -> Weights {
        Weights { columns: size, rows: vec![Vec::new(); wanted as usize] }
    }
    /// The weights as PyTorch has them for bytes: 16-bit integers, scaled by the largest power of 2 that they allow.
    fn in_16_bits(mut self) -> Weights {
        let largest = self.rows.iter().flatten().fold(0f64, |largest, (_, weight)| largest.max(*weight));
        let bits = (0..22).find(|bits| (0.5 + largest * f64::from(1 << (bits + 1))) as i64 >= 1 << 15).unwrap_or(22);
        let scale = f64::from(1 << bits);
        self.rows.iter_mut().flatten().for_each(|(_, weight)| *weight = (*weight * scale).round() / scale);
        self
    }
    /// If each row is a point between two elements: these, and the share of the second.
    fn pairs(&self) -> Option<(Vec<i64>, Vec<i64>, Vec<f64>)> {
        let (mut from, mut to, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for row in &self.rows {
            let mut places = row.iter().copied().filter(|(_, weight)| *weight != 0.0);
            let (first, weight) = places.next()?;
            let (second, share) = places.next().unwrap_or((first, 0.0));
            if places.next().is_some() || (weight + share - 1.0).abs() > 1e-12 {
                return None;
            }
            from.push(first);
            to.push(second);
            shares.push(share);
        }
        Some((from, to, shares))
    }
    /// Adds a weight of a place, none before the last one of the row; places beyond the ends of the axis count as its
    /// ends.
    fn add(&mut self, row: i64, place: i64, weight: f64) {
        let (column, row) = (place.clamp(0, self.columns - 1), &mut self.rows[row as usize]);
        match row.last_mut() {
            Some((last, total)) if *last == column => *total += weight,
            _ => row.push((column, weight)),
        }
    }

    /// For each of as many taps as a row has at most, the place and the weight of that tap in each row. A row of fewer
    /// taps has its last one several times, with a part of its weight. None if there are more than `most`.
    fn taps(&self, most: usize) -> Option<Vec<(Vec<i64>, Vec<f64>)>> {
        let apart = |row: &Vec<(i64, f64)>| row.iter().copied().filter(|(_, weight)| *weight != 0.0).collect();
        let mut all: Vec<Vec<(i64, f64)>> = self.rows.iter().map(apart).collect();
        let count = all.iter().map(Vec::len).max().filter(|count| (1..=most).contains(count))?;
        for row in &mut all {
            while row.len() < count {
                let (place, weight) = row.pop().unwrap_or((0, 0.0));
                row.extend([(place, weight / 2.0); 2]);
            }
        }
        Some((0..count).map(|tap| all.iter().map(|row| row[tap]).unzip()).collect())
    }

    /// All weights in row-major order.
    fn numbers(&self) -> Vec<f64> {
        let mut numbers = vec![0.0; self.rows.len() * self.columns as usize];
        for (row, own) in numbers.chunks_mut(self.columns.max(1) as usize).zip(&self.rows) {
            own.iter().for_each(|(column, weight)| row[*column as usize] = *weight);
        }
        numbers
    }
}

/// Multiplies an axis by a matrix of weights.
pub(crate) fn resample<'g>(g: &'g Builder<'g>, input: Expr<'g>, axis: i64, weights: &Weights) -> Expr<'g> {
    let (Ok(sizes), Ok(dtype)) = (input.sizes(), input.dtype()) else { return input };
    let wanted = weights.rows.len() as i64;
    let picked = |places: &[i64]| input.index_select(axis, g.ints(places, &[wanted]));
    let mut wide = vec![1; sizes.len() - axis as usize];
    wide[0] = wanted;
    let along = |numbers: &[f64]| g.floats(numbers, &wide, dtype);
    if weights.columns >= LONG
        && let Some((from, to, shares)) = weights.pairs()
    {
        return g.elementwise(Op::Lerp, &[picked(&from).into(), picked(&to).into(), along(&shares).into()]);
    }
    // A sum of products in half precision would be rounded after each.
    let most = (weights.columns / LONG_TAP) as usize;
    if matches!(dtype, DType::F32 | DType::F64)
        && let Some(taps) = weights.taps(most)
    {
        let mut total: Option<Expr<'g>> = None;
        for (places, shares) in taps {
            let (element, share) = (picked(&places), along(&shares));
            total = Some(match total {
                None => element * share,
                Some(total) => g.elementwise(Op::Addcmul, &[total.into(), element.into(), share.into()]),
            });
        }
        return total.unwrap_or(input);
    }
    let matrix = g.floats(&weights.numbers(), &[wanted, weights.columns], dtype);
    if axis as usize == sizes.len() - 1 {
        return input.matmul(matrix.transposed());
    }
    let (lead, rest) = (&sizes[..axis as usize], &sizes[axis as usize + 1..]);
    let flat = input.reshape(&[lead, &[weights.columns, rest.iter().product()]].concat());
    matrix.matmul(flat).reshape(&[lead, &[wanted], rest].concat())
}

/// The bounds of the windows of adaptive pooling: `wanted` windows that cover `size` elements and may overlap.
pub(crate) fn adaptive_windows(size: i64, wanted: i64) -> Vec<(i64, i64)> {
    let end = |i: i64| (i * size + wanted - 1) / wanted;
    (0..wanted).map(|i| (i * size / wanted, end(i + 1))).collect()
}

/// The weights whose product with an axis is the means of its windows ([`adaptive_windows`]).
pub(crate) fn averaging_matrix(size: i64, wanted: i64) -> Weights {
    let mut weights = Weights::new(size, wanted);
    for (row, (start, end)) in adaptive_windows(size, wanted).into_iter().enumerate() {
        (start..end).for_each(|place| weights.add(row as i64, place, 1.0 / (end - start) as f64));
    }
    weights
}

/// The weights of linear interpolation at the positions that `at` gives: two in each row.
fn linear_matrix(size: i64, wanted: i64, at: impl Fn(i64) -> f64) -> Weights {
    let mut weights = Weights::new(size, wanted);
    for row in 0..wanted {
        let at = at(row).max(0.0);
        let low = (at as i64).min(size - 1);
        let share = at - low as f64;
        weights.add(row, low, 1.0 - share);
        weights.add(row, low + 1, share);
    }
    weights
}

/// The weights of cubic interpolation at the positions that `at` gives: four in each row.
fn cubic_matrix(size: i64, wanted: i64, at: impl Fn(i64) -> f64) -> Weights {
    let mut weights = Weights::new(size, wanted);
    for row in 0..wanted {
        let at = at(row);
        let low = at.floor() as i64;
        for place in low - 1..low + 3 {
            weights.add(row, place, keys_kernel(at - place as f64, -0.75));
        }
    }
    weights
}

/// Cubic convolution kernel with the parameter `a`, its slope at 1 (Keys 1981).
fn keys_kernel(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// A filter's radius and kernel.
type Filter = (f64, fn(f64) -> f64);

/// An antialiasing filter: its radius in input pixels when not downscaling, and its kernel.
fn filter(mode: &str) -> Option<Filter> {
    match mode {
        "bilinear" => Some((1.0, |x| (1.0 - x.abs()).max(0.0))),
        "bicubic" => Some((2.0, |x| keys_kernel(x, -0.5))),
        "lanczos" => Some((3.0, |x| if x.abs() < 3.0 { sinc(x) * sinc(x / 3.0) } else { 0.0 })),
        _ => None,
    }
}

/// The weights of antialiased interpolation: a filter whose support grows with the downscaling factor `step`.
///
/// Each row is normalized to the sum 1, also at the ends of the axis, where the filter is cut off.
fn antialias_matrix((reach, kernel): Filter, size: i64, wanted: i64, step: f64) -> Weights {
    let mut weights = Weights::new(size, wanted);
    let wide = step.max(1.0);
    for row in 0..wanted {
        let centre = (row as f64 + 0.5) * step;
        let low = (centre - reach * wide + 0.5).trunc().max(0.0) as i64;
        let high = ((centre + reach * wide + 0.5).trunc() as i64).min(size);
        let values: Vec<f64> = (low..high).map(|place| kernel((place as f64 - centre + 0.5) / wide)).collect();
        let total: f64 = values.iter().sum();
        (low..high).zip(&values).for_each(|(place, value)| weights.add(row, place, value / total));
    }
    weights
}

/// The number of spatial axes that a mode of linear or cubic interpolation is for; the other modes take any.
fn rank_of(mode: &str) -> Option<usize> {
    match mode {
        "linear" => Some(1),
        "bilinear" | "bicubic" | "lanczos" => Some(2),
        "trilinear" => Some(3),
        _ => None,
    }
}

functions! {
    /// Resizes the spatial axes of `(N, C, *)` to `size`, or by `scale_factor`.
    ///
    /// Args:
    ///     input: A tensor `(N, C, *)` with one to three spatial axes.
    ///     size: The output's spatial sizes: one number for all axes, or one for each. Give either `size` or
    ///         `scale_factor`.
    ///     scale_factor: The factors of the spatial sizes, likewise; the products are rounded down.
    ///     mode: `"nearest"`, `"nearest-exact"` or `"area"` (adaptive mean pooling) for any number of spatial axes;
    ///         `"linear"` for one; `"bilinear"`, `"bicubic"` or `"lanczos"` (with `antialias`) for two; `"trilinear"`
    ///         for three.
    ///     align_corners: Whether the centres of the corner pixels, rather than their outer edges, are aligned. For the
    ///         modes of linear and cubic interpolation; false if not given.
    ///     recompute_scale_factor: Whether the output's rounded size, rather than `scale_factor` itself, determines
    ///         where the input is sampled.
    ///     antialias: Whether a filter removes what a smaller image cannot show; for `"bilinear"`, `"bicubic"` and
    ///         `"lanczos"`.
    ///
    /// Returns:
    ///     A tensor with the input's first two sizes and the new spatial sizes.
    ///
    /// Raises:
    ///     ValueError: Both or neither of `size` and `scale_factor` are given, or an option does not apply to the mode.
    ///     NotImplementedError: The mode does not exist, or not for this number of spatial axes.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[[1.0, 3.0]]])
    ///     >>> gt.nn.functional.interpolate(x, scale_factor=2)
    ///     tensor([[[1., 1., 3., 3.]]])
    ///     >>> gt.nn.functional.interpolate(x, size=3, mode="linear", align_corners=True)
    ///     tensor([[[1., 2., 3.]]])
    [module("nn.functional").wide()]
    fn interpolate(g, input: Expr<'g>, size: Option<&'g [i64]> = None, scale_factor: Option<&'g [f64]> = None,
        mode: &'g str = "nearest", align_corners: Option<bool> = None, recompute_scale_factor: Option<bool> = None,
        antialias: bool = false) -> Result<Expr<'g>> {
        let shape = input.sizes()?;
        let rank = shape.len().saturating_sub(2);
        let filter = filter(mode).filter(|_| antialias);
        if antialias && (filter.is_none() || rank != 2) {
            return Err(OpError::value(
                "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as \
                 input",
            ));
        }
        if mode == "lanczos" && !antialias {
            return Err(OpError::value("Lanczos mode requires antialias=True"));
        }
        if mode == "lanczos" && align_corners == Some(true) {
            return Err(OpError::value("Lanczos mode does not support align_corners=True"));
        }
        if !matches!(mode, "nearest" | "nearest-exact" | "area") && rank_of(mode).is_none() {
            return Err(OpError::not_implemented(format!(
                "Input Error: no interpolation mode is called {mode}: use nearest, nearest-exact, area, linear, bilinear, \
                 bicubic, lanczos or trilinear"
            )));
        }
        if !(1..=3).contains(&rank) || rank_of(mode).is_some_and(|own| own != rank) {
            return Err(OpError::not_implemented(format!(
                "Input Error: Only 3D, 4D and 5D input Tensors supported (got {}D) for the modes: nearest | linear | \
                 bilinear | bicubic | trilinear | area | nearest-exact (got {mode})",
                shape.len()
            )));
        }
        if align_corners.is_some() && rank_of(mode).is_none() {
            return Err(OpError::value(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | \
                 trilinear",
            ));
        }
        let old = &shape[2..];
        let (sizes, scales) = match (size, scale_factor) {
            (None, None) => return Err(OpError::value("either size or scale_factor should be defined")),
            (Some(_), Some(_)) => return Err(OpError::value("only one of size or scale_factor should be defined")),
            (Some(_), None) if recompute_scale_factor == Some(true) => {
                return Err(OpError::value("recompute_scale_factor is not meaningful with an explicit size."));
            }
            (Some([one]), None) => (vec![*one; rank], vec![]),
            (Some(sizes), None) => (sizes.to_vec(), vec![]),
            (None, Some(factors)) => {
                let factors = if let [one] = factors { vec![*one; rank] } else { factors.to_vec() };
                let sizes = old.iter().zip(&factors).map(|(n, factor)| (*n as f64 * factor).floor() as i64).collect();
                (sizes, if recompute_scale_factor == Some(true) { vec![] } else { factors })
            }
        };
        if sizes.len() != rank {
            return Err(OpError::value(format!(
                "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions \
                 of {old:?} and output size of {sizes:?}"
            )));
        }
        if old.iter().chain(&sizes).any(|n| *n <= 0) {
            return Err(OpError::runtime(format!(
                "Input and output sizes should be greater than 0, but got input {old:?} output {sizes:?}"
            )));
        }
        // Fails before a matrix is made for sizes that no tensor has.
        gt_ops::build::shape_of(&[&shape[..2], &sizes].concat())?;
        let dtype = input.dtype()?;
        let bytes = dtype == DType::U8 && matches!(mode, "bilinear" | "bicubic" | "lanczos");
        let copies = matches!(mode, "nearest" | "nearest-exact") && dtype == DType::U8;
        if !dtype.is_float() && !bytes && !copies {
            return Err(OpError::not_implemented(format!(
                "interpolate: mode {mode} is not implemented for '{}': convert the input to a floating-point dtype",
                dtype.scalar_type_name()
            )));
        }
        let mut result = if bytes { input.to(DType::F32) } else { input };
        // Bytes are rounded after each axis, the last axis first, as in PyTorch.
        let order: Vec<usize> = if bytes { (0..rank).rev().collect() } else { (0..rank).collect() };
        for i in order {
            let (n, want, scale) = (old[i], sizes[i], scales.get(i).copied());
            if n == want && scale.is_none_or(|scale| scale == 1.0) {
                continue;
            }
            let axis = i as i64 + 2;
            let step = match scale {
                Some(scale) if scale != 0.0 => 1.0 / scale,
                _ => n as f64 / want as f64,
            };
            if mode == "nearest" || mode == "nearest-exact" {
                let shift = if mode == "nearest-exact" { 0.5 } else { 0.0 };
                let places: Vec<i64> =
                    (0..want).map(|i| (((i as f64 + shift) * step).floor() as i64).min(n - 1)).collect();
                result = result.index_select(axis, g.ints(&places, &[want]));
                continue;
            }
            let corners = align_corners == Some(true);
            let step = match corners {
                true if want > 1 => (n - 1) as f64 / (want - 1) as f64,
                true => 0.0,
                false => step,
            };
            let at = |i: i64| if corners { i as f64 * step } else { (i as f64 + 0.5) * step - 0.5 };
            let weights = match (mode, filter) {
                ("area", _) => averaging_matrix(n, want),
                (_, Some(filter)) => antialias_matrix(filter, n, want, step),
                ("bicubic", None) => cubic_matrix(n, want, at),
                _ => linear_matrix(n, want, at),
            };
            if bytes {
                let nearest = (resample(g, result, axis, &weights.in_16_bits()) + 0.5).floor();
                result = nearest.clamp(0.0, 255.0);
            } else {
                result = resample(g, result, axis, &weights);
            }
        }
        Ok(if bytes { result.to(DType::U8) } else { result })
    }

    /// Deprecated name of `interpolate`.
    [module("nn.functional").wide()]
    fn upsample(g, input: Expr<'g>, size: Option<&'g [i64]> = None, scale_factor: Option<&'g [f64]> = None,
        mode: &'g str = "nearest", align_corners: Option<bool> = None) -> Result<Expr<'g>> {
        interpolate(g, input, size, scale_factor, mode, align_corners, None, false)
    }

    /// `interpolate` with `mode="nearest"`. Deprecated.
    [module("nn.functional")]
    fn upsample_nearest(g, input: Expr<'g>, size: Option<&'g [i64]> = None,
        scale_factor: Option<&'g [f64]> = None) -> Result<Expr<'g>> {
        interpolate(g, input, size, scale_factor, "nearest", None, None, false)
    }

    /// `interpolate` with `mode="bilinear"` and `align_corners=True`. Deprecated.
    [module("nn.functional").wide()]
    fn upsample_bilinear(g, input: Expr<'g>, size: Option<&'g [i64]> = None,
        scale_factor: Option<&'g [f64]> = None) -> Result<Expr<'g>> {
        interpolate(g, input, size, scale_factor, "bilinear", Some(true), None, false)
    }
}
