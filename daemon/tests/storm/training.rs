//! A small network trained through the client library. Its losses have the same bits, whatever other clients do.

use crate::streams::Dice;
use gt_client::backward::{BackwardOptions, backward};
use gt_client::launch::ConnectOptions;
use gt_client::{ClientSession, Result, Scope, Tensor, set_grad_enabled};
use gt_ops::build;
use gt_ops::{Arg, DType, Graph, Meta, Op, Scalar, Shape, Val};
use gt_protocol::Address;
use std::sync::Arc;

const SAMPLES: usize = 64;
const INPUTS: usize = 16;
const HIDDEN: usize = 48;
const STEPS: usize = 30;
const RATE: f64 = 0.05;

/// How often a client by TCP connects again: of too many handshakes the daemon hangs up the oldest one of the user who
/// has the most, which may be any client of a storm that is one user.
const HANG_UPS_MAX: usize = 20;

fn open(address: &Address, name: &str) -> Result<Arc<ClientSession>> {
    let options =
        ConnectOptions { address: Some(address.clone()), name: Some(name.into()), ..ConnectOptions::default() };
    let mut opened = ClientSession::connect(&options);
    for _ in 0..HANG_UPS_MAX {
        match &opened {
            Err(error) if error.to_string().contains("hung up") => opened = ClientSession::connect(&options),
            _ => break,
        }
    }
    opened
}

pub fn uploaded(session: &Arc<ClientSession>, dims: &[usize], values: &[f32]) -> Result<Tensor> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let meta = Meta::new(Shape::new(dims)?, DType::F32);
    Ok(Tensor::new(session.upload(meta, bytes.as_slice().into())?, None))
}

pub fn fetched(tensor: &Tensor) -> Result<Vec<f32>> {
    let value = tensor.value()?;
    let block = tensor.session().download(&value)?;
    let mut bytes = vec![0; value.meta().bytes()];
    block.read(&mut bytes);
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn random(session: &Arc<ClientSession>, dims: &[usize], scale: f32, dice: &mut Dice<'_>) -> Result<Tensor> {
    let count = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|_| (dice.word() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
    uploaded(session, dims, &values.iter().map(|value| value * scale).collect::<Vec<_>>())
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

/// Trains the network of `seed` for [`STEPS`] steps, or for ever. Returns the bits of the loss of each step.
pub fn train(address: &Address, seed: u64, for_ever: bool) -> Result<Vec<u32>> {
    let session = open(address, &format!("storm-{seed}"))?;
    let dice = &mut Dice::seeded(seed);
    let x = random(&session, &[SAMPLES, INPUTS], 1.0, dice)?;
    let y = random(&session, &[SAMPLES, 1], 1.0, dice)?;
    let mut weights = [
        random(&session, &[INPUTS, HIDDEN], 0.3, dice)?,
        random(&session, &[HIDDEN], 0.1, dice)?,
        random(&session, &[HIDDEN, 1], 0.3, dice)?,
        random(&session, &[1], 0.1, dice)?,
    ];
    let mut losses = Vec::new();
    while for_ever || losses.len() < STEPS {
        for weight in &mut weights {
            drop(weight.set_requires_grad(true)?);
        }
        let mut scope = Scope::new(&session);
        let all = [&x, &y].into_iter().chain(&weights);
        let vals = all.map(|tensor| scope.add(tensor)).collect::<Result<Vec<_>>>()?;
        let outcome = loss(&mut scope, &vals);
        let loss = scope.finish(outcome, |scope, val| scope.tensor(val))?;
        backward(&[(&loss, None)], None, BackwardOptions { retain_graph: false, create_graph: false })?;
        let recorded = set_grad_enabled(false);
        for weight in &mut weights {
            let grad = weight.grad().expect("it is a leaf");
            let mut scope = Scope::new(&session);
            let (w, grad) = (scope.add(weight)?, scope.add(&grad)?);
            let rate = Arg::Scalar(Scalar::Float(RATE));
            let outcome = build::elementwise(&mut scope, Op::Mul, &[grad.into(), rate])
                .and_then(|step| build::elementwise(&mut scope, Op::Sub, &[w.into(), step.into()]));
            *weight = scope.finish(outcome, |scope, val| scope.tensor(val))?;
        }
        set_grad_enabled(recorded);
        losses.push(fetched(&loss)?[0].to_bits());
        if for_ever {
            losses.clear();
        }
    }
    session.close();
    Ok(losses)
}
