//! Elementwise launches of one kernel that follow each other take one launch of the kernel for several.

use crate::graphs::{Device, device_with};
use crate::is_skipped_without_pool;
use gt_backend::{Backend, Input, Stage, StageInput};
use gt_cuda::CudaTensor;
use gt_cuda::graphs::{Graphs, LaunchCounts, Limits};
use gt_ops::{Attrs, Op, Scalar};

/// The reason why nothing is gathered where each result has an allocation of its own.
const FILLED: &str = "new memory is filled before each launch";

/// A model's parameters: 40 small ones of lengths that differ, and a large one after every ten of them.
fn lengths() -> Vec<usize> {
    (0..40).flat_map(|i| [Some(1 + 37 * i), (i % 10 == 9).then_some(20_000)]).flatten().collect()
}

/// A parameter, its gradient, and the state that an optimizer keeps of it.
struct Trained {
    parameter: CudaTensor,
    grad: CudaTensor,
    state: Vec<CudaTensor>,
}

fn model(device: &mut Device, states: usize) -> Vec<Trained> {
    let values = |seed: usize, n: usize| -> Vec<f32> {
        (0..n).map(|i| ((i * 31 + seed * 17) % 101) as f32 / 101.0 + 0.01).collect()
    };
    let mut made = Vec::new();
    for (seed, n) in lengths().into_iter().enumerate() {
        let state = (0..states).map(|which| device.upload(&values(seed + which + 2, n))).collect();
        let (parameter, grad) = (device.upload(&values(seed, n)), device.upload(&values(seed + 1, n)));
        made.push(Trained { parameter, grad, state });
    }
    made
}

/// An operand of a stage: a tensor that belongs to the parameter, the result of an earlier stage, or a number.
#[derive(Clone, Copy)]
enum Feed {
    Parameter,
    Grad,
    State(usize),
    Stage(usize),
    Number(f64),
}

/// The stages of an update: the op, its operands, and where the result is kept.
type Update = Vec<(Op, Vec<Feed>, Option<Feed>)>;

/// `v = grad + momentum * v` and `p -= lr * v`.
fn sgd(lr: f64) -> Update {
    use Feed::{Grad, Number, Parameter, Stage, State};
    vec![
        (Op::Addcmul, vec![Grad, State(0), Number(0.9)], Some(State(0))),
        (Op::Addcmul, vec![Parameter, Stage(0), Number(-lr)], Some(Parameter)),
    ]
}

/// AdamW as `gt.optim` issues it; the last number, with the bias corrections, differs in each step.
fn adamw(step: i32) -> Update {
    use Feed::{Grad, Number, Parameter, Stage, State};
    let (lr, root2) = (0.01, (1.0 - 0.999f64.powi(step)).sqrt());
    vec![
        (Op::Mul, vec![Parameter, Number(1.0 - lr * 0.01)], None),
        (Op::Lerp, vec![State(0), Grad, Number(0.1)], Some(State(0))),
        (Op::MeanSquareStep, vec![State(1), Grad, Number(0.001)], Some(State(1))),
        (Op::ScaledStep, vec![Stage(1), Stage(2), Number(1e-8 * root2)], None),
        (Op::Addcmul, vec![Stage(0), Stage(3), Number(-lr * root2 / (1.0 - 0.9f64.powi(step)))], Some(Parameter)),
    ]
}

impl Trained {
    fn tensor(&mut self, which: Feed) -> &mut CudaTensor {
        match which {
            Feed::Parameter => &mut self.parameter,
            Feed::Grad => &mut self.grad,
            Feed::State(i) => &mut self.state[i],
            Feed::Stage(_) | Feed::Number(_) => panic!("no tensor"),
        }
    }

