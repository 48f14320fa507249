//! Workers of several machines compute one program's tensors.

use crate::machines::{Node, Parts, Relay, client_on, daemon, invitation, node_info, through, while_working};
use crate::support::Gtd;
use gt_client::backward::{BackwardOptions, backward};
use gt_client::launch::ConnectOptions;
use gt_client::{ClientSession, Result, Scope, Tensor};
use gt_ops::{Arg, DType, Graph, Meta, Op, Scalar, Shape, Val, build};
use gt_protocol::Address;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SAMPLES: usize = 64;
const INPUTS: usize = 16;
const HIDDEN: usize = 48;
const RATE: f64 = 0.05;
/// How often, and how many times, a test looks whether a connection was resumed.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS_MAX: usize = 200;
/// Everything is divided that can be.
pub const DIVIDED: [&str; 2] = ["--shard-bytes-min", "0"];

fn uploaded(session: &Arc<ClientSession>, dims: &[usize], seed: usize) -> Result<Tensor> {
    let count: usize = dims.iter().product();
    let value = |i: usize| (((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0) * 0.4;
    let bytes: Vec<u8> = (0..count).flat_map(|i| value(i).to_le_bytes()).collect();
    Ok(Tensor::new(session.upload(Meta::new(Shape::new(dims)?, DType::F32), bytes.as_slice().into())?, None))
}

fn fetched(tensor: &Tensor) -> Result<f32> {
    let value = tensor.value()?;
    let block = tensor.session().download(&value)?;
    let mut bytes = [0; 4];
    block.read(&mut bytes);
    Ok(f32::from_le_bytes(bytes))
}

fn loss(g: &mut dyn Graph, vals: &[Val]) -> gt_ops::error::Result<Val> {
    let &[x, y, w1, b1, w2, b2] = vals else { unreachable!("six tensors") };
    let layer = |g: &mut dyn Graph, x: Val, w: Val, b: Val| {
        let product = build::matmul(g, x, w)?;
        build::elementwise(g, Op::Add, &[product.into(), b.into()])
    };
    let hidden = layer(g, x, w1, b1)?;
    let hidden = build::elementwise(g, Op::Relu, &[hidden.into()])?;
    let out = layer(g, hidden, w2, b2)?;
    let difference = build::elementwise(g, Op::Sub, &[out.into(), y.into()])?;
    let square = build::elementwise(g, Op::Mul, &[difference.into(), difference.into()])?;
    build::reduce(g, Op::Mean, square, None, false)
}

/// Trains a multilayer perceptron at the daemon with this socket, and returns the loss of each step.
pub fn train(socket: &Path, steps: usize) -> Result<Vec<f32>> {
    let address = Some(Address::Unix(socket.to_owned()));
    let session = ClientSession::connect(&ConnectOptions { address, ..ConnectOptions::default() })?;
    let (x, y) = (uploaded(&session, &[SAMPLES, INPUTS], 1)?, uploaded(&session, &[SAMPLES, 1], 2)?);
    let mut weights = [
        uploaded(&session, &[INPUTS, HIDDEN], 3)?,
        uploaded(&session, &[HIDDEN], 4)?,
        uploaded(&session, &[HIDDEN, 1], 5)?,
        uploaded(&session, &[1], 6)?,
    ];
    let mut losses = Vec::new();
    for _ in 0..steps {
        for weight in &mut weights {
            drop(weight.set_requires_grad(true)?);
        }
        let mut scope = Scope::new(&session);
        let vals = [&x, &y].into_iter().chain(&weights).map(|tensor| scope.add(tensor)).collect::<Result<Vec<_>>>()?;
        let outcome = loss(&mut scope, &vals);
        let loss = scope.finish(outcome, |scope, val| scope.tensor(val))?;
        backward(&[(&loss, None)], None, BackwardOptions { retain_graph: false, create_graph: false })?;
        let recorded = gt_client::set_grad_enabled(false);
        for weight in &mut weights {
            let grad = weight.grad().expect("it is a leaf");
            let mut scope = Scope::new(&session);
            let (w, grad) = (scope.add(weight)?, scope.add(&grad)?);
            let outcome = build::elementwise(&mut scope, Op::Mul, &[grad.into(), Arg::Scalar(Scalar::Float(RATE))])
                .and_then(|step| build::elementwise(&mut scope, Op::Sub, &[w.into(), step.into()]));
            *weight = scope.finish(outcome, |scope, val| scope.tensor(val))?;
        }
        gt_client::set_grad_enabled(recorded);
        losses.push(fetched(&loss)?);
    }
    session.close();
    Ok(losses)
}

pub fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "step {step}: {found} {expected}");
    }
}

