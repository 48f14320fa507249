//! The parts of a declaration: parameters, defaults, results and the call; and the macro
//! `functions!`, in which declarations are written.

use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::row::Class;
use gt_ops::{Arg, Attrs, DType, Forms, Graph, Meta, Op, OpError, Scalar, Shape, Val};

/// A public function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The name of its declaration.
    pub declared: &'static str,
    /// The forms in which it is offered.
    pub forms: Forms,
    /// The docstring, in Markdown as Python has it: a line, then `Args:`, `Returns:`, `Raises:`, `Example:`.
    pub doc: &'static str,
    /// Makes the list of a declaration's parameters; [`Function::parameters`] has those of a row too.
    pub parameters: fn() -> Vec<Parameter>,
    /// The kind of its result.
    pub returns: Returns,
    /// Its body.
    pub body: Body,
}

impl Function {
    /// The name that users call it by: PyTorch's.
    pub fn name(&self) -> &'static str {
        self.forms.name.unwrap_or(self.declared)
    }
    /// The keyword arguments that follow from the forms, each with its type and default in Python.
    pub fn keywords(&self, method: bool) -> Vec<(&'static str, &'static str, &'static str)> {
        let forms = &self.forms;
        let mut keywords = Vec::new();
        if forms.random {
            keywords.push(("generator", "Generator | None", "None"));
        }
        if forms.out && !method {
            keywords.push(("out", "Any", "None"));
        }
        if forms.creation {
            keywords.extend([
                ("device", "Device", "None"),
                ("requires_grad", "_bool", "False"),
                ("layout", "Any", "None"),
                ("pin_memory", "_bool", "False"),
            ]);
        }
        keywords
    }
    /// The first paragraph of the docstring, on one line.
    pub fn summary(&self) -> String {
        let lines: Vec<&str> = self.doc.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        lines.join(" ")
    }
    /// Makes the list of its parameters.
    pub fn parameters(&self) -> Vec<Parameter> {
        match self.body {
            Body::Composite(_) => (self.parameters)(),
            Body::Elementwise(op) => {
                let row = op.row();
                let tensor_only = |place: usize| match place {
                    0 => !row.number_first,
                    1 => row.tensors_only,
                    _ => false,
                };
                let kind = |place| if tensor_only(place) { Kind::Tensor } else { Kind::TensorOrNumber };
                let operand = |(place, name): (usize, &&'static str)| Parameter {
                    name,
                    kind: kind(place),
                    optional: false,
                    keyword_only: false,
                    default: None,
                };
                row.parameters.iter().enumerate().map(operand).collect()
            }
        }
    }
    /// The elementwise op that the function is where only its operands are given: `add` without `alpha`.
    pub fn elementwise(&self, parameters: &[Parameter]) -> Option<Op> {
        if let Body::Elementwise(op) = self.body {
            return Some(op);
        }
        let op = Op::from_name(self.name()).filter(|op| op.row().class == Class::Elementwise)?;
        let (operands, options) = parameters.split_at_checked(op.row().operands as usize)?;
        let tensors = operands.iter().all(|operand| matches!(operand.kind, Kind::Tensor | Kind::TensorOrNumber));
        let plain = !options.is_empty() && options.iter().all(|option| option.default.is_some());
        (tensors && plain && self.forms.module.is_empty()).then_some(op)
    }
}

/// The computation of a function.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// One elementwise instruction.
    Elementwise(Op),
    /// Several instructions.
    Composite(for<'g> fn(&'g Builder<'g>, &'g [Value]) -> Result<Outcome>),
}

impl Body {
    /// Computes the result from the arguments, in the order of the parameters.
    ///
    /// # Errors
    /// The errors of the function.
    pub fn call<'g>(self, g: &'g Builder<'g>, values: &'g [Value]) -> Result<Outcome> {
        match self {
            Body::Composite(body) => body(g, values),
            Body::Elementwise(op) => {
                let args: Vec<Arg> =
                    values.iter().map(|value| TensorOrNumber::of(g, value).map(Arg::from)).collect::<Result<_>>()?;
                if let [Arg::Scalar(first), others @ ..] = &*args
                    && others.iter().all(|other| matches!(other, Arg::Scalar(_)))
                {
                    check_tensor(op.name(), g.number(*first))?;
                }
                g.elementwise(op, &args).outcome(g)
            }
        }
    }
}

