//! Local groups of threads and of processes pass the conformance suite, and handle aborts, deaths and departures.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod reached;

use gt_collectives::conformance::{PROGRAMS, encode, program, random_step};
use gt_collectives::local::{LocalCommunicator, LocalGroup, LocalOptions, SharedMemory};
use gt_collectives::{CollectiveError, Communicator, Reduce};
use gt_ops::DType;
use gt_shm::Socket;
use gt_shm::socket::MESSAGE_FDS_MAX;
use proptest::prelude::*;
use reached::Reached;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How long a test waits before it fails.
const PATIENCE: Duration = Duration::from_secs(120);
const OPTIONS: LocalOptions = LocalOptions { patience: PATIENCE, slot_bytes: 16 << 10 };
const SOCKET: &str = "GT_COLLECTIVES_TEST_SOCKET";

/// Runs `run` on every rank, each of which drops its communicator at the end.
fn on_ranks<C: Communicator>(ranks: Vec<C>, run: impl Fn(&mut C) + Sync) {
    let run = &run;
    std::thread::scope(|scope| {
        for mut rank in ranks {
            scope.spawn(move || run(&mut rank));
        }
    });
}

fn threads(size: usize) -> Vec<LocalCommunicator> {
    LocalGroup::threads_with(size, OPTIONS).unwrap()
}

/// A group of threads that use shared memory as processes do.
fn as_processes(size: usize) -> Vec<LocalCommunicator> {
    let memories = vec![Vec::new(); size];
    meet(size, memories)
}

/// As [`as_processes`], with buffers that the others reach. If `hides` is not 0, rank `r` hides its buffers from the
/// others in every `hides * (r + 1)`-th call.
fn reaching(size: usize, hides: usize) -> Vec<Reached> {
    let memories: Vec<Arc<SharedMemory>> = (0..size).map(|_| reached::memory()).collect();
    let ranks = meet(size, vec![memories.clone(); size]).into_iter().zip(memories);
    // Each rank hides its buffers in different calls.
    ranks.enumerate().map(|(rank, (comm, memory))| Reached::new(comm, memory, hides * (rank + 1))).collect()
}

/// A group of threads that use shared memory as processes do, each with the memories that it has mapped.
fn meet(size: usize, memories: Vec<Vec<Arc<SharedMemory>>>) -> Vec<LocalCommunicator> {
    let group = LocalGroup::processes(size, OPTIONS).unwrap();
    let fd = || group.fd().try_clone_to_owned().unwrap();
    std::thread::scope(|scope| {
        let joining: Vec<_> = memories
            .into_iter()
            .enumerate()
            .map(|(rank, memories)| {
                let fd = fd();
                scope.spawn(move || LocalCommunicator::join_sharing(fd, rank, PATIENCE, memories, None).unwrap())
            })
            .collect();
        joining.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn conform<C: Communicator>(make: impl Fn(usize) -> Vec<C>, size: usize) {
    for (_, run) in PROGRAMS {
        on_ranks(make(size), |rank| run(rank));
    }
}

#[test]
fn one_thread_conforms() {
    conform(threads, 1);
}
#[test]
fn two_threads_conform() {
    conform(threads, 2);
}
#[test]
fn three_threads_conform() {
    conform(threads, 3);
}
#[test]
fn four_threads_conform() {
    conform(threads, 4);
}
#[test]
fn eight_threads_conform() {
    conform(threads, 8);
}
#[test]
fn one_rank_in_shared_memory_conforms() {
    conform(as_processes, 1);
}
#[test]
fn four_ranks_in_shared_memory_conform() {
    conform(as_processes, 4);
}

#[test]
fn four_ranks_that_reach_each_others_buffers_conform() {
    conform(|size| reaching(size, 0), 4);
}
#[test]
fn three_ranks_of_which_some_hide_their_buffers_conform() {
    conform(|size| reaching(size, 1), 3);
}
#[test]
fn ranks_that_do_not_all_know_each_others_memory_conform() {
    let mine = || reached::memory();
    let [one, other, stranger] = [mine(), mine(), mine()];
    let unlike = [vec![one.clone(), other.clone()], vec![one.clone(), stranger]];
    let missing = [vec![one.clone(), other.clone()], vec![]];
    for known in [unlike, missing] {
        let make = |_| {
            let ranks = meet(2, known.to_vec()).into_iter().zip([&one, &other]);
            ranks.map(|(comm, memory)| Reached::new(comm, memory.clone(), 0)).collect()
        };
        conform(make, 2);
    }
}

#[test]
fn the_end_of_a_larger_group_ends_the_waits_of_a_part_of_it() {
    let larger = threads(1).remove(0);
    let mut ranks = threads(2);
    ranks[0].watch_over(larger.health());
    // Rank 1 does not come.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ranks[0].barrier().unwrap_err());
        larger.abort();
        assert!(matches!(waiting.join().unwrap(), CollectiveError::Aborted { by: 0, .. }));
    });
    // A rank that waits for the others to join is told as well.
    let group = LocalGroup::processes(2, OPTIONS).unwrap();
    let fd = group.fd().try_clone_to_owned().unwrap();
    let error = LocalCommunicator::join_sharing(fd, 0, PATIENCE, Vec::new(), Some(larger.health())).unwrap_err();
    assert!(matches!(error, CollectiveError::Aborted { by: 0, .. }), "{error}");
}

// ------------------------------------------------------------------------------------------ processes

/// A rank in a process of its own. It does nothing if it is run as a test.
#[test]
fn the_other_process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let socket = Socket::connect(Path::new(&socket)).unwrap();
    let mut message = [0; 256];
    let received = socket.recv(&mut message, MESSAGE_FDS_MAX, Some(PATIENCE)).unwrap();
    let text = std::str::from_utf8(&message[..received.len]).unwrap();
    let (rank, name) = text.split_once(' ').unwrap();
    let rank: usize = rank.parse().unwrap();
    let mut fds = received.fds.into_iter();
    let group = fds.next().unwrap();
    let memories: Vec<Arc<SharedMemory>> = fds.map(|fd| SharedMemory::open(fd).unwrap()).collect();
    let memory = memories.get(rank).cloned();
    let rank = LocalCommunicator::join_sharing(group, rank, PATIENCE, memories, None).unwrap();
    match memory {
        Some(memory) => as_process(&mut Reached::new(rank, memory, 0), name),
        None => as_process(&mut { rank }, name),
    }
}