#[test]
fn a_network_trained_by_two_nodes_has_the_losses_of_one_worker() {
    let alone = Gtd::start(&[]);
    let expected = train(&alone.folder.socket(), 20).unwrap();
    assert!(expected[19] < 0.9 * expected[0], "it learns: {expected:?}");
    let gtd = daemon(&DIVIDED);
    let _nodes = [Node::start(&gtd, "left", "cpu:2"), Node::start(&gtd, "right", "cpu:2")];
    assert_close(&train(&gtd.folder.socket(), 20).unwrap(), &expected);
    // The tensors were divided: the nodes sent each other more than the losses.
    for node in ["left", "right"] {
        assert!(node_info(&gtd, node).sent_bytes > 10_000, "{:?}", node_info(&gtd, node));
    }
}

#[test]
fn the_daemons_own_workers_and_those_of_nodes_sum_together() {
    const LEN: usize = 300_007;
    // The daemon's own are threads, processes, or both.
    for (own, workers) in [("cpu:2", 0..5), ("proc-cpu:2", 0..5), ("cpu:1,proc-cpu:2", 0..6)] {
        let gtd = daemon(&[&DIVIDED[..], &["--workers", own]].concat());
        let _nodes = [Node::start(&gtd, "left", "cpu:2"), Node::start(&gtd, "right", "cpu:1")];
        let (mut parts, rows) = Parts::new(&gtd, workers.clone(), LEN);
        for _ in 0..3 {
            let sum = parts.sum(rows);
            parts.assert_is_sum(sum);
        }
        assert_eq!(parts.all_reduces(), vec![3; workers.len()], "{own}");
        assert!(!gtd.stderr().contains("a group was not joined"), "{}", gtd.stderr());
    }
}

#[test]
fn more_workers_than_a_word_has_bits_compute_one_tensor() {
    let expected = train(&Gtd::start(&[]).folder.socket(), 2).unwrap();
    let gtd = daemon(&[&DIVIDED[..], &["--workers", "cpu:60"]].concat());
    let _nodes = [Node::start(&gtd, "left", "cpu:4"), Node::start(&gtd, "right", "cpu:8")];
    assert_eq!(gtd.status().workers.len(), 72);
    assert_close(&train(&gtd.folder.socket(), 2).unwrap(), &expected);
    let mut client = client_on(&gtd, 71);
    let three = client.full(&[5], 3.0);
    let six = client.binary(Op::Add, three, three);
    assert_eq!(client.fetch_f32(six, 5).unwrap(), [6.0; 5]);
}

#[test]
fn connections_that_break_again_and_again_lose_nothing() {
    let alone = Gtd::start(&[]);
    let gtd = daemon(&DIVIDED);
    let invited = invitation(&gtd, 60, None);
    let relay = Relay::before(&invited);
    let node = Node::spawn(&through(&invited, relay.address), "left", "cpu:1");
    node.wait_running(&gtd, "left");
    const STEPS: usize = 60;
    let expected = train(&alone.folder.socket(), STEPS).unwrap();
    let (mut resets, socket) = (0, gtd.folder.socket());
    let losses = while_working(
        || train(&socket, STEPS).unwrap(),
        || {
            let before = node_info(&gtd, "left").received_bytes;
            resets += relay.reset();
            // Some frames come between two resets, unless the work is done.
            (0..LOOKS_MAX).any(|_| {
                std::thread::sleep(LOOK_EVERY);
                node_info(&gtd, "left").received_bytes > before
            });
        },
    );
    assert_close(&losses, &expected);
    let resumed = node_info(&gtd, "left").resumed;
    assert!(resumed > 3, "{resets} connections were broken, and {resumed} resumed");
}
