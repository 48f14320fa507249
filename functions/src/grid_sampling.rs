//! Sampling images at the points of a grid, and affine grids.

use crate::common::{along_axis, filled, repeated};
use crate::declaration::functions;
use crate::sliding_windows::tuple;
use gt_ops::build;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, module};
use gt_ops::{DType, Op, OpError, Shape};

/// A tap of an interpolation along one axis.
#[derive(Clone, Copy)]
struct GridTap<'g> {
    /// Its index, a whole number of the grid's dtype.
    place: Expr<'g>,
    /// Its weight, a tensor or 1.
    share: Expr<'g>,
    /// Whether the index is known to lie within the image.
    inside: bool,
}

/// A combination of taps of some axes.
struct JoinedTap<'g> {
    /// Its index among the pixels, a whole number.
    index: Expr<'g>,
    /// Where it lies within the image, if it may leave it.
    within: Option<Expr<'g>>,
    /// The product of the weights; none if all are 1.
    weight: Option<Expr<'g>>,
}

impl<'g> JoinedTap<'g> {
    fn joined(&self, other: &JoinedTap<'g>) -> JoinedTap<'g> {
        let join = |a: Option<Expr<'g>>, b: Option<Expr<'g>>, f: fn(Expr<'g>, Expr<'g>) -> Expr<'g>| match (a, b) {
            (Some(a), Some(b)) => Some(f(a, b)),
            (a, b) => a.or(b),
        };
        JoinedTap {
            index: self.index + other.index,
            within: join(self.within, other.within, |a, b| a & b),
            weight: join(self.weight, other.weight, |a, b| a * b),
        }
    }
}

/// The value of `align_corners`; a user who does not give it is warned.
fn corners(g: &Builder<'_>, name: &str, align_corners: Option<bool>) -> bool {
    if align_corners.is_none() {
        g.warn(format!(
            "Default {name} behavior is align_corners=False: please specify align_corners=True if the corners should be \
             those of the outer pixels' centres."
        ));
    }
    align_corners.unwrap_or(false)
}

/// The largest number up to which all whole numbers are exact in float32.
const EXACT_MAX: i64 = 1 << 24;

/// How coordinates outside the image are treated.
#[derive(Clone, Copy)]
struct Outside<'a> {
    padding_mode: &'a str,
    corners: bool,
}

impl Outside<'_> {
    /// Whether coordinates lie within the image after [`Outside::wrap`].
    fn stays_inside(self) -> bool {
        self.padding_mode != "zeros"
    }

    /// Coordinates along an axis, clamped or reflected into the image; the gradient is 0 where they are clamped.
    fn wrap<'g>(self, at: Expr<'g>, size: i64) -> Result<Expr<'g>> {
        let size = size as f64;
        let at = match self.padding_mode {
            "zeros" => return Ok(at),
            "reflection" => {
                let (least, span) = if self.corners { (0.0, size - 1.0) } else { (-0.5, size) };
                if span == 0.0 {
                    return Ok(at * span);
                }
                let away = at.lt(least).where_(least - at, at - least);
                let turns = (away.detach() / span).floor();
                let rest = away - turns * span;
                turns.remainder(2i64).eq(0i64).where_(rest, span - rest) + least
            }
            _ => at,
        };
        Ok(at.gt(0i64).where_(at.lt(size - 1.0).where_(at, size - 1.0), 0.0))
    }
}

