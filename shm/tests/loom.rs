//! loom models of every ordering: all interleavings, and all values that the memory model allows a load to return. Run
//! with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p gt-shm --release --test loom
//! ```
//!
//! For each ordering of the ring and the broadcast ring, a model without it must fail, which shows that it is
//! necessary. `ReleaseHead` and `AcquireHead` have no such model: they keep the consumer's loads before the producer's
//! later stores to the same slots. loom runs loads and stores in program order, so it cannot show a load that sees a
//! later store.
#![cfg(loom)]

use gt_shm::broadcast::{HeapBroadcast, Reader, Record, Writer};
use gt_shm::mem::{HeapMem, Mem};
use gt_shm::ring::{Consumer, Producer, heap_ring, heap_ring_at};
use gt_shm::sync::{AtomicU32, FenceSite, model::without, spin_hint};
use gt_shm::{SLOT_WORDS, Slot};
use loom::sync::{Condvar, Mutex};
use loom::thread;
// loom's own `Arc` aborts the process when a model that must deadlock does.
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Checks all executions, without a bound on the number of thread switches.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    builder.check(model);
}

fn slot(n: u64) -> Slot {
    std::array::from_fn(|word| n * SLOT_WORDS as u64 + word as u64 + 1)
}

fn record(n: u64) -> Record {
    std::array::from_fn(|word| 10 * n + word as u64 + 1)
}

/// A model of an eventfd, which latches.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// A model of a futex: it compares the word under the lock that wakers take.
#[derive(Default)]
struct Futex {
    bucket: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let bucket = self.bucket.lock().unwrap();
        if word.load(Relaxed) == expected {
            drop(self.woken.wait(bucket).unwrap());
        }
    }

    fn wake(&self) {
        drop(self.bucket.lock().unwrap());
        self.woken.notify_all();
    }
}

// ------------------------------------------------------------------- slots arrive whole, in order

fn slots_arrive_in_order() {
    // Three messages in two slots: one slot is overwritten, and the cursors wrap.
    let (mut producer, mut consumer) = heap_ring_at(2, u32::MAX);
    let sender = thread::spawn(move || {
        for n in 0..3 {
            while producer.push(&[slot(n)]).is_err() {
                spin_hint();
            }
            let _ = producer.publish();
        }
    });
    let mut expected = 0;
    let mut buffer = [Slot::default(); 2];
    while expected < 3 {
        let count = consumer.pop(&mut buffer).unwrap();
        for found in &buffer[..count] {
            assert_eq!(*found, slot(expected), "a slot was read before it was written");
            expected += 1;
        }
        if count == 0 {
            spin_hint();
        }
    }
    sender.join().unwrap();
}

#[test]
fn ring_delivers_in_order() {
    explore(slots_arrive_in_order);
}

#[test]
#[should_panic(expected = "before it was written")]
fn ring_without_the_release_of_the_tail() {
    without(FenceSite::PublishTail, || explore(slots_arrive_without_fence));
}

#[test]
#[should_panic(expected = "before it was written")]
fn ring_without_the_acquire_of_the_slots() {
    without(FenceSite::AcquireSlots, || explore(slots_arrive_in_order));
}

/// As [`slots_arrive_in_order`] with one message only: the SeqCst fence of one `publish` would stand in for the tail's
/// release in the next.
fn slots_arrive_without_fence() {
    let (mut producer, mut consumer) = heap_ring(2);
    let sender = thread::spawn(move || {
        producer.push(&[slot(0)]).unwrap();
        let _ = producer.publish();
    });
    let mut buffer = [Slot::default(); 1];
    while consumer.pop(&mut buffer).unwrap() == 0 {
        spin_hint();
    }
    assert_eq!(buffer[0], slot(0), "a slot was read before it was written");
    sender.join().unwrap();
}

// ------------------------------------------------------------- submission: a sleeping daemon wakes

fn serve(consumer: &mut Consumer<HeapMem>, bell: &Bell, count: u64) {
    let mut buffer = [Slot::default(); 2];
    let mut expected = 0;
    while expected < count {
        let popped = consumer.pop(&mut buffer).unwrap();
        for found in &buffer[..popped] {
            assert_eq!(*found, slot(expected));
            expected += 1;
        }
        if popped == 0 && consumer.prepare_sleep() {
            bell.wait();
            consumer.cancel_sleep();
        }
    }
}

fn sleeping_daemon_wakes() {
    let (mut producer, mut consumer) = heap_ring(2);
    let bell = Arc::new(Bell::default());
    let daemon = {
        let bell = bell.clone();
        thread::spawn(move || serve(&mut consumer, &bell, 2))
    };
    for n in 0..2 {
        producer.push(&[slot(n)]).unwrap();
        if producer.publish() {
            bell.ring();
        }
    }
    daemon.join().unwrap();
}

#[test]
fn doorbell_is_never_missed() {
    explore(sleeping_daemon_wakes);
}

