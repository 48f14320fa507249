//! Instructions and transfers, and their effect on tensors.

use crate::support::{Client, Gtd, f32s, range};
use gt_ops::failure::{Failure, Fault, MemoryScope};
use gt_ops::wire::Command;
use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Operand, Shape};

fn daemon() -> (Gtd, Client) {
    let gtd = Gtd::start(&[]);
    let client = gtd.client();
    (gtd, client)
}

#[test]
fn results_can_be_fetched() {
    let (gtd, mut client) = daemon();
    assert_eq!(client.welcome.daemon_pid, gtd.child.id());
    let two = client.full(&[3], 2.0);
    let x = client.upload(f32s(&[3]), &[1.0f32, 2.0, 3.0].map(f32::to_le_bytes).concat());
    let product = client.binary(Op::Mul, x, two);
    assert_eq!(client.fetch_f32(product, 3).unwrap(), [2.0, 4.0, 6.0]);
    assert_eq!(client.fetch_f32(x, 3).unwrap(), [1.0, 2.0, 3.0]);
}

#[test]
fn large_tensors_go_up_and_down_in_parts() {
    let (_gtd, mut client) = daemon();
    const PART_BYTES: usize = 2 << 20;
    let values: Vec<f32> = (0..(3 * PART_BYTES / 4 + 1)).map(|i| i as f32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let id = client.id();
    client.send(&Command::Allocate { out: id, meta: f32s(&[values.len()]) });
    let mut block = client.block(bytes.len());
    block.write(&bytes);
    let mut tokens = Vec::new();
    for start in (0..bytes.len()).step_by(PART_BYTES) {
        let token = client.token();
        let mut from = range(&block, PART_BYTES.min(bytes.len() - start));
        from.offset_bytes += start as u64;
        client.send(&Command::Write { token, id, offset_bytes: start as u64, from });
        tokens.push(token);
    }
    let one = client.full(&[1], 1.0);
    let sum = client.binary(Op::Add, id, one);
    for token in tokens {
        client.completion(token).unwrap();
    }
    let fetched = client.fetch_f32(sum, values.len()).unwrap();
    assert!(values.iter().zip(&fetched).all(|(v, f)| v + 1.0 == *f));
}

#[test]
fn an_empty_tensor_needs_no_bytes_but_may_be_written() {
    let (_gtd, mut client) = daemon();
    let id = client.upload(f32s(&[0, 3]), &[]);
    assert!(client.fetch(id, 0).unwrap().is_empty());
    let out = client.id();
    client.send(&Command::Allocate { out, meta: f32s(&[0]) });
    assert!(client.fetch(out, 0).unwrap().is_empty());
}

#[test]
fn a_part_of_a_tensor_can_be_fetched() {
    let (_gtd, mut client) = daemon();
    let id = client.upload(f32s(&[4]), &[1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
    let block = client.block(8);
    let token = client.token();
    client.send(&Command::Fetch { token, id, offset_bytes: 8, to: range(&block, 8) });
    client.completion(token).unwrap();
    let mut bytes = [0; 8];
    block.read(&mut bytes);
    assert_eq!(bytes[..], [3.0f32, 4.0].map(f32::to_le_bytes).concat());
}

#[test]
fn long_and_short_steps_keep_their_order() {
    let (_gtd, mut client) = daemon();
    // A product long enough for the worker's thread. The short steps behind it must wait for it.
    let a = client.full(&[768, 768], 0.5);
    let mut last = client.binary(Op::Matmul, a, a);
    for _ in 0..50 {
        let next = client.binary(Op::Add, last, last);
        client.free(&[last]);
        last = client.binary(Op::Sub, next, next);
        client.free(&[next]);
    }
    let product = client.binary(Op::Matmul, a, a);
    let sum = client.binary(Op::Add, product, last);
    client.sync();
    let got = client.fetch_f32(sum, 768 * 768).unwrap();
    assert!(got.iter().all(|x| *x == 768.0 * 0.25));
}

#[test]
fn many_operands_travel_in_many_slots() {
    let (_gtd, mut client) = daemon();
    let parts: Vec<_> = (0..100).map(|i| client.full(&[2], i as f64)).collect();
    let operands: Vec<_> = parts.iter().map(|id| Operand::Tensor(*id)).collect();
    for _ in 0..100 {
        let all = client.op(Op::Cat, &operands, Attrs::Axis(0));
        let got = client.fetch_f32(all, 200).unwrap();
        assert!(got.iter().enumerate().all(|(i, x)| *x == (i / 2) as f32));
    }
}

#[test]
fn the_last_use_of_an_operand_frees_it() {
    let (gtd, mut client) = daemon();
    let a = client.full(&[4], 3.0);
    let out = client.id();
    let inputs = Inputs::from_slice(&[Operand::Tensor(a), Operand::Tensor(a)]);
    client.send(&Command::Op(Instruction {
        op: Op::Mul,
        out,
        inputs,
        last_use: 0b11,
        attrs: Attrs::None,
        tf32: false,
        replaces: None,
    }));
    assert_eq!(client.fetch_f32(out, 4).unwrap(), [9.0; 4]);
    assert_eq!(gtd.status().sessions[0].tensors, 1);
}

#[test]
fn a_failure_poisons_only_the_results_computed_from_it() {
    let (gtd, mut client) = daemon();
    let i64s = |dims: &[usize]| Meta::new(Shape::new(dims).unwrap(), DType::I64);
    let ok = client.upload(i64s(&[2]), &[6i64, 8].map(i64::to_le_bytes).concat());
    let zeros = client.upload(i64s(&[2]), &[2i64, 0].map(i64::to_le_bytes).concat());
    let failed = client.binary(Op::FloorDivide, ok, zeros);
    let after = client.binary(Op::Add, failed, ok);
    let later = client.binary(Op::Mul, after, after);
    let fine = client.binary(Op::Add, ok, ok);
    let failure = Failure { fault: Fault::ZeroDivision, instruction: failed, op: Some(Op::FloorDivide) };
    for id in [failed, after, later] {
        assert_eq!(client.fetch(id, 16), Err(failure));
    }
    assert_eq!(client.fetch(fine, 16).unwrap(), [12i64, 16].map(i64::to_le_bytes).concat());
    client.free(&[failed, after, later]);
    client.sync();
    assert_eq!(gtd.status().sessions[0].tensors, 3);
}

#[test]
fn an_index_that_names_nothing_is_told_with_its_axis() {
    let (_gtd, mut client) = daemon();
    let source = client.full(&[3], 1.0);
    let index = client.upload(Meta::new(Shape::new(&[1]).unwrap(), DType::I64), &7i64.to_le_bytes());
    let out = client.op(Op::Gather, &[Operand::Tensor(source), Operand::Tensor(index)], Attrs::Axis(0));
    let failure = client.fetch(out, 4).unwrap_err();
    assert_eq!(failure.fault, Fault::IndexOutOfRange { index: 7, axis: 0, size: 3 });
    assert_eq!((failure.instruction, failure.op), (out, Some(Op::Gather)));
}

#[test]
fn memory_has_a_limit_and_comes_back() {
    let gtd = Gtd::start(&["--memory", "8M"]);
    let mut client = gtd.client();
    let small = client.full(&[4], 1.0);
    let half = client.full(&[1 << 20], 1.0);
    let much = client.full(&[3 << 20], 2.0);
    let failure = client.fetch(much, 4).unwrap_err();
    let Fault::OutOfMemory { requested, held, limit, scope: MemoryScope::Worker } = failure.fault else {
        panic!("{failure:?}")
    };
    assert_eq!((failure.instruction, failure.op), (much, Some(Op::Full)));
    assert!(requested >= 12 << 20 && held >= 4 << 20 && limit == 8 << 20, "{failure:?}");
    let upload = client.id();
    client.send(&Command::Allocate { out: upload, meta: f32s(&[4 << 20]) });
    client.free(&[half, much, upload]);
    let again = client.full(&[1 << 20], 3.0);
    let sum = client.binary(Op::Add, small, small);
    assert_eq!(client.fetch_f32(sum, 4).unwrap(), [2.0; 4]);
    assert_eq!(client.fetch_f32(again, 1).unwrap(), [3.0]);
}

#[test]
fn sessions_do_not_see_each_other() {
    let gtd = Gtd::start(&["--workers", "cpu:2"]);
    let mut clients: Vec<_> = (0..4).map(|_| gtd.client()).collect();
    let ids: Vec<_> = clients.iter_mut().enumerate().map(|(i, client)| client.full(&[2], i as f64)).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "each counts for itself");
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.fetch_f32(ids[0], 2).unwrap(), [i as f32; 2]);
    }
    let status = gtd.status();
    assert_eq!(status.workers.len(), 2);
    assert_eq!(status.sessions.len(), 4);
    assert!(status.sessions.iter().all(|s| s.tensors == 1 && s.tensor_bytes == 8 && s.instructions == 2));
}

#[test]
fn a_light_client_does_not_wait_behind_a_heavy_ones_backlog() {
    const PRODUCTS: u64 = 300;
    let gtd = Gtd::start(&[]);
    let mut heavy = gtd.client();
    let mut light = gtd.client();
    let a = heavy.full(&[512, 512], 1.0);
    for _ in 0..PRODUCTS {
        let product = heavy.binary(Op::Matmul, a, a);
        heavy.free(&[product]);
    }
    let one = light.full(&[1], 1.0);
    for _ in 0..10 {
        let two = light.binary(Op::Add, one, one);
        assert_eq!(light.fetch_f32(two, 1).unwrap(), [2.0]);
    }
    let taken_in = gtd.status().sessions.iter().find(|s| s.id == heavy.session()).unwrap().instructions;
    assert!(taken_in < 2 * PRODUCTS, "the light client was served after all of the heavy one's work");
    heavy.sync();
}
