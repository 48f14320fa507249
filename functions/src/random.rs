//! Random numbers of distributions for which the op table has no row, and methods that fill a tensor with them.

use crate::common::extremes;
use crate::declaration::{TensorOrNumber, functions};
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, in_place_only, method};
use gt_ops::{DType, Op, OpError, Scalar, Shape};
use std::f64::consts::PI;

/// The dtype in which numbers for a tensor of `dtype` are drawn.
fn drawn_in(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Uniform numbers over [0, 1) of the shape of `like`.
fn uniform_like<'g>(g: &'g Builder<'g>, like: Expr<'g>) -> Result<Expr<'g>> {
    let meta = like.meta()?;
    Ok(g.rand(&meta.shape, drawn_in(meta.dtype)))
}

/// Standard normal numbers of the shape of `like`.
fn normal_like<'g>(g: &'g Builder<'g>, like: Expr<'g>) -> Result<Expr<'g>> {
    let meta = like.meta()?;
    Ok(g.randn(&meta.shape, drawn_in(meta.dtype)))
}

fn check_float(name: &str, tensor: Expr<'_>) -> Result<()> {
    let dtype = tensor.dtype()?;
    if dtype.is_float() {
        return Ok(());
    }
    Err(OpError::not_implemented(format!("\"{name}\" not implemented for gt.{dtype}: use floating-point tensors")))
}

/// An error with PyTorch's message for a parameter of a distribution, unless `holds`.
fn expect(holds: bool, text: impl Into<String>) -> Result<()> {
    if holds { Ok(()) } else { Err(OpError::runtime(text)) }
}

/// A number as Python prints it.
fn text(number: Scalar) -> String {
    match number {
        Scalar::Bool(b) => if b { "True" } else { "False" }.into(),
        other => other.to_string(),
    }
}

/// A draw of a larger Poisson rate is the sum of several draws: exp(-rate) would underflow.
const RATE_MAX: f64 = 500.0;
/// Up to this many weights are fetched and checked here: that is faster than the instructions of the check.
const FETCHED_MAX: usize = 1024;
/// More binomial trials are halved by a draw of the median of as many uniform numbers.
const TRIALS_MAX: f64 = 32.0;

