//! Workers that are stopped or busy for long: only the steps that need them wait.

use crate::support::{Client, Folder, Gtd, eventually, f32s, range};
use gt_client::launch::ConnectOptions;
use gt_client::{ClientSession, Scope, Tensor};
use gt_ops::failure::{Fault, WorkerEnd};
use gt_ops::placement::{RequestedLayout, RequestedPlacement, Workers};
use gt_ops::wire::Command;
use gt_ops::{Attrs, Op, Operand, Shape, build};
use gt_protocol::{Address, RunningInfo, WorkerInfo};
use gt_shm::ArenaBlock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};

fn signal(process: Option<u32>, signal: Signal) {
    kill(Pid::from_raw(process.unwrap() as i32), signal).unwrap();
}

/// Queues more at the client's worker than its queue takes, then a fetch, whose token and block are returned.
fn fill_queue(client: &mut Client, size: usize) -> (u64, ArenaBlock) {
    let mut product = client.full(&[size, size], 1e-3);
    for _ in 0..4 {
        product = client.binary(Op::Matmul, product, product);
    }
    let (block, token) = (client.block(4), client.token());
    client.send(&Command::Fetch { token, id: product, offset_bytes: 0, to: range(&block, 4) });
    (token, block)
}

/// More sessions than the rings and sockets of a worker have room for: each tells the worker several things.
const SESSIONS_MANY: usize = 1500;

/// Opens and closes sessions, each with an arena.
fn come_and_go(gtd: &Gtd) {
    for _ in 0..SESSIONS_MANY {
        gtd.client().block(64);
    }
}

/// A daemon with one process for a worker, in which steps may take as long as they like.
fn without_max_step() -> Gtd {
    let folder = Folder::new();
    std::fs::write(folder.0.join("gtd.yaml"), "limits: {max_step: 0}\n").unwrap();
    Gtd::start_in(folder, &["--config", "gtd.yaml", "--workers", "proc-cpu:1"], &[])
}

/// Issues the sum of `side`² elements, which never ends in a test's time.
fn sum_without_end(client: &mut Client, side: usize) {
    let one = client.full(&[1, 1], 1.0);
    let shape = Shape::new(&[side, side]).unwrap();
    let wide = client.op(Op::Expand, &[Operand::Tensor(one)], Attrs::Shape(shape));
    client.op(Op::Sum, &[Operand::Tensor(wide)], Attrs::Axes { mask: 0b11, keepdim: false });
}

fn make_round_trips(client: &mut Client) {
    let one = client.full(&[4], 1.0);
    for _ in 0..50 {
        let two = client.binary(Op::Add, one, one);
        assert_eq!(client.fetch_f32(two, 4).unwrap(), [2.0; 4]);
        client.free(&[two]);
    }
    client.sync();
}

#[test]
fn a_session_on_another_worker_does_not_wait_for_a_stopped_one() {
    let gtd = Gtd::start(&["--workers", "proc-cpu:2", "--auto-shard", "off"]);
    let (mut stopped, mut other) = (gtd.client(), gtd.client());
    stopped.sync();
    let WorkerInfo { process, .. } = gtd.status().workers.remove(0);
    signal(process, Signal::SIGSTOP);
    let (token, _block) = fill_queue(&mut stopped, 1024);
    make_round_trips(&mut other);
    // A session that begins now is not held up either, unless its tensors lie on the stopped worker.
    let mut third = [gtd.client(), gtd.client()];
    make_round_trips(&mut third[1]);
    assert_eq!(gtd.status().workers[0].process, process, "it is still the stopped process");
    signal(process, Signal::SIGCONT);
    assert_eq!(stopped.completion(token), Ok(()));
}

#[test]
fn a_session_on_another_worker_does_not_wait_for_a_long_step() {
    for workers in ["cpu:2", "proc-cpu:2"] {
        let gtd = Gtd::start(&["--workers", workers, "--auto-shard", "off"]);
        let (mut heavy, mut light) = (gtd.client(), gtd.client());
        let _fetch = fill_queue(&mut heavy, 4096);
        make_round_trips(&mut light);
        let sessions = gtd.status().sessions;
        let heavy = sessions.iter().find(|session| session.id == heavy.session()).unwrap();
        assert!(heavy.queued > 0, "the heavy session is done: the light one may have waited for it");
    }
}

