//! Times collectives beside `memcpy` on the same threads:
//! `cargo run --release -p gt-collectives --example bandwidth -- [how [operation [ranks [bytes [slot bytes]]]]]`
//!
//! The ranks are threads, processes whose buffers lie in memory that all have mapped (as those of a daemon's workers),
//! or processes that do not reach each other's buffers ("staged").
//!
//! The bound is the time in which the same number of threads or processes, all at once, copy the bytes that the ranks
//! must at least read and write. In an all-reduce of `b` bytes, and in an all-gather with a result of `b` bytes, each
//! rank reads `b` bytes and writes `b`: a copy of `b` bytes per rank. The columns of the output are: how, operation,
//! ranks, bytes, seconds, seconds of the bound, their ratio.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use gt_collectives::local::{LocalCommunicator, LocalGroup, LocalOptions, PATIENCE_DEFAULT, SharedMemory};
use gt_collectives::{Communicator, Reduce};
use gt_ops::DType;
use gt_shm::Socket;
use gt_shm::socket::MESSAGE_FDS_MAX;
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const HOWS: [&str; 3] = ["threads", "processes", "staged"];
const OPERATIONS: [&str; 2] = ["all_reduce", "all_gather"];
const RANKS: [usize; 2] = [2, 4];
const BYTES: [usize; 3] = [1 << 20, 16 << 20, 64 << 20];
/// Rounds, each of the collective and then of the copy; the best time of each counts.
const ROUNDS: usize = 7;
/// Bytes that a rank processes in each half of a round.
const TURN_BYTES: usize = 128 << 20;
/// The argument that makes the program one rank of a group of processes.
const AS_RANK: &str = "rank";

/// A rank's three buffers: the input, the output of copies and reductions, and the output of an all-gather.
type Buffers<'a> = [&'a mut [u8]; 3];

/// The time by a clock that all processes share, nanoseconds.
fn now() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as i64)
}

/// Seconds from the first start to the last end of the ranks.
fn span(comm: &mut dyn Communicator, start: i64, end: i64) -> Result<f64> {
    let own: Vec<u8> = [start, end].into_iter().flat_map(i64::to_ne_bytes).collect();
    let mut all = vec![0; own.len() * comm.size()];
    comm.all_gather(&own, &mut all, &vec![2; comm.size()], DType::I64)?;
    let times: Vec<i64> = all.as_chunks().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect();
    let start = times.iter().step_by(2).min();
    let end = times.iter().skip(1).step_by(2).max();
    Ok(start.zip(end).map_or(f64::NAN, |(start, end)| (end - start) as f64 / 1e9))
}

/// Seconds of one collective and of one copy, from the first rank's start to the last rank's end.
fn measure(comm: &mut dyn Communicator, operation: &str, bytes: usize, buffers: Buffers<'_>) -> Result<[f64; 2]> {
    let [from, to, own] = buffers;
    let calls = (TURN_BYTES / bytes).max(1);
    let counts = vec![own.len() / 4; comm.size()];
    let mut best = [f64::INFINITY; 2];
    // The first round is left out, as its memory is cold.
    for round in 0..=ROUNDS {
        for (turn, best) in best.iter_mut().enumerate() {
            comm.barrier()?;
            let start = now()?;
            for _ in 0..calls {
                match (turn, operation) {
                    (0, "all_reduce") => comm.all_reduce(to, DType::F32, Reduce::Sum)?,
                    (0, _) => comm.all_gather(own, &mut to[..own.len() * counts.len()], &counts, DType::F32)?,
                    _ => std::hint::black_box(&mut *to).copy_from_slice(std::hint::black_box(from)),
                }
            }
            let end = now()?;
            let span = span(comm, start, end)?;
            if round > 0 {
                *best = best.min(span / calls as f64);
            }
        }
    }
    Ok(best)
}