    /// Updates the parameter by one program, in place.
    fn update(&mut self, device: &mut Device, update: &Update) {
        let made = {
            let this = &*self;
            let meta = device.backend.meta(&this.parameter);
            let input = |feed: Feed| match feed {
                Feed::Parameter => StageInput::External(Input::Tensor(&this.parameter)),
                Feed::Grad => StageInput::External(Input::Tensor(&this.grad)),
                Feed::State(i) => StageInput::External(Input::Tensor(&this.state[i])),
                Feed::Stage(at) => StageInput::Stage(at),
                Feed::Number(number) => StageInput::External(Input::Scalar(Scalar::Float(number))),
            };
            let stages: Vec<Stage<'_, CudaTensor>> = update
                .iter()
                .map(|(op, feeds, kept)| {
                    let is_given = |feed: &Feed| matches!(feed, Feed::Parameter | Feed::State(_));
                    let last_use = feeds.iter().enumerate().map(|(i, feed)| u8::from(is_given(feed)) << i).sum();
                    let inputs = feeds.iter().map(|feed| input(*feed)).collect();
                    Stage { op: *op, inputs, attrs: &Attrs::None, out: meta, kept: kept.is_some(), last_use }
                })
                .collect();
            device.backend.execute_fused(&stages).expect("a program")
        };
        for ((_, _, kept), made) in update.iter().zip(made) {
            if let (Some(which), Some(made)) = (kept, made) {
                *self.tensor(*which) = made;
            }
        }
    }
}

/// The bits of every tensor that training changes.
fn bits(device: &mut Device, model: &[Trained]) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    for trained in model {
        for tensor in std::iter::once(&trained.parameter).chain(&trained.state) {
            all.push(device.read(tensor).expect("a read").into_iter().map(f32::to_bits).collect());
        }
    }
    all
}

/// Work of which nothing can be gathered, so that the device has something to do: a chain of this many sums.
fn occupied(device: &mut Device, launches: usize) {
    let x = device.upload(&[1.0; 64]);
    device.chain(&x, &x, launches);
}

/// The launches of an update of all parameters.
fn updated(device: &mut Device, model: &mut [Trained], update: &Update) -> LaunchCounts {
    device.counted(|device| {
        model.iter_mut().for_each(|trained| trained.update(device, update));
        device.read(&model[0].grad).expect("a read");
    })
}

#[test]
fn the_updates_of_44_parameters_are_one_launch_of_sgd_and_two_of_adamw() {
    for (states, update, launches) in [(1, sgd(0.1), 1), (2, adamw(1), 2)] {
        let mut device = device_with(Graphs::Never);
        let mut model = model(&mut device, states);
        assert_eq!(model.len(), 44);
        // The kernel for several is compiled where launches of a kernel first follow each other.
        updated(&mut device, &mut model, &update);
        occupied(&mut device, 64);
        let counts = updated(&mut device, &mut model, &update);
        assert_eq!((counts.single, counts.gathered), (launches, 44));
    }
}

/// Scales every gradient by a number that a kernel has computed, in place, as `clip_grad_norm_` does.
fn clipped(device: &mut Device, model: &mut [Trained], factor: &CudaTensor) -> LaunchCounts {
    device.counted(|device| {
        for trained in model.iter_mut() {
            let meta = device.backend.meta(&trained.grad);
            let operands = [Input::Tensor(&trained.grad), Input::Tensor(factor)];
            trained.grad = device.backend.execute(Op::Mul, &operands, &Attrs::None, &meta, 1).expect("an op");
        }
        device.read(&model[0].grad).expect("a read");
    })
}

#[test]
fn the_scaling_of_44_gradients_is_one_launch() {
    let mut device = device_with(Graphs::Never);
    let mut model = model(&mut device, 0);
    let factor = device.upload(&[0.5]);
    let before: Vec<Vec<f32>> = model.iter().map(|trained| device.read(&trained.grad).expect("a read")).collect();
    assert_eq!(clipped(&mut device, &mut model, &factor).gathered, 42, "the first two launches ask for the kernel");
    occupied(&mut device, 64);
    let counts = clipped(&mut device, &mut model, &factor);
    assert_eq!((counts.single, counts.gathered), (1, 44));
    let behind_a_wait = clipped(&mut device, &mut model, &factor);
    assert_eq!((behind_a_wait.single, behind_a_wait.gathered), (6, 43));
    for (trained, before) in model.iter().zip(before) {
        let scaled: Vec<f32> = before.iter().map(|x| x * 0.125).collect();
        assert_eq!(device.read(&trained.grad).expect("a read"), scaled);
    }
}

