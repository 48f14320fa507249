//! Elementwise programs, and the code of their kernels.
//!
//! A program is a few steps in static single assignment form: each computes one number from inputs and earlier steps,
//! by the formula in the op's row. Half precisions are rounded at each step, so that a program gives the same bits
//! as its instructions one by one. Shapes, strides and scalars are arguments of the kernel, not part of the program. A
//! single instruction is a program of one step.

use crate::driver::ARGS_BYTES_MAX;
use crate::template::c_name;
use gt_ops::{Class, DType, Op};
use std::borrow::Cow;
use std::fmt::Write;

/// The most operands of a step.
pub const OPERANDS_MAX: usize = 3;
/// The most inputs of a program: their strides are kernel arguments, whose size is limited.
pub const INPUTS_MAX: usize = 16;
/// The most results of a program.
pub const KEPT_MAX: usize = 8;
/// The most bytes of a kernel's name.
const NAME_MAX: usize = 100;
/// Threads of a block.
pub const THREADS: u32 = 256;
/// Bytes of a vector load or store.
const VECTOR_BYTES: usize = 16;
/// Bytes of the arguments behind the table of [`Traversal::Gathered`].
const COUNT_BYTES: usize = 8;
/// The most operations per element, on floats and on integers, for which a thread takes several elements: costlier
/// steps are not bound by memory, and their code would be repeated for each lane.
const LANES_COST_MAX: [u16; 2] = [80, 8];

/// An operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgramValue {
    /// The input of this number.
    Input(usize),
    /// The result of an earlier step.
    Step(usize),
}

/// A step of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProgramStep {
    /// The op: elementwise, a selection or a cast.
    pub op: Op,
    /// The dtype in which it computes; for a selection, that of the choices.
    pub dtype: DType,
    /// The result's dtype.
    pub out: DType,
    /// Its operands.
    pub operands: Vec<ProgramValue>,
}

impl ProgramStep {
    /// Whether the step checks for division by zero.
    pub fn checks_divisor(&self) -> bool {
        self.op.row().divisor_nonzero && !self.dtype.is_float()
    }

    /// Writes code that computes `s{number}` from the inputs `v0`, `v1`, ... and earlier steps, and stores it if it is
    /// a result.
    fn write(&self, text: &mut String, number: usize, kept: Option<usize>) -> std::fmt::Result {
        let out = computed(self.out);
        write!(text, "        {out} s{number};\n        {{ ")?;
        for (name, operand) in ["a", "b", "c"].into_iter().zip(&self.operands) {
            match operand {
                ProgramValue::Input(i) => write!(text, "const auto {name} = v{i}; ")?,
                ProgramValue::Step(i) => write!(text, "const auto {name} = s{i}; ")?,
            }
        }
        let row = self.op.row();
        let expression = match row.class {
            Class::Select => "a ? b : c".into(),
            Class::Cast => Cow::Owned(format!("converted<{out}>(a)")),
            _ if self.dtype.is_float() => row.cuda.into(),
            _ => row.cuda_int.into(),
        };
        if row.class == Class::Elementwise {
            write!(text, "typedef {} T; ", computed(self.dtype))?;
        }
        if self.checks_divisor() {
            text.push_str("if (b == T(0)) report(found, ZERO_DIVISION); ");
        }
        match (kept, self.out) {
            (Some(o), _) => {
                writeln!(text, "store(&r{o}.at[k], {out}({expression})); s{number} = load(&r{o}.at[k]); }}")
            }
            (None, DType::F16 | DType::BF16) => {
                writeln!(text, "s{number} = rounded<{}>({expression}); }}", c_name(self.out))
            }
            (None, _) => writeln!(text, "s{number} = {out}({expression}); }}"),
        }
    }
}

/// How a kernel traverses its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traversal {
    /// Linear: operands of more than one element are contiguous, have the result's shape, and are aligned to vectors.
    Straight,
    /// Strided, with an innermost axis that is a multiple of [`Program::lanes`].
    Rows,
    /// Strided, one element at a time.
    Single,
    /// Several results in one launch, each with its own operands, of its own length, and traversed as by `Straight`.
    Gathered,
}