fn on_threads(operation: &str, ranks: usize, bytes: usize) -> Result<[f64; 2]> {
    let comms = LocalGroup::threads(ranks)?;
    std::thread::scope(|scope| {
        let measuring: Vec<_> = comms
            .into_iter()
            .map(|mut comm| {
                scope.spawn(move || {
                    let [mut from, mut to] = [vec![0; bytes], vec![0; bytes]];
                    let mut own = vec![1; bytes / 4 / ranks * 4];
                    measure(&mut comm, operation, bytes, [&mut from, &mut to, &mut own])
                })
            })
            .collect();
        let mut times = measuring.into_iter().map(|rank| rank.join().expect("a rank that measures"));
        times.next().expect("a first rank")
    })
}

fn on_processes(how: &str, operation: &str, ranks: usize, bytes: usize, slot_bytes: usize) -> Result<[f64; 2]> {
    let group = LocalGroup::processes(ranks, LocalOptions { slot_bytes, ..LocalOptions::default() })?;
    let memories: Vec<_> = (0..ranks).map(|_| SharedMemory::create(1 << 40)).collect::<Result<_, _>>()?;
    let shared: Vec<_> = memories.iter().filter_map(|memory| memory.fd()).filter(|_| how == "processes").collect();
    let fds: Vec<_> = std::iter::once(group.fd()).chain(shared).collect();
    let mut processes = Vec::new();
    for rank in 0..ranks {
        let (ours, theirs) = Socket::pair()?;
        let process = Command::new(std::env::current_exe()?)
            .args([AS_RANK, operation, &bytes.to_string(), &rank.to_string(), &ranks.to_string()])
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .spawn()?;
        ours.send(b"join", &fds, None)?;
        processes.push(process);
    }
    let outputs: Vec<_> = processes.into_iter().map(|process| process.wait_with_output()).collect::<Result<_, _>>()?;
    let line = String::from_utf8(outputs[0].stdout.clone())?;
    let (ours, bound) = line.trim().split_once(' ').ok_or("a rank that did not measure")?;
    Ok([ours.parse()?, bound.parse()?])
}

/// Measures as one rank of a group of processes.
fn as_rank(mut args: impl Iterator<Item = String>) -> Result<()> {
    let operation = args.next().ok_or("no operation")?;
    let mut number = || args.next().and_then(|text| text.parse::<usize>().ok()).ok_or("no number");
    let (bytes, rank, ranks) = (number()?, number()?, number()?);
    let socket = Socket::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let received = socket.recv(&mut [0; 4], MESSAGE_FDS_MAX, None)?;
    let mut fds = received.fds.into_iter();
    let group = fds.next().ok_or("no group")?;
    let memories: Vec<Arc<SharedMemory>> = fds.map(SharedMemory::open).collect::<Result<_, _>>()?;
    let own = memories.get(rank).map_or_else(|| SharedMemory::create(1 << 40), |memory| Ok(memory.clone()))?;
    let lengths = [bytes, bytes, bytes / 4 / ranks * 4];
    let mut at = own.segment().as_ptr();
    let buffers = lengths.map(|len| {
        // SAFETY: the three ranges lie in this rank's memory and do not overlap. The memory stays mapped as long as
        // `own` lives, and the other ranks access it within calls of the communicator only.
        let buffer = unsafe { std::slice::from_raw_parts_mut(at, len) };
        at = at.wrapping_add(len.next_multiple_of(4096));
        buffer.fill(1);
        buffer
    });
    let mut comm = LocalCommunicator::join_sharing(group, rank, PATIENCE_DEFAULT, memories, None)?;
    let [ours, bound] = measure(&mut comm, &operation, bytes, buffers)?;
    println!("{ours:.9} {bound:.9}");
    Ok(())
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let how = args.next();
    if how.as_deref() == Some(AS_RANK) {
        return as_rank(args);
    }
    let operation = args.next();
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
                    let [ours, bound] = match how {
                        "threads" => on_threads(operation, ranks, bytes)?,
                        _ => on_processes(how, operation, ranks, bytes, slot_bytes)?,
                    };
                    println!("{how} {operation} {ranks} {bytes} {ours:.9} {bound:.9} {:.2}", bound / ours);
                }
            }
        }
    }
    Ok(())
}
