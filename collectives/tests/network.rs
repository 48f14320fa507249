//! Groups over a network pass the conformance suite. Here the network is memory; `gt-bridge` runs the suite by TCP.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gt_collectives::conformance::{PROGRAMS, random_step};
use gt_collectives::local::{LocalCommunicator, LocalGroup, LocalOptions};
use gt_collectives::network::{GroupNotice, Mailbox, NetworkCommunicator, RankStream, RankTransport};
use gt_collectives::{CollectiveError, Communicator, Reduce};
use gt_ops::DType;
use half::f16;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Delivers to the mailboxes of all ranks at once.
struct InMemory {
    own: usize,
    mailboxes: Vec<Arc<Mailbox>>,
    sent: Arc<Sent>,
}

/// The counts of the bytes that ranks have sent.
#[derive(Default)]
struct Sent {
    /// Bytes from each rank to each other.
    bytes: Mutex<HashMap<(usize, usize), usize>>,
    /// Called before bytes of a collective are sent, with the sender and their number.
    before: Option<Box<dyn Fn(usize, usize) + Send + Sync>>,
}

impl RankTransport for InMemory {
    fn send(&self, to: usize, channel: RankStream, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if let Some(before) = &self.sent.before {
            before(self.own, bytes);
        }
        *self.sent.bytes.lock().unwrap().entry((self.own, to)).or_default() += bytes;
        // In pieces of odd lengths, as a network may deliver them.
        for piece in parts.concat().chunks(100_003) {
            self.mailboxes[to].deliver(self.own, channel, piece.to_vec(), 0);
        }
    }
    fn tell(&self, to: usize, notice: GroupNotice) {
        self.mailboxes[to].notice(self.own, notice);
    }
}

fn ranks_sending(size: usize, patience: Duration, sent: &Arc<Sent>) -> (Vec<NetworkCommunicator>, Vec<Arc<Mailbox>>) {
    let mailboxes: Vec<Arc<Mailbox>> = (0..size).map(|_| Arc::default()).collect();
    let rank = |own: usize| {
        let transport = Arc::new(InMemory { own, mailboxes: mailboxes.clone(), sent: sent.clone() });
        NetworkCommunicator::new((own, size), mailboxes[own].clone(), transport, patience)
    };
    ((0..size).map(rank).collect(), mailboxes)
}

fn ranks(size: usize, patience: Duration) -> (Vec<NetworkCommunicator>, Vec<Arc<Mailbox>>) {
    ranks_sending(size, patience, &Arc::default())
}