#[test]
fn sessions_come_and_go_while_a_worker_is_stopped() {
    let gtd = Gtd::start(&["--workers", "proc-cpu:2", "--auto-shard", "off"]);
    let (mut stopped, mut other) = (gtd.client(), gtd.client());
    let ones = stopped.full(&[4], 1.0);
    stopped.sync();
    let WorkerInfo { process, .. } = gtd.status().workers.remove(0);
    signal(process, Signal::SIGSTOP);
    come_and_go(&gtd);
    make_round_trips(&mut other);
    signal(process, Signal::SIGCONT);
    assert_eq!(stopped.fetch_f32(ones, 4).unwrap(), [1.0; 4]);
    assert_eq!(gtd.status().workers[0].process, process, "it is still the same process");
}

#[test]
fn a_step_of_a_session_that_ended_while_its_worker_was_stopped_is_cancelled() {
    let gtd = without_max_step();
    let (mut endless, mut other) = (gtd.client(), gtd.client());
    let kept = other.full(&[4], 1.0);
    other.sync();
    endless.sync();
    let worker = || gtd.status().workers.remove(0);
    let WorkerInfo { process, .. } = worker();
    signal(process, Signal::SIGSTOP);
    sum_without_end(&mut endless, 1 << 24);
    let runs = |step: &str| worker().running.is_some_and(|running| running.step == step);
    eventually("the steps are queued", || gtd.status().sessions.iter().any(|session| session.queued >= 2));
    // More cancellations than the worker's socket has room for: that of the sum is lost.
    come_and_go(&gtd);
    drop(endless);
    eventually("its session has ended", || gtd.status().sessions.len() == 1);
    signal(process, Signal::SIGCONT);
    eventually("the sum has ended", || !runs("sum") && !runs("expand"));
    assert_eq!(other.fetch_f32(kept, 4).unwrap(), [1.0; 4]);
    assert_eq!((worker().process, worker().losses), (process, 0));
}

#[test]
fn sessions_come_and_go_beside_a_step_that_never_ends() {
    for workers in ["cpu:2", "proc-cpu:2"] {
        let gtd = Gtd::start(&["--workers", workers, "--auto-shard", "off"]);
        let (mut endless, mut other) = (gtd.client(), gtd.client());
        let WorkerInfo { process, .. } = gtd.status().workers.remove(0);
        sum_without_end(&mut endless, 1_000_000);
        eventually("the step runs", || gtd.status().workers[0].running.as_ref().is_some_and(|step| step.step == "sum"));
        come_and_go(&gtd);
        make_round_trips(&mut other);
        drop(endless);
        // The next session is on the same worker.
        eventually("the step has ended", || gtd.status().workers[0].running.is_none());
        make_round_trips(&mut gtd.client());
        assert_eq!(gtd.status().workers[0].process, process, "it is still the same process");
    }
}

#[test]
fn a_reshard_waits_for_a_stopped_worker_without_its_other_workers() {
    let gtd = Gtd::start(&["--workers", "proc-cpu:2", "--auto-shard", "off"]);
    let (mut stopped, mut other, mut both) = (gtd.client(), gtd.client(), gtd.client());
    for client in [&mut stopped, &mut both] {
        client.sync();
    }
    for (signal, workers) in [(1, Workers::one(1)), (2, Workers::first_of(2))] {
        let requested = RequestedPlacement { workers, layout: RequestedLayout::Replicated };
        both.send(&Command::DefineSignal { signal, requested, compile: None });
    }
    let WorkerInfo { process, .. } = gtd.status().workers.remove(0);
    signal(process, Signal::SIGSTOP);
    let (first, _block) = fill_queue(&mut stopped, 1024);
    both.send(&Command::Signal { signal: 1 });
    let one = both.full(&[4], 1.0);
    both.send(&Command::Signal { signal: 2 });
    let two = both.binary(Op::Add, one, one);
    let (block, token) = (both.block(16), both.token());
    both.send(&Command::Fetch { token, id: two, offset_bytes: 0, to: range(&block, 16) });
    make_round_trips(&mut other);
    assert_eq!(gtd.status().workers[0].process, process, "it is still the stopped process");
    signal(process, Signal::SIGCONT);
    assert_eq!(stopped.completion(first), Ok(()));
    assert_eq!(both.completion(token), Ok(()));
    let mut bytes = [0; 16];
    block.read(&mut bytes);
    assert_eq!(bytes, [2.0f32; 4].map(f32::to_le_bytes).concat()[..]);
}