/// Checks that the first operand is a tensor.
///
/// # Errors
/// PyTorch's: it is a number.
pub(crate) fn check_tensor(name: &str, input: Expr<'_>) -> Result<()> {
    let Some(number) = input.as_number() else { return Ok(()) };
    let kind = match number {
        Scalar::Bool(_) => "bool",
        Scalar::Int(_) | Scalar::Unsigned(_) => "int",
        Scalar::Float(_) => "float",
        Scalar::Complex(..) => "complex",
    };
    Err(OpError::type_(format!("{name}(): argument 'input' (position 1) must be Tensor, not {kind}")))
}

/// A parameter of a function.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name: PyTorch's.
    pub name: &'static str,
    /// The type of its arguments.
    pub kind: Kind,
    /// `None` is an argument.
    pub optional: bool,
    /// It is passed by name only.
    pub keyword_only: bool,
    /// Its default as Python writes it, if it has one.
    pub default: Option<String>,
}

impl Parameter {
    /// The name in a signature: Python keeps `from` and `lambda` for itself, so they get a `_`.
    pub fn python_name(&self) -> String {
        match self.name {
            "from" | "lambda" => format!("{}_", self.name),
            name => name.to_owned(),
        }
    }

    /// Whether the parameter takes a value.
    pub fn takes(&self, value: &Value) -> bool {
        match (self.kind, value) {
            (_, Value::Omitted) => true,
            (_, Value::None) => self.optional,
            (Kind::Tensor | Kind::TensorOrNumber, Value::Tensor(_)) => true,
            (Kind::Tensors | Kind::Operands, Value::Tensors(_)) => true,
            (Kind::TensorOrNumber | Kind::Number | Kind::Float, Value::Number(_)) => true,
            (Kind::Int, Value::Number(number)) => matches!(number, Scalar::Int(_)),
            (Kind::Bool, Value::Number(number)) => matches!(number, Scalar::Bool(_)),
            (Kind::Ints | Kind::OptionalInts | Kind::Sizes, Value::Ints(_)) => true,
            (Kind::IntLists, Value::IntLists(_)) => true,
            (Kind::Floats, Value::Floats(_)) => true,
            (Kind::Text, Value::Text(_)) => true,
            (Kind::Unsupported, Value::Number(_)) => true,
            (Kind::TensorOrInts, Value::Tensor(_) | Value::Ints(_)) => true,
            (Kind::DType, Value::DType(_)) => true,
            _ => false,
        }
    }
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tensor.
    Tensor,
    /// A tensor or a number.
    TensorOrNumber,
    /// A sequence of tensors.
    Tensors,
    /// Tensors as arguments of their own or as one sequence. It is the last positional parameter.
    Operands,
    /// A number of any kind.
    Number,
    /// An integer.
    Int,
    /// A floating-point number.
    Float,
    /// A bool.
    Bool,
    /// A sequence of integers, or one integer.
    Ints,
    /// A sequence of integers or `None`, or one of them.
    OptionalInts,
    /// Integers as arguments of their own or as one sequence, such as the sizes of a shape. It is the last positional
    /// parameter.
    Sizes,
    /// A sequence of lists of integers, or of integers.
    IntLists,
    /// A sequence of floating-point numbers, or one.
    Floats,
    /// A text.
    Text,
    /// A dtype.
    DType,
    /// A tensor of integers, or a sequence of them.
    TensorOrInts,
    /// Any object, for a parameter of PyTorch's that the function does not support.
    Unsupported,
}