fn as_process(rank: &mut dyn Communicator, name: &str) {
    match name {
        "sums_for_ever" => while rank.all_reduce(&mut vec![1; 100_000], DType::U8, Reduce::Sum).is_ok() {},
        "exits_at_once" => std::process::exit(0),
        name => program(name)(rank),
    }
}

/// Starts the process of `rank`, which runs the program called `name` on buffers in its own of `memories`.
fn start(group: &LocalGroup, memories: &[Arc<SharedMemory>], rank: usize, name: &str) -> Child {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let path = format!("@gt-collectives-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let path = PathBuf::from(path);
    let listener = Socket::listen(&path).unwrap();
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--nocapture", "--test-threads=1"])
        .env(SOCKET, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let timeout = Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&timeout)).unwrap(), 1, "it came");
    let socket = listener.accept().unwrap().unwrap();
    let fds: Vec<_> = std::iter::once(group.fd()).chain(memories.iter().filter_map(|memory| memory.fd())).collect();
    socket.send(format!("{rank} {name}").as_bytes(), &fds, Some(PATIENCE)).unwrap();
    process
}

fn processes_conform(size: usize, reach: bool) {
    for (name, _) in PROGRAMS {
        let memories: Vec<_> = (0..if reach { size } else { 0 }).map(|_| reached::memory()).collect();
        let group =
            LocalGroup::processes(size, LocalOptions { patience: PATIENCE, ..LocalOptions::default() }).unwrap();
        let processes: Vec<Child> = (0..size).map(|rank| start(&group, &memories, rank, name)).collect();
        for (rank, mut process) in processes.into_iter().enumerate() {
            assert!(process.wait().unwrap().success(), "{name} on rank {rank} of {size}");
        }
    }
}

#[test]
fn two_processes_conform() {
    processes_conform(2, false);
}
#[test]
fn three_processes_conform() {
    processes_conform(3, false);
}
#[test]
fn three_processes_that_reach_each_others_buffers_conform() {
    processes_conform(3, true);
}

fn join(group: &LocalGroup, rank: usize) -> LocalCommunicator {
    LocalCommunicator::join(group.fd().try_clone_to_owned().unwrap(), rank, PATIENCE).unwrap()
}