#[test]
fn light_steps_overtake_a_reshard_that_waits_for_a_stopped_worker() {
    for (is_formed, ends) in [(true, false), (false, false), (true, true), (false, true)] {
        overtake_a_reshard(is_formed, ends);
    }
}

/// `is_formed` tells whether the workers are a group before one of them is stopped. If not, the other waits for it to
/// join. `ends` tells whether the session of the reshard ends meanwhile.
fn overtake_a_reshard(is_formed: bool, ends: bool) {
    let gtd = Gtd::start(&["--workers", "proc-cpu:1,cpu:1", "--auto-shard", "off"]);
    let (mut both, other) = (gtd.client(), gtd.client());
    for (signal, workers) in [(1, Workers::one(1)), (2, Workers::first_of(2))] {
        let requested = RequestedPlacement { workers, layout: RequestedLayout::Replicated };
        both.send(&Command::DefineSignal { signal, requested, compile: None });
    }
    both.send(&Command::Signal { signal: 1 });
    let [first, one] = [both.full(&[4], 1.0), both.full(&[4], 1.0)];
    if is_formed {
        // The first reshard forms the group of the two workers.
        both.send(&Command::Signal { signal: 2 });
        both.binary(Op::Add, first, first);
    }
    both.sync();
    let WorkerInfo { process, .. } = gtd.status().workers.remove(0);
    signal(process, Signal::SIGSTOP);
    // The second worker gives its elements to the first, which is stopped.
    both.send(&Command::Signal { signal: 2 });
    let two = both.binary(Op::Add, one, one);
    let (block, token) = (both.block(16), both.token());
    both.send(&Command::Fetch { token, id: two, offset_bytes: 0, to: range(&block, 16) });
    let both_id = both.session();
    eventually("the second worker waits for the first", || {
        let status = gtd.status();
        let runs = status.workers[1].running.as_ref().is_some_and(|running| running.session == both_id);
        // A join is no session's step. It was sent before the steps that are queued now.
        runs || !is_formed && status.sessions.iter().any(|session| session.id == both_id && session.queued > 0)
    });
    let on_one = |mut client: Client| {
        let requested = RequestedPlacement { workers: Workers::one(1), layout: RequestedLayout::Replicated };
        client.send(&Command::DefineSignal { signal: 1, requested, compile: None });
        client.send(&Command::Signal { signal: 1 });
        client
    };
    let mut other = on_one(other);
    make_round_trips(&mut other);
    let status = gtd.status();
    assert_eq!(status.workers[0].process, process, "it is still the stopped process");
    let queued = status.sessions.iter().find(|session| session.id == both_id).map(|session| session.queued);
    assert!(queued > Some(0), "the reshard has not ended");
    if ends {
        drop((both, block));
        eventually("its session has ended", || gtd.status().sessions.len() == 1);
        // None of the next sessions is taken for the one that has ended.
        for _ in 0..4 {
            make_round_trips(&mut on_one(gtd.client()));
        }
        assert_eq!(gtd.status().workers[0].process, process, "it is still the stopped process");
        return;
    }
    signal(process, Signal::SIGCONT);
    assert_eq!(both.completion(token), Ok(()));
    let mut bytes = [0; 16];
    block.read(&mut bytes);
    assert_eq!(bytes, [2.0f32; 4].map(f32::to_le_bytes).concat()[..]);
    make_round_trips(&mut other);
}