impl Kind {
    /// The name of the type in PyTorch's messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tensor | Kind::TensorOrNumber => "Tensor",
            Kind::Tensors | Kind::Operands => "tuple of Tensors",
            Kind::Number => "Number",
            Kind::Int => "int",
            Kind::Float => "float",
            Kind::Bool => "bool",
            Kind::Ints | Kind::OptionalInts | Kind::Sizes => "tuple of ints",
            Kind::IntLists => "tuple of tuples of ints",
            Kind::Floats => "tuple of floats",
            Kind::Text => "str",
            Kind::DType => "gt.dtype",
            Kind::TensorOrInts => "Tensor or tuple of ints",
            Kind::Unsupported => "object",
        }
    }
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The default.
    Omitted,
    /// Python's `None`, C's NULL.
    None,
    /// A tensor.
    Tensor(Val),
    /// Tensors.
    Tensors(Vec<Val>),
    /// A number: an integer, a floating-point number or a bool.
    Number(Scalar),
    /// Integers.
    Ints(Vec<i64>),
    /// Lists of integers.
    IntLists(Vec<Vec<i64>>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
    /// A text.
    Text(Box<str>),
    /// A dtype.
    DType(DType),
}

/// The kind of a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A tensor.
    Tensor,
    /// A tuple of this many tensors, named if [`Forms::results`] has names.
    Tuple(usize),
    /// A tuple of tensors, as many as the arguments say.
    Tensors,
    /// A tensor, or a tuple of tensors if an argument asks for it.
    TensorOrTuple,
    /// A pair of a tensor and a tuple of tensors.
    TensorAndTuple,
    /// A bool.
    Bool,
    /// A number.
    Number,
    /// Integers, such as a shape.
    Sizes,
    /// A dtype.
    DType,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A tensor.
    Tensor(Val),
    /// Several tensors.
    Tensors(Vec<Val>),
    /// A pair of a tensor and several tensors.
    TensorAndTuple(Val, Vec<Val>),
    /// A bool or a number.
    Number(Scalar),
    /// Integers.
    Sizes(Vec<i64>),
    /// A dtype.
    DType(DType),
}

/// A tensor or a number, as the right operand of `add` is. It is used as the [`Expr`] inside.
#[derive(Clone, Copy, Debug)]
pub struct TensorOrNumber<'g>(pub Expr<'g>);

impl<'g> std::ops::Deref for TensorOrNumber<'g> {
    type Target = Expr<'g>;
    fn deref(&self) -> &Expr<'g> {
        &self.0
    }
}
impl From<TensorOrNumber<'_>> for Arg {
    fn from(operand: TensorOrNumber<'_>) -> Arg {
        operand.0.into()
    }
}

/// Integers of which each may be absent, such as the sizes of an adaptive pool. [`OptionalInts::NONE`] stands for an
/// absent one.
#[derive(Clone, Copy, Debug)]
pub struct OptionalInts<'g>(pub &'g [i64]);

impl OptionalInts<'_> {
    /// The integer that stands for an absent one.
    pub const NONE: i64 = i64::MIN;
}

impl std::ops::Deref for OptionalInts<'_> {
    type Target = [i64];
    fn deref(&self) -> &[i64] {
        self.0
    }
}

/// A tensor of integers, or a sequence of them, such as lengths.
#[derive(Clone, Copy, Debug)]
pub enum TensorOrInts<'g> {
    /// A tensor.
    Tensor(Expr<'g>),
    /// A sequence of integers.
    Ints(&'g [i64]),
}

/// The argument of a parameter of PyTorch's that the function does not support. It is only known to be given.
#[derive(Clone, Copy, Debug)]
pub struct Unsupported;

/// Integers passed one by one or as one sequence, such as the sizes of a shape.
#[derive(Clone, Copy, Debug)]
pub struct Sizes<'g>(pub &'g [i64]);

impl std::ops::Deref for Sizes<'_> {
    type Target = [i64];
    fn deref(&self) -> &[i64] {
        self.0
    }
}

