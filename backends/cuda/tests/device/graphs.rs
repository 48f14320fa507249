//! Repeated work is launched as CUDA graphs without changing results.

use crate::{Multiplier, TestDevice, is_skipped, open};
use gt_backend::conformance::{self, MEMORY_BYTES};
use gt_backend::{Backend, ExecError, HostRange, Input};
use gt_cuda::driver::emulated::Emulated;
use gt_cuda::graphs::{Graphs, LaunchCounts, Limits};
use gt_cuda::{CudaBackend, CudaTensor};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Attrs, DType, Meta, Op, Scalar, Shape};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const ELEMENTS: usize = 64;

pub struct Device {
    pub emulated: Option<Arc<Emulated>>,
    pub backend: CudaBackend,
}

pub fn device_with(graphs: Graphs) -> Device {
    let TestDevice { mut backend, emulated, .. } = open(MEMORY_BYTES, Multiplier::Library);
    backend.compile_programs_at_once();
    backend.set_graphs(graphs).expect("a device");
    Device { emulated, backend }
}

fn device() -> Device {
    device_with(Graphs::Repeated(Limits::default()))
}

fn range(bytes: &mut [u8]) -> HostRange {
    // SAFETY: each caller passes the range to one call of a backend, which borrows `bytes` until it returns.
    unsafe { HostRange::new(NonNull::from(&mut *bytes).cast(), bytes.len()) }
}

impl Device {
    pub fn upload(&mut self, values: &[f32]) -> CudaTensor {
        let meta = Meta::new(Shape::new(&[values.len()]).expect("a shape"), DType::F32);
        let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut tensor = self.backend.allocate(&meta).expect("room");
        self.backend.write(&mut tensor, 0, range(&mut bytes)).expect("a write");
        tensor
    }

    fn indices(&mut self, values: &[i64]) -> CudaTensor {
        let meta = Meta::new(Shape::new(&[values.len()]).expect("a shape"), DType::I64);
        let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut tensor = self.backend.allocate(&meta).expect("room");
        self.backend.write(&mut tensor, 0, range(&mut bytes)).expect("a write");
        tensor
    }

    pub fn read(&mut self, tensor: &CudaTensor) -> Result<Vec<f32>, ExecError> {
        let mut bytes = vec![0xee; self.backend.meta(tensor).bytes()];
        self.backend.read(tensor, 0, range(&mut bytes))?;
        Ok(bytes.chunks(4).map(|value| f32::from_le_bytes(value.try_into().expect("four bytes"))).collect())
    }

