//! Models of the barrier and of event counts, over interleavings with few preemptions and all values that the memory
//! model lets a load return. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p gt-collectives --release --test loom
//! ```
//!
//! For each ordering there is a model without it that must fail.
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gt_collectives::sync::{Aborted, CentralBarrier, EventCount, WaitPolicy};
use gt_shm::sync::{AtomicU32, FenceSite, model::without};
use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;
// loom's own `Arc` aborts the process when a model that must deadlock does.
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A futex that compares under the lock that wakers take. A sleep has no timeout, so a missed wake is a deadlock.
#[derive(Default)]
struct Futex {
    bucket: Mutex<()>,
    woken: Condvar,
}

impl WaitPolicy for Futex {
    fn spins(&self, _spins: u32) -> bool {
        false
    }
    fn sleep(&self, word: &AtomicU32, expected: u32) {
        let bucket = self.bucket.lock().unwrap();
        if word.load(Relaxed) == expected {
            drop(self.woken.wait(bucket).unwrap());
        }
    }
    fn wake(&self, _word: &AtomicU32) {
        drop(self.bucket.lock().unwrap());
        self.woken.notify_all();
    }
    fn check_peers(&self) {}
}

/// The state that the ranks share: the barrier, and a plain cell for each rank.
struct Shared {
    barrier: CentralBarrier,
    futex: Futex,
    cells: [UnsafeCell<usize>; 3],
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            barrier: CentralBarrier::default(),
            futex: Futex::default(),
            cells: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }
    fn write(&self, rank: usize, value: usize) {
        // SAFETY: loom's `UnsafeCell` checks that no other thread accesses the cell.
        self.cells[rank].with_mut(|cell| unsafe { *cell = value });
    }
    fn read(&self, rank: usize) -> usize {
        // SAFETY: loom's `UnsafeCell` checks that no other thread writes the cell.
        self.cells[rank].with(|cell| unsafe { *cell })
    }
}

/// The most preemptions in one execution: enough for every model without an ordering to fail.
const PREEMPTIONS_MAX: usize = 3;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Runs `rank` on as many threads, this one included.
fn on_ranks<const RANKS: usize>(shared: &Arc<Shared>, rank: fn(&Shared, usize)) {
    let others: Vec<_> = (1..RANKS)
        .map(|i| {
            let shared = shared.clone();
            thread::spawn(move || rank(&shared, i))
        })
        .collect();
    rank(shared, 0);
    others.into_iter().for_each(|other| other.join().unwrap());
}

/// Values that were written before a barrier are read after it, and written again after the next.
fn writes_before_the_barrier_are_read_after_it<const RANKS: usize>(shared: &Shared, rank: usize, rounds: usize) {
    for round in 1..=rounds {
        shared.write(rank, round);
        shared.barrier.pass(RANKS as u32, &shared.futex).unwrap();
        for peer in 0..RANKS {
            assert_eq!(shared.read(peer), round, "read before it was written");
        }
        if round < rounds {
            shared.barrier.pass(RANKS as u32, &shared.futex).unwrap();
        }
    }
}

fn two_ranks() {
    on_ranks::<2>(&Shared::new(), |shared, rank| writes_before_the_barrier_are_read_after_it::<2>(shared, rank, 2));
}

#[test]
fn a_barrier_lets_two_ranks_pass_together() {
    explore(two_ranks);
}

#[test]
fn a_barrier_lets_three_ranks_pass_together() {
    explore(|| {
        on_ranks::<3>(&Shared::new(), |shared, rank| writes_before_the_barrier_are_read_after_it::<3>(shared, rank, 1))
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_barrier_without_the_fence_of_the_rank_that_opens_it() {
    without(FenceSite::SignalFence, || explore(two_ranks));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_barrier_without_the_fence_of_a_sleeping_rank() {
    without(FenceSite::SleeperFence, || explore(two_ranks));
}

/// Either both ranks pass an aborted barrier, and see the other's write, or neither does.
fn passed_or_not() {
    let shared = Shared::new();
    let rank = |shared: &Shared, rank: usize| {
        shared.write(rank, 1);
        let passed = shared.barrier.pass(2, &shared.futex);
        if passed.is_ok() {
            assert_eq!(shared.read(1 - rank), 1);
        }
        passed.is_ok()
    };
    let aborts = {
        let shared = shared.clone();
        thread::spawn(move || shared.barrier.abort(&shared.futex))
    };
    let other = {
        let shared = shared.clone();
        thread::spawn(move || rank(&shared, 1))
    };
    let passed = rank(&shared, 0);
    assert_eq!(passed, other.join().unwrap(), "one passed and the other did not");
    aborts.join().unwrap();
    assert_eq!(shared.barrier.pass(2, &shared.futex), Err(Aborted), "it stays shut");
}

#[test]
fn an_abort_is_for_all_or_for_none() {
    explore(passed_or_not);
}

#[test]
fn an_abort_wakes_a_rank_that_waits_for_no_other() {
    explore(|| {
        let shared = Shared::new();
        let aborts = {
            let shared = shared.clone();
            thread::spawn(move || shared.barrier.abort(&shared.futex))
        };
        assert_eq!(shared.barrier.pass(2, &shared.futex), Err(Aborted));
        aborts.join().unwrap();
    });
}

/// One slot, which one side fills and the other empties, alternately.
fn a_slot_goes_back_and_forth() {
    const CHUNKS: usize = 2;
    struct Channel {
        sent: EventCount,
        taken: EventCount,
        slot: UnsafeCell<usize>,
        futex: Futex,
    }
    let channel = Arc::new(Channel {
        sent: EventCount::default(),
        taken: EventCount::default(),
        slot: UnsafeCell::new(0),
        futex: Futex::default(),
    });
    let sender = {
        let channel = channel.clone();
        thread::spawn(move || {
            for chunk in 1..=CHUNKS {
                channel.taken.wait(&channel.futex, |count| count as usize == chunk - 1).unwrap();
                // SAFETY: loom's `UnsafeCell` checks that no other thread accesses the slot.
                channel.slot.with_mut(|slot| unsafe { *slot = chunk });
                channel.sent.advance(&channel.futex);
            }
        })
    };
    for chunk in 1..=CHUNKS {
        channel.sent.wait(&channel.futex, |count| count as usize >= chunk).unwrap();
        // SAFETY: loom's `UnsafeCell` checks that no other thread writes the slot.
        assert_eq!(channel.slot.with(|slot| unsafe { *slot }), chunk);
        channel.taken.advance(&channel.futex);
    }
    sender.join().unwrap();
}

#[test]
fn a_channel_delivers_in_order() {
    explore(a_slot_goes_back_and_forth);
}

#[test]
#[should_panic]
fn a_channel_without_the_release_of_its_count() {
    without(FenceSite::SignalRelease, || explore(a_slot_goes_back_and_forth));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_channel_without_the_fence_of_the_side_that_advances() {
    without(FenceSite::SignalFence, || explore(a_slot_goes_back_and_forth));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_channel_without_the_fence_of_a_sleeping_side() {
    without(FenceSite::SleeperFence, || explore(a_slot_goes_back_and_forth));
}
