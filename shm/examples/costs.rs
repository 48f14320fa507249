//! Measures the crate's operations on this machine: nanoseconds per operation, best of several passes.
//!
//! ```sh
//! cargo run --release --package gt-shm --example costs
//! ```
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use gt_shm::{Arena, ArenaAllocator, ClientPort, DaemonPort, Slot, broadcast, fifo};
use std::hint::black_box;
use std::time::{Duration, Instant};

type AnyError = Box<dyn std::error::Error>;

const PASSES: usize = 7;
const SQ_SLOTS: u32 = 4096;
const CQ_SLOTS: u32 = 512;
const SPIN: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time per operation of the fastest of `PASSES` passes of `count` operations.
fn least_ns(count: u32, mut pass: impl FnMut()) -> f64 {
    let times = (0..PASSES).map(|_| {
        let start = Instant::now();
        pass();
        start.elapsed()
    });
    times.min().unwrap_or_default().as_secs_f64() * 1e9 / f64::from(count)
}

fn session() -> Result<(DaemonPort, ClientPort), AnyError> {
    let (daemon, fds) = DaemonPort::create(SQ_SLOTS, CQ_SLOTS)?;
    Ok((daemon, ClientPort::connect(fds, SQ_SLOTS, CQ_SLOTS)?))
}

/// Both ends run on one thread, so that the times contain no transfers of cache lines between cores.
fn on_one_thread() -> Result<(), AnyError> {
    let (mut daemon, mut client) = session()?;
    let mut buffer = [Slot::default(); 64];
    let mut submit_ns = f64::MAX;
    let mut pop_ns = f64::MAX;
    for _ in 0..PASSES * 20 {
        let start = Instant::now();
        for n in 0..SQ_SLOTS {
            let _ = client.push_publish(black_box(&[[u64::from(n); 8]]));
        }
        submit_ns = submit_ns.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(SQ_SLOTS));
        let start = Instant::now();
        while daemon.pop(&mut buffer)? > 0 {
            black_box(&mut buffer);
        }
        pop_ns = pop_ns.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(SQ_SLOTS));
    }
    println!("submit one slot and publish it: {submit_ns:.1} ns");
    println!("pop one slot, in batches of 64: {pop_ns:.1} ns");

    let (mut writer, _fd) = broadcast::create("gt-costs", 1 << 12)?;
    let record_ns = least_ns(1 << 16, || (0..1 << 16).for_each(|n| writer.write(black_box(&[n; 7]))));
    println!("write one broadcast record: {record_ns:.1} ns");

    let allocator = ArenaAllocator::new();
    let (arena, fd) = Arena::create(64 << 20)?;
    allocator.add(fd, arena.len())?;
    for bytes in [64, 4096, 1 << 20] {
        let alloc_ns = least_ns(10_000, || {
            for _ in 0..10_000 {
                let _ = black_box(allocator.alloc(bytes));
            }
        });
        println!("allocate and free {bytes} arena bytes: {alloc_ns:.1} ns");
    }
    first_touch()
}

/// Measures a copy to new pages of an arena, as the first upload makes, and a copy to resident pages.
fn first_touch() -> Result<(), AnyError> {
    const BYTES: u64 = 64 << 20;
    let from = vec![1; BYTES as usize];
    let (arena, fd) = Arena::create(BYTES)?;
    let allocator = ArenaAllocator::new();
    allocator.add(fd, arena.len())?;
    let mut block = allocator.alloc(BYTES)?;
    for which in ["first", "second"] {
        let start = Instant::now();
        block.write(&from);
        let gb_s = BYTES as f64 / start.elapsed().as_secs_f64() / 1e9;
        println!("{which} copy into 64 MiB of an arena: {gb_s:.1} GB/s");
    }
    Ok(())
}

fn across_threads() -> Result<(), AnyError> {
    const STREAM: u32 = 1_000_000;
    for publish_every in [1, 32] {
        let (mut sender, mut receiver) = fifo(SQ_SLOTS);
        let receiving = std::thread::spawn(move || {
            let mut buffer = [Slot::default(); 64];
            let mut left = STREAM as usize;
            while left > 0 {
                match receiver.pop(&mut buffer) {
                    Ok(0) => drop(receiver.wait(SPIN, TIMEOUT)),
                    Ok(count) => left -= count,
                    Err(_) => return,
                }
            }
        });
        let start = Instant::now();
        for n in 0..STREAM {
            while sender.push(&[[u64::from(n); 8]]).is_err() {
                sender.publish();
                std::thread::yield_now();
            }
            if n % publish_every == 0 {
                sender.publish();
            }
        }
        sender.publish();
        let _ = receiving.join();
        let ns = start.elapsed().as_secs_f64() * 1e9 / f64::from(STREAM);
        println!("stream to another thread, publishing every {publish_every}: {ns:.1} ns a slot");
    }
    Ok(())
}

fn round_trip() -> Result<(), AnyError> {
    const ROUND_TRIPS: usize = 100_000;
    let (mut daemon, mut client) = session()?;
    let serving = std::thread::spawn(move || {
        let mut buffer = [Slot::default(); 64];
        let mut left = ROUND_TRIPS;
        while left > 0 {
            let Ok(count) = daemon.pop(&mut buffer) else { return };
            for slot in &buffer[..count] {
                let _ = daemon.complete(*slot);
            }
            daemon.flush_completions();
            left -= count;
        }
    });
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    for n in 0..ROUND_TRIPS as u64 {
        let start = Instant::now();
        client.push_publish(&[[n; 8]])?;
        client.wait_completion(SPIN, TIMEOUT).ok_or("no answer")?;
        times.push(start.elapsed());
    }
    let _ = serving.join();
    times.sort_unstable();
    println!("round trip through a session, both sides spinning: {} ns median", times[ROUND_TRIPS / 2].as_nanos());
    Ok(())
}

fn main() -> Result<(), AnyError> {
    on_one_thread()?;
    across_threads()?;
    round_trip()
}