    pub fn op(&mut self, op: Op, inputs: &[Input<'_, CudaTensor>], attrs: Attrs) -> CudaTensor {
        let metas: Vec<InputMeta> = inputs
            .iter()
            .map(|input| match input {
                Input::Tensor(t) => InputMeta::Tensor(self.backend.meta(t)),
                Input::Scalar(number) => InputMeta::Scalar(*number),
            })
            .collect();
        let out = infer(op, &metas, &attrs).expect("what fits together");
        self.backend.execute(op, inputs, &attrs, &out, 0).expect("an op")
    }

    fn add(&mut self, a: &CudaTensor, b: &CudaTensor) -> CudaTensor {
        self.op(Op::Add, &[Input::Tensor(a), Input::Tensor(b)], Attrs::None)
    }

    pub fn times(&mut self, a: &CudaTensor, factor: f64) -> CudaTensor {
        self.op(Op::Mul, &[Input::Tensor(a), Input::Scalar(Scalar::Float(factor))], Attrs::None)
    }

    /// `x` plus `b`, `ops` times, one op each.
    pub fn chain(&mut self, x: &CudaTensor, b: &CudaTensor, ops: usize) -> CudaTensor {
        let mut x = x.clone();
        for _ in 0..ops {
            x = self.add(&x, b);
        }
        x
    }

    /// The launches that `work` adds to the counts.
    pub fn counted(&mut self, work: impl FnOnce(&mut Device)) -> LaunchCounts {
        let before = self.backend.launch_counts();
        work(self);
        let after = self.backend.launch_counts();
        LaunchCounts {
            single: after.single - before.single,
            graphs: after.graphs - before.graphs,
            in_graphs: after.in_graphs - before.in_graphs,
            made: after.made - before.made,
            gathered: after.gathered - before.gathered,
            updated: after.updated - before.updated,
        }
    }
}

/// A step of different ops, some of whose results are dropped early.
pub fn step(device: &mut Device, x: &CudaTensor, factor: f64) -> CudaTensor {
    let mut kept = Vec::new();
    let mut y = x.clone();
    for i in 0..20 {
        y = device.times(&y, 1.0 + f64::from(i) / 8.0);
        if i % 3 == 0 {
            kept.push(y.clone());
        }
        y = device.times(&y, if i == 10 { factor } else { 0.5 });
    }
    for other in &kept {
        y = device.add(&y, other);
    }
    y
}

#[test]
fn a_chain_of_small_ops_takes_few_calls_of_the_driver() {
    let mut device = device();
    let (x, b) = (device.upload(&[1.0; ELEMENTS]), device.upload(&[0.25; ELEMENTS]));
    for _ in 0..3 {
        let y = device.chain(&x, &b, 1000);
        assert_eq!(device.read(&y).unwrap(), [251.0; ELEMENTS]);
    }
    let calls = |device: &Device| {
        let counts = device.emulated.as_ref().map(|driver| &driver.counts);
        counts.map(|counts| counts.launches.load(Relaxed) + counts.graphs.load(Relaxed))
    };
    let before = calls(&device);
    let counted = device.counted(|device| {
        let y = device.chain(&x, &b, 1000);
        assert_eq!(device.read(&y).unwrap(), [251.0; ELEMENTS]);
    });
    assert_eq!(counted.single + counted.in_graphs, 1000);
    if let (Some(before), Some(after)) = (before, calls(&device)) {
        assert_eq!(counted.single + counted.graphs, after - before);
    }
    assert!(counted.single + counted.graphs < 100, "{counted:?}");
}

#[test]
fn steps_that_repeat_become_graphs_and_give_the_same() {
    let (mut with, mut without) = (device(), device_with(Graphs::Never));
    let values: Vec<f32> = (0..ELEMENTS).map(|i| i as f32 / 7.0).collect();
    let (x, y) = (with.upload(&values), without.upload(&values));
    let mut last = LaunchCounts::default();
    for _ in 0..6 {
        last = with.counted(|with| {
            let ours = step(with, &x, 0.25);
            let theirs = step(&mut without, &y, 0.25);
            assert_eq!(with.read(&ours).unwrap(), without.read(&theirs).unwrap());
        });
    }
    assert_eq!((last.single, last.in_graphs, last.made), (0, 47, 0), "{last:?}");
    assert_eq!(without.backend.launch_counts().graphs, 0);
}

#[test]
fn a_number_that_changes_is_computed_with() {
    let (mut with, mut without) = (device(), device_with(Graphs::Never));
    let (x, y) = (with.upload(&[3.0; ELEMENTS]), without.upload(&[3.0; ELEMENTS]));
    for i in 0..12 {
        let factor = if i < 6 { 0.25 } else { f64::from(i) };
        let (ours, theirs) = (step(&mut with, &x, factor), step(&mut without, &y, factor));
        assert_eq!(with.read(&ours).unwrap(), without.read(&theirs).unwrap(), "step {i}");
    }
}

#[test]
fn other_memory_is_computed_with() {
    let mut device = device();
    let (x, b) = (device.upload(&[1.0; ELEMENTS]), device.upload(&[2.0; ELEMENTS]));
    for _ in 0..4 {
        let y = device.chain(&x, &b, 40);
        assert_eq!(device.read(&y).unwrap(), [81.0; ELEMENTS]);
    }
    // Other tensors occupy the memory that the chain used before.
    let held: Vec<CudaTensor> = (0..4).map(|i| device.upload(&[i as f32; ELEMENTS])).collect();
    let y = device.chain(&x, &b, 40);
    assert_eq!(device.read(&y).unwrap(), [81.0; ELEMENTS]);
    for (i, tensor) in held.iter().enumerate() {
        assert_eq!(device.read(tensor).unwrap(), [i as f32; ELEMENTS]);
    }
}

#[test]
fn whoever_reads_in_the_middle_of_a_graph_gets_what_was_asked_for() {
    let mut device = device();
    let (x, b) = (device.upload(&[0.0; ELEMENTS]), device.upload(&[1.0; ELEMENTS]));
    for _ in 0..3 {
        let y = device.chain(&x, &b, 64);
        device.read(&y).unwrap();
    }
    for ops in 1..64 {
        let y = device.chain(&x, &b, ops);
        assert_eq!(device.read(&y).unwrap(), [ops as f32; ELEMENTS]);
    }
}

#[test]
fn nothing_is_held_back_when_nothing_more_comes() {
    let mut device = device();
    let (x, b) = (device.upload(&[0.0; ELEMENTS]), device.upload(&[1.0; ELEMENTS]));
    for _ in 0..3 {
        let y = device.chain(&x, &b, 64);
        device.read(&y).unwrap();
    }
    let (mut y, issued) = (x.clone(), |counts: LaunchCounts| counts.single + counts.in_graphs);
    let held_back = device.counted(|device| y = device.chain(&x, &b, 6));
    let let_go = device.counted(|device| device.backend.flush().unwrap());
    assert!(issued(held_back) < 6, "what a graph begins with is held back");
    assert_eq!(issued(held_back) + issued(let_go), 6);
    let y = device.chain(&y, &b, 58);
    assert_eq!(device.read(&y).unwrap(), [64.0; ELEMENTS]);
}

#[test]
fn an_index_out_of_range_is_found_in_a_graph() {
    let mut device = device();
    let source = device.upload(&[5.0; ELEMENTS]);
    let (good, bad) = (device.indices(&[3; ELEMENTS]), device.indices(&[99; ELEMENTS]));
    let b = device.upload(&[1.0; ELEMENTS]);
    let gathered = |device: &mut Device, index: &CudaTensor| {
        let x = device.op(Op::Gather, &[Input::Tensor(&source), Input::Tensor(index)], Attrs::Axis(0));
        let y = device.chain(&x, &b, 30);
        device.read(&y)
    };
    for _ in 0..4 {
        assert_eq!(gathered(&mut device, &good).unwrap(), [35.0; ELEMENTS]);
        let error = gathered(&mut device, &bad).unwrap_err();
        let expected = ExecError::IndexOutOfRange { index: 99, axis: 0, size: ELEMENTS };
        assert!(matches!(&error, ExecError::Earlier { error, .. } if **error == expected), "{error:?}");
    }
    assert!(device.backend.launch_counts().graphs > 0);
}

#[test]
fn products_of_the_library_are_in_graphs() {
    let mut device = device();
    let values: Vec<f32> = (0..64).map(|i| (i % 5) as f32 / 8.0).collect();
    let flat = device.upload(&values);
    let a = device.op(Op::Reshape, &[Input::Tensor(&flat)], Attrs::Shape(Shape::new(&[8, 8]).unwrap()));
    let mut expected = None;
    for _ in 0..5 {
        let counted = device.counted(|device| {
            let mut x = a.clone();
            for _ in 0..20 {
                x = device.op(Op::Matmul, &[Input::Tensor(&x), Input::Tensor(&a)], Attrs::None);
                x = device.times(&x, 0.5);
            }
            let got = device.read(&x).unwrap();
            assert_eq!(expected.get_or_insert(got.clone()), &got);
        });
        if counted.in_graphs >= 32 {
            return assert_eq!(counted.single + counted.in_graphs, 40);
        }
    }
    panic!("{:?}", device.backend.launch_counts());
}

#[test]
fn graphs_are_few_and_old_ones_go() {
    let limits = Limits { graphs: 3, steps: 64, ..Limits::default() };
    let mut device = device_with(Graphs::Repeated(limits));
    for round in 0..3 {
        for kind in 0..8 {
            let x = device.upload(&[kind as f32; ELEMENTS]);
            for _ in 0..3 {
                let y = step(&mut device, &x, f64::from(kind));
                device.read(&y).unwrap();
            }
            let alive = device.emulated.as_ref().map_or(0, |driver| driver.graphs());
            assert!(alive <= 3, "round {round}");
        }
    }
    device.backend.trim();
    assert_eq!(device.emulated.map_or(0, |driver| driver.graphs()), 0);
}

#[test]
fn without_room_for_graphs_everything_goes_by_itself() {
    if is_skipped("an emulated device alone refuses graphs when asked to") {
        return;
    }
    let mut device = device();
    let driver = device.emulated.clone().expect("an emulated device");
    driver.without_room_for_graphs.store(true, Relaxed);
    let (x, b) = (device.upload(&[1.0; ELEMENTS]), device.upload(&[0.25; ELEMENTS]));
    for _ in 0..3 {
        let y = device.chain(&x, &b, 100);
        assert_eq!(device.read(&y).unwrap(), [26.0; ELEMENTS]);
    }
    assert_eq!(device.backend.launch_counts().graphs, 0);
}

#[test]
fn a_device_that_is_lost_says_so_when_a_graph_is_launched() {
    if is_skipped("an emulated device alone is lost when asked to") {
        return;
    }
    let mut device = device();
    let (x, b) = (device.upload(&[1.0; ELEMENTS]), device.upload(&[0.25; ELEMENTS]));
    for _ in 0..3 {
        let y = device.chain(&x, &b, 16);
        device.read(&y).unwrap();
    }
    let y = device.chain(&x, &b, 7);
    device.emulated.as_ref().expect("an emulated device").lose("an illegal memory access was encountered");
    let meta = device.backend.meta(&y);
    let operands = [Input::Tensor(&y), Input::Tensor(&b)];
    // The error appears only once the graph is complete and its held work is launched.
    let lost = (0..16).find_map(|_| device.backend.execute(Op::Add, &operands, &Attrs::None, &meta, 0).err());
    assert!(matches!(&lost, Some(ExecError::Lost(why)) if why.contains("an illegal memory access")), "{lost:?}");
    assert!(matches!(device.read(&y), Err(ExecError::Lost(_))));
}

#[test]
fn nothing_is_left_on_the_device() {
    let Device { emulated, mut backend } = device();
    conformance::movements(&mut backend);
    conformance::movements(&mut backend);
    drop(backend);
    if let Some(driver) = emulated {
        assert_eq!((driver.graphs(), driver.leaked()), (0, 0));
    }
}

/// The conformance suite, ordered so that each class of instructions occurs.
const SUITE: &[fn(&mut CudaBackend)] = &[
    conformance::arg_reductions,
    conformance::casts,
    conformance::concatenations,
    conformance::creations,
    conformance::divisions_by_zero,
    conformance::elementwise,
    conformance::elementwise_edges,
    conformance::matmuls,
    conformance::affine_maps,
    conformance::gathers,
    conformance::movements,
    conformance::operands_given_up,
    conformance::positions,
    conformance::programs,
    conformance::randoms,
    conformance::scatters,
    conformance::reductions,
    conformance::scans,
    conformance::searches,
    conformance::selections,
    conformance::slice_scatters,
    conformance::sorts,
    conformance::transfers,
];

#[test]
fn whatever_is_issued_can_be_a_graph() {
    let mut device = device_with(Graphs::Each);
    SUITE.iter().for_each(|test| test(&mut device.backend));
    let counts = device.backend.launch_counts();
    assert!(counts.single == 0 && counts.graphs > 1000, "{counts:?}");
}

#[test]
fn the_suite_passes_where_the_least_repetition_becomes_a_graph() {
    let limits = Limits { shortest: 1, first: 2, longest: 4, ..Limits::default() };
    let mut device = device_with(Graphs::Repeated(limits));
    for test in SUITE {
        test(&mut device.backend);
        test(&mut device.backend);
    }
    let counts = device.backend.launch_counts();
    assert!(counts.graphs > 100, "{counts:?}");
}