#[test]
fn no_more_is_held_back_than_the_device_was_given() {
    for (states, update) in [(1, sgd(0.1)), (2, adamw(1))] {
        let mut device = device_with(Graphs::Never);
        let mut model = model(&mut device, states);
        updated(&mut device, &mut model, &update);
        // Behind a wait one launch goes by itself, then 2, 4, 8 and 16 are gathered, and the 13 that are left.
        device.read(&model[0].grad).expect("a read");
        let counts = updated(&mut device, &mut model, &update);
        assert_eq!((counts.single, counts.gathered), (6, 43));
    }
}

#[test]
fn a_worker_without_new_work_goes_on_gathering_while_the_device_is_busy() {
    if is_skipped_without_pool(FILLED) {
        return;
    }
    let mut device = device_with(Graphs::Never);
    let tensors: Vec<CudaTensor> = (0..12).map(|n| device.upload(&[n as f32; 64])).collect();
    // Memory for the results is there after the first round, and the kernel for several after the second.
    for _ in 0..2 {
        drop(tensors.iter().map(|x| device.times(x, 2.0)).collect::<Vec<_>>());
    }
    // Where a device runs at once, nothing is to be seen.
    let is_emulated = device.emulated.is_some();
    occupied(&mut device, 200);
    let mut made = Vec::new();
    let busy = device.counted(|device| {
        for tensor in &tensors {
            made.push(device.times(tensor, 2.0));
            device.backend.flush().expect("a device");
        }
    });
    assert!(!is_emulated || (busy.single, busy.in_graphs) == (0, 0), "{busy:?}");
    // The device becomes idle, and then gets what is held back.
    let idle = device.counted(|device| (0..1000).for_each(|_| device.backend.flush().expect("a device")));
    assert!(!is_emulated || (idle.single, idle.gathered) == (1, 12), "{idle:?}");
    for (n, made) in made.iter().enumerate() {
        assert_eq!(device.read(made).expect("a read"), [2.0 * n as f32; 64]);
    }
}

#[test]
fn gathered_updates_give_the_same_bits() {
    for graphs in [Graphs::Never, Graphs::Each, Graphs::Repeated(Limits::default())] {
        let (mut with, mut without) = (device_with(graphs), device_with(Graphs::Never));
        for states in [1, 2] {
            let (mut ours, mut theirs) = (model(&mut with, states), model(&mut without, states));
            for step in 1..5 {
                let update = if states == 1 { sgd(0.1 / f64::from(step)) } else { adamw(step) };
                updated(&mut with, &mut ours, &update);
                for trained in &mut theirs {
                    trained.update(&mut without, &update);
                    without.read(&trained.grad).expect("a read");
                }
            }
            assert!(bits(&mut with, &ours) == bits(&mut without, &theirs), "{graphs:?}");
        }
        assert!(with.backend.launch_counts().gathered > 200, "{graphs:?}");
        assert_eq!(without.backend.launch_counts().gathered, 0);
    }
}

#[test]
fn single_instructions_are_gathered_with_numbers_and_lengths_of_their_own() {
    if is_skipped_without_pool(FILLED) {
        return;
    }
    let mut device = device_with(Graphs::Never);
    let tensors: Vec<CudaTensor> = (1..30).map(|n| device.upload(&vec![n as f32; 100 * n])).collect();
    for round in 0..3 {
        occupied(&mut device, 64);
        let mut made = Vec::new();
        let counts = device.counted(|device| {
            made = tensors.iter().zip(1..).map(|(x, i)| device.times(x, f64::from(i))).collect();
            device.read(&tensors[0]).expect("a read");
        });
        // The memory of the results is there from the rounds before.
        if round == 2 {
            assert_eq!((counts.single, counts.gathered), (1, 29));
        }
        for (n, made) in (1..).zip(&made) {
            assert_eq!(device.read(made).expect("a read"), vec![(n * n) as f32; 100 * n]);
        }
    }
}