impl Traversal {
    /// Every traversal.
    pub const ALL: [Traversal; 4] = [Traversal::Straight, Traversal::Rows, Traversal::Single, Traversal::Gathered];

    /// The header of a kernel's source.
    fn header(self) -> &'static str {
        if self == Traversal::Gathered { "tensors.cuh" } else { "elementwise.cuh" }
    }
}

/// An elementwise program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// The dtypes of its inputs.
    pub inputs: Vec<DType>,
    /// Its steps.
    pub steps: Vec<ProgramStep>,
    /// The steps whose results are stored.
    pub kept: Vec<usize>,
}

impl Program {
    /// A program of a single instruction.
    pub fn single(op: Op, dtype: DType, out: DType) -> Program {
        let row = op.row();
        let input = |i: usize| if row.class == Class::Select && i == 0 { DType::Bool } else { dtype };
        let count = row.operands as usize;
        let step = ProgramStep { op, dtype, out, operands: (0..count).map(ProgramValue::Input).collect() };
        Program { inputs: (0..count).map(input).collect(), steps: vec![step], kept: vec![0] }
    }

    /// Elements that a thread computes together.
    pub fn lanes(&self) -> usize {
        let stored = self.kept.iter().map(|step| self.steps[*step].out);
        let widest = self.inputs.iter().copied().chain(stored).map(DType::size).max();
        self.steps.iter().map(|step| lanes(step.op, step.dtype, widest.unwrap_or(1))).min().unwrap_or(1)
    }

    /// The kernel's name, made of its ops as far as there is room.
    pub fn name(&self) -> String {
        let mut name = String::from("gt_fused");
        for step in &self.steps {
            let op = step.op.name();
            if name.len() + 1 + op.len() > NAME_MAX {
                break;
            }
            name.push('_');
            name.push_str(op);
        }
        name
    }

    /// Whether any step checks for division by zero: the kernel then has an argument for the report.
    pub fn checks_divisor(&self) -> bool {
        self.steps.iter().any(ProgramStep::checks_divisor)
    }

    /// The source of the program's kernel, called [`Program::name`].
    pub fn source(&self, walk: Traversal) -> String {
        format!("#include \"{}\"\n{}", walk.header(), self.code(&self.name(), walk))
    }

    /// The code of a kernel called `name`, with the arguments that [`crate::elementwise`] pushes.
    pub fn code(&self, name: &str, walk: Traversal) -> String {
        let mut text = String::with_capacity(2048);
        self.write(&mut text, name, walk).unwrap_or_default();
        text
    }

