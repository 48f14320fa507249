//! A session's two ends in one process: everything arrives, in order, and sleepers wake.

use gt_shm::{ClientPort, DaemonPort, Slot};
use std::time::Duration;

const SPIN: Duration = Duration::from_micros(5);
const TICK: Duration = Duration::from_millis(100);

fn slot(n: u64) -> Slot {
    [n, 1, 2, 3, 4, 5, 6, !n]
}

#[test]
fn every_submission_is_answered_in_order() {
    const COUNT: u64 = 20_000;
    let (mut daemon, fds) = DaemonPort::create(64, 16).unwrap();
    let mut client = ClientPort::connect(fds, 64, 16).unwrap();
    let server = std::thread::spawn(move || {
        let mut buffer = [Slot::default(); 8];
        let mut served = 0;
        while served < COUNT {
            if daemon.free_completions() < 8 {
                std::thread::yield_now();
                continue;
            }
            let count = daemon.pop(&mut buffer).unwrap();
            if count == 0 {
                if daemon.prepare_sleep() {
                    let mut fds = [rustix::event::PollFd::new(daemon.doorbell(), rustix::event::PollFlags::IN)];
                    rustix::event::poll(&mut fds, None).unwrap();
                    daemon.doorbell().silence();
                    daemon.cancel_sleep();
                }
                continue;
            }
            for slot in &buffer[..count] {
                daemon.complete(*slot).unwrap();
            }
            daemon.flush_completions();
            served += count as u64;
        }
    });
    let (mut sent, mut seen) = (0, 0);
    while seen < COUNT {
        while sent < COUNT && client.push(&[slot(sent)]).is_ok() {
            sent += 1;
        }
        client.publish();
        if let Some(found) = client.wait_completion(SPIN, TICK) {
            assert_eq!(found, slot(seen));
            seen += 1;
        }
    }
    server.join().unwrap();
}