#[test]
fn a_process_killed_in_the_middle_is_an_error_for_the_others() {
    for (rounds, reach) in [1, 30, 400].into_iter().flat_map(|rounds| [(rounds, false), (rounds, true)]) {
        let group = LocalGroup::processes(3, OPTIONS).unwrap();
        let memories: Vec<_> = (0..if reach { 3 } else { 0 }).map(|_| reached::memory()).collect();
        let mut processes = [1, 2].map(|rank| start(&group, &memories, rank, "sums_for_ever"));
        let fd = group.fd().try_clone_to_owned().unwrap();
        let rank = LocalCommunicator::join_sharing(fd, 0, PATIENCE, memories.clone(), None).unwrap();
        let mut rank: Box<dyn Communicator> = match memories.first() {
            Some(memory) => Box::new(Reached::new(rank, memory.clone(), 0)),
            None => Box::new(rank),
        };
        let mut buffer = vec![1; 100_000];
        for _ in 0..rounds {
            rank.all_reduce(&mut buffer, DType::U8, Reduce::Sum).unwrap();
        }
        processes[1].kill().unwrap();
        let error = loop {
            if let Err(error) = rank.all_reduce(&mut buffer, DType::U8, Reduce::Sum) {
                break error;
            }
        };
        assert!(matches!(error, CollectiveError::Died { rank: 0, peer: 2, .. }), "{error}");
        // The other rank noticed the death, by itself or from this one, and ended.
        assert!(processes[0].wait().unwrap().success());
        processes[1].wait().unwrap();
    }
}

#[test]
fn a_message_from_a_dead_process_is_an_error() {
    let group = LocalGroup::processes(2, OPTIONS).unwrap();
    let mut process = start(&group, &[], 1, "sums_for_ever");
    let mut rank = join(&group, 0);
    process.kill().unwrap();
    let error = rank.recv(&mut [0; 4], 1, DType::F32).unwrap_err();
    assert!(matches!(error, CollectiveError::Died { rank: 0, peer: 1, .. }), "{error}");
    process.wait().unwrap();
}

#[test]
fn a_process_that_exits_without_leaving_is_dead() {
    let group = LocalGroup::processes(2, OPTIONS).unwrap();
    let mut process = start(&group, &[], 1, "exits_at_once");
    let error = join(&group, 0).barrier().unwrap_err();
    assert!(matches!(error, CollectiveError::Died { peer: 1, .. }), "{error}");
    process.wait().unwrap();
}

#[test]
fn a_rank_is_taken_once() {
    let group = LocalGroup::processes(1, OPTIONS).unwrap();
    let _first = join(&group, 0);
    let error = LocalCommunicator::join(group.fd().try_clone_to_owned().unwrap(), 0, PATIENCE).unwrap_err();
    let own = std::process::id();
    assert_eq!(error.to_string(), format!("cannot join a group as rank 0: process {own} is that rank already"));
}

#[test]
fn a_group_that_is_never_complete_is_an_error() {
    let group = LocalGroup::processes(2, OPTIONS).unwrap();
    let fd = || group.fd().try_clone_to_owned().unwrap();
    let error = LocalCommunicator::join(fd(), 2, PATIENCE).unwrap_err();
    assert_eq!(error.to_string(), "cannot join a group as rank 2: it has 2 ranks");
    let error = LocalCommunicator::join(fd(), 0, Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, CollectiveError::TimedOut { by: 0, .. }), "{error}");
    let error = LocalCommunicator::join(fd(), 0, PATIENCE).unwrap_err();
    assert_eq!(error.to_string(), "cannot join a group as rank 0: it has left already");
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let segment = gt_shm::Segment::create("other", 1 << 20, gt_shm::Access::ReadWrite, gt_shm::Access::ReadWrite);
    let (_segment, fd) = segment.unwrap().detach();
    let error = LocalCommunicator::join(fd, 0, PATIENCE).unwrap_err();
    assert!(error.to_string().contains("not that of a group"), "{error}");
    for size in [0, 65] {
        let error = LocalGroup::threads(size).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot make a group of {size} ranks: a group has 1 to 64"));
    }
}

// --------------------------------------------------------------------------------- what ranks do to each other

#[test]
fn a_rank_that_leaves_is_an_error_for_the_others() {
    for make in [threads, as_processes] {
        on_ranks(make(3), |rank| {
            rank.barrier().unwrap();
            if rank.rank() == 1 {
                return;
            }
            let error = rank.barrier().unwrap_err();
            // The first rank that notices leaves, too.
            assert!(matches!(error, CollectiveError::Left { peer: 1, .. }), "{error}");
        });
    }
}

