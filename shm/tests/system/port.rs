//! A session's two ends in one process: all slots arrive in order, and sleepers wake.

use gt_shm::port::{POP_SLOTS_MAX, segment_c_bytes};
use gt_shm::{Access, ClientPort, Corrupt, DaemonPort, Full, PortFds, Segment, SessionState, Slot};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const SPIN: Duration = Duration::from_micros(5);
const TICK: Duration = Duration::from_millis(100);

fn slot(n: u64) -> Slot {
    [n, 1, 2, 3, 4, 5, 6, !n]
}

/// Sends `count` slots there and back. Neither side polls, so a lost wake-up is a failure, not a delay.
fn there_and_back(count: u64, in_flight_max: u64, spin: Duration) {
    let (mut daemon, fds) = DaemonPort::create(64, 16).unwrap();
    let mut client = ClientPort::connect(fds, 64, 16).unwrap();
    let server = std::thread::spawn(move || {
        let mut buffer = [Slot::default(); 8];
        let mut served = 0;
        while served < count {
            let popped = daemon.pop(&mut buffer).unwrap();
            for slot in &buffer[..popped] {
                daemon.complete(*slot).unwrap();
            }
            daemon.flush_completions();
            served += popped as u64;
            if popped == 0 && daemon.prepare_sleep() {
                crate::wait_readable(daemon.doorbell());
                daemon.doorbell().silence();
                daemon.cancel_sleep();
            }
        }
    });
    let (mut sent, mut seen) = (0, 0);
    while seen < count {
        while sent < count && sent - seen < in_flight_max {
            client.push(&[slot(sent)]).unwrap();
            sent += 1;
        }
        client.publish();
        let found = client.wait_completion(spin, crate::PATIENCE).expect("a wake-up was lost");
        assert_eq!(found, slot(seen));
        seen += 1;
    }
    server.join().unwrap();
}

#[test]
fn every_submission_is_answered_in_order() {
    there_and_back(50_000, 16, SPIN);
}

#[test]
fn no_wake_up_is_lost_when_both_sides_sleep_each_time() {
    there_and_back(20_000, 1, Duration::ZERO);
}

#[test]
fn a_full_ring_makes_the_client_wait_until_there_is_room() {
    let (mut daemon, fds) = DaemonPort::create(8, 8).unwrap();
    let mut client = ClientPort::connect(fds, 8, 8).unwrap();
    client.push(&[slot(0); 8]).unwrap();
    assert!(client.push(&[slot(8)]).is_err());
    assert!(!client.wait_space(1, Duration::from_millis(1)), "nobody serves");
    let server = std::thread::spawn(move || {
        let mut buffer = [Slot::default(); 3];
        assert_eq!(daemon.pop(&mut buffer), Ok(3));
        daemon
    });
    assert!(client.wait_space(3, crate::PATIENCE));
    assert_eq!(client.free_slots(), 3);
    let mut daemon = server.join().unwrap();
    daemon.set_state(SessionState::Closed);
    assert!(!client.wait_space(8, crate::PATIENCE), "a closed session is not waited for");
}

#[test]
fn a_wait_for_a_completion_ends_by_timeout_or_by_the_end_of_the_session() {
    let (mut daemon, fds) = DaemonPort::create(8, 8).unwrap();
    let (_submitter, mut completions) = ClientPort::connect(fds, 8, 8).unwrap().split();
    assert_eq!(completions.wait(SPIN, Duration::from_millis(1)), None);
    assert_eq!(completions.wait(Duration::ZERO, Duration::ZERO), None);
    assert_eq!(completions.state(), SessionState::Running);
    let waiting = std::thread::spawn(move || {
        // Short waits, as in a client, which checks between them that the daemon is alive.
        let mut found = None;
        while found.is_none() && completions.state() != SessionState::Closed {
            found = completions.wait(SPIN, TICK);
        }
        (found, completions)
    });
    daemon.complete(slot(1)).unwrap();
    daemon.flush_completions();
    let (found, mut completions) = waiting.join().unwrap();
    assert_eq!(found, Some(slot(1)));

    daemon.complete(slot(2)).unwrap();
    daemon.flush_completions();
    daemon.set_state(SessionState::Closed);
    assert_eq!(completions.wait(SPIN, crate::PATIENCE), Some(slot(2)), "still to be read");
    assert_eq!(completions.wait(SPIN, crate::PATIENCE), None, "at once");
}

#[test]
fn the_daemon_sees_the_core_on_which_its_client_spins() {
    let (daemon, fds) = DaemonPort::create(64, 16).unwrap();
    let mut client = ClientPort::connect(fds, 64, 16).unwrap();
    assert_eq!(daemon.spin_core(), None);
    let on_one_core = (0..1000).any(|_| {
        let before = gt_shm::cores::current();
        client.completions().tell_spin(true);
        daemon.spin_core() == Some(before)
    });
    assert!(on_one_core);
    client.completions().tell_spin(false);
    assert_eq!(daemon.spin_core(), None);
}

#[test]
fn completions_that_do_not_fit_are_refused() {
    let (mut daemon, fds) = DaemonPort::create(8, 4).unwrap();
    let mut client = ClientPort::connect(fds, 8, 4).unwrap();
    for n in 0..4 {
        daemon.complete(slot(n)).unwrap();
    }
    assert_eq!(daemon.complete(slot(4)), Err(Full));
    daemon.flush_completions();
    assert_eq!(client.pop_completion(), Some(slot(0)));
    assert_eq!(daemon.free_completions(), 1);
}