functions! {
    /// Fills the tensor with numbers that are uniform over [from, to).
    ///
    /// Example:
    ///     >>> x = gt.zeros(100).uniform_(2, 3)
    ///     >>> bool(((2 <= x) & (x < 3)).all())
    ///     True
    [in_place_only().random()]
    fn uniform(g, input: Expr<'g>, from: Scalar = Scalar::Float(0.0), to: Scalar = Scalar::Float(1.0)) -> Result<Expr<'g>> {
        check_float("uniform_", input)?;
        let (low, high) = (from.to_f64(), to.to_f64());
        expect(low <= high, format!("uniform_ expects to return a [from, to) range, but found from={} > to={}", text(from), text(to)))?;
        Ok((uniform_like(g, input)? * (high - low) + low).to(input.dtype()?))
    }

    /// Fills the tensor with normal numbers of a mean and a standard deviation.
    ///
    /// Example:
    ///     >>> gt.zeros(2, 3).normal_(mean=1.0, std=0.1).shape
    ///     gt.Size([2, 3])
    [in_place_only().named("normal").random()]
    fn fill_normal(g, input: Expr<'g>, mean: f64 = 0.0, std: Scalar = Scalar::Float(1.0)) -> Result<Expr<'g>> {
        check_float("normal_", input)?;
        expect(std.to_f64() >= 0.0, format!("normal expects std >= 0.0, but found std {}", text(std)))?;
        Ok((normal_like(g, input)? * std.to_f64() + mean).to(input.dtype()?))
    }

    /// Fills the tensor with numbers of the exponential distribution with rate `lambd`.
    [in_place_only().random()]
    fn exponential(g, input: Expr<'g>, lambd: Scalar = Scalar::Float(1.0)) -> Result<Expr<'g>> {
        check_float("exponential_", input)?;
        let rate = lambd.to_f64();
        expect(rate > 0.0, format!("exponential_ expects lambda > 0.0, but found lambda={}", text(lambd)))?;
        Ok(((-uniform_like(g, input)?).log1p() * (-1.0 / rate)).to(input.dtype()?))
    }

    /// Fills the tensor with numbers whose logarithms are normal with a mean and a standard deviation.
    [in_place_only().random()]
    fn log_normal(g, input: Expr<'g>, mean: f64 = 1.0, std: Scalar = Scalar::Float(2.0)) -> Result<Expr<'g>> {
        check_float("log_normal_", input)?;
        expect(std.to_f64() > 0.0, format!("log_normal_ expects std > 0.0, but found std={}", text(std)))?;
        Ok((normal_like(g, input)? * std.to_f64() + mean).exp().to(input.dtype()?))
    }

    /// Fills the tensor with numbers of the Cauchy distribution with a median and a scale `sigma`.
    [in_place_only().random()]
    fn cauchy(g, input: Expr<'g>, median: f64 = 0.0, sigma: Scalar = Scalar::Float(1.0)) -> Result<Expr<'g>> {
        check_float("cauchy_", input)?;
        expect(sigma.to_f64() > 0.0, format!("cauchy_ expects sigma > 0.0, but found sigma={}", text(sigma)))?;
        let angle = (uniform_like(g, input)? - 0.5) * PI;
        Ok((angle.tan() * sigma.to_f64() + median).to(input.dtype()?))
    }

    /// Fills the tensor with geometrically distributed numbers: trials up to the first success of probability `p`.
    [in_place_only().random()]
    fn geometric(g, input: Expr<'g>, p: Scalar) -> Result<Expr<'g>> {
        let share = p.to_f64();
        expect(share > 0.0 && share < 1.0, format!("geometric_ expects p to be in (0, 1), but got p={}", text(p)))?;
        let tries = (-g.rand(&input.shape()?, DType::F64)).log1p() / (-share).ln_1p();
        Ok(tries.ceil().maximum(1.0).to(input.dtype()?))
    }

    /// Fills the tensor with uniform integers over `from <= x < to`, or `0 <= x < from` if only one bound is given.
    ///
    /// Without bounds, the range is that of the dtype's non-negative integers; for floats, that of the integers that it
    /// represents exactly.
    [in_place_only().named("random").random()]
    fn fill_random(g, input: Expr<'g>, from: i64 = 0, to: Option<i64> = None) -> Result<Expr<'g>> {
        let dtype = input.dtype()?;
        let (low, high) = match to {
            Some(to) => (from, to),
            None if from != 0 => (0, from),
            None => {
                let digits = match dtype {
                    DType::F64 => 53,
                    DType::F32 => 24,
                    DType::F16 => 11,
                    DType::BF16 | DType::U8 => 8,
                    DType::Bool => 1,
                    other => 8 * other.size() as u32 - 1,
                };
                let most = if digits == 63 { i64::MAX } else { 1 << digits };
                (0, most + i64::from(dtype.is_float()))
            }
        };
        expect(low < high, format!("random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"))?;
        let shape = input.shape()?;
        let bounds = [low.into(), high.into()];
        Ok(g.run(|graph| gt_ops::build::random(graph, Op::Randint, &bounds, shape, DType::I64)).to(dtype))
    }

    /// Fills the tensor with random zeros and ones; `p` is the probability of a one.
    [in_place_only().named("bernoulli").random()]
    fn fill_bernoulli(g, input: Expr<'g>, p: f64 = 0.5) -> Result<Expr<'g>> {
        expect((0.0..=1.0).contains(&p), format!("bernoulli_ expects p to be in [0, 1], but got p={p:?}"))?;
        Ok(uniform_like(g, input)?.lt(p).to(input.dtype()?))
    }

    /// Fills the tensor with random zeros and ones of a probability for each element.
    [in_place_only().named("bernoulli").random()]
    fn fill_bernoulli_tensor(g, input: Expr<'g>, p: Expr<'g>) -> Result<Expr<'g>> {
        Ok(uniform_like(g, input)?.lt(p.detach()).to(input.dtype()?))
    }

    /// Random zeros and ones.
    ///
    /// Args:
    ///     input: The probability of a one, for each element.
    ///     p: One probability for all elements, instead of `input`'s.
    ///     generator: The generator to draw from; the default one if not given.
    ///
    /// Example:
    ///     >>> gt.bernoulli(gt.tensor([0.0, 1.0]))
    ///     tensor([0., 1.])
    [method().named("bernoulli").random().out()]
    fn bernoulli(g, input: Expr<'g>, p: Option<f64> = None) -> Result<Expr<'g>> {
        if let Some(p) = p {
            return fill_bernoulli(g, input, p);
        }
        check_float("bernoulli", input)?;
        Ok(uniform_like(g, input)?.lt(input.detach()).to(input.dtype()?))
    }

    /// Random normal numbers.
    ///
    /// Args:
    ///     mean: The mean: a number, or a tensor with one for each element.
    ///     std: The standard deviation: a number, or a tensor with one for each element.
    ///     size: The shape, needed where both are numbers.
    ///     generator: The generator to draw from; the default one if not given.
    ///
    /// Example:
    ///     >>> gt.normal(gt.zeros(3), 1.0).shape
    ///     gt.Size([3])
    ///     >>> gt.normal(0.0, 1.0, size=(2, 2)).shape
    ///     gt.Size([2, 2])
    [function().random().out()]
    fn normal(g, mean: Expr<'g>, std: f64 = 1.0) -> Result<Expr<'g>> {
        check_float("normal", mean)?;
        expect(std >= 0.0, format!("normal expects std >= 0.0, but found std {std:?}"))?;
        let meta = mean.meta()?;
        Ok((g.randn(&meta.shape, drawn_in(meta.dtype)) * std + mean.detach()).to(meta.dtype))
    }

    /// Random normal numbers with a standard deviation for each element.
    [function().named("normal").random().out()]
    fn normal_tensors(g, mean: TensorOrNumber<'g>, std: Expr<'g>) -> Result<Expr<'g>> {
        check_float("normal", std)?;
        let mut meta = std.meta()?;
        if mean.as_number().is_none() {
            check_float("normal", *mean)?;
            let own = mean.meta()?;
            meta = gt_ops::Meta::new(own.shape.broadcast(&meta.shape)?, own.dtype);
        }
        let mean: gt_ops::Arg = if mean.as_number().is_none() { mean.detach().into() } else { mean.into() };
        Ok((g.randn(&meta.shape, drawn_in(meta.dtype)) * std.detach() + mean).to(meta.dtype))
    }

    /// Random normal numbers of one mean and one standard deviation.
    [function().named("normal").random().creation().out()]
    fn normal_numbers(g, mean: f64, std: f64, size: &'g [i64]; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        expect(std >= 0.0, format!("normal expects std >= 0.0, but found std {std:?}"))?;
        let shape = gt_ops::build::shape_of(size)?;
        Ok(g.randn(&shape, dtype.unwrap_or_else(DType::default_float)) * std + mean)
    }

    /// Random numbers of the Poisson distribution; each element of `input` is a rate.
    ///
    /// Waits for the largest rate.
    ///
    /// Example:
    ///     >>> gt.poisson(gt.tensor([1.0, 10.0])).shape
    ///     gt.Size([2])
    [function().random()]
    fn poisson(g, input: Expr<'g>) -> Result<Expr<'g>> {
        check_float("poisson", input)?;
        if input.numel()? == 0 {
            return Ok(input.detach());
        }
        let rates = input.detach().to(DType::F64);
        let [least, most] = extremes(rates)?.map(Scalar::to_f64);
        expect(least >= 0.0, "invalid Poisson rate, expected rate to be non-negative")?;
        let draws = (most / RATE_MAX).ceil().max(1.0);
        let share = rates / draws;
        let most = most / draws;
        let mut total = g.zeros(rates.meta()?);
        for _ in 0..draws as usize {
            // Inversion: count up the distribution function to a uniform number, as far as float64 resolves.
            let point = g.rand(&rates.shape()?, DType::F64);
            let mut probability = (-share).exp();
            let mut below = probability;
            for count in 1..(most + 12.0 * most.sqrt()) as usize + 30 {
                total = total + point.ge(below);
                probability = probability * share / count as f64;
                below = below + probability;
            }
        }
        Ok(total.to(input.dtype()?))
    }

    /// Random numbers of the gamma distribution with rate 1; each element of `input` is a shape parameter.
    ///
    /// The method is the rejection method of Marsaglia and Tsang (2000): it waits until no candidate is rejected.
    /// Shapes below 1 are drawn as `shape + 1`, times a power of a uniform number. The gradient is that of implicit
    /// reparametrization (Figurnov et al. 2018).
    [function().named("_standard_gamma").random()]
    fn standard_gamma(g, input: Expr<'g>) -> Result<Expr<'g>> {
        check_float("_standard_gamma", input)?;
        let meta = input.meta()?;
        let shape = input.detach().to(DType::F64);
        let small = shape.lt(1.0);
        let third = small.where_(shape + 1.0, shape) - 1.0 / 3.0;
        let mut drawn = g.full(&meta.shape, f64::NAN, DType::F64);
        let mut left = shape.gt(0.0);
        while left.any(&[], false).is_true()? {
            let normal = g.randn(&meta.shape, DType::F64);
            let root = normal / (third * 9.0).sqrt() + 1.0;
            let cube = root * root * root;
            let limit = normal * normal / 2.0 + third * (1.0 - cube + cube.maximum(1e-300).log());
            let taken = left & cube.gt(0.0) & g.rand(&meta.shape, DType::F64).log().lt(limit);
            drawn = taken.where_(third * cube, drawn);
            left = left & !taken;
        }
        let power = (1.0 - g.rand(&meta.shape, DType::F64)).log() / shape;
        drawn = small.where_((drawn.log() + power).exp(), drawn);
        let slope = shape.gamma_slope(drawn.maximum(1e-300)).to(meta.dtype);
        let tiny = match meta.dtype {
            DType::F64 => f64::MIN_POSITIVE,
            DType::F16 => 6.103_515_625e-5,
            _ => f64::from(f32::MIN_POSITIVE),
        };
        let result = drawn.to(meta.dtype).maximum(tiny);
        // The draw as a function of the shape parameter with this derivative.
        Ok(if input.requires_grad() { result + slope * (input - input.detach()) } else { result })
    }

    /// Random numbers of the binomial distribution: the successes among `count` trials of probability `prob`.
    ///
    /// Waits for the largest count.
    ///
    /// Args:
    ///     count: The number of trials, for each element.
    ///     prob: The probability of a success, which broadcasts.
    ///     generator: The generator to draw from; the default one if not given.
    ///
    /// Example:
    ///     >>> gt.binomial(gt.tensor([10.0]), gt.tensor([1.0]))
    ///     tensor([10.])
    [function().random()]
    fn binomial(g, count: Expr<'g>, prob: Expr<'g>) -> Result<Expr<'g>> {
        for (name, tensor) in [("count", count), ("prob", prob)] {
            let dtype = tensor.dtype()?;
            if !dtype.is_float() {
                return Err(OpError::value(format!(
                    "binomial only supports floating-point dtypes for {name}, got: gt.{}",
                    dtype.name()
                )));
            }
        }
        let (dtype, other) = (count.dtype()?, prob.dtype()?);
        if dtype != other {
            return Err(OpError::runtime(format!(
                "Found dtype {} but expected {}",
                other.scalar_type_name(),
                dtype.scalar_type_name()
            )));
        }
        let shape = count.shape()?.broadcast(&prob.shape()?)?;
        let mut trials = count.detach().to(DType::F64).expand_to(&shape).floor();
        let mut share = prob.detach().to(DType::F64).expand_to(&shape);
        let mut total = g.full(&shape, 0.0, DType::F64);
        if shape.numel() == 0 {
            return Ok(total.to(dtype));
        }
        let mut most = trials.amax(&[], false).item()?.to_f64();
        while most > TRIALS_MAX {
            // The median of `trials` uniform numbers has a beta distribution. Whether it is below `prob` decides half
            // of the trials (Ahrens and Dieter 1974).
            let middle = ((trials + 1.0) / 2.0).floor();
            let ones = standard_gamma(g, middle.maximum(1.0))?;
            let point = ones / (ones + standard_gamma(g, (trials + 1.0 - middle).maximum(1.0))?);
            let halve = trials.gt(TRIALS_MAX);
            let below = halve & point.le(share);
            total = below.where_(total + middle, total);
            share = below.where_((share - point) / (1.0 - point), halve.where_(share / point, share));
            trials = below.where_(trials - middle, halve.where_(middle - 1.0, trials));
            most = trials.amax(&[], false).item()?.to_f64();
        }
        for trial in 0..most as i64 {
            total = total + (g.rand(&shape, DType::F64).lt(share) & trials.gt(trial as f64));
        }
        Ok(total.to(dtype))
    }

    /// A random permutation of the integers from 0 to `n - 1`.
    ///
    /// Args:
    ///     n: The number of integers.
    ///     dtype: The dtype; int64 if not given.
    ///     device: A device, which has to exist; the daemon decides where the tensor lies.
    ///     requires_grad: Whether autograd records what is computed from it.
    ///     generator: The generator to draw from; the default one if not given.
    ///
    /// Example:
    ///     >>> gt.randperm(5).sort().values
    ///     tensor([0, 1, 2, 3, 4])
    [function().random().creation().out()]
    fn randperm(g, n: i64; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let count = usize::try_from(n).map_err(|_| OpError::runtime(format!("n must be non-negative, got{n}")))?;
        let order = g.rand(&Shape::new(&[count])?, DType::F64).argsort(0, false);
        Ok(order.to(dtype.unwrap_or(DType::I64)))
    }

    /// Random indices, drawn with probabilities proportional to the elements of each row.
    ///
    /// Waits for the weights, which are checked.
    ///
    /// Args:
    ///     input: A vector or a matrix of non-negative weights, which need not sum to 1.
    ///     num_samples: The number of indices to draw from each row.
    ///     replacement: Whether an index may be drawn more than once.
    ///     generator: The generator to draw from; the default one if not given.
    ///
    /// Example:
    ///     >>> gt.multinomial(gt.tensor([0.0, 1.0, 0.0]), 1)
    ///     tensor([1])
    [method().random().out_same_dtype()]
    fn multinomial(g, input: Expr<'g>, num_samples: i64, replacement: bool = false) -> Result<Expr<'g>> {
        let meta = input.meta()?;
        let dims = meta.shape.dims();
        expect(matches!(dims.len(), 1 | 2), "prob_dist must be 1 or 2 dim")?;
        expect(
            meta.dtype.is_float(),
            format!("multinomial only supports floating-point dtypes for input, got: gt.{}", meta.dtype.name()),
        )?;
        expect(num_samples > 0, "cannot sample n_sample <= 0 samples")?;
        let columns = dims[dims.len() - 1];
        expect(
            replacement || num_samples as usize <= columns,
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        )?;
        let dtype = drawn_in(meta.dtype);
        let weights = input.detach().to(dtype);
        if meta.shape.numel() > 0 {
            let (least, most, least_total) = weight_extremes(g, weights, columns)?;
            expect(
                least >= 0.0 && most.is_finite(),
                "probability tensor contains either `inf`, `nan` or element < 0",
            )?;
            expect(least_total > 0.0, "invalid multinomial distribution (sum of probabilities <= 0)")?;
        }
        if replacement && num_samples > 1 {
            let sums = weights.cumsum(-1);
            let count = Shape::new(&[num_samples as usize])?;
            let shape = match dims {
                [rows, _] => Shape::new(&[*rows, num_samples as usize])?,
                _ => count,
            };
            let points = g.rand(&shape, dtype) * sums.narrow(-1, columns as i64 - 1, 1);
            // Rounding may give the total itself, which lies behind the last index with a weight.
            let last = (weights.gt(0.0).to(DType::I64) * g.arange(columns as i64, DType::I64)).amax(&[-1], true);
            let found = g.emit(Op::SearchsortedRight, &[sums.into(), points.into()], gt_ops::Attrs::None);
            return Ok(found.minimum(last));
        }
        // Exponential race: the first arrival, where weights are the rates, has the wanted distribution.
        let arrivals = -(-g.rand(&meta.shape, dtype)).log1p();
        let speed = weights / arrivals.maximum(1e-37);
        if num_samples == 1 {
            return Ok(speed.argmax(Some(-1), true));
        }
        Ok(speed.argsort(-1, true).narrow(-1, 0, num_samples))
    }
}

/// The least weight, the largest total of a row's weights, and the least total; NaN if a weight is NaN. Waits for them.
fn weight_extremes<'g>(g: &'g Builder<'g>, weights: Expr<'g>, columns: usize) -> Result<(f64, f64, f64)> {
    if weights.meta()?.shape.numel() > FETCHED_MAX {
        let totals = weights.sum(&[-1], false);
        let (least, most) = (weights.amin(&[], false), totals.amax(&[], false));
        let found = g.stack(&[least, most, totals.amin(&[], false)], 0).elements()?;
        return Ok((found[0].to_f64(), found[1].to_f64(), found[2].to_f64()));
    }
    let weights = weights.elements()?;
    // `f64::min` ignores NaNs; this keeps them.
    let least = |a: f64, b: f64| if a.is_nan() || a <= b { a } else { b };
    let totals = weights.chunks(columns).map(|row| row.iter().map(|weight| weight.to_f64()).sum::<f64>());
    let (most, least_total) =
        totals.fold((f64::NEG_INFINITY, f64::INFINITY), |(most, least), total| (most.max(total), least.min(total)));
    Ok((weights.iter().map(|weight| weight.to_f64()).fold(f64::INFINITY, least), most, least_total))
}