    fn write(&self, text: &mut String, name: &str, walk: Traversal) -> std::fmt::Result {
        let straight = matches!(walk, Traversal::Straight | Traversal::Gathered);
        let gathered = walk == Traversal::Gathered;
        let (inputs, columns) = (self.inputs.len(), self.inputs.len() + self.kept.len());
        let (mut parameters, mut arguments) = (String::new(), String::new());
        if gathered {
            write!(parameters, "const Part<{columns}> &part, ")?;
        }
        for i in (0..inputs).filter(|_| !gathered) {
            write!(parameters, "Operand in{i}, ")?;
            write!(arguments, "in{i}, ")?;
        }
        for (o, step) in self.kept.iter().enumerate() {
            write!(parameters, "{} *out{o}, ", c_name(self.steps[*step].out))?;
            write!(arguments, "out{o}, ")?;
        }
        if self.checks_divisor() {
            parameters.push_str("Found *found, ");
            arguments.push_str("found, ");
        }
        parameters.push_str("u32 ones, ");
        arguments.push_str("ones, ");
        // The device function of one thread, for V elements from `at` on.
        let places = if straight { "" } else { ", const i64 *offsets, const i64 *inner" };
        writeln!(text, "template <int V>\nGT_DEVICE void {name}_lanes({parameters}u64 at{places}) {{")?;
        for (i, dtype) in self.inputs.iter().map(|dtype| c_name(*dtype)).enumerate() {
            // The compiler knows that an address in the arguments is global, but not one that may be a scalar's null.
            let first = match gathered {
                true => format!("(const {dtype} *)part.columns[{i}]"),
                false => format!("(const {dtype} *)in{i}.first"),
            };
            if gathered {
                writeln!(text, "    const Operand in{i} = part.operand({i});")?;
            }
            write!(text, "    const auto x{i} = ones >> {i} & 1 ? repeated<V>(only<{dtype}>(in{i})) : ")?;
            if straight {
                writeln!(text, "computed(read<V>({first} + at));")?;
            } else {
                writeln!(text, "computed(read_stepped<V>({first} + offsets[{i}], inner[{i}]));")?;
            }
        }
        for (o, step) in self.kept.iter().enumerate() {
            writeln!(text, "    Lanes<{}, V> r{o};", c_name(self.steps[*step].out))?;
        }
        text.push_str("#pragma unroll\n    for (int k = 0; k < V; k++) {\n");
        for i in 0..self.inputs.len() {
            writeln!(text, "        const auto v{i} = x{i}.at[k];")?;
        }
        for (s, step) in self.steps.iter().enumerate() {
            step.write(text, s, self.kept.iter().position(|kept| *kept == s))?;
        }
        text.push_str("    }\n");
        for o in 0..self.kept.len() {
            writeln!(text, "    write(out{o} + at, r{o});")?;
        }
        text.push_str("}\n");
        let lanes = if walk == Traversal::Single { 1 } else { self.lanes() };
        if gathered {
            let parts = parts_max(columns);
            let mut results = String::new();
            for (o, step) in self.kept.iter().enumerate() {
                write!(results, "({} *)part.columns[{}], ", c_name(self.steps[*step].out), inputs + o)?;
            }
            let arguments = format!("part, {results}part.ones(), ");
            writeln!(
                text,
                "GT_KERNEL({THREADS}) {name}(const __grid_constant__ Parts<{columns}, {parts}> parts, u32 count) {{
    const int V = {lanes};
    const auto &part = parts.of(blockIdx.x, count);
    const u64 i = u64(blockIdx.x - part.first) * {THREADS} + threadIdx.x, vectors = part.count / V, rest = i - vectors;
    if (i < vectors) {name}_lanes<V>({arguments}i * V);
    else if (rest < part.count % V) {name}_lanes<1>({arguments}vectors * V + rest);
}}"
            )
        } else if straight {
            writeln!(
                text,
                "GT_KERNEL({THREADS}) {name}({parameters}u64 count) {{
    const int V = {lanes};
    const u64 i = u64(blockIdx.x) * {THREADS} + threadIdx.x, vectors = count / V, rest = i - vectors;
    if (i < vectors) {name}_lanes<V>({arguments}i * V);
    else if (rest < count % V) {name}_lanes<1>({arguments}vectors * V + rest);
}}"
            )
        } else {
            writeln!(
                text,
                "GT_KERNEL({THREADS}) {name}({parameters}u64 count, Axes axes, Strides<{inputs}> strides) {{
    const int V = {lanes};
    const u64 i = u64(blockIdx.x) * {THREADS} + threadIdx.x;
    if (i >= count / V) return;
    i64 offsets[{inputs}];
    find(offsets, axes, strides, u32(i));
    {name}_lanes<V>({arguments}i * V, offsets, strides.inner);
}}"
            )
        }
    }
}

/// The most parts of a launch of [`Traversal::Gathered`], for a program of this many inputs and results together.
pub const fn parts_max(columns: usize) -> usize {
    (ARGS_BYTES_MAX - COUNT_BYTES) / part_bytes(columns)
}

/// The bytes of a part: `struct Part` of `tensors.cuh`.
pub const fn part_bytes(columns: usize) -> usize {
    8 * columns + 16
}

/// Elements that a thread computes together for `op` on `dtype`, if the widest element in memory has this many bytes.
pub fn lanes(op: Op, dtype: DType, widest_bytes: usize) -> usize {
    let costs_much = op.row().cost_flops > LANES_COST_MAX[usize::from(!dtype.is_float())];
    if costs_much { 1 } else { VECTOR_BYTES / widest_bytes }
}

/// The type in which kernels compute a dtype.
fn computed(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 => "f32",
        other => c_name(other),
    }
}