#[test]
#[should_panic(expected = "deadlock")]
fn doorbell_without_the_fence_of_the_client() {
    without(FenceSite::PublishFence, || explore(sleeping_daemon_wakes));
}

#[test]
#[should_panic(expected = "deadlock")]
fn doorbell_without_the_fence_of_the_daemon() {
    without(FenceSite::SleepFence, || explore(sleeping_daemon_wakes));
}

// ------------------------------------------------------------- completion: a waiting client wakes

fn await_one(consumer: &mut Consumer<HeapMem>, futex: &Futex) -> Slot {
    let mut buffer = [Slot::default(); 1];
    loop {
        if consumer.pop(&mut buffer).unwrap() == 1 {
            return buffer[0];
        }
        if consumer.prepare_sleep() {
            futex.wait(consumer.mem().tail(), consumer.empty_tail());
            consumer.cancel_sleep();
        }
    }
}

fn complete(producer: &mut Producer<HeapMem>, futex: &Futex, n: u64) {
    producer.push(&[slot(n)]).unwrap();
    if producer.publish() {
        futex.wake();
    }
}

fn waiting_client_wakes() {
    let (mut producer, mut consumer) = heap_ring(2);
    let futex = Arc::new(Futex::default());
    let client = {
        let futex = futex.clone();
        thread::spawn(move || {
            for n in 0..2 {
                assert_eq!(await_one(&mut consumer, &futex), slot(n));
            }
        })
    };
    for n in 0..2 {
        complete(&mut producer, &futex, n);
    }
    client.join().unwrap();
}

#[test]
fn completion_is_never_missed() {
    explore(waiting_client_wakes);
}

#[test]
#[should_panic(expected = "deadlock")]
fn completion_without_the_fence_of_the_daemon() {
    without(FenceSite::PublishFence, || explore(waiting_client_wakes));
}

#[test]
#[should_panic(expected = "deadlock")]
fn completion_without_the_fence_of_the_client() {
    without(FenceSite::SleepFence, || explore(waiting_client_wakes));
}

// --------------------------------------------------------------------------- a whole round trip

#[test]
fn a_round_trip_with_both_sides_asleep_completes() {
    explore(|| {
        let (mut sq, mut sq_out) = heap_ring(2);
        let (mut cq, mut cq_out) = heap_ring(2);
        let bell = Arc::new(Bell::default());
        let futex = Arc::new(Futex::default());
        let daemon = {
            let (bell, futex) = (bell.clone(), futex.clone());
            thread::spawn(move || {
                serve(&mut sq_out, &bell, 1);
                complete(&mut cq, &futex, 7);
            })
        };
        sq.push(&[slot(0)]).unwrap();
        if sq.publish() {
            bell.ring();
        }
        assert_eq!(await_one(&mut cq_out, &futex), slot(7));
        daemon.join().unwrap();
    });
}

// --------------------------------------------------------------------------------- broadcast ring

/// Every record is read whole and in order, or counted as lost.
fn observer_accounts_for_everything() {
    const RECORDS: u64 = 3;
    let mem = HeapBroadcast::new(2);
    let mut reader = Reader::from_start(mem.clone());
    let writer = thread::spawn(move || {
        let mut writer = Writer::new(mem);
        for n in 0..RECORDS {
            writer.write(&record(n));
        }
    });
    let mut read = 0;
    let mut look = |reader: &mut Reader<HeapBroadcast>| {
        if let Some(found) = reader.read() {
            assert_eq!(found, record(reader.position() - 1), "a torn record");
            read += 1;
        }
    };
    look(&mut reader);
    look(&mut reader);
    writer.join().unwrap();
    for _ in 0..RECORDS {
        look(&mut reader);
    }
    assert!(reader.read().is_none());
    assert_eq!(read + reader.lost(), RECORDS, "a record is neither read nor counted");
    assert_eq!(reader.position(), RECORDS);
}

#[test]
fn broadcast_is_read_whole_or_counted() {
    explore(observer_accounts_for_everything);
}

#[test]
#[should_panic(expected = "torn record")]
fn broadcast_without_the_fence_after_the_mark() {
    without(FenceSite::BroadcastMark, || explore(observer_accounts_for_everything));
}

#[test]
#[should_panic(expected = "torn record")]
fn broadcast_without_the_release_of_the_mark() {
    without(FenceSite::BroadcastPublish, || explore(observer_accounts_for_everything));
}

#[test]
#[should_panic(expected = "torn record")]
fn broadcast_without_the_acquire_before_the_copy() {
    without(FenceSite::BroadcastAcquire, || explore(observer_accounts_for_everything));
}

#[test]
#[should_panic(expected = "torn record")]
fn broadcast_without_the_acquire_before_the_recheck() {
    without(FenceSite::BroadcastRecheck, || explore(observer_accounts_for_everything));
}