#[test]
fn launches_that_need_each_other_keep_their_order() {
    let mut device = device_with(Graphs::Never);
    for round in 0..3 {
        occupied(&mut device, 64);
        // A result is the operand of the next launch.
        let mut x = device.upload(&[1.0; 64]);
        for _ in 0..20 {
            x = device.times(&x, 2.0);
        }
        let y = device.upload(&[3.0; 64]);
        occupied(&mut device, 64);
        // The memory of an operand that nobody needs any more is taken by the next result.
        let mut made = Vec::new();
        for i in 0..20u8 {
            let short_lived = device.times(&y, f64::from(i));
            made.push(device.times(&short_lived, 2.0));
        }
        assert_eq!(device.read(&x).expect("a read"), [1_048_576.0; 64], "round {round}");
        for (i, made) in made.iter().enumerate() {
            assert_eq!(device.read(made).expect("a read"), [6.0 * i as f32; 64], "round {round}");
        }
    }
}

#[test]
fn whoever_reads_in_the_middle_gets_what_was_asked_for() {
    if is_skipped_without_pool(FILLED) {
        return;
    }
    let mut device = device_with(Graphs::Repeated(Limits::default()));
    let tensors: Vec<CudaTensor> = (0..24).map(|n| device.upload(&[n as f32; 64])).collect();
    for middle in 0..tensors.len() {
        occupied(&mut device, 64);
        let mut made = Vec::new();
        for (n, tensor) in tensors.iter().enumerate() {
            made.push(device.times(tensor, 2.0));
            if n == middle {
                assert_eq!(device.read(&made[middle / 2]).expect("a read"), [2.0 * (middle / 2) as f32; 64]);
            }
        }
        assert_eq!(device.read(&made[23]).expect("a read"), [46.0; 64]);
    }
    assert!(device.backend.launch_counts().gathered > 0);
}

#[test]
fn a_fence_stands_behind_what_is_gathered() {
    if is_skipped_without_pool(FILLED) {
        return;
    }
    let mut device = device_with(Graphs::Repeated(Limits::default()));
    let tensors: Vec<CudaTensor> = (0..8).map(|n| device.upload(&[n as f32; 64])).collect();
    for _ in 0..3 {
        occupied(&mut device, 64);
        let made: Vec<CudaTensor> = tensors.iter().map(|tensor| device.times(tensor, 2.0)).collect();
        let fence = device.backend.fence().expect("a device").expect("work in flight");
        let mut passed = None;
        while passed != Some(fence) {
            passed = device.backend.poll_fence(true).expect("a device").map(|status| status.fence);
        }
        for (n, made) in made.iter().enumerate() {
            assert_eq!(device.read(made).expect("a read"), [2.0 * n as f32; 64]);
        }
    }
    assert!(device.backend.launch_counts().gathered > 0);
}

#[test]
fn numbers_that_change_are_updated_in_a_graph_that_is_captured_once() {
    if is_skipped_without_pool(FILLED) {
        return;
    }
    let step_of = |device: &mut Device, x: &CudaTensor, model: &mut [Trained], step: i32| {
        crate::graphs::step(device, x, 0.25);
        model.iter_mut().for_each(|trained| trained.update(device, &adamw(step)));
        for op in [Op::Exp, Op::Sin, Op::Cos, Op::Tanh, Op::Sqrt, Op::Abs, Op::Neg, Op::Floor] {
            device.op(op, &[Input::Tensor(x)], Attrs::None);
        }
        device.read(&model[0].parameter).expect("a read")
    };
    let (mut with, mut without) = (device_with(Graphs::Repeated(Limits::default())), device_with(Graphs::Never));
    let (mut ours, mut theirs) = (model(&mut with, 2), model(&mut without, 2));
    let (x, y) = (with.upload(&[1.0; 64]), without.upload(&[1.0; 64]));
    let mut last = LaunchCounts::default();
    for step in 1..8 {
        last = with.counted(|with| {
            step_of(with, &x, &mut ours, step);
        });
        step_of(&mut without, &y, &mut theirs, step);
    }
    assert_eq!((last.single, last.in_graphs, last.gathered, last.updated, last.made), (0, 57, 44, 2, 0));
    assert!(bits(&mut with, &ours) == bits(&mut without, &theirs));
}
