//! A user who computes small things all along, and measures how long each answer takes.

use crate::attacks::breach;
use crate::support::Client;
use gt_ops::placement::{RequestedLayout, RequestedPlacement};
use gt_ops::wire::Command;
use gt_ops::{Attrs, Op, Operand, Scalar, Workers};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time from an answer to the next question.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of the longest waits that are reported one by one.
const LONGEST: usize = 8;
/// The elements of each tensor.
const ELEMENTS: usize = 16;
/// The longest wait, where one core is free for the daemon.
pub const WAIT_TARGET: Duration = Duration::from_millis(100);

/// Microseconds since 1970: a time that several processes can compare.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// How long the bystander waited for its answers.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    pub round_trips: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub longest_us: u64,
    /// The longest waits: when they began, and how long they were.
    pub longest: Vec<(u64, u64)>,
}

impl Waits {
    /// Reads what [`watch`] printed. None if it did not come to its end.
    pub fn read(said: &str) -> Option<Waits> {
        let mut waits = Waits::default();
        let mut numbers = BTreeMap::new();
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["wait", at, us] => waits.longest.push((at.parse().ok()?, us.parse().ok()?)),
                ["bystander", name, number] => drop(numbers.insert(name, number.parse().ok()?)),
                _ => {}
            }
        }
        waits.round_trips = *numbers.get("round_trips")?;
        waits.p50_us = *numbers.get("p50_us")?;
        waits.p99_us = *numbers.get("p99_us")?;
        waits.longest_us = *numbers.get("longest_us")?;
        Some(waits)
    }
}

/// Asks for a sum of small tensors again and again until standard input ends, and prints how long the answers took.
#[expect(clippy::print_stdout, reason = "whoever started this process reads it")]
pub fn watch(socket: &Path) {
    static OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        OVER.store(true, Relaxed);
    });
    let mut client = Client::connect(socket);
    // Its steps stay on the first worker, so that it notices nothing of others that are stopped.
    let requested = RequestedPlacement { workers: Workers::one(0), layout: RequestedLayout::Replicated };
    client.send(&Command::DefineSignal { signal: 1, requested, compile: None });
    client.send(&Command::Signal { signal: 1 });
    let ones = client.full(&[ELEMENTS], 1.0);
    client.sync();
    let mut times = Vec::new();
    let mut longest: Vec<(u64, u64)> = Vec::new();
    while !OVER.load(Relaxed) {
        let number = times.len() % 1000;
        let (at, begun) = (now_us(), Instant::now());
        let scalar = Operand::Scalar(Scalar::Float(number as f64));
        let sum = client.op(Op::Add, &[Operand::Tensor(ones), scalar], Attrs::None);
        let answer = client.fetch_f32(sum, ELEMENTS);
        let us = begun.elapsed().as_micros() as u64;
        client.free(&[sum]);
        if answer.as_deref().ok() != Some(&[number as f32 + 1.0; ELEMENTS]) {
            breach(&format!("the bystander asked for 1 + {number} and got {answer:?}"));
        }
        times.push(us);
        longest.push((us, at));
        if longest.len() >= 2 * LONGEST {
            longest.sort_unstable_by(|a, b| b.cmp(a));
            longest.truncate(LONGEST);
        }
        std::thread::sleep(PAUSE);
    }
    longest.sort_unstable_by(|a, b| b.cmp(a));
    longest.truncate(LONGEST);
    for (us, at) in longest {
        println!("wait {at} {us}");
    }
    times.sort_unstable();
    let part = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(0);
    println!("bystander p50_us {}", part(50));
    println!("bystander p99_us {}", part(99));
    println!("bystander longest_us {}", times.last().unwrap_or(&0));
    println!("bystander round_trips {}", times.len());
}