#[test]
fn one_visit_takes_a_bounded_number_of_slots() {
    let (mut daemon, fds) = DaemonPort::create(256, 8).unwrap();
    let mut client = ClientPort::connect(fds, 256, 8).unwrap();
    client.push_publish(&[slot(0); 200]).unwrap();
    let mut buffer = [Slot::default(); 256];
    assert_eq!(daemon.pop(&mut buffer), Ok(POP_SLOTS_MAX));
}

/// Overwrites the word at line `line` of segment C, as a hostile client may.
fn overwrite(c: &Segment, line: usize, value: u32) {
    // SAFETY: the segment has at least one page and is mapped for writing; both sides access its words as atomics.
    let words = unsafe { &*c.as_ptr().cast::<[AtomicU32; 1024]>() };
    words[line * 32].store(value, Relaxed);
}

#[test]
fn impossible_cursors_of_a_client_are_refused_or_ignored() {
    const SQ_TAIL: usize = 0;
    const CQ_HEAD: usize = 1;
    let (mut daemon, fds) = DaemonPort::create(64, 16).unwrap();
    let c = fds.c.try_clone().unwrap();
    let c = Segment::map_peer(c, segment_c_bytes(64), Access::ReadWrite).unwrap();
    let mut client = ClientPort::connect(fds, 64, 16).unwrap();
    let mut buffer = [Slot::default(); 64];

    client.push_publish(&[slot(1)]).unwrap();
    overwrite(&c, CQ_HEAD, 99);
    assert_eq!(daemon.free_completions(), 16, "an impossible head changes nothing");
    overwrite(&c, SQ_TAIL, 65);
    assert_eq!(daemon.pop(&mut buffer), Err(Corrupt { claimed: 65, capacity: 64 }));
    overwrite(&c, SQ_TAIL, u32::MAX);
    assert!(daemon.pop(&mut buffer).is_err());
    // A possible cursor over slots that were never written: they are zeros, which decoding refuses.
    overwrite(&c, SQ_TAIL, 64);
    assert_eq!(daemon.pop(&mut buffer), Ok(64));
    assert_eq!((buffer[0], buffer[1]), (slot(1), Slot::default()));
}

#[test]
fn a_client_that_punches_its_segment_reads_as_zeros() {
    let (mut daemon, fds) = DaemonPort::create(64, 16).unwrap();
    let c = fds.c.try_clone().unwrap();
    let c = Segment::map_peer(c, segment_c_bytes(64), Access::ReadWrite).unwrap();
    let mut client = ClientPort::connect(fds, 64, 16).unwrap();
    let mut buffer = [Slot::default(); 64];
    client.push_publish(&[slot(1), slot(2)]).unwrap();
    assert_eq!(daemon.pop(&mut buffer), Ok(2));
    client.push_publish(&[slot(3)]).unwrap();
    c.punch(0, c.len() as u64).unwrap();
    // The tail reads as zero: it seems to have gone back, which is Corrupt but raises no SIGBUS.
    assert!(daemon.pop(&mut buffer).is_err());
    daemon.complete(slot(1)).unwrap();
    daemon.flush_completions();
}

#[test]
fn a_thread_that_overwrites_the_cursors_never_breaks_the_daemon() {
    let (mut daemon, fds) = DaemonPort::create(64, 16).unwrap();
    let c = Segment::map_peer(fds.c, segment_c_bytes(64), Access::ReadWrite).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 1_u32;
            while !stop.load(Relaxed) {
                n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let value = if n & 1 == 0 { n } else { n >> 26 };
                overwrite(&c, (n >> 8) as usize % 3, value);
            }
        });
        let mut buffer = [Slot::default(); 64];
        for _ in 0..100_000 {
            match daemon.pop(&mut buffer) {
                Ok(count) => assert!(count <= 64),
                Err(Corrupt { claimed, capacity }) => assert!(claimed > capacity),
            }
            assert!(daemon.free_completions() <= 16);
            let _ = daemon.complete(slot(0));
            daemon.flush_completions();
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn segments_of_another_size_are_refused() {
    let (_daemon, fds) = DaemonPort::create(256, 256).unwrap();
    assert!(ClientPort::connect(fds, 512, 256).is_err());
    let (_daemon, fds) = DaemonPort::create(256, 256).unwrap();
    let swapped = PortFds { c: fds.d, d: fds.c, doorbell: fds.doorbell };
    assert!(ClientPort::connect(swapped, 256, 256).is_err(), "D for C");
}

/// Each end, and each half of the client's, may move to another thread.
#[test]
fn ends_can_be_sent() {
    fn sendable<T: Send>() {}
    sendable::<DaemonPort>();
    sendable::<ClientPort>();
    sendable::<gt_shm::Submitter>();
    sendable::<gt_shm::Completions>();
    sendable::<gt_shm::broadcast::Writer<gt_shm::broadcast::MappedBroadcast>>();
    sendable::<gt_shm::FifoReceiver>();
    fn shareable<T: Send + Sync>() {}
    shareable::<gt_shm::ArenaBlock>();
    shareable::<gt_shm::ArenaAllocator>();
    shareable::<gt_shm::ArenaSlice>();
    shareable::<gt_shm::Socket>();
}