/// Tensors passed one by one or as one sequence, such as the blocks of `block_diag`.
#[derive(Clone, Debug)]
pub struct Operands<'g>(pub Vec<Expr<'g>>);

impl<'g> std::ops::Deref for Operands<'g> {
    type Target = [Expr<'g>];
    fn deref(&self) -> &[Expr<'g>] {
        &self.0
    }
}

/// A Rust type of parameters.
pub trait Argument<'g>: Sized {
    /// The parameter's type.
    const KIND: Kind;
    /// `None` is an argument.
    const OPTIONAL: bool = false;
    /// The argument of a value.
    ///
    /// # Errors
    /// A value of another type.
    fn of(g: &'g Builder<'g>, value: &'g Value) -> Result<Self>;
    /// The argument as Python writes it, for the default in a signature.
    fn text(&self) -> String;
}

/// Implements [`Argument`]: for each type its kind, the arguments of values, and the text of a default.
macro_rules! arguments {
    ($($type:ty: $kind:ident |$g:tt| { $($value:pat => $argument:expr),+ } |$this:tt| $text:expr;)*) => {$(
        impl<'g> Argument<'g> for $type {
            const KIND: Kind = Kind::$kind;
            fn of($g: &'g Builder<'g>, value: &'g Value) -> Result<Self> {
                match value {
                    $($value => Ok($argument),)+
                    other => Err(OpError::type_(format!("expected {}, but got {other:?}", Self::KIND.name()))),
                }
            }
            fn text(&self) -> String {
                let $this = self;
                $text.into()
            }
        }
    )*};
}

arguments! {
    Expr<'g>: Tensor |g| { Value::Tensor(val) => g.argument(*val) } |_| "...";
    TensorOrNumber<'g>: TensorOrNumber |g| {
        Value::Tensor(val) => TensorOrNumber(g.argument(*val)), Value::Number(number) => TensorOrNumber(g.number(*number))
    } |operand| operand.as_number().map_or_else(|| "...".into(), |number| number.text());
    Vec<Expr<'g>>: Tensors |g| { Value::Tensors(vals) => vals.iter().map(|val| g.argument(*val)).collect() } |_| "()";
    Operands<'g>: Operands |g| {
        Value::Tensors(vals) => Operands(vals.iter().map(|val| g.argument(*val)).collect())
    } |_| "()";
    Scalar: Number |_| { Value::Number(number) => *number } |number| match number {
        Scalar::Bool(b) => b.text(),
        Scalar::Float(f) => f.text(),
        Scalar::Complex(re, im) => format!("complex({re:?}, {im:?})"),
        number => number.to_string(),
    };
    i64: Int |_| { Value::Number(number) => number.to_i64() } |i| i.to_string();
    f64: Float |_| { Value::Number(number) => number.to_f64() } |f| match *f {
        f64::INFINITY => "float(\"inf\")".to_owned(),
        f64::NEG_INFINITY => "float(\"-inf\")".to_owned(),
        f => format!("{f:?}"),
    };
    bool: Bool |_| { Value::Number(number) => number.to_bool() } |b| if *b { "True" } else { "False" };
    &'g [i64]: Ints |_| { Value::Ints(all) => all } |all| tuple(all);
    Sizes<'g>: Sizes |_| { Value::Ints(all) => Sizes(all) } |all| tuple(all);
    OptionalInts<'g>: OptionalInts |_| { Value::Ints(all) => OptionalInts(all) } |all| tuple(all);
    &'g [Vec<i64>]: IntLists |_| { Value::IntLists(all) => all } |_| "()";
    &'g [f64]: Floats |_| { Value::Floats(all) => all } |all| tuple(all);
    &'g str: Text |_| { Value::Text(text) => text } |text| format!("{text:?}");
    TensorOrInts<'g>: TensorOrInts |g| {
        Value::Tensor(val) => TensorOrInts::Tensor(g.argument(*val)), Value::Ints(all) => TensorOrInts::Ints(all)
    } |_| "...";
    DType: DType |_| { Value::DType(dtype) => *dtype } |dtype| dtype.name();
}