/// The two taps of linear interpolation at coordinates that may be known to lie within the image.
fn linear_taps(at: Expr<'_>, inside: bool) -> Vec<GridTap<'_>> {
    let low = at.detach().floor();
    let share = at - low;
    vec![GridTap { place: low, share: 1i64 - share, inside }, GridTap { place: low + 1i64, share, inside: false }]
}

/// The four taps of cubic convolution (Keys 1981) with a = -0.75.
fn cubic_taps<'g>(at: Expr<'g>, size: i64, outside: Outside<'_>) -> Result<Vec<GridTap<'g>>> {
    const A: f64 = -0.75;
    fn near(x: Expr<'_>) -> Expr<'_> {
        (x * (A + 2.0) - (A + 3.0)) * x * x + 1i64
    }
    fn far(x: Expr<'_>) -> Expr<'_> {
        ((x * A - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    }
    let low = at.detach().floor();
    let t = at - low;
    let weights = [far(t + 1i64), near(t), near(1i64 - t), far(2i64 - t)];
    let tap = |(i, share)| Ok(GridTap { place: outside.wrap(low + i, size)?, share, inside: outside.stays_inside() });
    (-1i64..).zip(weights).map(tap).collect()
}

/// The weighted sum over all combinations of the axes' taps; taps outside the image count as zeros.
fn interpolate<'g>(input: Expr<'g>, grid: Expr<'g>, axes: &[Vec<GridTap<'g>>]) -> Result<Expr<'g>> {
    let g = input.builder();
    let (shape, points) = (input.sizes()?, grid.sizes()?);
    let (samples, channels, sizes) = (shape[0], shape[1], &shape[2..]);
    let seen = &points[1..points.len() - 1];
    let count: i64 = seen.iter().product();
    let pixels: i64 = sizes.iter().product();
    // A pixel that is 0 follows those of the image: taps outside read it, which is less work than to replace all that
    // they read.
    let border = axes.iter().flatten().any(|tap| !tap.inside);
    // Indices are computed as the coordinates are where that is exact.
    let dtype = match grid.dtype()? {
        dtype @ (DType::F32 | DType::F64) if pixels <= EXACT_MAX => dtype,
        _ => DType::I64,
    };
    let mut flat = input.flatten(2, -1);
    if border {
        let zero = repeated(g, Shape::new(&[samples as usize, channels as usize, 1])?, 0i64, input.dtype()?);
        flat = g.cat(&[flat, zero], -1);
    }
    let mut combinations: Vec<JoinedTap<'g>> = Vec::new();
    for (axis, (taps, size)) in axes.iter().zip(sizes).enumerate() {
        let stride: i64 = sizes[axis + 1..].iter().product();
        let mut own = Vec::with_capacity(taps.len());
        for tap in taps {
            // NaN is no index, and outside.
            let limited = |place: Expr<'g>| place.limit(Some(0i64.into()), Some((size - 1).into()));
            let place = if tap.inside { tap.place } else { limited(tap.place) };
            let index = if stride == 1 { place.to(dtype) } else { place.to(dtype) * stride };
            let within = (!tap.inside).then(|| place.eq(tap.place));
            own.push(JoinedTap { index, within, weight: tap.share.as_number().is_none().then_some(tap.share) });
        }
        combinations = match axis {
            0 => own,
            _ => combinations.iter().flat_map(|before| own.iter().map(|own| before.joined(own))).collect(),
        };
    }
    let mut total: Option<Expr<'g>> = None;
    for JoinedTap { index, within, weight } in combinations {
        let index = within.map_or(index, |within| within.where_(index, pixels)).to(DType::I64);
        let index = index.reshape(&[samples, 1, count]).expand(&[samples, channels, count]);
        let found = flat.gather(2, index).reshape(&[&[samples, channels], seen].concat());
        let weight = weight.map(|weight| weight.unsqueeze(1));
        total = Some(match (total, weight) {
            (None, None) => found,
            (None, Some(weight)) => found * weight,
            (Some(total), None) => total + found,
            (Some(total), Some(weight)) => g.elementwise(Op::Addcmul, &[total.into(), found.into(), weight.into()]),
        });
    }
    total.ok_or_else(|| OpError::runtime("grid_sampler(): no taps"))
}

functions! {
    /// Samples images at the points of a grid (Jaderberg et al. 2015).
    ///
    /// Args:
    ///     input: `(N, C, H, W)` or `(N, C, D, H, W)`.
    ///     grid: `(N, H', W', 2)` or `(N, D', H', W', 3)`: for each output pixel the point (x, y) or (x, y, z), where
    ///         -1 and 1 are the edges of the image.
    ///     mode: `"bilinear"`, `"nearest"` or `"bicubic"` interpolation.
    ///     padding_mode: The values outside the image: `"zeros"`, the nearest `"border"` pixel, or its `"reflection"`.
    ///     align_corners: Whether -1 and 1 are the centres of the corner pixels rather than their outer edges.
    ///
    /// Returns:
    ///     `(N, C, H', W')` or `(N, C, D', H', W')`.
    ///
    /// Example:
    ///     >>> corners = gt.tensor([[[[-1.0, -1.0], [1.0, 1.0]]]])
    ///     >>> gt.nn.functional.grid_sample(gt.arange(4.0).reshape(1, 1, 2, 2), corners, align_corners=True)
    ///     tensor([[[[0., 3.]]]])
    [module("nn.functional").wide()]
    fn grid_sample(g, input: Expr<'g>, grid: Expr<'g>, mode: &'g str = "bilinear", padding_mode: &'g str = "zeros",
        align_corners: Option<bool> = None) -> Result<Expr<'g>> {
        if !matches!(mode, "bilinear" | "nearest" | "bicubic") {
            return Err(OpError::value(format!(
                "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
            )));
        }
        if !matches!(padding_mode, "zeros" | "border" | "reflection") {
            return Err(OpError::value(format!(
                "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: \
                 '{padding_mode}'"
            )));
        }
        let (shape, points) = (input.sizes()?, grid.sizes()?);
        let rank = shape.len().saturating_sub(2);
        if !(2..=3).contains(&rank) || points.len() != shape.len() || points[0] != shape[0] {
            return Err(OpError::runtime(format!(
                "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions and same batch size, \
                 but got input with sizes {shape:?} and grid with sizes {points:?}"
            )));
        }
        if points[rank + 1] != rank as i64 {
            return Err(OpError::runtime(format!(
                "grid_sampler(): expected grid to have size {rank} in last dimension, but got grid with sizes {points:?}"
            )));
        }
        let (dtype, other) = (input.dtype()?, grid.dtype()?);
        if dtype != other {
            return Err(OpError::runtime(format!(
                "grid_sampler(): expected input and grid to have same dtype, but input has gt.{} and grid has gt.{}",
                dtype.name(),
                other.name()
            )));
        }
        if let Some(empty) = shape[2..].iter().position(|size| *size == 0) {
            return Err(OpError::runtime(format!(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {shape:?} \
                 with dimension {} being empty",
                empty + 2
            )));
        }
        let outside = Outside { padding_mode, corners: corners(g, "grid_sample", align_corners) };
        // As in PyTorch, cubic interpolation of volumes computes in float32.
        let wide = mode == "bicubic" && rank == 3;
        let (input, grid) = if wide { (input.upcast(), grid.upcast()) } else { (input, grid) };
        let mut axes = Vec::new();
        for (i, size) in shape[2..].iter().enumerate() {
            // Half a whole number is exact, so that the order of these products does not matter.
            let at = grid.select(-1, (rank - 1 - i) as i64) + 1i64;
            let at = if outside.corners { at * ((size - 1) as f64 / 2.0) } else { at * (*size as f64 / 2.0) - 0.5 };
            let inside = outside.stays_inside();
            axes.push(match mode {
                "bicubic" => cubic_taps(at, *size, outside)?,
                "nearest" => {
                    let place = outside.wrap(at, *size)?.detach().round();
                    vec![GridTap { place, share: g.number(1.0), inside }]
                }
                _ => linear_taps(outside.wrap(at, *size)?, inside),
            });
        }
        Ok(interpolate(input, grid, &axes)?.to(dtype))
    }

    /// The sampling grid of affine transforms, for `grid_sample`.
    ///
    /// Args:
    ///     theta: Matrices `(N, 2, 3)` or `(N, 3, 4)` from output coordinates to input coordinates.
    ///     size: The shape of the output images, `(N, C, H, W)` or `(N, C, D, H, W)`.
    ///     align_corners: As in `grid_sample`.
    ///
    /// Returns:
    ///     `(N, H, W, 2)` or `(N, D, H, W, 3)`.
    ///
    /// Example:
    ///     >>> identity = gt.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    ///     >>> gt.nn.functional.affine_grid(identity, (1, 1, 1, 2), align_corners=True)
    ///     tensor([[[[-1.,  0.],
    ///               [ 1.,  0.]]]])
    [module("nn.functional").wide()]
    fn affine_grid(g, theta: Expr<'g>, size: &'g [i64], align_corners: Option<bool> = None) -> Result<Expr<'g>> {
        let dtype = theta.dtype()?;
        if !dtype.is_float() {
            return Err(OpError::value(format!("Expected theta to have floating point type, but got gt.{}", dtype.name())));
        }
        let rank = size.len().saturating_sub(2);
        if !(2..=3).contains(&rank) {
            return Err(OpError::not_implemented(format!(
                "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {}.",
                tuple(size)
            )));
        }
        let shape = theta.sizes()?;
        if shape.len() != 3 || shape[1..] != [rank as i64, rank as i64 + 1] {
            return Err(OpError::value(format!(
                "Expected a batch of {rank}D affine matrices of shape Nx{rank}x{} for size {}. Got gt.Size({shape:?}).",
                rank + 1,
                tuple(size)
            )));
        }
        if size.iter().any(|n| *n <= 0) {
            return Err(OpError::value(format!("Expected non-zero, positive output size. Got {}", tuple(size))));
        }
        let corners = corners(g, "affine_grid", align_corners);
        let spatial = &size[2..];
        let mut coordinates = Vec::new();
        for (axis, n) in spatial.iter().enumerate() {
            let steps = match n {
                1 => g.floats(&[0.0], &[1], dtype),
                _ => g.run(|g| build::linspace(g, -1.0, 1.0, *n, dtype)),
            };
            let steps = if corners { steps } else { steps * ((n - 1) as f64 / *n as f64) };
            coordinates.push(steps.reshape(&along_axis(rank, axis)).expand(spatial));
        }
        coordinates.reverse();
        coordinates.push(filled(g, spatial, 1i64, dtype));
        let places = g.stack(&coordinates, -1).reshape(&[-1, rank as i64 + 1]);
        let seen = [&size[..1], spatial, &[rank as i64]].concat();
        Ok(places.matmul(theta.transposed()).reshape(&seen))
    }

    /// Sampling at grid points, with modes by number: see `gt.nn.functional.grid_sample`.
    [function().wide()]
    fn grid_sampler(g, input: Expr<'g>, grid: Expr<'g>, interpolation_mode: i64, padding_mode: i64,
        align_corners: bool) -> Result<Expr<'g>> {
        let choose = |names: [&'static str; 3], number: i64| {
            let name = usize::try_from(number).ok().and_then(|place| names.get(place).copied());
            name.ok_or_else(|| OpError::index(format!("grid_sampler(): there is no mode {number}")))
        };
        let mode = choose(["bilinear", "nearest", "bicubic"], interpolation_mode)?;
        let padding_mode = choose(["zeros", "border", "reflection"], padding_mode)?;
        grid_sample(g, input, grid, mode, padding_mode, Some(align_corners))
    }

    /// Affine sampling grid: see `gt.nn.functional.affine_grid`.
    [function().wide()]
    fn affine_grid_generator(g, theta: Expr<'g>, size: &'g [i64], align_corners: bool) -> Result<Expr<'g>> {
        affine_grid(g, theta, size, Some(align_corners))
    }
}
