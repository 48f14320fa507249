//! Workers that die: their tensors are lost, other workers' are not, and a new process takes their place.

use crate::support::{Client, Gtd, Private, eventually, f32s, range, wait};
use gt_ops::failure::{Failure, Fault, WorkerEnd, WorkerName};
use gt_ops::placement::{RequestedLayout, RequestedPlacement, Workers};
use gt_ops::wire::{Command, Completion};
use gt_ops::{Op, TensorId};
use gt_protocol::{Hello, Role, WorkerInfo, WorkerState, connect_over};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

fn worker(gtd: &Gtd, index: usize) -> WorkerInfo {
    gtd.status().workers.remove(index)
}

/// The process id of a worker, once it runs.
fn process(gtd: &Gtd, index: usize) -> u32 {
    let mut found = None;
    eventually("the worker runs", || {
        found = worker(gtd, index).process;
        found.is_some()
    });
    found.unwrap()
}

fn signal(process: u32, signal: Signal) {
    kill(Pid::from_raw(process as i32), signal).unwrap();
}

/// Kills a worker's process and waits until another runs in its place.
fn replace(gtd: &Gtd, index: usize, how: Signal) {
    let (before, losses) = (process(gtd, index), worker(gtd, index).losses);
    signal(before, how);
    eventually("another process runs", || {
        let WorkerInfo { process, losses: now, .. } = worker(gtd, index);
        now > losses && process.is_some_and(|process| process != before)
    });
}

fn lost(index: usize, end: WorkerEnd) -> Fault {
    Fault::WorkerLost { worker: WorkerName::new(&format!("cpu:{index}")), end }
}

