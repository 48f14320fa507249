//! A benchmark of a daemon with a thousand idle sessions: processor time, and memory for each session.
//!
//!     cargo run --release --package gtd --example crowd

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints, and ends where it cannot go on")]

#[expect(dead_code, reason = "made for the tests")]
#[path = "../tests/daemon/support.rs"]
mod support;

use gt_protocol::{Hello, QuotaChange, Role, Setting};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::{Duration, Instant};
use support::{Client, Gtd};

const SESSIONS: u32 = 1000;
/// A time after which every session is cold.
const SETTLE: Duration = Duration::from_secs(6);
const WATCH: Duration = Duration::from_secs(3);

fn workers() -> String {
    std::env::var("GT_WORKERS").unwrap_or_else(|_| "cpu:1".into())
}

/// The processor time of all threads of the daemon.
fn busy(gtd: &Gtd) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{}/task", gtd.child.id())).unwrap();
    let of = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap();
        Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
    };
    threads.map(|thread| of(thread.unwrap())).sum()
}

fn main() {
    // Each session takes descriptors of this process, too.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let gtd = Gtd::start(&[]);
    let hello = Hello::new(Role::Control, None);
    let control = gt_protocol::connect(&gtd.folder.socket(), &hello).unwrap();
    let change = QuotaChange { sessions: Some(Setting::To(SESSIONS)), ..QuotaChange::default() };
    gt_protocol::ask_set_limits(&control.socket, None, change).unwrap();
    let before = gtd.resident_bytes();
    let start = Instant::now();
    let clients: Vec<Client> = (0..SESSIONS)
        .map(|_| {
            let mut client = gtd.client();
            let one = client.full(&[1], 1.0);
            client.free(&[one]);
            client.sync();
            client
        })
        .collect();
    let opening = start.elapsed() / SESSIONS;
    let each = (gtd.resident_bytes() - before) / u64::from(SESSIONS);
    println!("{SESSIONS} sessions: {opening:?} to open and use one, {} descriptors of the daemon's", gtd.descriptors());
    std::thread::sleep(SETTLE);
    let busy_before = busy(&gtd);
    std::thread::sleep(WATCH);
    let percent = (busy(&gtd) - busy_before).as_secs_f64() / WATCH.as_secs_f64() * 100.0;
    println!("idle: {percent:.3} % of a core, {each} bytes resident for each session, rings among them");
    drop(clients);
}