impl<'g> Argument<'g> for Unsupported {
    const KIND: Kind = Kind::Unsupported;
    fn of(_: &'g Builder<'g>, _: &'g Value) -> Result<Self> {
        Ok(Unsupported)
    }
    fn text(&self) -> String {
        "...".into()
    }
}

/// Numbers as Python writes a tuple of them; a single number stands for itself.
fn tuple<'g, T: Argument<'g>>(all: &[T]) -> String {
    match all {
        [one] => one.text(),
        all => format!("({})", all.iter().map(T::text).collect::<Vec<_>>().join(", ")),
    }
}

impl<'g, T: Argument<'g>> Argument<'g> for Option<T> {
    const KIND: Kind = T::KIND;
    const OPTIONAL: bool = true;
    fn of(g: &'g Builder<'g>, value: &'g Value) -> Result<Self> {
        if *value == Value::None { Ok(None) } else { T::of(g, value).map(Some) }
    }
    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "None".into(), T::text)
    }
}

/// A Rust type of results.
pub trait FunctionResult<'g> {
    /// The kind of the result.
    const RETURNS: Returns;
    /// The result of the call.
    ///
    /// # Errors
    /// The first error of the expressions.
    fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome>;
}

impl<'g> FunctionResult<'g> for Expr<'g> {
    const RETURNS: Returns = Returns::Tensor;
    fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome> {
        g.finish(self).map(Outcome::Tensor)
    }
}
impl<'g, const N: usize> FunctionResult<'g> for [Expr<'g>; N] {
    const RETURNS: Returns = Returns::Tuple(N);
    fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome> {
        self.into_iter().map(|expr| g.finish(expr)).collect::<Result<_>>().map(Outcome::Tensors)
    }
}
impl<'g> FunctionResult<'g> for (Expr<'g>, Expr<'g>) {
    const RETURNS: Returns = Returns::Tuple(2);
    fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome> {
        [self.0, self.1].outcome(g)
    }
}
impl<'g> FunctionResult<'g> for Vec<Expr<'g>> {
    const RETURNS: Returns = Returns::Tensors;
    fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome> {
        self.into_iter().map(|expr| g.finish(expr)).collect::<Result<_>>().map(Outcome::Tensors)
    }
}
impl<'g> FunctionResult<'g> for (Expr<'g>, Vec<Expr<'g>>) {
    const RETURNS: Returns = Returns::TensorAndTuple;
    fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome> {
        let tuple = self.1.into_iter().map(|expr| g.finish(expr)).collect::<Result<_>>()?;
        Ok(Outcome::TensorAndTuple(g.finish(self.0)?, tuple))
    }
}
/// A tensor, or a tuple of tensors if an argument asks for it, as `return_indices` of a pool does.
#[derive(Clone, Debug)]
pub enum TensorOrTuple<'g> {
    /// One tensor.
    Tensor(Expr<'g>),
    /// A tuple.
    Tuple(Vec<Expr<'g>>),
}

impl<'g> FunctionResult<'g> for TensorOrTuple<'g> {
    const RETURNS: Returns = Returns::TensorOrTuple;
    fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome> {
        match self {
            TensorOrTuple::Tensor(one) => one.outcome(g),
            TensorOrTuple::Tuple(all) => all.outcome(g),
        }
    }
}
/// Implements [`FunctionResult`] for types that are no tensors.
macro_rules! known_results {
    ($($type:ty: $returns:ident, $this:ident => $outcome:expr;)*) => {$(
        impl<'g> FunctionResult<'g> for $type {
            const RETURNS: Returns = Returns::$returns;
            fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome> {
                let $this = self;
                g.check().map(|()| $outcome)
            }
        }
    )*};
}

known_results! {
    bool: Bool, b => Outcome::Number(Scalar::Bool(b));
    Scalar: Number, number => Outcome::Number(number);
    Vec<i64>: Sizes, sizes => Outcome::Sizes(sizes);
    DType: DType, dtype => Outcome::DType(dtype);
}

