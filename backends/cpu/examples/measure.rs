//! Times the CPU backend without a daemon: `cargo run --release -p gt-cpu --example measure -- [threads] [filter]`.
#![expect(clippy::print_stdout, reason = "it prints its measurements")]

use gt_backend::{Backend, ExecError, Input, Stage, StageInput};
use gt_cpu::{CpuBackend, CpuOptions, CpuTensor};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Attrs, DType, Op, Scalar, Shape, WindowSpec};
use std::time::Instant;

struct Bench {
    backend: CpuBackend,
    filter: String,
}

impl Bench {
    fn execute(
        &mut self,
        op: Op,
        inputs: &[Input<'_, CpuTensor>],
        attrs: &Attrs,
        last_use: u8,
    ) -> Result<CpuTensor, ExecError> {
        let metas: Vec<InputMeta> = inputs
            .iter()
            .map(|i| match i {
                Input::Tensor(t) => InputMeta::Tensor(self.backend.meta(t)),
                Input::Scalar(s) => InputMeta::Scalar(*s),
            })
            .collect();
        let out = infer(op, &metas, attrs).map_err(|e| ExecError::internal(e.to_string()))?;
        self.backend.execute(op, inputs, attrs, &out, last_use)
    }

    fn random(&mut self, dims: &[usize], dtype: DType) -> Result<CpuTensor, ExecError> {
        let shape = Shape::new(dims).map_err(|e| ExecError::internal(e.to_string()))?;
        let wide = Attrs::Random { shape, dtype: DType::F32, seed: 1, stream: 2, first: 0 };
        let tensor = self.execute(Op::Rand, &[], &wide, 0)?;
        self.execute(Op::Cast, &[Input::Tensor(&tensor)], &Attrs::DType(dtype), 0)
    }

    /// The shortest time of a call over 60 rounds, in seconds; none if the filter excludes `name`.
    fn time(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[Input<'_, CpuTensor>],
        attrs: &Attrs,
    ) -> Result<Option<f64>, ExecError> {
        if !name.contains(&self.filter) {
            return Ok(None);
        }
        let metas: Vec<InputMeta> = inputs
            .iter()
            .map(|i| match i {
                Input::Tensor(t) => InputMeta::Tensor(self.backend.meta(t)),
                Input::Scalar(s) => InputMeta::Scalar(*s),
            })
            .collect();
        let out = infer(op, &metas, attrs).map_err(|e| ExecError::internal(e.to_string()))?;
        let mut calls = 1;
        let mut best = f64::INFINITY;
        let mut rounds = 0;
        while rounds < 60 {
            let start = Instant::now();
            for _ in 0..calls {
                self.backend.execute(op, inputs, attrs, &out, 0)?;
            }
            let seconds = start.elapsed().as_secs_f64();
            if seconds < 0.001 {
                calls *= 2;
                continue;
            }
            rounds += 1;
            best = best.min(seconds / calls as f64);
        }
        Ok(Some(best))
    }
}

/// The Huber loss of each element, as the daemon fuses it: the shortest time of a call over 400 rounds, in seconds.
fn time_fused(b: &mut Bench, elements: usize) -> Result<f64, ExecError> {
    let (x, y) = (b.random(&[elements], DType::F32)?, b.random(&[elements], DType::F32)?);
    let out = b.backend.meta(&x);
    let [x, y] = [&x, &y].map(|t| StageInput::External(Input::Tensor(t)));
    let number = |x: f64| StageInput::External(Input::Scalar(Scalar::Float(x)));
    let earlier = |stage: usize| StageInput::Stage(stage);
    let steps = [
        (Op::Sub, vec![x, y]),
        (Op::Clamp, vec![earlier(0), number(-1.0), number(1.0)]),
        (Op::Mul, vec![earlier(1), number(0.5)]),
        (Op::Sub, vec![earlier(0), earlier(2)]),
        (Op::Mul, vec![earlier(3), earlier(1)]),
    ];
    let last = steps.len() - 1;
    let stages: Vec<_> = steps
        .into_iter()
        .enumerate()
        .map(|(at, (op, inputs))| Stage { op, inputs, attrs: &Attrs::None, out, kept: at == last, last_use: 0 })
        .collect();
    let mut best = f64::INFINITY;
    for _ in 0..400 {
        let start = Instant::now();
        b.backend.execute_fused(&stages)?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn main() -> Result<(), ExecError> {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let filter = args.next().unwrap_or_default();
    let options = CpuOptions { threads, ..CpuOptions::default() };
    let mut bench = Bench { backend: CpuBackend::new(options), filter };
    let b = &mut bench;
    let unary = [
        Op::Neg,
        Op::Relu,
        Op::Exp,
        Op::Log,
        Op::Sqrt,
        Op::Rsqrt,
        Op::Sin,
        Op::Cos,
        Op::Tan,
        Op::Tanh,
        Op::Sigmoid,
        Op::Erf,
        Op::Gelu,
        Op::GeluTanh,
        Op::Expm1,
        Op::Log1p,
        Op::Floor,
        Op::Isnan,
    ];
    let binary = [Op::Add, Op::Mul, Op::Div, Op::Maximum, Op::Pow, Op::Remainder, Op::FloorDivide, Op::Lt];

    let one = b.random(&[1], DType::F32)?;
    for (name, inputs) in [
        ("tiny add", [Input::Tensor(&one), Input::Tensor(&one)]),
        ("tiny add scalar", [Input::Tensor(&one), Input::Scalar(Scalar::Float(1.0))]),
    ] {
        if let Some(s) = b.time(name, Op::Add, &inputs, &Attrs::None)? {
            println!("{name:<28} {:8.1} ns", s * 1e9);
        }
    }
    let (ten, condition) = (b.random(&[2, 5], DType::F32)?, b.random(&[1], DType::Bool)?);
    let mut swap = [0; 8];
    swap[0] = 1;
    let shape = |dims: &[usize]| Shape::new(dims).unwrap_or(Shape::SCALAR);
    for (name, op, inputs, attrs) in [
        ("tiny exp", Op::Exp, &[Input::Tensor(&one)][..], Attrs::None),
        ("tiny add broadcast", Op::Add, &[Input::Tensor(&ten), Input::Tensor(&one)], Attrs::None),
        (
            "tiny where",
            Op::Where,
            &[Input::Tensor(&condition), Input::Tensor(&one), Input::Tensor(&one)],
            Attrs::DType(DType::F32),
        ),
        ("tiny cast", Op::Cast, &[Input::Tensor(&one)], Attrs::DType(DType::F64)),
        ("tiny sum", Op::Sum, &[Input::Tensor(&ten)], Attrs::Axes { mask: 3, keepdim: false }),
        ("tiny sum axis 0", Op::Sum, &[Input::Tensor(&ten)], Attrs::Axes { mask: 1, keepdim: false }),
        ("tiny argmax", Op::Argmax, &[Input::Tensor(&ten)], Attrs::Axes { mask: 2, keepdim: false }),
        ("tiny permute", Op::Permute, &[Input::Tensor(&ten)], Attrs::Permutation(swap)),
        ("tiny reshape", Op::Reshape, &[Input::Tensor(&ten)], Attrs::Shape(shape(&[10]))),
        ("tiny expand", Op::Expand, &[Input::Tensor(&one)], Attrs::Shape(shape(&[3, 4]))),
        ("tiny cat", Op::Cat, &[Input::Tensor(&one), Input::Tensor(&one)], Attrs::Axis(0)),
        (
            "tiny full",
            Op::Full,
            &[Input::Scalar(Scalar::Int(1))],
            Attrs::Create { shape: shape(&[1]), dtype: DType::F32 },
        ),
        (
            "tiny randn",
            Op::Randn,
            &[],
            Attrs::Random { shape: shape(&[1]), dtype: DType::F32, seed: 1, stream: 1, first: 0 },
        ),
    ] {
        if let Some(s) = b.time(name, op, inputs, &attrs)? {
            println!("{name:<28} {:8.1} ns", s * 1e9);
        }
    }
    if "tiny chain".contains(&b.filter) {
        let out = b.backend.meta(&one);
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let mut x = b.random(&[1], DType::F32)?;
            let start = Instant::now();
            for _ in 0..100_000 {
                x = b.backend.execute(Op::Add, &[Input::Tensor(&x), Input::Tensor(&one)], &Attrs::None, &out, 1)?;
            }
            best = best.min(start.elapsed().as_secs_f64() / 1e5);
        }
        println!("{:<28} {:8.1} ns", "tiny chain (in place)", best * 1e9);
    }

    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for n in [10_000usize, 1_000_000, 25_000_000] {
            if n != 1_000_000 && dtype != DType::F32 {
                continue;
            }
            let (x, y) = (b.random(&[n], dtype)?, b.random(&[n], dtype)?);
            for op in unary {
                if let Some(s) =
                    b.time(&format!("{} {dtype} {n}", op.name()), op, &[Input::Tensor(&x)], &Attrs::None)?
                {
                    println!(
                        "{:<28} {:8.1} GB/s",
                        format!("{} {dtype} {n}", op.name()),
                        2.0 * (n * dtype.size()) as f64 / s / 1e9
                    );
                }
            }
            for op in binary {
                let name = format!("{} {dtype} {n}", op.name());
                if let Some(s) = b.time(&name, op, &[Input::Tensor(&x), Input::Tensor(&y)], &Attrs::None)? {
                    println!("{name:<28} {:8.1} GB/s", 3.0 * (n * dtype.size()) as f64 / s / 1e9);
                }
            }
            for op in [Op::Sum, Op::Mean, Op::Amax, Op::Prod, Op::Any] {
                let name = format!("{} {dtype} {n}", op.name());
                if let Some(s) = b.time(&name, op, &[Input::Tensor(&x)], &Attrs::Axes { mask: 1, keepdim: false })? {
                    println!("{name:<28} {:8.1} GB/s", (n * dtype.size()) as f64 / s / 1e9);
                }
            }
        }
    }

    for (rows, columns) in [(1000usize, 1000usize), (10, 1000), (4000, 64)] {
        let (x, g) = (b.random(&[rows, columns], DType::F32)?, b.random(&[rows, columns], DType::F32)?);
        let (w, c) = (b.random(&[columns], DType::F32)?, b.random(&[columns], DType::F32)?);
        let (x, g, w, c) = (Input::Tensor(&x), Input::Tensor(&g), Input::Tensor(&w), Input::Tensor(&c));
        let eps = Input::Scalar(Scalar::Float(1e-5));
        for (op, inputs) in [
            (Op::Softmax, &[x][..]),
            (Op::SoftmaxBackward, &[g, x]),
            (Op::LogSoftmax, &[x]),
            (Op::LayerNorm, &[x, w, c, eps]),
            (Op::LayerNormBackward, &[g, x, w, eps]),
            (Op::LayerNormWeightBackward, &[g, x, eps]),
        ] {
            let name = format!("{} {rows}x{columns}", op.name());
            if let Some(s) = b.time(&name, op, inputs, &Attrs::None)? {
                println!("{name:<40} {:10.2} us", s * 1e6);
            }
        }
    }

    for (rows, columns) in [
        (1000usize, 1000usize),
        (512, 10),
        (100_000, 10),
        (32, 256),
        (10, 100_000),
        (1, 262_144),
        (10_000, 10),
        (31_250, 32),
        (20_000, 4),
        (10_000, 17),
    ] {
        let x = b.random(&[rows, columns], DType::F32)?;
        let (row, column) = (b.random(&[columns], DType::F32)?, b.random(&[rows, 1], DType::F32)?);
        for (what, other) in [("row", &row), ("column", &column)] {
            let name = format!("add {what} {rows}x{columns}");
            if let Some(s) = b.time(&name, Op::Add, &[Input::Tensor(&x), Input::Tensor(other)], &Attrs::None)? {
                println!("{name:<28} {:8.1} GB/s {:10.2} us", 8.0 * (rows * columns) as f64 / s / 1e9, s * 1e6);
            }
        }
        for op in [Op::Sum, Op::Amax, Op::Argmax] {
            for mask in [1, 2] {
                let name = format!("{} axis {} {rows}x{columns}", op.name(), mask - 1);
                if let Some(s) = b.time(&name, op, &[Input::Tensor(&x)], &Attrs::Axes { mask, keepdim: false })? {
                    println!("{name:<28} {:8.1} GB/s {:10.2} us", 4.0 * (rows * columns) as f64 / s / 1e9, s * 1e6);
                }
            }
        }
        let transposed = {
            let mut p = [0; 8];
            p[0] = 1;
            b.execute(Op::Permute, &[Input::Tensor(&x)], &Attrs::Permutation(p), 0)?
        };
        let name = format!("transpose copy {rows}x{columns}");
        let flat = Attrs::Shape(Shape::new(&[rows * columns]).map_err(|e| ExecError::internal(e.to_string()))?);
        if let Some(s) = b.time(&name, Op::Reshape, &[Input::Tensor(&transposed)], &flat)? {
            println!("{name:<28} {:8.1} GB/s {:10.2} us", 8.0 * (rows * columns) as f64 / s / 1e9, s * 1e6);
        }
    }

    for dims in [[100usize, 1000, 10], [1000, 100, 10], [1000, 10, 3], [100, 1000, 32]] {
        let x = b.random(&dims, DType::F32)?;
        let name = format!("sum axis 1 {dims:?}");
        if let Some(s) = b.time(&name, Op::Sum, &[Input::Tensor(&x)], &Attrs::Axes { mask: 2, keepdim: false })? {
            println!("{name:<28} {:10.2} us", s * 1e6);
        }
    }

    for (rows, columns) in [(1000usize, 1000usize), (1, 1000), (1, 1_000_000), (8, 50_000)] {
        let x = b.random(&[rows, columns], DType::F32)?;
        let first = [Input::Tensor(&x), Input::Scalar(Scalar::Int(10))];
        for (name, op, inputs) in [
            ("cumsum", Op::Cumsum, &first[..1]),
            ("cumargmax", Op::Cumargmax, &first[..1]),
            ("cumprod", Op::Cumprod, &first[..1]),
            ("logcumsumexp", Op::Logcumsumexp, &first[..1]),
            ("argsort", Op::ArgsortDescending, &first[..1]),
            ("argsort, 10 of", Op::ArgsortDescending, &first),
        ] {
            let name = format!("{name} {rows}x{columns}");
            if let Some(s) = b.time(&name, op, inputs, &Attrs::Axis(1))? {
                println!("{name:<28} {:8.2} ns/element {:10.2} us", s * 1e9 / (rows * columns) as f64, s * 1e6);
            }
        }
    }

    for (rows, columns) in [(256usize, 1024usize), (1000, 1000)] {
        let x = b.random(&[rows, columns], DType::F32)?;
        let places = b.execute(Op::Cumargmax, &[Input::Tensor(&x)], &Attrs::Axis(1), 0)?;
        let name = format!("gather {rows}x{columns}");
        if let Some(s) = b.time(&name, Op::Gather, &[Input::Tensor(&x), Input::Tensor(&places)], &Attrs::Axis(1))? {
            println!("{name:<28} {:8.2} ns/element {:10.2} us", s * 1e9 / (rows * columns) as f64, s * 1e6);
        }
    }

    for (channels, side, groups) in [
        (512usize, 7usize, 1usize),
        (256, 14, 1),
        (128, 28, 1),
        (64, 56, 1),
        (64, 56, 64),
        (256, 14, 256),
        (384, 7, 384),
    ] {
        let x = b.random(&[8, channels, side, side], DType::F32)?;
        let w = b.random(&[channels, channels / groups, 3, 3], DType::F32)?;
        let spec = WindowSpec {
            rank: 2,
            groups,
            input: [1, side, side],
            kernel: [1, 3, 3],
            stride: [1; 3],
            dilation: [1; 3],
            low: [0, 1, 1],
            high: [0, 1, 1],
        };
        for (op, other) in [(Op::Convolution, &w), (Op::ConvolutionInput, &w), (Op::ConvolutionWeight, &x)] {
            let name = format!("{} {channels}x{side}x{side}, {groups} groups", op.name());
            let inputs = [Input::Tensor(&x), Input::Tensor(other)];
            if let Some(s) = b.time(&name, op, &inputs, &Attrs::Window(Box::new(spec)))? {
                let products = 8 * side * side * 9 * channels * channels / groups;
                println!("{name:<44} {:8.1} GFLOP/s {:10.2} us", 2.0 * products as f64 / s / 1e9, s * 1e6);
            }
        }
    }

    let create = |op: Op, dtype: DType| {
        let shape = Shape::new(&[1_000_000]).unwrap_or(Shape::SCALAR);
        if op == Op::Full {
            Attrs::Create { shape, dtype }
        } else {
            Attrs::Random { shape, dtype, seed: 1, stream: 1, first: 0 }
        }
    };
    for (op, inputs) in [
        (Op::Full, &[Input::Scalar(Scalar::Int(1))][..]),
        (Op::Rand, &[]),
        (Op::Randn, &[]),
        (Op::Randint, &[Input::Scalar(Scalar::Int(0)), Input::Scalar(Scalar::Int(10))]),
    ] {
        let name = format!("create {} f32 1e6", op.name());
        if let Some(s) = b.time(&name, op, inputs, &create(op, DType::F32))? {
            println!("{name:<28} {:8.1} GB/s", 4e6 / s / 1e9);
        }
    }

    for elements in [100_000, 1_000_000, 10_000_000] {
        let name = format!("fused huber f32 {elements}");
        if name.contains(&b.filter) {
            println!("{name:<28} {:8.1} us", time_fused(b, elements)? * 1e6);
        }
    }

    for (m, k, n) in [
        (1, 1, 1),
        (8, 8, 8),
        (64, 64, 64),
        (256, 256, 256),
        (512, 512, 512),
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (256, 768, 3072),
        (32, 784, 256),
        (32, 256, 10),
        (512, 784, 256),
        (512, 256, 10),
        (256, 32, 784),
        (10, 32, 256),
        (32, 10, 256),
        (256, 512, 784),
        (10, 512, 256),
        (512, 10, 256),
        (1, 768, 3072),
        (512, 4608, 392),
        (16, 16, 16),
        (128, 128, 128),
    ] {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32, DType::I64] {
            let few = dtype == DType::I64 && m == k && k == n && m <= 256;
            if dtype != DType::F32 && m * n * k != 512 * 512 * 512 && !few {
                continue;
            }
            let (x, y) = (b.random(&[m, k], dtype)?, b.random(&[k, n], dtype)?);
            let (xt, yt) = (b.random(&[k, m], dtype)?, b.random(&[n, k], dtype)?);
            let mut p = [0; 8];
            p[0] = 1;
            let transpose = Attrs::Permutation(p);
            let xt = b.execute(Op::Permute, &[Input::Tensor(&xt)], &transpose, 0)?;
            let yt = b.execute(Op::Permute, &[Input::Tensor(&yt)], &transpose, 0)?;
            for (how, left, right) in [("NN", &x, &y), ("NT", &x, &yt), ("TN", &xt, &y)] {
                let name = format!("matmul {dtype} {m}x{k}x{n} {how}");
                if let Some(s) =
                    b.time(&name, Op::Matmul, &[Input::Tensor(left), Input::Tensor(right)], &Attrs::None)?
                {
                    println!("{name:<36} {:8.1} GFLOP/s {:10.2} us", 2.0 * (m * n * k) as f64 / s / 1e9, s * 1e6);
                }
            }
        }
    }
    Ok(())
}
