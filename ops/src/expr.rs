//! Expressions over tensors: composites and gradients written as mathematics.
//!
//! An [`Expr`] is a tensor or a number. Its operators and methods emit instructions at once, with PyTorch's promotion
//! and broadcasting, and cannot fail where they stand: the [`Builder`] keeps the first error, and the expressions that
//! depend on it emit nothing. The error appears where an expression is inspected (`shape()?`) or returned
//! ([`Builder::finish`]), so that formulas read as formulas:
//!
//! ```
//! # use gt_ops::expr::Expr;
//! fn sinc<'g>(x: Expr<'g>) -> Expr<'g> {
//!     let angle = x * std::f64::consts::PI;
//!     x.eq(0.0).where_(1.0, angle.sin() / angle)
//! }
//! ```

use crate::build::row_wise;
use crate::build::{self, Index};
use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::graph::{Arg, Graph, Val};
use crate::instruction::{Attrs, Scalar};
use crate::op::Op;
use crate::shape::{Meta, Shape};
use crate::special;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

/// The value of an expression whose instruction failed.
const FAILED: Val = Val(u32::MAX);

/// The value of an expression that is the builder's first number.
const FIRST_NUMBER: u32 = 1 << 31;

/// Emits the instructions of expressions to a graph, and keeps the first error.
pub struct Builder<'g> {
    graph: RefCell<&'g mut (dyn Graph + 'g)>,
    error: RefCell<Option<OpError>>,
    /// Whether there is an error.
    failed: Cell<bool>,
    warnings: RefCell<Vec<String>>,
    /// The dtype in which matrix products compute under automatic mixed precision.
    autocast: Cell<Option<DType>>,
    /// The numbers among the expressions.
    numbers: RefCell<SmallVec<[Scalar; 4]>>,
    /// Whether elementwise ops promote their operands to a common dtype.
    promotes: bool,
    /// Whether arguments of half precision are converted to float32.
    widens: Cell<bool>,
}

/// The gradient of a function as expressions: takes its inputs followed by its results, and the gradients of the
/// results; returns the gradients of the inputs.
pub type GradientRule = for<'r> fn(&'r Builder<'r>, &[Expr<'r>], &[Option<Expr<'r>>]) -> Result<Vec<Option<Expr<'r>>>>;

/// A tensor or a number in a formula.
#[derive(Clone, Copy)]
pub struct Expr<'g> {
    builder: &'g Builder<'g>,
    /// A tensor of the graph; from [`FIRST_NUMBER`] on, one of the builder's numbers. The two words of an expression
    /// pass in registers.
    val: Val,
}

impl std::fmt::Debug for Expr<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.arg().fmt(f)
    }
}

impl From<Expr<'_>> for Arg {
    fn from(expr: Expr<'_>) -> Arg {
        expr.arg()
    }
}

