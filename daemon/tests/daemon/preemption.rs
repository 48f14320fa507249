//! Light steps beside a heavy step of another session on the same worker: they run at its preemption points.
//!
//! No test looks at a clock: the heavy steps would compute for longer than any test may take, until they are cancelled.

use crate::support::{Client, Gtd, eventually, f32s, range};
use gt_ops::failure::{Failure, Fault};
use gt_ops::wire::{Command, Completion};
use gt_ops::{Attrs, DType, Meta, Op, Operand, Shape, TensorId};
use gt_protocol::{ClientMessage, Connection, Hello, QuotaChange, Role, Setting, ask_kill, ask_set_limits};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const TRIPS: usize = 50;

fn control(gtd: &Gtd) -> Connection {
    gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap()
}

/// A daemon whose steps may take for ever.
fn daemon() -> Gtd {
    let gtd = Gtd::start(&[]);
    let change = QuotaChange { max_step_s: Some(Setting::To(0)), ..QuotaChange::default() };
    ask_set_limits(&control(&gtd).socket, Some(nix::unistd::getuid().as_raw()), change).unwrap();
    gtd
}

/// Sums so many numbers that it takes hours.
fn endless(client: &mut Client) -> TensorId {
    let one = client.full(&[1, 1], 1.0);
    let many = Attrs::Shape(Shape::new(&[10_000_000, 10_000_000]).unwrap());
    let many = client.op(Op::Expand, &[Operand::Tensor(one)], many);
    client.op(Op::Sum, &[Operand::Tensor(many)], Attrs::Axes { mask: 3, keepdim: false })
}

/// Whether the worker runs the endless step of `client`.
fn runs(gtd: &Gtd, client: &Client) -> bool {
    let running = gtd.status().workers[0].running.clone();
    running.is_some_and(|running| running.session == client.session() && running.step == "sum")
}

fn wait_until_it_runs(gtd: &Gtd, client: &Client) {
    eventually("the endless step runs", || runs(gtd, client));
}

fn make_round_trips(client: &mut Client, count: usize) {
    let one = client.full(&[10], 1.0);
    for _ in 0..count {
        let two = client.binary(Op::Add, one, one);
        assert_eq!(client.fetch_f32(two, 10).unwrap(), [2.0; 10]);
        client.free(&[two]);
    }
    client.sync();
    client.free(&[one]);
}

fn interrupt(client: &Client, below: TensorId) {
    let message = ClientMessage::Interrupt { below };
    gt_protocol::send_client_message(&client.socket, &message, Duration::from_secs(1)).unwrap();
}

fn interrupted(instruction: TensorId) -> Failure {
    Failure { fault: Fault::Interrupted, instruction, op: Some(Op::Sum) }
}

#[test]
fn light_steps_complete_beside_a_step_that_never_ends() {
    let gtd = daemon();
    let (mut heavy, mut light) = (gtd.client(), gtd.client());
    make_round_trips(&mut light, 1);
    let sum = endless(&mut heavy);
    wait_until_it_runs(&gtd, &heavy);
    make_round_trips(&mut light, TRIPS);
    // Sessions that begin meanwhile, with arenas of their own, the second in the slot of the first.
    for _ in 0..2 {
        let mut late = gtd.client();
        let ones = late.upload(f32s(&[100]), &[1.0f32; 100].map(f32::to_le_bytes).concat());
        assert_eq!(late.fetch_f32(ones, 100).unwrap(), [1.0; 100]);
        make_round_trips(&mut late, TRIPS);
        drop(late);
        eventually("the session has ended", || gtd.status().sessions.len() == 2);
    }
    assert!(runs(&gtd, &heavy));
    interrupt(&heavy, sum + 1);
    assert_eq!(heavy.fetch(sum, 4), Err(interrupted(sum)));
    make_round_trips(&mut heavy, 1);
    make_round_trips(&mut light, 1);
}

#[test]
fn a_step_that_was_overtaken_is_killed() {
    let gtd = daemon();
    let (mut heavy, mut light) = (gtd.client(), gtd.client());
    for _ in 0..2 {
        endless(&mut heavy);
        wait_until_it_runs(&gtd, &heavy);
        make_round_trips(&mut light, TRIPS);
        ask_kill(&control(&gtd).socket, heavy.session()).unwrap();
        heavy.wait_closed();
        make_round_trips(&mut light, TRIPS);
        heavy = gtd.client();
    }
}

#[test]
fn a_session_that_ends_in_between_leaves_the_heavy_step_and_others_alone() {
    let gtd = daemon();
    let (mut heavy, mut light) = (gtd.client(), gtd.client());
    let sum = endless(&mut heavy);
    wait_until_it_runs(&gtd, &heavy);
    for _ in 0..10 {
        let mut dying = gtd.client();
        let mut last = dying.full(&[10], 1.0);
        for _ in 0..200 {
            last = dying.binary(Op::Add, last, last);
        }
        drop(dying);
        make_round_trips(&mut light, 5);
    }
    assert!(runs(&gtd, &heavy));
    interrupt(&heavy, sum + 1);
    assert_eq!(heavy.fetch(sum, 4), Err(interrupted(sum)));
    eventually("their tensors are freed", || gtd.status().workers[0].memory_bytes < 10_000);
}