#[test]
fn patience_ends() {
    let options = LocalOptions { patience: Duration::from_millis(5), ..OPTIONS };
    let ranks = LocalGroup::threads_with(2, options).unwrap();
    let mut ranks = ranks.into_iter();
    let (mut first, second) = (ranks.next().unwrap(), ranks.next().unwrap());
    let error = first.all_reduce(&mut [0; 4], DType::F32, Reduce::Sum).unwrap_err();
    assert!(matches!(error, CollectiveError::TimedOut { rank: 0, by: 0, .. }), "{error}");
    drop(second);
}

#[test]
fn an_abort_at_any_instant_leaves_no_rank_waiting() {
    for make in [threads, as_processes] {
        for round in 0..30 {
            let ranks = make(3);
            let handle = ranks[2].abort_handle();
            let started = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while started.load(Relaxed) < 20 * round {
                        std::thread::yield_now();
                    }
                    handle.abort();
                });
                on_ranks(ranks, |rank| {
                    // The buffers are freed with the call: a rank that still accessed them would access freed memory.
                    while let Ok(()) = rank.all_reduce(&mut vec![1; 30_000], DType::U8, Reduce::Sum) {
                        started.fetch_add(1, Relaxed);
                    }
                    let error = rank.barrier().unwrap_err();
                    assert!(matches!(error, CollectiveError::Aborted { by: 2, .. }), "{error}");
                });
            });
        }
    }
}

#[test]
fn an_abort_lets_nobody_go_while_another_is_at_its_buffers() {
    for _ in 0..30 {
        on_ranks(reaching(3, 0), |rank| {
            let mut calls = 0;
            loop {
                let mut buffer = vec![1; 30_000];
                if rank.all_reduce(&mut buffer, DType::U8, Reduce::Sum).is_err() {
                    break;
                }
                // A rank that returned too soon would find bytes that another has not written yet.
                assert!(buffer.iter().all(|x| *x == 3));
                calls += 1;
                if rank.rank() == calls % 3 && calls > 7 {
                    rank.abort();
                }
            }
        });
    }
}

#[test]
fn a_barrier_holds_everybody_back() {
    const ROUNDS: usize = 200;
    for make in [threads, as_processes] {
        let arrived = AtomicUsize::new(0);
        on_ranks(make(4), |rank| {
            for round in 1..=ROUNDS {
                arrived.fetch_add(1, Relaxed);
                rank.barrier().unwrap();
                assert!(arrived.load(Relaxed) >= 4 * round, "somebody had not come");
            }
        });
    }
}

#[test]
fn sums_are_folded_in_the_order_of_ranks() {
    // The sum in f32 and in this order. Other orders, as (a + b) + (c + d), give other bits.
    let terms: [f32; 4] = [1e8, 3.25, -1e8, 0.1];
    let expected = ((terms[0] + terms[1]) + terms[2]) + terms[3];
    let sums = |rank: &mut dyn Communicator| {
        for len in [1, 1000, 40_000] {
            let mut buffer = terms[rank.rank()].to_ne_bytes().repeat(len);
            rank.all_reduce(&mut buffer, DType::F32, Reduce::Sum).unwrap();
            assert!(buffer.chunks(4).all(|x| x == expected.to_ne_bytes()), "{len} elements");
        }
    };
    on_ranks(threads(4), |rank| sums(rank));
    on_ranks(as_processes(4), |rank| sums(rank));
    on_ranks(reaching(4, 2), |rank| sums(rank));
}

#[test]
fn a_large_message_passes_through_a_small_channel() {
    for make in [threads, as_processes] {
        on_ranks(make(2), |rank| {
            let mut expected = Vec::new();
            (0..3_000_000).for_each(|i| encode(DType::I16, f64::from(i % 1009), &mut expected));
            if rank.rank() == 0 {
                rank.send(&expected, 1, DType::I16).unwrap();
                rank.barrier().unwrap();
            } else {
                let mut found = vec![0; expected.len()];
                rank.recv(&mut found, 0, DType::I16).unwrap();
                assert!(found == expected);
                rank.barrier().unwrap();
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_is_right(
        size in 1usize..6,
        how in 0..3,
        seeds in proptest::collection::vec(any::<u64>(), 1..40),
    ) {
        let steps = |rank: &mut dyn Communicator| seeds.iter().for_each(|seed| random_step(rank, *seed));
        match how {
            0 => on_ranks(threads(size), |rank| steps(rank)),
            1 => on_ranks(as_processes(size), |rank| steps(rank)),
            _ => on_ranks(reaching(size, 2), |rank| steps(rank)),
        }
    }
}