/// The child processes of `parent`.
fn children(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).unwrap();
    let of_task = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: String = tasks.map(|task| of_task(task.unwrap())).collect();
    all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn is_gone(process: u32) -> bool {
    !std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[test]
fn a_dead_workers_tensors_are_lost_and_the_session_goes_on() {
    let gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    let held = client.upload(f32s(&[2]), &[0; 8]);
    for (losses, (signal, number)) in
        [(Signal::SIGKILL, 9), (Signal::SIGABRT, 6), (Signal::SIGTERM, 15)].iter().enumerate()
    {
        replace(&gtd, 0, *signal);
        let fault = lost(0, WorkerEnd::Signal(*number));
        assert_eq!(client.fetch(held, 8), Err(Failure { fault, instruction: held, op: None }));
        let (two, three) = (client.full(&[2], 2.0), client.full(&[2], 3.0));
        let poisoned = client.binary(Op::Add, held, two);
        let failure = Failure { fault, instruction: poisoned, op: Some(Op::Add) };
        assert_eq!(client.fetch(poisoned, 8), Err(failure));
        let after = client.binary(Op::Mul, poisoned, two);
        assert_eq!(client.fetch(after, 8), Err(failure), "it says where the poison came from");
        // Tensors made after the death and arenas granted before it can be used.
        let five = client.binary(Op::Add, two, three);
        assert_eq!(client.fetch_f32(five, 2).unwrap(), [5.0; 2]);
        let uploaded = client.upload(f32s(&[1]), &1.5f32.to_le_bytes());
        assert_eq!(client.fetch_f32(uploaded, 1).unwrap(), [1.5]);
        let WorkerInfo { state, losses: counted, last_loss, .. } = worker(&gtd, 0);
        assert_eq!((state, counted), (WorkerState::Running, losses as u32 + 1));
        assert!(last_loss.unwrap().contains(&format!("signal {number}")));
    }
    client.free(&[held]);
    client.sync();
    assert!(gtd.stderr().contains("worker cpu:0 was killed by signal 6 (SIGABRT)"), "{}", gtd.stderr());
}

#[test]
fn a_worker_that_was_stopped_goes_on_or_is_ended() {
    let gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    let (before, held) = (process(&gtd, 0), client.full(&[1], 2.0));
    client.sync();
    signal(before, Signal::SIGSTOP);
    let (block, token) = (client.block(4), client.token());
    client.send(&Command::Fetch { token, id: held, offset_bytes: 0, to: range(&block, 4) });
    let silent = format!("worker cpu:0, process {before}, does not answer");
    eventually("it is seen that it does nothing", || gtd.stderr().contains(&silent));
    signal(before, Signal::SIGCONT);
    assert_eq!(client.completion(token), Ok(()));
    signal(before, Signal::SIGSTOP);
    let failure = Failure { fault: lost(0, WorkerEnd::Unresponsive), instruction: held, op: None };
    assert_eq!(client.fetch(held, 4), Err(failure));
    let next = client.full(&[1], 3.0);
    assert_eq!(client.fetch_f32(next, 1).unwrap(), [3.0]);
    // The log has the daemon's reason, and not the signal by which the daemon ended it.
    let log = gtd.stderr();
    assert!(log.contains("worker cpu:0 was ended because it did not answer, as if it were stopped; it is"), "{log}");
    assert!(!log.contains("memory runs out"), "{log}");
}

#[test]
fn other_workers_and_sessions_do_not_notice() {
    for workers in ["proc-cpu:2", "cpu:1,proc-cpu:1"] {
        let gtd = Gtd::start(&["--workers", workers]);
        let mut clients = [gtd.client(), gtd.client()];
        let held = clients.each_mut().map(|client| client.full(&[3], 7.0));
        for (client, id) in clients.iter_mut().zip(held) {
            assert_eq!(client.fetch_f32(id, 3).unwrap(), [7.0; 3]);
        }
        replace(&gtd, 1, Signal::SIGKILL);
        let [first, second] = &mut clients;
        assert_eq!(first.fetch_f32(held[0], 3).unwrap(), [7.0; 3]);
        assert_eq!(second.fetch(held[1], 12).unwrap_err().fault, lost(1, WorkerEnd::Signal(9)));
        let again = second.full(&[3], 8.0);
        assert_eq!(second.fetch_f32(again, 3).unwrap(), [8.0; 3]);
        let mut third = gtd.client();
        let new = third.full(&[1], 1.0);
        assert_eq!(third.fetch_f32(new, 1).unwrap(), [1.0]);
        assert_eq!(worker(&gtd, 0).losses, 0);
    }
}

#[test]
fn steps_that_are_queued_when_a_worker_dies_fail() {
    let gtd = Gtd::start(&[]);
    let process = process(&gtd, 0);
    let mut client = gtd.client();
    let mut product = client.full(&[1024, 1024], 1e-3);
    let block = client.block(4);
    // A stopped process executes none of the steps, and can still be killed.
    signal(process, Signal::SIGSTOP);
    for _ in 0..4 {
        product = client.binary(Op::Matmul, product, product);
    }
    let token = client.token();
    client.send(&Command::Fetch { token, id: product, offset_bytes: 0, to: range(&block, 4) });
    eventually("it is queued", || gtd.status().sessions[0].queued > 0);
    signal(process, Signal::SIGKILL);
    assert_eq!(client.completion(token).unwrap_err().fault, lost(0, WorkerEnd::Signal(9)));
    eventually("nothing is queued", || gtd.status().sessions[0].queued == 0);
    let one = client.full(&[1], 1.0);
    assert_eq!(client.fetch_f32(one, 1).unwrap(), [1.0]);
}

/// A hash of `n`.
fn scatter(n: u64) -> u64 {
    (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// Computes for `rounds` rounds, in which each fetched result is right or lost. Returns the number of losses.
fn compute(client: &mut Client, rounds: usize) -> usize {
    let mut losses = 0;
    let mut kept: Option<TensorId> = None;
    for round in 0..rounds {
        let base = match kept {
            Some(kept) => kept,
            None => *kept.insert(client.full(&[64, 64], 1.0)),
        };
        let product = client.binary(Op::Matmul, base, base);
        let sum = client.binary(Op::Add, product, base);
        let bytes = vec![round as u8; 40_000];
        let uploaded = (round % 5 == 0).then(|| (client.id(), client.block(bytes.len()), client.token()));
        if let Some((id, block, token)) = uploaded {
            let mut block = block;
            block.write(&bytes);
            client.send(&Command::Allocate { out: id, meta: f32s(&[10_000]) });
            client.send(&Command::Write { token, id, offset_bytes: 0, from: range(&block, bytes.len()) });
            let written = Completion::decode(&client.wait_completion().unwrap());
            assert_eq!(written.token, token);
            match client.fetch(id, bytes.len()) {
                Ok(fetched) => assert_eq!(fetched, bytes),
                Err(failure) => assert!(matches!(failure.fault, Fault::WorkerLost { .. }), "{failure:?}"),
            }
            client.free(&[id]);
        }
        match client.fetch_f32(sum, 64 * 64) {
            Ok(values) => assert_eq!(values, [65.0; 64 * 64]),
            Err(failure) => {
                assert!(matches!(failure.fault, Fault::WorkerLost { .. }), "{failure:?}");
                losses += 1;
                client.free(&[base]);
                kept = None;
            }
        }
        client.free(&[product, sum]);
    }
    losses
}

#[test]
fn a_worker_may_die_at_any_instant_and_leaves_nothing() {
    const DEATHS: u32 = 5;
    let gtd = Gtd::start(&[]);
    let mut survivor = gtd.client();
    assert_eq!(compute(&mut survivor, 20), 0);
    let settled = || (gtd.descriptors(), gtd.segments(), children(gtd.child.id()).len());
    let before = settled();
    let socket = gtd.folder.socket();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = || {
            let mut client = Client::connect(&socket);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                compute(&mut client, 10);
            }
        };
        scope.spawn(load);
        scope.spawn(load);
        for death in 0..DEATHS {
            let process = process(&gtd, 0);
            std::thread::sleep(Duration::from_micros(scatter(death as u64) % 20_000));
            signal(process, Signal::SIGKILL);
            eventually("it was noticed", || worker(&gtd, 0).losses == death + 1);
        }
        eventually("another runs", || worker(&gtd, 0).process.is_some());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    compute(&mut survivor, 20);
    eventually("all is as before", || settled() == before);
}

/// Kills a worker's processes until the worker is down.
fn wear_out(gtd: &Gtd, index: usize) {
    loop {
        let mut info = worker(gtd, index);
        eventually("it runs, or is given up", || {
            info = worker(gtd, index);
            info.process.is_some() || info.state == WorkerState::Down
        });
        match info.process {
            Some(process) => signal(process, Signal::SIGKILL),
            None => break,
        }
        eventually("it was noticed", || worker(gtd, index).losses > info.losses);
    }
}

#[test]
fn a_worker_that_dies_again_and_again_is_down_for_a_while() {
    let gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    let first = client.full(&[1], 1.0);
    client.fetch_f32(first, 1).unwrap();
    wear_out(&gtd, 0);
    assert!(children(gtd.child.id()).is_empty());
    // The steps of a worker that is down fail at once.
    for _ in 0..3 {
        let one = client.full(&[1], 1.0);
        assert_eq!(client.fetch(one, 4).unwrap_err().fault, lost(0, WorkerEnd::Signal(9)));
    }
    let mut other = gtd.client();
    let one = other.full(&[1], 1.0);
    assert!(other.fetch(one, 4).is_err());
}

#[test]
fn a_reshard_with_a_worker_that_is_down_fails_at_once() {
    for workers in ["proc-cpu:2", "cpu:1,proc-cpu:1"] {
        let gtd = Gtd::start(&["--workers", workers]);
        let mut client = gtd.client();
        wear_out(&gtd, 1);
        for (signal, workers) in [(1, Workers::one(0)), (2, Workers::first_of(2))] {
            client.send(&Command::DefineSignal {
                signal,
                requested: RequestedPlacement { workers, layout: RequestedLayout::Replicated },
                compile: None,
            });
        }
        client.send(&Command::Signal { signal: 1 });
        let one = client.full(&[4], 1.0);
        client.send(&Command::Signal { signal: 2 });
        let two = client.binary(Op::Add, one, one);
        assert_eq!(client.fetch(two, 16).unwrap_err().fault, lost(1, WorkerEnd::Signal(9)));
        assert_eq!(client.fetch_f32(one, 4).unwrap(), [1.0; 4], "what others hold is there");
    }
}

#[test]
fn a_worker_has_nothing_of_the_daemons() {
    let gtd = Gtd::start(&["--workers", "proc-cpu:2"]);
    let _clients = [gtd.client(), gtd.client(), gtd.client()];
    for index in 0..2 {
        let process = process(&gtd, index);
        let mut open: Vec<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
            .unwrap()
            .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
            .map(|path| path.split(':').next().unwrap().to_string())
            .collect();
        open.sort();
        let stderr = gtd.folder.0.join("stderr").display().to_string();
        let mut expected = vec!["/dev/null", "/dev/null", &stderr, "/memfd", "anon_inode"];
        expected.extend(["socket"; 5]);
        expected.sort_unstable();
        let what = "standard three, memory of its tensors, bell, its socket twice, both ends of its lifeline, its end of \
                    the socket for cancellations";
        assert_eq!(open, expected, "{what}");
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap() & 0x7fff_ffff
        };
        let ignored = [Signal::SIGPIPE, Signal::SIGUSR1, Signal::SIGUSR2];
        let ignored = ignored.iter().map(|signal| 1 << (*signal as u32 - 1)).sum();
        let why = "as in every program, and signals by which launchers tell programs to save";
        assert_eq!((mask("SigBlk:"), mask("SigIgn:")), (0, ignored), "{why}");
        // Ctrl-C in the daemon's terminal must not reach the worker.
        assert_eq!(nix::unistd::getpgid(Some(Pid::from_raw(process as i32))), Ok(Pid::from_raw(process as i32)));
    }
}

#[test]
fn workers_end_with_their_daemon() {
    for how in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut gtd = Gtd::start(&["--workers", "proc-cpu:2"]);
        let mut client = gtd.client();
        let one = client.full(&[1], 1.0);
        client.fetch_f32(one, 1).unwrap();
        let processes = [process(&gtd, 0), process(&gtd, 1)];
        gtd.signal(how);
        gtd.wait();
        eventually("the workers end", || processes.iter().all(|process| is_gone(*process)));
        if how == Signal::SIGTERM {
            assert_eq!(gtd.stderr(), "", "it is no loss that they end then");
        }
    }
}

#[test]
fn workers_end_with_a_private_daemon() {
    let mut private = Private::start();
    let mut client = Client::of(connect_over(private.socket, &Hello::new(Role::Client, None)).unwrap());
    let one = client.full(&[1], 1.0);
    client.fetch_f32(one, 1).unwrap();
    let workers = children(private.child.id());
    assert_eq!(workers.len(), 1);
    drop(client);
    assert!(wait(&mut private.child).success());
    eventually("its worker ends", || is_gone(workers[0]));
}

#[test]
fn a_workers_memory_has_its_limit() {
    let gtd = Gtd::start(&["--workers", "proc-cpu:2", "--memory", "16M", "--auto-shard", "off"]);
    let mut client = gtd.client();
    let much = client.full(&[3 << 20], 2.0);
    let Fault::OutOfMemory { limit, .. } = client.fetch(much, 4).unwrap_err().fault else { panic!("it fits") };
    assert_eq!(limit, 8 << 20);
    let some = client.full(&[1 << 20], 2.0);
    client.fetch(some, 4).unwrap();
    assert!(worker(&gtd, 0).memory_bytes >= 4 << 20, "its reports say what it holds");
}