/// The ranks of a machine: threads that reach each other's buffers, or that share memory as processes do.
fn on_one_machine(size: usize, as_processes: bool) -> Vec<LocalCommunicator> {
    if !as_processes {
        return LocalGroup::threads(size).unwrap();
    }
    let group = LocalGroup::processes(size, LocalOptions::default()).unwrap();
    std::thread::scope(|scope| {
        let join = |rank| {
            let fd = group.fd().try_clone_to_owned().unwrap();
            scope.spawn(move || LocalCommunicator::join(fd, rank, PATIENCE).unwrap())
        };
        let joining: Vec<_> = (0..size).map(join).collect();
        joining.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Lets the ranks on each machine work together. `machines` has the machine of each rank.
fn by_machine(ranks: &mut [NetworkCommunicator], machines: &[usize], as_processes: bool) {
    for machine in 0..=*machines.iter().max().unwrap() {
        let members = machines.iter().filter(|of| **of == machine).count();
        let members = on_one_machine(members, as_processes).into_iter();
        let own = ranks.iter_mut().zip(machines).filter(|(_, of)| **of == machine);
        for ((rank, _), member) in own.zip(members) {
            rank.join_machine(machines, member).unwrap();
        }
    }
}

fn on_ranks(ranks: Vec<NetworkCommunicator>, run: impl Fn(&mut NetworkCommunicator) + Sync) {
    let run = &run;
    std::thread::scope(|scope| {
        for mut rank in ranks {
            scope.spawn(move || run(&mut rank));
        }
    });
}

#[test]
fn groups_over_a_network_conform() {
    for size in [1, 2, 3, 5] {
        for (_, run) in PROGRAMS {
            on_ranks(ranks(size, PATIENCE).0, |rank| run(rank));
        }
    }
}

#[test]
fn a_rank_that_is_lost_ends_the_calls_of_all_others() {
    let (mut ranks, mailboxes) = ranks(3, PATIENCE);
    let lost = ranks.pop();
    // Rank 0 alone learns it from its transport, and tells rank 1.
    mailboxes[0].lost(2);
    on_ranks(ranks, |rank| {
        let error = rank.all_reduce(&mut [0; 4], DType::F32, Reduce::Sum).unwrap_err();
        assert!(matches!(error, CollectiveError::Died { peer: 2, .. }), "{error}");
        assert!(matches!(rank.health().check(), Err(CollectiveError::Died { peer: 2, .. })));
    });
    drop(lost);
}

#[test]
fn a_rank_that_leaves_or_does_not_come_is_named() {
    let (mut left, _) = ranks(2, PATIENCE);
    drop(left.pop());
    on_ranks(left, |rank| {
        assert!(rank.health().check().is_ok());
        assert!(matches!(rank.barrier(), Err(CollectiveError::Left { peer: 1, .. })));
    });
    let (mut late, _) = ranks(2, Duration::from_millis(1));
    let never = late.pop();
    on_ranks(late, |rank| assert!(matches!(rank.barrier(), Err(CollectiveError::TimedOut { by: 0, .. }))));
    drop(never);
}

// ------------------------------------------------------------------------------- several ranks on a machine

/// Machines of ranks: of equal numbers, of which one is alone, and interleaved with unequal numbers.
const MACHINES: [&[usize]; 3] = [&[0, 0, 1, 1], &[0, 0, 1], &[0, 1, 0, 1, 1, 2]];

#[test]
fn groups_whose_ranks_share_machines_conform() {
    for machines in MACHINES {
        for as_processes in [false, true] {
            for (_, run) in PROGRAMS {
                let (mut ranks, _) = ranks(machines.len(), PATIENCE);
                by_machine(&mut ranks, machines, as_processes);
                on_ranks(ranks, |rank| run(rank));
            }
        }
    }
}

/// The bytes that cross from each machine to others in one call of each rank.
fn crossing(machines: &[usize], call: impl Fn(&mut NetworkCommunicator) + Sync) -> Vec<usize> {
    let sent = Arc::new(Sent::default());
    let (mut ranks, _) = ranks_sending(machines.len(), PATIENCE, &sent);
    by_machine(&mut ranks, machines, false);
    on_ranks(ranks, call);
    let mut crossed = vec![0; machines.iter().max().unwrap() + 1];
    for ((from, to), bytes) in &*sent.bytes.lock().unwrap() {
        if machines[*from] != machines[*to] {
            crossed[machines[*from]] += bytes;
        }
    }
    crossed
}

#[test]
fn the_bytes_of_a_call_leave_a_machine_once_however_many_ranks_it_has() {
    const BYTES: usize = 12 << 20;
    /// The most bytes of the announcements of a call that leave a machine, and of rounding.
    const ANNOUNCED_MAX: usize = 20_000;
    let assert_near = |found: usize, expected: usize, what: &str, machines: &[usize]| {
        let over = found.checked_sub(expected);
        assert!(over.is_some_and(|over| over <= ANNOUNCED_MAX), "{what} on {machines:?}: {found}, not {expected}");
    };
    for machines in MACHINES {
        let (size, count) = (machines.len(), machines.iter().max().unwrap() + 1);
        let members = |machine: usize| machines.iter().filter(|of| **of == machine).count();
        let reduced = crossing(machines, |rank| {
            rank.all_reduce(&mut vec![1; BYTES], DType::F32, Reduce::Sum).unwrap();
        });
        for bytes in reduced {
            assert_near(bytes, 2 * (count - 1) * BYTES / count, "an all-reduce", machines);
        }
        let piece = BYTES / size;
        let gathered = crossing(machines, |rank| {
            rank.all_gather(&vec![1; piece], &mut vec![0; piece * size], &vec![piece; size], DType::U8).unwrap();
        });
        for (machine, bytes) in gathered.into_iter().enumerate() {
            assert_near(bytes, (count - 1) * piece * members(machine), "an all-gather", machines);
        }
        let scattered = crossing(machines, |rank| {
            let (input, counts) = (vec![1; piece * size], vec![piece; size]);
            rank.reduce_scatter(&input, &mut vec![0; piece], &counts, DType::U8, Reduce::Max).unwrap();
        });
        for (machine, bytes) in scattered.into_iter().enumerate() {
            assert_near(bytes, piece * (size - members(machine)), "a reduce-scatter", machines);
        }
        let root = size - 1;
        let spread = crossing(machines, |rank| rank.broadcast(&mut vec![1; BYTES], root, DType::U8).unwrap());
        for (machine, bytes) in spread.into_iter().enumerate() {
            let copies = if machine == machines[root] { count - 1 } else { 0 };
            assert_near(bytes, copies * BYTES, "a broadcast", machines);
        }
    }
}

#[test]
fn machines_are_reduced_in_order_and_a_mean_is_divided_once() {
    // The sums of each machine's ranks come first: 1 + 2^24 is 2^24 in f32.
    let values = [1.0f32, 16_777_216.0, 1.0, 1.0];
    let len = 5000;
    let (mut all, _) = ranks(4, PATIENCE);
    by_machine(&mut all, &[0, 0, 1, 1], false);
    on_ranks(all, |rank| {
        let mut sum = values[rank.rank()].to_ne_bytes().repeat(len);
        rank.all_reduce(&mut sum, DType::F32, Reduce::Sum).unwrap();
        assert_eq!(sum, ((1.0f32 + 16_777_216.0) + (1.0 + 1.0)).to_ne_bytes().repeat(len));
        let mut mean = (rank.rank() as f32).to_ne_bytes().repeat(len);
        rank.all_reduce(&mut mean, DType::F32, Reduce::Mean).unwrap();
        assert_eq!(mean, 1.5f32.to_ne_bytes().repeat(len));
        // The sum of two would be infinite.
        let mut large = f16::from_f32(60_000.0).to_ne_bytes().repeat(2 * len);
        rank.all_reduce(&mut large, DType::F16, Reduce::Mean).unwrap();
        assert_eq!(large, f16::from_f32(60_000.0).to_ne_bytes().repeat(2 * len));
    });
}

#[test]
fn a_rank_that_is_lost_while_machines_reduce_ends_the_call_on_all_others() {
    const LOST: usize = 3;
    for as_processes in [false, true] {
        // The announcements arrive, and then rank 0 alone learns that rank 3 is lost.
        let lost_to: Arc<Mutex<Option<Arc<Mailbox>>>> = Arc::default();
        let learning = lost_to.clone();
        let before = move |from: usize, bytes: usize| {
            if from == LOST
                && bytes > 4096
                && let Some(mailbox) = learning.lock().unwrap().take()
            {
                mailbox.lost(LOST);
            }
        };
        let sent = Arc::new(Sent { before: Some(Box::new(before)), ..Sent::default() });
        let (mut ranks, mailboxes) = ranks_sending(4, PATIENCE, &sent);
        *lost_to.lock().unwrap() = Some(mailboxes[0].clone());
        by_machine(&mut ranks, &[0, 0, 1, 1], as_processes);
        on_ranks(ranks, |rank| {
            let calls = (0..1000).map(|_| rank.all_reduce(&mut vec![0; 32 << 20], DType::F32, Reduce::Sum));
            let error = calls.filter_map(Result::err).next().unwrap();
            assert!(matches!(error, CollectiveError::Died { peer: LOST, .. }), "rank {}: {error}", rank.rank());
            assert!(matches!(rank.barrier(), Err(CollectiveError::Died { peer: LOST, .. })));
        });
    }
}

#[test]
fn a_rank_that_its_machine_finds_dead_is_named_by_its_rank_in_the_whole_group() {
    let (mut ranks, _) = ranks(4, PATIENCE);
    let shared = LocalGroup::processes(2, LocalOptions::default()).unwrap();
    let (near, far) = ranks.split_at_mut(2);
    let member = |rank| LocalCommunicator::join(shared.fd().try_clone_to_owned().unwrap(), rank, PATIENCE).unwrap();
    let members: Vec<_> = std::thread::scope(|scope| {
        let joining: Vec<_> = (0..2).map(|rank| scope.spawn(move || member(rank))).collect();
        joining.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let names = [0, 0, 1, 1];
    for (rank, member) in near.iter_mut().zip(LocalGroup::threads(2).unwrap()) {
        rank.join_machine(&names, member).unwrap();
    }
    for (rank, member) in far.iter_mut().zip(members) {
        rank.join_machine(&names, member).unwrap();
    }
    shared.abort(1).unwrap();
    on_ranks(ranks, |rank| {
        let error = rank.all_reduce(&mut vec![0; 1 << 20], DType::F32, Reduce::Sum).unwrap_err();
        assert!(matches!(error, CollectiveError::Died { peer: 3, .. }), "rank {}: {error}", rank.rank());
    });
}

#[test]
fn ranks_that_share_machines_may_be_aborted_at_any_time() {
    for machines in MACHINES {
        let (mut ranks, _) = ranks(machines.len(), PATIENCE);
        by_machine(&mut ranks, machines, true);
        let turn = AtomicUsize::new(0);
        // A rank that leaves sooner may be heard of before the abort.
        let all_are_told = Barrier::new(machines.len());
        on_ranks(ranks, |rank| {
            let abort = rank.abort_handle();
            let calls = std::thread::scope(|scope| {
                if rank.rank() == 1 {
                    // Aborts from another thread, in the middle of a call as likely as not.
                    scope.spawn(|| {
                        while turn.load(Relaxed) < 50 {
                            std::thread::yield_now();
                        }
                        abort.abort();
                    });
                }
                let mut seed = 0;
                loop {
                    turn.fetch_max(seed, Relaxed);
                    seed += 1;
                    if let Err(error) = rank.all_reduce(&mut vec![1; 100_000], DType::U8, Reduce::Sum) {
                        break error;
                    }
                }
            });
            all_are_told.wait();
            assert!(matches!(calls, CollectiveError::Aborted { by: 1, .. }), "rank {}: {calls}", rank.rank());
        });
    }
}

#[test]
fn random_calls_by_machine_have_the_results_of_any_group() {
    for machines in MACHINES {
        let (mut ranks, _) = ranks(machines.len(), PATIENCE);
        by_machine(&mut ranks, machines, false);
        on_ranks(ranks, |rank| (1000..1100).for_each(|seed| random_step(rank, seed)));
    }
}
