//! Times collectives beside `memcpy` on the same threads:
//! `cargo run --release -p gt-collectives --example bandwidth -- [how [operation [ranks [bytes [slot bytes]]]]]`
//!
//! The bound is what all ranks must read and write at least, at the speed at which as many threads copy memory: in an
//! all-reduce of `b` bytes each rank reads `b` bytes and writes `b`, in an all-gather to `b` bytes as well, which is a
//! copy of `b` bytes a rank. A line says: how, operation, ranks, bytes, seconds, seconds of the bound, their ratio.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use gt_collectives::local::{LocalCommunicator, LocalGroup, LocalOptions, PATIENCE_DEFAULT};
use gt_collectives::{Communicator, Reduce, Result};
use gt_ops::DType;
use std::sync::Barrier;
use std::time::Instant;

const HOWS: [&str; 2] = ["threads", "processes"];
const OPERATIONS: [&str; 2] = ["all_reduce", "all_gather"];
const RANKS: [usize; 2] = [2, 4];
const BYTES: [usize; 3] = [1 << 20, 16 << 20, 64 << 20];
/// Rounds in which the collective and the copy take turns; the best of each counts.
const ROUNDS: usize = 7;
/// Bytes that a rank works on in one of a round's turns.
const TURN_BYTES: usize = 128 << 20;

/// The ranks of a group: threads that share their buffers, or that meet as processes do.
fn group(how: &str, ranks: usize, slot_bytes: usize) -> Result<Vec<LocalCommunicator>> {
    if how == "threads" {
        return LocalGroup::threads(ranks);
    }
    let group = LocalGroup::processes(ranks, LocalOptions { slot_bytes, ..LocalOptions::default() })?;
    std::thread::scope(|scope| {
        let joining: Vec<_> = (0..ranks)
            .map(|rank| {
                let fd = group.fd().try_clone_to_owned();
                scope.spawn(move || LocalCommunicator::join(fd.expect("a descriptor"), rank, PATIENCE_DEFAULT))
            })
            .collect();
        joining.into_iter().map(|rank| rank.join().expect("a rank that joins")).collect()
    })
}

/// Seconds from the first start to the last end among the ranks, for each turn of each rank.
fn span(turns: &[Vec<(Instant, Instant)>], turn: usize) -> f64 {
    let start = turns.iter().map(|rank| rank[turn].0).min();
    let end = turns.iter().map(|rank| rank[turn].1).max();
    start.zip(end).map_or(f64::NAN, |(start, end)| (end - start).as_secs_f64())
}

/// Seconds of one collective and of one copy.
fn measure(how: &str, operation: &str, ranks: usize, bytes: usize, slot_bytes: usize) -> Result<(f64, f64)> {
    let together = &Barrier::new(ranks);
    let calls = (TURN_BYTES / bytes).max(1);
    let rank = |mut comm: LocalCommunicator| -> Result<Vec<(Instant, Instant)>> {
        let counts = vec![bytes / 4 / ranks; ranks];
        let own = vec![1u8; bytes / 4 / ranks * 4];
        let (from, mut to) = (vec![0u8; bytes], vec![0u8; bytes]);
        let mut turns = Vec::new();
        for _ in 0..=ROUNDS {
            together.wait();
            let start = Instant::now();
            for _ in 0..calls {
                match operation {
                    "all_reduce" => comm.all_reduce(&mut to, DType::F32, Reduce::Sum)?,
                    _ => comm.all_gather(&own, &mut to[..own.len() * ranks], &counts, DType::F32)?,
                }
            }
            turns.push((start, Instant::now()));
            together.wait();
            let start = Instant::now();
            for _ in 0..calls {
                std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
            }
            turns.push((start, Instant::now()));
        }
        // Nobody leaves while another still measures.
        comm.barrier().map(|()| turns)
    };
    let comms = group(how, ranks, slot_bytes)?;
    let turns: Result<Vec<_>> = std::thread::scope(|scope| {
        let running: Vec<_> = comms.into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
        running.into_iter().map(|rank| rank.join().expect("a rank that measures")).collect()
    });
    let turns = turns?;
    // The first round finds cold memory.
    let best = |kind: usize| {
        (1..=ROUNDS).map(|round| span(&turns, 2 * round + kind)).fold(f64::INFINITY, f64::min) / calls as f64
    };
    Ok((best(0), best(1)))
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (how, operation) = (args.next(), args.next());
    let mut number = || args.next().and_then(|text| text.parse::<usize>().ok());
    let (ranks, bytes) = (number(), number());
    let slot_bytes = number().unwrap_or(LocalOptions::default().slot_bytes);
    let chosen = |all: &[&'static str], one: &Option<String>| -> Vec<&'static str> {
        all.iter().copied().filter(|name| one.as_ref().is_none_or(|one| one == name)).collect()
    };
    for how in chosen(&HOWS, &how) {
        for operation in chosen(&OPERATIONS, &operation) {
            for ranks in ranks.map_or(RANKS.to_vec(), |ranks| vec![ranks]) {
                for bytes in bytes.map_or(BYTES.to_vec(), |bytes| vec![bytes]) {
                    let (ours, bound) = measure(how, operation, ranks, bytes, slot_bytes)?;
                    println!("{how} {operation} {ranks} {bytes} {ours:.9} {bound:.9} {:.2}", bound / ours);
                }
            }
        }
    }
    Ok(())
}