#[test]
fn a_program_runs_ahead_by_time_and_not_by_instructions() {
    const PRODUCTS: usize = 20;
    let gtd = Gtd::start(&[]);
    let address = Some(Address::Unix(gtd.folder.socket()));
    let session = ClientSession::connect(&ConnectOptions { address, ..ConnectOptions::default() }).unwrap();
    // A product takes about a tenth of a second.
    let meta = f32s(&[1024, 1024]);
    let factor = Tensor::new(session.upload(meta, vec![0; meta.bytes()].as_slice().into()).unwrap(), None);
    let WorkerInfo { process, .. } = gtd.status().workers.remove(0);
    let (thread, issued) = (AtomicI32::new(0), AtomicUsize::new(0));
    signal(process, Signal::SIGSTOP);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            thread.store(gettid().as_raw(), SeqCst);
            for _ in 0..PRODUCTS {
                let mut scope = Scope::new(&session);
                let factor = scope.add(&factor).unwrap();
                let product = build::matmul(&mut scope, factor, factor);
                scope.finish(product, |scope, val| scope.tensor(val)).unwrap();
                issued.fetch_add(1, SeqCst);
            }
        });
        let sleeps = || {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.load(SeqCst)));
            stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap().trim_start().starts_with('S'))
        };
        eventually("the program waits, or has issued all", || {
            let count = issued.load(SeqCst);
            count == PRODUCTS || count > 0 && sleeps() && gtd.status().sessions[0].queued > 0
        });
        let count = issued.load(SeqCst);
        signal(process, Signal::SIGCONT);
        assert!(count <= 6, "{count} products were issued while none could be computed");
    });
    assert_eq!(issued.into_inner(), PRODUCTS, "it goes on with the worker");
    session.close();
}

#[test]
fn a_step_that_ran_for_long_ends_with_its_session_and_not_with_its_worker() {
    let gtd = without_max_step();
    let (mut long, mut other) = (gtd.client(), gtd.client());
    let kept = other.full(&[4], 1.0);
    other.sync();
    sum_without_end(&mut long, 1 << 24);
    let running = || gtd.status().workers.remove(0).running;
    // A step of a session that has ended may go on for ten seconds. This one has run for longer when its session ends.
    eventually("the sum has run for long", || running().is_some_and(|running| running.since_ms > 12_000));
    drop(long);
    eventually("the sum ends", || running().is_none());
    assert_eq!(other.fetch_f32(kept, 4).unwrap(), [1.0; 4]);
    assert_eq!(gtd.status().workers[0].losses, 0);
}

#[test]
fn a_worker_that_goes_on_for_a_session_that_has_ended_is_replaced() {
    let gtd = Gtd::start(&["--workers", "proc-stub:1"]);
    let (mut stuck, mut other) = (gtd.client(), gtd.client());
    let lost = other.full(&[4], 1.0);
    other.sync();
    // The stub looks at cancellations between instructions alone, and this product takes it minutes.
    let factor = stuck.full(&[2400, 2400], 1e-3);
    stuck.sync();
    stuck.binary(Op::Matmul, factor, factor);
    let worker = || gtd.status().workers.remove(0);
    // The worker skips a step that it has not begun yet when the session ends.
    let computes = |running: RunningInfo| running.step == "matmul" && running.since_ms >= 500;
    eventually("the worker computes the product", || worker().running.is_some_and(computes));
    let before = worker().process;
    drop(stuck);
    // The worker sends heartbeats all the time: it is not taken for a stopped one.
    eventually("the worker is another process", || worker().process.is_some_and(|process| Some(process) != before));
    assert!(gtd.stderr().contains("does not end the step matmul of a session that has ended"), "{}", gtd.stderr());
    let failure = other.fetch(lost, 16).unwrap_err();
    assert!(matches!(failure.fault, Fault::WorkerLost { end: WorkerEnd::Unresponsive, .. }), "{failure:?}");
    make_round_trips(&mut other);
}