impl<'g> Builder<'g> {
    /// A builder that emits to `graph`.
    pub fn new(graph: &'g mut (dyn Graph + 'g)) -> Builder<'g> {
        let (error, failed, warnings, autocast, numbers, widens) = Default::default();
        Builder { graph: RefCell::new(graph), error, failed, warnings, autocast, numbers, promotes: true, widens }
    }

    /// A builder for formulas whose tensors share the dtype that they compute in: they promote nothing.
    pub(crate) fn without_promotion(graph: &'g mut (dyn Graph + 'g)) -> Builder<'g> {
        Builder { promotes: false, ..Builder::new(graph) }
    }

    /// Computes matrix products in `dtype`, as automatic mixed precision does.
    pub fn set_autocast(&self, dtype: Option<DType>) {
        self.autocast.set(dtype);
    }

    /// The dtype in which matrix products compute under automatic mixed precision, and `None` outside of it.
    pub fn autocast(&self) -> Option<DType> {
        self.autocast.get()
    }

    /// Converts the arguments of a call from half precision to float32, where `widens`.
    pub fn set_widens(&self, widens: bool) {
        self.widens.set(widens);
    }

    /// The expression of an argument of a call.
    pub fn argument(&'g self, val: Val) -> Expr<'g> {
        let tensor = self.tensor(val);
        if self.widens.get() { tensor.upcast() } else { tensor }
    }

    /// The dtype that operands are promoted to.
    ///
    /// # Errors
    /// The first error of the expressions so far.
    pub fn common_dtype(&self, operands: &[Expr<'g>]) -> Result<DType> {
        self.check()?;
        let operands: SmallVec<[Arg; 4]> = operands.iter().map(|operand| operand.arg()).collect();
        Ok(build::common_dtype(&**self.graph.borrow(), &operands))
    }

    /// The expression of a tensor of the graph.
    pub fn tensor(&'g self, val: Val) -> Expr<'g> {
        Expr { builder: self, val }
    }

    /// The expression of a number, or of an argument that is a tensor or a number.
    pub fn number(&'g self, arg: impl Into<Arg>) -> Expr<'g> {
        match arg.into() {
            Arg::Val(val) => self.tensor(val),
            Arg::Scalar(number) => {
                let mut numbers = self.numbers.borrow_mut();
                numbers.push(number);
                self.tensor(Val(FIRST_NUMBER + numbers.len() as u32 - 1))
            }
        }
    }

    /// Calls a builder of [`crate::build`] and keeps its error.
    #[inline]
    pub fn run(&'g self, build: impl FnOnce(&mut dyn Graph) -> Result<Val>) -> Expr<'g> {
        if self.failed.get() {
            return self.tensor(FAILED);
        }
        match build(&mut **self.graph.borrow_mut()) {
            Ok(val) => self.tensor(val),
            Err(error) => self.fail(error),
        }
    }

    /// Calls a function on the graph, for instance to fetch elements.
    ///
    /// # Errors
    /// An earlier error of an expression, or the function's.
    pub fn with_graph<T>(&self, call: impl FnOnce(&mut dyn Graph) -> Result<T>) -> Result<T> {
        self.check()?;
        call(&mut **self.graph.borrow_mut())
    }

    /// Warns the user of something that is probably not meant.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.borrow_mut().push(text.into());
    }

    /// The warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// An expression that failed with `error`.
    #[cold]
    pub fn fail(&'g self, error: OpError) -> Expr<'g> {
        self.failed.set(true);
        self.error.borrow_mut().get_or_insert(error);
        self.tensor(FAILED)
    }

    /// Results that were computed on the host from the elements of `inputs`, as those of a function with this gradient.
    /// A gradient may have the broadcast shape of an input: it is summed to the input's shape.
    ///
    /// # Errors
    /// The first error of the expressions so far.
    pub fn with_gradient<const N: usize>(
        &'g self,
        name: &str,
        inputs: &[Expr<'g>],
        mut results: [Expr<'g>; N],
        rule: GradientRule,
    ) -> Result<[Expr<'g>; N]> {
        let vals = |all: &[Expr<'g>]| all.iter().map(|expr| self.finish(*expr)).collect::<Result<Vec<Val>>>();
        let (inputs, vals) = (vals(inputs)?, vals(&results)?);
        let gradient = Box::new(move |graph: &mut dyn Graph, vals: &[Val], grads: &[Option<Val>]| {
            let builder = Builder::new(graph);
            let values: Vec<Expr<'_>> = vals.iter().map(|val| builder.tensor(*val)).collect();
            let grads: Vec<Option<Expr<'_>>> = grads.iter().map(|grad| grad.map(|val| builder.tensor(val))).collect();
            let found = rule(&builder, &values, &grads)?;
            found.into_iter().map(|grad| grad.map(|grad| builder.finish(grad)).transpose()).collect()
        });
        let recorded = self.with_graph(|g| g.record_function(name, &inputs, &vals, gradient))?;
        results.iter_mut().zip(recorded).for_each(|(result, val)| *result = self.tensor(val));
        Ok(results)
    }

    /// Reports the first error of the expressions so far.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        match self.failed.get() {
            true => self.error.borrow().clone().map_or(Ok(()), Err),
            false => Ok(()),
        }
    }

    /// The tensor of an expression; a number becomes a tensor without axes.
    ///
    /// # Errors
    /// The first error of the expressions so far.
    pub fn finish(&'g self, expr: Expr<'g>) -> Result<Val> {
        let tensor = expr.to_tensor();
        self.check()?;
        match tensor.arg() {
            Arg::Val(val) => Ok(val),
            Arg::Scalar(_) => Err(OpError::runtime("an expression without a tensor")),
        }
    }

    /// A tensor of one number.
    pub fn full(&'g self, shape: &Shape, value: impl Into<Scalar>, dtype: DType) -> Expr<'g> {
        let value = value.into();
        self.run(|g| build::full(g, *shape, value, dtype))
    }

    /// Zeros.
    pub fn zeros(&'g self, meta: Meta) -> Expr<'g> {
        self.full(&meta.shape, Scalar::Int(0), meta.dtype)
    }

    /// Numbers known to the caller, in row-major order, as a floating-point tensor.
    pub fn floats(&'g self, numbers: &[f64], sizes: &[i64], dtype: DType) -> Expr<'g> {
        let upload = if dtype == DType::F32 { DType::F32 } else { DType::F64 };
        let bytes: Vec<u8> = match upload {
            DType::F32 => numbers.iter().map(|x| (*x as f32).to_le_bytes()).collect::<Vec<_>>().into_flattened(),
            _ => numbers.iter().map(|x| x.to_le_bytes()).collect::<Vec<_>>().into_flattened(),
        };
        self.run(|g| {
            let shape = build::shape_of(sizes)?;
            let val = g.upload(Meta::new(shape, upload), &bytes)?;
            build::cast(g, val, dtype)
        })
    }

    /// Integers known to the caller, in row-major order, as an int64 tensor.
    pub fn ints(&'g self, numbers: &[i64], sizes: &[i64]) -> Expr<'g> {
        // Not by `flat_map`, which writes byte by byte.
        let bytes = numbers.iter().map(|x| x.to_le_bytes()).collect::<Vec<_>>().into_flattened();
        self.run(|g| {
            let shape = build::shape_of(sizes)?;
            g.upload(Meta::new(shape, DType::I64), &bytes)
        })
    }

    /// The numbers `0, 1, …, count - 1`.
    pub fn arange(&'g self, count: i64, dtype: DType) -> Expr<'g> {
        self.run(|g| build::arange(g, Scalar::Int(0), Scalar::Int(count), Scalar::Int(1), Some(dtype)))
    }

    /// Uniform random numbers in `[0, 1)`.
    pub fn rand(&'g self, shape: &Shape, dtype: DType) -> Expr<'g> {
        self.run(|g| build::random(g, Op::Rand, &[], *shape, dtype))
    }

    /// Uniform random numbers in `[0, 1)`, of a tensor's shape and dtype.
    pub fn rand_like(&'g self, like: Expr<'g>) -> Expr<'g> {
        match like.meta() {
            Ok(meta) => self.rand(&meta.shape, meta.dtype),
            Err(error) => self.fail(error),
        }
    }

    /// Standard normal random numbers.
    pub fn randn(&'g self, shape: &Shape, dtype: DType) -> Expr<'g> {
        self.run(|g| build::random(g, Op::Randn, &[], *shape, dtype))
    }

    /// Complex numbers of real and imaginary parts of one dtype, which broadcast.
    pub fn complex(&'g self, re: Expr<'g>, im: Expr<'g>) -> Expr<'g> {
        let parts = || -> Result<Expr<'g>> {
            let shape = re.shape()?.broadcast(&im.shape()?)?;
            let dtype = re.dtype()?;
            let pair = self.stack(&[re.expand_to(&shape), im.expand_to(&shape)], -1);
            Ok(pair.reinterpret(dtype.to_complex()))
        };
        parts().unwrap_or_else(|error| self.fail(error))
    }

    /// Tensors concatenated along an axis.
    pub fn cat(&'g self, tensors: &[Expr<'g>], axis: i64) -> Expr<'g> {
        self.on_all(tensors, |g, v| build::cat(g, v, axis))
    }

    /// Tensors of one shape stacked along a new axis.
    pub fn stack(&'g self, tensors: &[Expr<'g>], axis: i64) -> Expr<'g> {
        self.on_all(tensors, |g, v| build::stack(g, v, axis))
    }

    /// Calls a builder of [`crate::build`] on tensors.
    pub fn on_all(
        &'g self,
        tensors: &[Expr<'g>],
        build: impl FnOnce(&mut dyn Graph, &[Val]) -> Result<Val>,
    ) -> Expr<'g> {
        let mut few = [FAILED; 4];
        if let Some(vals) = few.get_mut(..tensors.len()) {
            vals.iter_mut().zip(tensors).for_each(|(val, tensor)| *val = tensor.val());
            return self.run(|g| build(g, vals));
        }
        let vals: Vec<Val> = tensors.iter().map(|tensor| tensor.val()).collect();
        self.run(|g| build(g, &vals))
    }

    /// Emits one instruction as it is, without promotion.
    pub fn emit(&'g self, op: Op, operands: &[Arg], attrs: Attrs) -> Expr<'g> {
        self.run(|g| g.emit(op, operands, attrs))
    }

    /// An elementwise op with promotion; its name in PyTorch's errors is the row's.
    pub fn elementwise(&'g self, op: Op, operands: &[Arg]) -> Expr<'g> {
        if operands.iter().any(|arg| matches!(arg, Arg::Val(_))) {
            return self.run(|g| match self.promotes {
                true => build::elementwise(g, op, operands),
                false => g.emit(op, operands, Attrs::None),
            });
        }
        // Numbers alone compute as tensors without axes.
        let first = self.number(operands[0]).to_tensor();
        let mut all = operands.to_vec();
        all[0] = first.arg();
        self.run(|g| build::elementwise(g, op, &all))
    }
}

impl From<f64> for Scalar {
    fn from(f: f64) -> Scalar {
        Scalar::Float(f)
    }
}
impl From<i64> for Scalar {
    fn from(i: i64) -> Scalar {
        Scalar::Int(i)
    }
}
impl From<bool> for Scalar {
    fn from(b: bool) -> Scalar {
        Scalar::Bool(b)
    }
}

macro_rules! unary {
    ($($name:ident $op:ident $doc:literal $(= $fold:expr)?;)*) => {
        impl<'g> Expr<'g> {
            $(
                #[doc = $doc]
                #[must_use]
                pub fn $name(self) -> Expr<'g> {
                    $(if let Arg::Scalar(number) = self.arg() {
                        let fold = $fold;
                        return self.builder.number(Scalar::from(fold(number.to_f64())));
                    })?
                    self.builder.elementwise(Op::$op, &[self.arg()])
                }
            )*
        }
    };
}

unary! {
    abs Abs "Absolute value.";
    sign Sign "Sign: -1, 0 or 1.";
    exp Exp "Exponential.";
    exp2 Exp2 "2 to the power of each element.";
    expm1 Expm1 "exp(x) - 1.";
    log Log "Natural logarithm." = f64::ln;
    log2 Log2 "Logarithm to base 2.";
    log10 Log10 "Logarithm to base 10.";
    log1p Log1p "log(1 + x).";
    sqrt Sqrt "Square root.";
    rsqrt Rsqrt "Reciprocal of the square root.";
    reciprocal Reciprocal "Reciprocal.";
    sin Sin "Sine.";
    cos Cos "Cosine.";
    tan Tan "Tangent.";
    asin Asin "Inverse sine.";
    acos Acos "Inverse cosine.";
    atan Atan "Inverse tangent.";
    sinh Sinh "Hyperbolic sine.";
    cosh Cosh "Hyperbolic cosine.";
    tanh Tanh "Hyperbolic tangent.";
    asinh Asinh "Inverse hyperbolic sine.";
    acosh Acosh "Inverse hyperbolic cosine.";
    atanh Atanh "Inverse hyperbolic tangent.";
    sigmoid Sigmoid "Logistic sigmoid.";
    relu Relu "max(x, 0).";
    silu Silu "x * sigmoid(x).";
    hardswish Hardswish "Piecewise linear approximation of silu.";
    gelu Gelu "Gaussian error linear unit.";
    gelu_tanh GeluTanh "Gaussian error linear unit in its tanh approximation.";
    erf Erf "Error function.";
    erfc Erfc "Complementary error function.";
    erfcx Erfcx "Scaled complementary error function.";
    erfinv Erfinv "Inverse error function.";
    lgamma Lgamma "Logarithm of the gamma function." = special::lgamma;
    digamma Digamma "Digamma function.";
    i0 I0 "Modified Bessel function of order 0.";
    i0e I0e "Scaled modified Bessel function of order 0.";
    i1 I1 "Modified Bessel function of order 1.";
    i1e I1e "Scaled modified Bessel function of order 1.";
    ndtri Ndtri "Quantile function of the standard normal distribution.";
    log_ndtr LogNdtr "Logarithm of the standard normal CDF.";
    floor Floor "Largest integer that is not larger.";
    ceil Ceil "Smallest integer that is not smaller.";
    round Round "Nearest integer, ties to even.";
    trunc Trunc "Integer part.";
    isnan Isnan "Whether each element is NaN." = f64::is_nan;
    isinf Isinf "Whether each element is infinite.";
    isfinite Isfinite "Whether each element is neither infinite nor NaN.";
    signbit Signbit "Whether each element has its sign bit set.";
    logical_not LogicalNot "Whether each element is zero.";
    bitwise_not BitwiseNot "Bitwise complement.";
}

macro_rules! binary {
    ($($name:ident $op:ident $doc:literal $(= $fold:expr)?;)*) => {
        impl<'g> Expr<'g> {
            $(
                #[doc = $doc]
                #[must_use]
                pub fn $name(self, other: impl Into<Arg>) -> Expr<'g> {
                    let other = other.into();
                    $(if let (Arg::Scalar(a), Arg::Scalar(b)) = (self.arg(), other) {
                        let fold: fn(&f64, &f64) -> bool = $fold;
                        return self.builder.number(Scalar::Bool(fold(&a.to_f64(), &b.to_f64())));
                    })?
                    self.builder.elementwise(Op::$op, &[self.arg(), other])
                }
            )*
        }
    };
}

binary! {
    maximum Maximum "Elementwise maximum; NaN if either is NaN.";
    minimum Minimum "Elementwise minimum; NaN if either is NaN.";
    fmax Fmax "Elementwise maximum; a number is preferred to NaN.";
    fmin Fmin "Elementwise minimum; a number is preferred to NaN.";
    relu_backward ReluBackward "The elements where the other, a result of relu, is positive or NaN.";
    silu_backward SiluBackward "The elements times the derivative of silu.";
    hardswish_backward HardswishBackward "The elements times the derivative of hardswish.";
    gelu_backward GeluBackward "The elements times the derivative of gelu.";
    gelu_tanh_backward GeluTanhBackward "The elements times the derivative of gelu_tanh.";
    floor_divide FloorDivide "Quotient rounded towards negative infinity.";
    remainder Remainder "Remainder of floor division.";
    fmod Fmod "Remainder of division truncated towards 0.";
    atan2 Atan2 "Angle of the point (other, self).";
    copysign Copysign "Magnitude of the first with the sign of the second.";
    nextafter Nextafter "Next representable number towards the other.";
    logaddexp Logaddexp "log(exp(a) + exp(b)).";
    xlogy Xlogy "a log(b), 0 where a is 0.";
    zeta Zeta "Hurwitz zeta function.";
    gammainc Gammainc "Regularized lower incomplete gamma function.";
    gammaincc Gammaincc "Regularized upper incomplete gamma function.";
    gamma_slope GammaSlope "Derivative of a gamma sample with respect to its shape.";
    shift_left BitwiseLeftShift "Bits shifted left.";
    shift_right BitwiseRightShift "Bits shifted right.";
    eq Eq "Whether elements are equal." = f64::eq;
    ne Ne "Whether elements differ." = f64::ne;
    lt Lt "Whether elements are smaller." = f64::lt;
    le Le "Whether elements are not larger." = f64::le;
    gt Gt "Whether elements are larger." = f64::gt;
    ge Ge "Whether elements are not smaller." = f64::ge;
    logical_and LogicalAnd "Whether both are nonzero.";
    logical_or LogicalOr "Whether either is nonzero.";
    logical_xor LogicalXor "Whether exactly one is nonzero.";
}

impl<'g> Expr<'g> {
    /// Power.
    #[must_use]
    pub fn pow(self, exponent: impl Into<Arg>) -> Expr<'g> {
        match exponent.into() {
            Arg::Scalar(one) if one.parts() == (1.0, 0.0) && one.category() < 3 && self.is_of(DType::is_inexact) => {
                self
            }
            exponent => self.builder.elementwise(Op::Pow, &[self.arg(), exponent]),
        }
    }
    /// Both conditions; the second is not computed if the first is the number false.
    #[must_use]
    pub fn and(self, other: impl FnOnce() -> Expr<'g>) -> Expr<'g> {
        match self.arg() {
            Arg::Scalar(Scalar::Bool(false)) => self,
            _ => self & other(),
        }
    }
    /// Whether the expression is a tensor, whose dtype passes the test.
    fn is_of(self, test: fn(DType) -> bool) -> bool {
        matches!(self.arg(), Arg::Val(val) if val != FAILED && test(self.builder.meta_of(val).dtype))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident $fold:expr;)*) => {$(
        impl<'g, B: Into<Arg>> $trait<B> for Expr<'g> {
            type Output = Expr<'g>;
            fn $method(self, other: B) -> Expr<'g> {
                self.builder.arithmetic(Op::$op, self.arg(), other.into(), $fold)
            }
        }
        impl<'g> $trait<Expr<'g>> for f64 {
            type Output = Expr<'g>;
            fn $method(self, other: Expr<'g>) -> Expr<'g> {
                other.builder.arithmetic(Op::$op, self.into(), other.arg(), $fold)
            }
        }
        impl<'g> $trait<Expr<'g>> for i64 {
            type Output = Expr<'g>;
            fn $method(self, other: Expr<'g>) -> Expr<'g> {
                other.builder.arithmetic(Op::$op, self.into(), other.arg(), $fold)
            }
        }
    )*};
}

operators! {
    Add add Add |a, b| a + b;
    Sub sub Sub |a, b| a - b;
    Mul mul Mul |a, b| a * b;
    Div div Div |a, b| a / b;
}

impl<'g> Builder<'g> {
    /// The shape and dtype of a tensor of the graph.
    pub(crate) fn meta_of(&self, val: Val) -> Meta {
        self.graph.borrow().meta(val)
    }
    /// Logic; `x & true` and `x | false` are `x` if it is a condition.
    fn logic(&'g self, op: Op, a: Expr<'g>, b: Expr<'g>) -> Expr<'g> {
        let neutral = Arg::Scalar(Scalar::Bool(op == Op::BitwiseAnd));
        match op != Op::BitwiseXor && b.arg() == neutral && a.is_of(|dtype| dtype == DType::Bool) {
            true => a,
            false => self.elementwise(op, &[a.arg(), b.arg()]),
        }
    }
    /// Arithmetic; two numbers, one of them floating-point, give a number.
    fn arithmetic(&'g self, op: Op, a: Arg, b: Arg, fold: fn(f64, f64) -> f64) -> Expr<'g> {
        if let (Arg::Scalar(x), Arg::Scalar(y)) = (a, b)
            && x.category().max(y.category()) < 3
            && (op == Op::Div || matches!(x, Scalar::Float(_)) || matches!(y, Scalar::Float(_)))
        {
            return self.number(fold(x.to_f64(), y.to_f64()));
        }
        self.elementwise(op, &[a, b])
    }
}

macro_rules! logic {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        impl<'g, B: Into<Arg>> $trait<B> for Expr<'g> {
            type Output = Expr<'g>;
            fn $method(self, other: B) -> Expr<'g> {
                self.builder.logic(Op::$op, self, self.builder.number(other))
            }
        }
    )*};
}

logic! {
    BitAnd bitand BitwiseAnd;
    BitOr bitor BitwiseOr;
    BitXor bitxor BitwiseXor;
}

impl<'g> Neg for Expr<'g> {
    type Output = Expr<'g>;
    fn neg(self) -> Expr<'g> {
        match self.arg() {
            Arg::Scalar(Scalar::Float(f)) => self.builder.number(-f),
            Arg::Scalar(Scalar::Int(i)) => self.builder.number(i.wrapping_neg()),
            Arg::Scalar(Scalar::Complex(re, im)) => self.builder.number(Scalar::Complex(-re, -im)),
            _ => self.builder.elementwise(Op::Neg, &[self.arg()]),
        }
    }
}

/// The complement: logical on bools, bitwise on integers.
impl<'g> Not for Expr<'g> {
    type Output = Expr<'g>;
    fn not(self) -> Expr<'g> {
        self.builder.elementwise(Op::BitwiseNot, &[self.arg()])
    }
}

/// Inspection.
impl<'g> Expr<'g> {
    fn arg(self) -> Arg {
        match self.val.0 < FIRST_NUMBER || self.val == FAILED {
            true => Arg::Val(self.val),
            false => Arg::Scalar(self.builder.numbers.borrow()[(self.val.0 - FIRST_NUMBER) as usize]),
        }
    }
    /// The builder of the expression.
    pub fn builder(self) -> &'g Builder<'g> {
        self.builder
    }
    /// The number, if the expression is one.
    pub fn as_number(self) -> Option<Scalar> {
        match self.arg() {
            Arg::Scalar(scalar) => Some(scalar),
            Arg::Val(_) => None,
        }
    }
    /// The tensor of the graph; that of a failed expression for a number.
    fn val(self) -> Val {
        match self.to_tensor().arg() {
            Arg::Val(val) => val,
            Arg::Scalar(_) => FAILED,
        }
    }
    /// The expression as a tensor: a number becomes a tensor without axes.
    #[must_use]
    pub fn to_tensor(self) -> Expr<'g> {
        match self.arg() {
            Arg::Val(_) => self,
            Arg::Scalar(scalar) => self.builder.full(&Shape::SCALAR, scalar, scalar.natural_dtype()),
        }
    }
    /// The shape and dtype; those of a number are no axes and its natural dtype.
    ///
    /// # Errors
    /// The first error of the expressions so far.
    pub fn meta(self) -> Result<Meta> {
        self.builder.check()?;
        Ok(match self.arg() {
            Arg::Val(val) => self.builder.meta_of(val),
            Arg::Scalar(scalar) => Meta::new(Shape::SCALAR, scalar.natural_dtype()),
        })
    }
    /// The shape.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn shape(self) -> Result<Shape> {
        self.meta().map(|meta| meta.shape)
    }
    /// The sizes of the axes.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn sizes(self) -> Result<Vec<i64>> {
        Ok(self.shape()?.dims().iter().map(|size| *size as i64).collect())
    }
    /// The size of an axis; negative axes count from the last.
    ///
    /// # Errors
    /// As [`Expr::meta`]; an axis out of range.
    pub fn size(self, axis: i64) -> Result<i64> {
        let shape = self.shape()?;
        let axis = shape.axis(axis)?;
        Ok(shape.dims().get(axis).map_or(1, |size| *size as i64))
    }
    /// The number of axes.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn rank(self) -> Result<usize> {
        self.shape().map(|shape| shape.rank())
    }
    /// The number of elements.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn numel(self) -> Result<usize> {
        self.shape().map(|shape| shape.numel())
    }
    /// The dtype.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn dtype(self) -> Result<DType> {
        self.meta().map(|meta| meta.dtype)
    }
    /// Whether gradients flow to the tensor; those of a failed expression and of a number do not.
    pub fn requires_grad(self) -> bool {
        match self.arg() {
            Arg::Val(val) if val != FAILED => self.builder.graph.borrow().requires_grad(val),
            _ => false,
        }
    }
    /// Whether it is a view of another tensor.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn is_view(self) -> Result<bool> {
        let val = self.builder.finish(self)?;
        Ok(self.builder.graph.borrow().is_view(val))
    }
    /// The index of the first element in the memory that PyTorch would have.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn storage_offset(self) -> Result<i64> {
        let val = self.builder.finish(self)?;
        Ok(self.builder.graph.borrow().storage_offset(val) as i64)
    }
    /// The distances between neighbours along each axis that PyTorch would have in memory, in elements.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn strides(self) -> Result<Vec<i64>> {
        let (val, rank) = (self.builder.finish(self)?, self.rank()?);
        let strides = self.builder.graph.borrow().strides(val);
        Ok(strides[..rank].iter().map(|stride| *stride as i64).collect())
    }
    /// Whether PyTorch would have the elements in row-major order without gaps.
    ///
    /// # Errors
    /// As [`Expr::meta`].
    pub fn is_contiguous(self) -> Result<bool> {
        let (val, shape) = (self.builder.finish(self)?, self.shape()?);
        let (strides, dense) = (self.builder.graph.borrow().strides(val), shape.contiguous_strides());
        let fits = |(axis, size): (usize, &usize)| *size == 1 || strides[axis] == dense[axis];
        Ok(shape.numel() == 0 || shape.dims().iter().enumerate().all(fits))
    }
    /// The elements as numbers, in row-major order. Waits for them.
    ///
    /// # Errors
    /// As [`Expr::meta`]; a failed computation.
    pub fn elements(self) -> Result<Vec<Scalar>> {
        let dtype = self.dtype()?;
        let read: fn([u8; 8]) -> Scalar = match dtype {
            DType::Bool => |bytes| Scalar::Bool(i64::from_le_bytes(bytes) != 0),
            _ if dtype.is_inexact() => |bytes| Scalar::Float(f64::from_le_bytes(bytes)),
            _ => |bytes| Scalar::Int(i64::from_le_bytes(bytes)),
        };
        if dtype.is_complex() {
            // The parts in turn.
            let parts = self.detach().reinterpret(dtype.storage()).elements()?;
            let pairs = parts.as_chunks::<2>().0;
            return Ok(pairs.iter().map(|[re, im]| Scalar::Complex(re.to_f64(), im.to_f64())).collect());
        }
        let wide = self.detach().to(if dtype.is_float() { DType::F64 } else { DType::I64 });
        let val = self.builder.finish(wide)?;
        let bytes = self.builder.with_graph(|g| g.fetch(val))?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| read(*bytes)).collect())
    }
    /// The number of a tensor of one element. Waits for it.
    ///
    /// # Errors
    /// As [`Expr::elements`]; a tensor of several elements.
    pub fn item(self) -> Result<Scalar> {
        match self.elements()?.as_slice() {
            [one] => Ok(*one),
            all => Err(OpError::runtime(format!("a Tensor with {} elements cannot be converted to Scalar", all.len()))),
        }
    }
    /// Whether the one element is nonzero. Waits for it.
    ///
    /// # Errors
    /// As [`Expr::item`].
    pub fn is_true(self) -> Result<bool> {
        self.item().map(Scalar::to_bool)
    }
}