impl<'g, T: FunctionResult<'g>> FunctionResult<'g> for Result<T> {
    const RETURNS: Returns = T::RETURNS;
    fn outcome(self, g: &'g Builder<'g>) -> Result<Outcome> {
        // The first error of an expression is the cause of a later one.
        g.check()?;
        self?.outcome(g)
    }
}

/// The parameter of a declaration.
pub(crate) fn parameter<'g, T: Argument<'g>>(name: &'static str, default: Option<T>, keyword_only: bool) -> Parameter {
    Parameter {
        name: name.trim_end_matches('_'),
        kind: T::KIND,
        optional: T::OPTIONAL,
        keyword_only,
        default: default.map(|default| default.text()),
    }
}

/// The half precision that the results of a call are rounded to, if the function has [`Forms::wide`] and its operands
/// have a half precision in common: its arguments are then converted to float32.
pub(crate) fn widened<'g>(g: &'g Builder<'g>, forms: Forms, values: &[Value]) -> Option<DType> {
    if !forms.wide {
        return None;
    }
    let mut tensors = Vec::new();
    for value in values {
        match value {
            Value::Tensor(val) => tensors.push(g.tensor(*val)),
            Value::Tensors(vals) => tensors.extend(vals.iter().map(|val| g.tensor(*val))),
            _ => {}
        }
    }
    let dtype = g.common_dtype(&tensors).ok().filter(|dtype| dtype.is_half())?;
    g.set_widens(true);
    Some(dtype)
}

/// An outcome whose float32 tensors are rounded to `dtype`, if one is given.
pub(crate) fn narrowed<'g>(g: &'g Builder<'g>, outcome: Outcome, dtype: Option<DType>) -> Result<Outcome> {
    let Some(dtype) = dtype else { return Ok(outcome) };
    let round = |val: Val| {
        let result = g.tensor(val);
        if result.dtype()? == DType::F32 { g.finish(result.to(dtype)) } else { Ok(val) }
    };
    let round_all = |vals: Vec<Val>| vals.into_iter().map(round).collect::<Result<Vec<Val>>>();
    Ok(match outcome {
        Outcome::Tensor(val) => Outcome::Tensor(round(val)?),
        Outcome::Tensors(vals) => Outcome::Tensors(round_all(vals)?),
        Outcome::TensorAndTuple(val, vals) => Outcome::TensorAndTuple(round(val)?, round_all(vals)?),
        other => other,
    })
}

/// Makes parameters, whose defaults are numbers: no instruction is emitted for them.
pub(crate) fn with_defaults(parameters: for<'g> fn(&'g Builder<'g>) -> Vec<Parameter>) -> Vec<Parameter> {
    parameters(&Builder::new(&mut NoGraph))
}

/// The graph of defaults, which has no tensors.
struct NoGraph;

impl Graph for NoGraph {
    fn emit(&mut self, _: Op, _: &[Arg], _: Attrs) -> Result<Val> {
        Err(OpError::runtime("a default that is no number"))
    }
    fn meta(&self, _: Val) -> Meta {
        Meta::new(Shape::SCALAR, DType::F32)
    }
    fn detach(&mut self, v: Val) -> Result<Val> {
        Ok(v)
    }
    fn next_random(&mut self) -> (u64, u64) {
        (0, 0)
    }
}

/// The kind of a result type.
pub(crate) const fn returns<'g, T: FunctionResult<'g>>() -> Returns {
    T::RETURNS
}

