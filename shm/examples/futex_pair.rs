//! Measures a round trip between two sleepers that wake each other by a futex: the lower bound of any round trip
//! between sleeping processes on this machine. Prints medians.
//!
//! ```sh
//! cargo run --release --package gt-shm --example futex_pair
//! ```
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use gt_shm::{Access, Segment, Socket, futex};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

type AnyError = Box<dyn std::error::Error>;

const SOCKET: &str = "GT_FUTEX_PAIR_SOCKET";
const LEN: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(10);
const ROUND_TRIPS: usize = 2000;
/// The pause before each cold round trip: idle cores enter deeper sleep states, from which they wake more slowly.
const PAUSE: Duration = Duration::from_millis(20);
const ROUND_TRIPS_WITH_PAUSE: usize = 50;

/// Two words on separate cache lines: each counts the wake-ups sent to one side.
struct Pair<'a> {
    there: &'a AtomicU32,
    back: &'a AtomicU32,
}

impl<'a> Pair<'a> {
    fn new(segment: &'a Segment) -> Self {
        // SAFETY: both words are aligned and inside the mapping of one page, which outlives the borrow `'a`; both sides
        // access them only as atomics.
        unsafe {
            let base = segment.as_ptr().cast::<AtomicU32>();
            Self { there: &*base, back: &*base.add(32) }
        }
    }

    fn send(word: &AtomicU32) {
        word.fetch_add(1, Ordering::SeqCst);
        futex::wake(word, 1);
    }

    fn await_change(word: &AtomicU32, from: u32) {
        while word.load(Ordering::SeqCst) == from {
            futex::wait(word, from, Some(PATIENCE));
        }
    }

    fn answer(&self, times: usize) {
        for n in 0..times as u32 {
            Self::await_change(self.there, n);
            Self::send(self.back);
        }
    }

    /// The median round trips in microseconds, back to back and after pauses.
    fn measure(&self) -> (f64, f64) {
        let mut n = 0;
        let mut round_trip = || {
            let start = Instant::now();
            Self::send(self.there);
            Self::await_change(self.back, n);
            n += 1;
            start.elapsed()
        };
        let hot: Vec<_> = (0..ROUND_TRIPS).map(|_| round_trip()).collect();
        let idle = (0..ROUND_TRIPS_WITH_PAUSE).map(|_| {
            std::thread::sleep(PAUSE);
            round_trip()
        });
        let idle: Vec<_> = idle.collect();
        (median_us(hot), median_us(idle))
    }
}

const ANSWERS: usize = ROUND_TRIPS + ROUND_TRIPS_WITH_PAUSE;

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn report(who: &str, (hot, idle): (f64, f64)) {
    println!("futex wake pair, {who}: {hot:.2} µs");
    println!("futex wake pair, {who}, each after {} ms of idleness: {idle:.2} µs", PAUSE.as_millis());
}

fn between_processes() -> Result<(f64, f64), AnyError> {
    let (segment, fd) = Segment::create("gt-futex-pair", LEN, Access::ReadWrite, Access::ReadWrite)?.detach();
    let name = PathBuf::from(format!("@gt-futex-pair-{}", std::process::id()));
    let listener = Socket::listen(&name)?;
    let mut other = Command::new(std::env::current_exe()?).env(SOCKET, &name).spawn()?;
    let Some(socket) = listener.accept()? else {
        return Err("a blocking accept returned nobody".into());
    };
    socket.send(b"segment", &[fd.as_fd()], Some(PATIENCE))?;
    let times = Pair::new(&segment).measure();
    other.wait()?;
    Ok(times)
}

fn be_the_other(socket: &Path) -> Result<(), AnyError> {
    let received = Socket::connect(socket)?.recv(&mut [0; 16], 1, Some(PATIENCE))?;
    let fd = received.fds.into_iter().next().ok_or("no segment came")?;
    Pair::new(&Segment::map_peer(fd, LEN, Access::ReadWrite)?).answer(ANSWERS);
    Ok(())
}

fn between_threads() -> Result<(f64, f64), AnyError> {
    let segment = Segment::create("gt-futex-pair", LEN, Access::ReadWrite, Access::ReadWrite)?;
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| Pair::new(&segment).answer(ANSWERS));
        Pair::new(&segment).measure()
    }))
}

fn main() -> Result<(), AnyError> {
    if let Some(socket) = std::env::var_os(SOCKET) {
        return be_the_other(Path::new(&socket));
    }
    report("between processes", between_processes()?);
    report("between threads", between_threads()?);
    Ok(())
}
