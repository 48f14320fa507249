//! A benchmark of the daemon's path: chained one-element adds with their frees, and round trips.
//!
//!     cargo run --release --package gtd --example chain
//!     GT_WORKERS=proc-cpu:1 cargo run --release --package gtd --example chain

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints, and ends where it cannot go on")]

#[expect(dead_code, reason = "made for the tests")]
#[path = "../tests/daemon/support.rs"]
mod support;

use gt_ops::Op;
use gt_ops::wire::{Command, FREE_IDS_MAX, binary_slot};
use std::time::{Duration, Instant};
use support::{Client, Private, range};

const ADDS: u64 = 100_000;
const ROUND_TRIPS: usize = 20_000;
const REPEATS: usize = 12;

fn workers() -> String {
    std::env::var("GT_WORKERS").unwrap_or_else(|_| "cpu:1".into())
}

/// The processor time of the dispatcher's thread.
fn busy_ns(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn main() {
    let private = Private::start();
    let hello = gt_protocol::Hello::new(gt_protocol::Role::Client, None);
    let mut client = Client::of(gt_protocol::connect_over(private.socket, &hello).unwrap());
    let one = client.full(&[1], 1.0);
    let pid = client.welcome.daemon_pid;
    for _ in 0..REPEATS {
        let (start, busy) = (Instant::now(), busy_ns(pid));
        let mut previous = client.full(&[1], 0.0);
        let mut freed = Vec::new();
        for _ in 0..ADDS {
            let id = client.id();
            client.send_slots(&[binary_slot(Op::Add, id, previous, one)]);
            freed.push(previous);
            if freed.len() == FREE_IDS_MAX {
                client.free(&freed);
                freed.clear();
            }
            previous = id;
        }
        freed.push(previous);
        let issued = start.elapsed();
        assert_eq!(client.fetch_f32(previous, 1).unwrap(), [ADDS as f32]);
        let took = start.elapsed();
        client.free(&freed);
        let per_add = |t: Duration| t.as_nanos() as f64 / ADDS as f64;
        let busy = Duration::from_nanos(busy_ns(pid) - busy);
        let [took, issued, busy] = [took, issued, busy].map(per_add);
        println!("chained adds: {took:.0} ns each, issued in {issued:.0}, the daemon's core busy for {busy:.0}");
    }
    let block = client.block(4);
    for (name, pause) in [("hot", Duration::ZERO), ("idle", Duration::from_millis(2))] {
        let trips = if pause.is_zero() { ROUND_TRIPS } else { 300 };
        let mut times = Vec::new();
        for _ in 0..trips {
            std::thread::sleep(pause);
            let start = Instant::now();
            let sum = client.binary(Op::Add, one, one);
            let token = client.token();
            client.send(&Command::Fetch { token, id: sum, offset_bytes: 0, to: range(&block, 4) });
            client.completion(token).unwrap();
            times.push(start.elapsed());
            client.free(&[sum]);
        }
        times.sort();
        let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
        println!("round trip, {name}: median {:?}, 10 % {:?}, 90 % {:?}", at(0.5), at(0.1), at(0.9));
    }
}