#[test]
fn a_light_step_does_not_overtake_an_older_one_of_its_session() {
    let gtd = daemon();
    let (mut first, mut second, mut light) = (gtd.client(), gtd.client(), gtd.client());
    let sum = endless(&mut first);
    wait_until_it_runs(&gtd, &first);
    // The second session has a heavy step that waits for the first, and a light one behind it.
    let late_sum = endless(&mut second);
    let one = second.full(&[1], 1.0);
    let (block, token) = (second.block(4), second.token());
    let to = range(&block, 4);
    second.send(&Command::Fetch { token, id: one, offset_bytes: 0, to });
    let done = |client: &mut Client| client.port.wait_completion(Duration::ZERO, Duration::ZERO);
    make_round_trips(&mut light, TRIPS);
    assert_eq!(done(&mut second), None);
    interrupt(&first, sum + 1);
    wait_until_it_runs(&gtd, &second);
    make_round_trips(&mut light, TRIPS);
    assert_eq!(done(&mut second), None);
    // The first session is a light one now.
    assert_eq!(first.fetch(sum, 4), Err(interrupted(sum)));
    make_round_trips(&mut first, TRIPS);
    interrupt(&second, late_sum + 1);
    assert_eq!(Completion::decode(&second.wait_completion().unwrap()), Completion { token, result: Ok(()) });
    assert_eq!(second.fetch(late_sum, 4), Err(interrupted(late_sum)));
    let mut bytes = [0; 4];
    block.read(&mut bytes);
    assert_eq!(bytes, 1f32.to_le_bytes());
}

#[test]
fn an_error_in_between_harms_its_own_session_only() {
    let gtd = daemon();
    let (mut heavy, mut light) = (gtd.client(), gtd.client());
    let sum = endless(&mut heavy);
    wait_until_it_runs(&gtd, &heavy);
    let i64s = |dims: &[usize]| Meta::new(Shape::new(dims).unwrap(), DType::I64);
    let ok = light.upload(i64s(&[2]), &[6i64, 8].map(i64::to_le_bytes).concat());
    let zeros = light.upload(i64s(&[2]), &[2i64, 0].map(i64::to_le_bytes).concat());
    for _ in 0..TRIPS {
        let failed = light.binary(Op::FloorDivide, ok, zeros);
        let after = light.binary(Op::Add, failed, ok);
        let failure = Failure { fault: Fault::ZeroDivision, instruction: failed, op: Some(Op::FloorDivide) };
        assert_eq!(light.fetch(after, 16), Err(failure));
    }
    assert_eq!(light.fetch(ok, 16).unwrap(), [6i64, 8].map(i64::to_le_bytes).concat());
    assert!(runs(&gtd, &heavy));
    interrupt(&heavy, sum + 1);
    assert_eq!(heavy.fetch(sum, 4), Err(interrupted(sum)));
}

#[test]
fn a_heavy_step_computes_the_same_bits_beside_light_ones() {
    const SIDE: usize = 600;
    let gtd = daemon();
    let (mut heavy, mut light) = (gtd.client(), gtd.client());
    let meta = f32s(&[SIDE, SIDE]);
    let bytes: Vec<u8> = (0..SIDE * SIDE).flat_map(|i| (1.0 / (1 + i % 977) as f32).to_le_bytes()).collect();
    let factor = heavy.upload(meta, &bytes);
    let products = |heavy: &mut Client| {
        let mut product = factor;
        for _ in 0..5 {
            product = heavy.binary(Op::Matmul, product, factor);
        }
        product
    };
    let alone = products(&mut heavy);
    let alone = heavy.fetch(alone, meta.bytes()).unwrap();
    let beside = products(&mut heavy);
    let (block, token) = (heavy.block(meta.bytes()), heavy.token());
    let to = range(&block, meta.bytes());
    heavy.send(&Command::Fetch { token, id: beside, offset_bytes: 0, to });
    let completion = loop {
        make_round_trips(&mut light, 1);
        if let Some(slot) = heavy.port.wait_completion(Duration::ZERO, Duration::ZERO) {
            break Completion::decode(&slot);
        }
    };
    assert_eq!(completion, Completion { token, result: Ok(()) });
    let mut bytes = vec![0; meta.bytes()];
    block.read(&mut bytes);
    assert!(bytes == alone);
}

#[test]
fn a_flood_of_light_steps_does_not_keep_a_heavy_one_from_ending() {
    const SIDE: usize = 600;
    let gtd = daemon();
    let (mut heavy, mut flood) = (gtd.client(), gtd.client());
    let product = heavy.full(&[SIDE, SIDE], 1e-3);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let numbers = flood.full(&[30_000], 1.0);
            while !stop.load(Relaxed) {
                let sines = flood.op(Op::Sin, &[Operand::Tensor(numbers)], Attrs::None);
                flood.free(&[sines]);
            }
        });
        for _ in 0..5 {
            let product = heavy.binary(Op::Matmul, product, product);
            heavy.fetch(product, 4).unwrap();
        }
        stop.store(true, Relaxed);
    });
}