/// Declares functions: each becomes a Rust function, which other composites call, and an entry of the module's
/// `FUNCTIONS`, from which Python, C, stubs, reference pages and tests follow.
///
/// ```text
/// functions! {
///     /// One line on what it computes. Then `Args:`, `Returns:`, `Raises:` and `Example:` as in Python.
///     [method().out()]
///     fn logsumexp(g, input: Expr<'g>, dim: &'g [i64], keepdim: bool = false) -> Result<Expr<'g>> {
///         …
///     }
/// }
/// ```
///
/// The brackets have the forms (see [`gt_ops::forms`]). `g` is the [`Builder`]; parameters after `;` are passed by name
/// only. A trailing `_` of a parameter's name is not part of it in Python (`where_`, `type_`). Where a function has a
/// parameter `inplace: bool`, callers write the result to the first argument if it is true; the body ignores it.
macro_rules! functions {
    ($(
        $(#[doc = $doc:literal])*
        [$forms:expr]
        fn $name:ident($g:ident $(, $p:ident: $t:ty $(= $d:expr)?)* $(; $($k:ident: $kt:ty $(= $kd:expr)?),+)? $(,)?) -> $r:ty
        $body:block
    )*) => {
        $(
            // The docstring is Python's: rustdoc would read its brackets as links.
            #[doc = "```text"]
            $(#[doc = $doc])*
            #[doc = "```"]
            pub fn $name<'g>($g: &'g gt_ops::expr::Builder<'g> $(, $p: $t)* $($(, $k: $kt)+)?) -> $r {
                let _: &gt_ops::expr::Builder<'g> = $g;
                // A body may leave a parameter, such as `inplace`, to its callers.
                $(let _ = &$p;)*
                $($(let _ = &$k;)+)?
                $body
            }
        )*

        /// The functions of this file.
        pub(crate) const FUNCTIONS: &[$crate::declaration::Function] = &[$($crate::declaration::Function {
            declared: stringify!($name),
            forms: $forms,
            doc: concat!($($doc, "\n"),*),
            parameters: {
                fn parameters<'g>($g: &'g gt_ops::expr::Builder<'g>) -> Vec<$crate::declaration::Parameter> {
                    let _: &gt_ops::expr::Builder<'g> = $g;
                    vec![
                        $($crate::declaration::parameter::<$t>(stringify!($p), $crate::declaration::default!($($d)?), false),)*
                        $($($crate::declaration::parameter::<$kt>(stringify!($k), $crate::declaration::default!($($kd)?), true),)+)?
                    ]
                }
                || $crate::declaration::with_defaults(parameters)
            },
            returns: {
                const fn returns<'g>() -> $crate::declaration::Returns {
                    $crate::declaration::returns::<$r>()
                }
                returns()
            },
            body: {
                fn call<'g>(
                    $g: &'g gt_ops::expr::Builder<'g>,
                    values: &'g [$crate::declaration::Value],
                ) -> gt_ops::error::Result<$crate::declaration::Outcome> {
                    let narrow = $crate::declaration::widened($g, $forms, values);
                    let mut values = values.iter();
                    let mut next = || values.next().unwrap_or(&$crate::declaration::Value::Omitted);
                    $(let $p: $t = $crate::declaration::argument!($g, next(), $t, $($d)?);)*
                    $($(let $k: $kt = $crate::declaration::argument!($g, next(), $kt, $($kd)?);)+)?
                    let _ = &mut next;
                    let outcome = $crate::declaration::FunctionResult::outcome($name($g $(, $p)* $($(, $k)+)?), $g)?;
                    $crate::declaration::narrowed($g, outcome, narrow)
                }
                $crate::declaration::Body::Composite(call)
            },
        }),*];
    };
}

/// The default of a parameter, if it has one.
macro_rules! default {
    () => {
        None
    };
    ($default:expr) => {
        Some($default)
    };
}

/// The argument of a call, or the default.
macro_rules! argument {
    ($g:expr, $value:expr, $type:ty,) => {
        <$type as $crate::declaration::Argument<'g>>::of($g, $value)?
    };
    ($g:expr, $value:expr, $type:ty, $default:expr) => {
        match $value {
            $crate::declaration::Value::Omitted => $default,
            value => <$type as $crate::declaration::Argument<'g>>::of($g, value)?,
        }
    };
}

pub(crate) use {argument, default, functions};