macro_rules! reductions {
    ($($name:ident $op:ident $doc:literal;)*) => {
        impl<'g> Expr<'g> {
            $(
                #[doc = $doc]
                #[must_use]
                pub fn $name(self, axes: &[i64], keepdim: bool) -> Expr<'g> {
                    self.then(|g, v| build::reduce(g, Op::$op, v, Some(axes), keepdim))
                }
            )*
        }
    };
}

reductions! {
    sum Sum "The sum over axes.";
    mean Mean "The mean over axes.";
    norm Norm "The Euclidean norm over axes.";
    prod Prod "The product over axes.";
    amax Amax "The maximum over axes.";
    amin Amin "The minimum over axes.";
    any Any "Whether any element over axes is nonzero.";
    all All "Whether all elements over axes are nonzero.";
}

/// Methods that are a builder of [`crate::build`], or a function of the graph.
macro_rules! built {
    ($($(#[doc = $doc:literal])+ $name:ident $build:path, ($($arg:ident: $type:ty),*);)*) => {
        impl<'g> Expr<'g> {
            $(
                $(#[doc = $doc])+
                #[must_use]
                pub fn $name(self, $($arg: $type),*) -> Expr<'g> {
                    self.then(|g, v| $build(g, v, $($arg),*))
                }
            )*
        }
    };
}

built! {
    /// Elements clamped between bounds, either of which may be absent.
    limit build::clamp, (low: Option<Arg>, high: Option<Arg>);
    /// The elements in another dtype.
    to build::cast, (dtype: DType);
    /// The bits of the elements as those of another dtype of the same size.
    bitcast build::bitcast, (dtype: DType);
    /// The same elements as those of another dtype, of which one is stored as the other.
    reinterpret build::reinterpret, (dtype: DType);
    /// The same tensor without its gradient.
    detach Graph::detach, ();
    /// A copy, through which gradients flow: a tensor of its own, even where this is an argument of the call.
    copied Graph::copy, ();
    /// The same elements with another shape; one size may be -1.
    reshape build::reshape, (sizes: &[i64]);
    /// Axes from `start` to `end` merged into one.
    flatten build::flatten, (start: i64, end: i64);
    /// Axes in another order.
    permute build::permute, (axes: &[i64]);
    /// Two axes swapped.
    transpose build::transpose, (a: i64, b: i64);
    /// A new axis of size 1.
    unsqueeze build::unsqueeze, (axis: i64);
    /// As [`Expr::squeeze`], where an empty list names no axes, and none means all.
    squeeze_axes build::squeeze, (axes: Option<&[i64]>);
    /// The elements with given sizes, strides and offset.
    as_strided build::as_strided, (sizes: &[i64], strides: &[i64], offset: i64);
    /// Windows of neighbours along an axis, as a new last axis.
    unfold build::unfold, (axis: i64, size: i64, step: i64);
    /// Axes of size 1 and new leading axes repeated; -1 keeps a size.
    expand build::expand, (sizes: &[i64]);
    /// `len` elements from `start` along an axis.
    narrow build::narrow, (axis: i64, start: i64, len: i64);
    /// Basic indexing, `x[parts]`.
    index build::index, (parts: &[Index]);
    /// The diagonals of the matrices that two axes form, as the last axis.
    diagonal build::diagonal, (offset: i64, rows: i64, columns: i64);
    /// The indices of the `count` true elements of a mask, one row each.
    nonzero build::nonzero, (count: usize);
}

/// Operations other than elementwise ones. Axes may be negative; an empty list of axes means all.
impl<'g> Expr<'g> {
    fn then(self, build: impl FnOnce(&mut dyn Graph, Val) -> Result<Val>) -> Expr<'g> {
        let val = self.val();
        self.builder.run(|g| build(g, val))
    }
    fn with(self, other: Expr<'g>, build: impl FnOnce(&mut dyn Graph, Val, Val) -> Result<Val>) -> Expr<'g> {
        let (a, b) = (self.val(), other.val());
        self.builder.run(|g| build(g, a, b))
    }

    /// A sum, product or mean over axes of the elements converted to a dtype.
    #[must_use]
    pub fn reduce_into(self, op: Op, axes: &[i64], keepdim: bool, dtype: DType) -> Expr<'g> {
        self.then(|g, v| build::reduce_into(g, op, v, Some(axes), keepdim, dtype))
    }

    /// `yes` where this condition is true, `no` elsewhere.
    #[must_use]
    pub fn where_(self, yes: impl Into<Arg>, no: impl Into<Arg>) -> Expr<'g> {
        let (yes, no) = (self.builder.number(yes), self.builder.number(no));
        if let Arg::Scalar(known) = self.arg() {
            let (taken, other) = if known.to_bool() { (yes, no) } else { (no, yes) };
            // The number that is not taken affects neither the shape nor a float dtype.
            if other.as_number().is_some_and(|number| number.category() < 3) && taken.is_of(DType::is_float) {
                return taken;
            }
        }
        let (yes, no) = (yes.arg(), no.arg());
        self.then(|g, v| build::where_(g, v, yes, no))
    }
    /// Elements clamped between bounds.
    #[must_use]
    pub fn clamp(self, low: impl Into<Arg>, high: impl Into<Arg>) -> Expr<'g> {
        self.limit(Some(low.into()), Some(high.into()))
    }
    /// Elements of at least a bound.
    #[must_use]
    pub fn clamp_min(self, low: impl Into<Arg>) -> Expr<'g> {
        self.limit(Some(low.into()), None)
    }
    /// The elements as floats: integers in the default dtype.
    #[must_use]
    pub fn to_float(self) -> Expr<'g> {
        self.then(|g, v| {
            let dtype = g.meta(v).dtype.to_float();
            build::cast(g, v, dtype)
        })
    }
    /// Half precision as float32; other dtypes as they are. Formulas of several steps compute in it.
    #[must_use]
    pub fn upcast(self) -> Expr<'g> {
        match self.is_of(DType::is_half) {
            true => self.to(DType::F32),
            false => self,
        }
    }
    /// The real part; a real tensor itself.
    #[must_use]
    pub fn real(self) -> Expr<'g> {
        self.part(0)
    }
    /// The imaginary part; zeros of a real tensor.
    #[must_use]
    pub fn imag(self) -> Expr<'g> {
        if self.is_of(DType::is_complex) { self.part(1) } else { self * 0.0 }
    }
    fn part(self, index: i64) -> Expr<'g> {
        match self.meta() {
            Ok(meta) if meta.dtype.is_complex() => self.reinterpret(meta.dtype.storage()).select(-1, index),
            _ => self,
        }
    }
    /// The complex conjugate; a real tensor itself.
    #[must_use]
    pub fn conj(self) -> Expr<'g> {
        match self.is_of(DType::is_complex) {
            true => self.builder.complex(self.real(), -self.imag()),
            false => self,
        }
    }
    /// The square of each element.
    #[must_use]
    pub fn square(self) -> Expr<'g> {
        self * self
    }

    /// The index of the maximum along an axis, or in the flattened tensor.
    #[must_use]
    pub fn argmax(self, axis: Option<i64>, keepdim: bool) -> Expr<'g> {
        self.then(|g, v| build::arg_reduce(g, Op::Argmax, v, axis, keepdim))
    }
    /// The index of the minimum along an axis, or in the flattened tensor.
    #[must_use]
    pub fn argmin(self, axis: Option<i64>, keepdim: bool) -> Expr<'g> {
        self.then(|g, v| build::arg_reduce(g, Op::Argmin, v, axis, keepdim))
    }
    /// The maximum along an axis and its index.
    #[must_use]
    pub fn max_along(self, axis: i64, keepdim: bool) -> (Expr<'g>, Expr<'g>) {
        self.extreme(Op::Amax, axis, keepdim)
    }
    /// The minimum along an axis and its index.
    #[must_use]
    pub fn min_along(self, axis: i64, keepdim: bool) -> (Expr<'g>, Expr<'g>) {
        self.extreme(Op::Amin, axis, keepdim)
    }
    fn extreme(self, op: Op, axis: i64, keepdim: bool) -> (Expr<'g>, Expr<'g>) {
        let mut indices = FAILED;
        let values = self.then(|g, v| {
            let (values, found) = build::extreme_along(g, op, v, axis, keepdim)?;
            indices = found;
            Ok(values)
        });
        (values, self.builder.tensor(indices))
    }
    /// The variance over axes, dividing by `n - correction`.
    #[must_use]
    pub fn var(self, axes: &[i64], correction: f64, keepdim: bool) -> Expr<'g> {
        self.then(|g, v| build::variance::var(g, v, Some(axes), correction, keepdim))
    }
    /// The standard deviation over axes.
    #[must_use]
    pub fn std(self, axes: &[i64], correction: f64, keepdim: bool) -> Expr<'g> {
        self.then(|g, v| build::variance::std(g, v, Some(axes), correction, keepdim))
    }

    /// The same elements with another shape.
    #[must_use]
    pub fn with_shape(self, shape: &Shape) -> Expr<'g> {
        self.then(|g, v| match g.meta(v).shape == *shape {
            true => Ok(v),
            false => g.emit(Op::Reshape, &[v.into()], Attrs::Shape(*shape)),
        })
    }
    /// The last two axes swapped.
    #[must_use]
    pub fn transposed(self) -> Expr<'g> {
        self.transpose(-1, -2)
    }
    /// Without axes of size 1: the given ones, or all if the list is empty.
    #[must_use]
    pub fn squeeze(self, axes: &[i64]) -> Expr<'g> {
        self.then(|g, v| build::squeeze(g, v, (!axes.is_empty()).then_some(axes)))
    }
    /// The same tensor, the only one of those that this call has made which it goes on to use. See
    /// [`crate::graph::Graph::keep_only`].
    #[must_use]
    pub fn kept_only(self) -> Expr<'g> {
        self.then(|g, v| {
            g.keep_only(v);
            Ok(v)
        })
    }
    /// Broadcast to a shape.
    #[must_use]
    pub fn expand_to(self, shape: &Shape) -> Expr<'g> {
        self.then(|g, v| match g.meta(v).shape == *shape {
            true => Ok(v),
            false => g.emit(Op::Expand, &[v.into()], Attrs::Shape(*shape)),
        })
    }
    /// The part at an index along an axis, without that axis.
    #[must_use]
    pub fn select(self, axis: i64, index: i64) -> Expr<'g> {
        self.then(|g, v| {
            let shape = g.meta(v).shape;
            let axis = shape.axis(axis)?;
            let mut parts = vec![Index::Range { start: None, stop: None, step: None }; axis];
            parts.push(Index::At(index));
            build::index(g, v, &parts)
        })
    }
    /// Elements from `start` to `stop` with a step along an axis, as `x[start:stop:step]`.
    #[must_use]
    pub fn slice(self, axis: i64, start: Option<i64>, stop: Option<i64>, step: Option<i64>) -> Expr<'g> {
        self.then(|g, v| {
            let axis = g.meta(v).shape.axis(axis)?;
            let mut parts = vec![Index::Range { start: None, stop: None, step: None }; axis];
            parts.push(Index::Range { start, stop, step });
            build::index(g, v, &parts)
        })
    }
    /// The elements in reverse order along an axis.
    #[must_use]
    pub fn flip(self, axis: i64) -> Expr<'g> {
        self.slice(axis, None, None, Some(-1))
    }
    /// A copy with `source` written to the elements that basic indexing picks.
    #[must_use]
    pub fn set_index(self, parts: &[Index], source: impl Into<Arg>) -> Expr<'g> {
        let source = source.into();
        self.then(|g, v| build::set_index(g, v, parts, source))
    }

    /// The matrix product, as `torch.matmul`.
    #[must_use]
    pub fn matmul(self, other: Expr<'g>) -> Expr<'g> {
        self.autocast().with(other.autocast(), build::matmul)
    }
    /// The matrix product as its sums are: that of half precisions in float32, for a result that is rounded once.
    #[must_use]
    pub fn matmul_wide(self, other: Expr<'g>) -> Expr<'g> {
        self.autocast().with(other.autocast(), build::matmul_wide)
    }
    /// The affine map `self @ weight.T + bias`.
    #[must_use]
    pub fn affine(self, weight: Expr<'g>, bias: Expr<'g>) -> Expr<'g> {
        let (weight, bias) = (weight.autocast().val(), bias.autocast().val());
        self.autocast().then(|g, v| build::affine(g, v, weight, bias))
    }
    /// The operand of a matrix product in the dtype of automatic mixed precision, outside of which it stays as it is.
    /// float64 is chosen for its precision, and stays too.
    fn autocast(self) -> Expr<'g> {
        let Some(dtype) = self.builder.autocast() else { return self };
        self.then(|g, v| {
            let own = g.meta(v).dtype;
            if own.is_float() && own != DType::F64 { build::cast(g, v, dtype) } else { Ok(v) }
        })
    }
    /// Softmax along an axis.
    #[must_use]
    pub fn softmax(self, axis: i64) -> Expr<'g> {
        self.then(|g, v| row_wise::softmax(g, Op::Softmax, v, axis))
    }
    /// The logarithm of softmax along an axis.
    #[must_use]
    pub fn log_softmax(self, axis: i64) -> Expr<'g> {
        self.then(|g, v| row_wise::softmax(g, Op::LogSoftmax, v, axis))
    }
    /// Elements along an axis at the positions in an index tensor.
    #[must_use]
    pub fn gather(self, axis: i64, index: Expr<'g>) -> Expr<'g> {
        self.with(index, |g, v, index| build::gather(g, v, axis, index))
    }
    /// As [`Expr::gather`], where negative indices count from the end.
    #[must_use]
    pub fn gather_wrapped(self, axis: i64, index: Expr<'g>) -> Expr<'g> {
        self.with(index, |g, v, index| build::along(g, Op::Index, axis, &[v, index]))
    }
    /// The slices along an axis that a vector of int64 indices picks.
    #[must_use]
    pub fn index_select(self, axis: i64, index: Expr<'g>) -> Expr<'g> {
        self.with(index, |g, v, index| {
            let (shape, count) = (g.meta(v).shape, g.meta(index).shape.numel());
            let axis = shape.axis(axis)?;
            let mut line = vec![1; shape.rank()];
            line[axis] = count as i64;
            let line = build::reshape(g, index, &line)?;
            let wide = g.emit(Op::Expand, &[line.into()], Attrs::Shape(shape.with_dim(axis, count)))?;
            build::gather(g, v, axis as i64, wide)
        })
    }
    /// A copy with `source` written along an axis, by a scatter op (`Scatter`, `ScatterAdd`, …), at the indices.
    #[must_use]
    pub fn scatter(self, op: Op, axis: i64, index: Expr<'g>, source: Expr<'g>) -> Expr<'g> {
        self.builder.on_all(&[self, index, source], |g, v| build::along(g, op, axis, v))
    }
    /// An op along one axis without other operands: a scan or `Argsort`.
    #[must_use]
    pub fn along(self, op: Op, axis: i64) -> Expr<'g> {
        self.then(|g, v| build::along(g, op, axis, &[v]))
    }
    /// The cumulative sum along an axis.
    #[must_use]
    pub fn cumsum(self, axis: i64) -> Expr<'g> {
        self.along(Op::Cumsum, axis)
    }
    /// The first `count` indices of [`Expr::argsort`].
    #[must_use]
    pub fn argsort_first(self, axis: i64, descending: bool, count: i64) -> Expr<'g> {
        let op = if descending { Op::ArgsortDescending } else { Op::Argsort };
        self.then(|g, v| {
            let axis = g.meta(v).shape.axis(axis)? as u8;
            g.emit(op, &[v.into(), Scalar::Int(count).into()], Attrs::Axis(axis))
        })
    }
    /// The indices that sort elements along an axis; stable.
    #[must_use]
    pub fn argsort(self, axis: i64, descending: bool) -> Expr<'g> {
        self.along(if descending { Op::ArgsortDescending } else { Op::Argsort }, axis)
    }
}
