//! The side of a worker that comes by itself: `gtd worker --connect`, which `python -m gt.worker` runs.
//!
//! It finds the daemon as a client does, says hello as a worker, and is what [`child`] is from then on. Nobody ends it
//! with the daemon, so a thread watches: for the daemon's end, and for Ctrl-C.

use super::child;
use crate::devices;
use gt_backend::Site;
use gt_bridge::{handshake, token};
use gt_config::WorkerKind;
use gt_cpu::CpuOptions;
use gt_protocol::address::named_address;
use gt_protocol::path::SYSTEM_SOCKET;
use gt_protocol::{Address, Hello, Role, WorkerOffer};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::convert::Infallible;
use std::error::Error;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What such a worker has.
pub struct Registration {
    /// What it wants to be called.
    pub name: Option<String>,
    /// What it computes on.
    pub device: WorkerKind,
    /// Threads that compute; one a core unless it says so.
    pub threads: Option<u32>,
    /// Bytes that its tensors may take; three quarters of the machine's, or what its device has, unless it
    /// says so.
    pub memory_bytes_limit: Option<u64>,
}

/// Works for the daemon at `address`, or the one that a client would find, until either of them ends.
///
/// # Errors
/// No daemon, or one that does not let it.
pub fn run(address: Option<Address>, offer: &Registration) -> Result<Infallible, Box<dyn Error>> {
    devices::resolve(Some(&[offer.device]), 1, |_| true, |backend| devices::survey("/proc/self/exe", backend))?;
    if offer.device.backend.site == Site::Device && offer.threads.is_some() {
        return Err(
            format!("--threads are the processor's, and --device is {}: leave one of them out", offer.device).into()
        );
    }
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    // Before any thread starts, so that all of them leave these to the one that watches.
    ends.thread_block()?;
    let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let address = match address {
        Some(address) => address,
        None => named_address()?.unwrap_or_else(|| Address::Unix(SYSTEM_SOCKET.into())),
    };
    let defaults = match offer.device.backend.site {
        Site::Host => CpuOptions::default(),
        Site::Device => CpuOptions { threads: 1, memory_bytes_limit: 0, shared: None },
    };
    let hello = Hello {
        offer: Some(WorkerOffer {
            pid: std::process::id(),
            threads: offer.threads.unwrap_or(defaults.threads as u32),
            memory_bytes_limit: offer.memory_bytes_limit.unwrap_or(defaults.memory_bytes_limit as u64),
            device: Some(offer.device.to_string()),
        }),
        ..Hello::new(Role::Worker, offer.name.clone())
    };
    let socket = gt_protocol::connect(&socket_at(&address)?, &hello)?.socket;
    let hangs_up = socket.as_fd().try_clone_to_owned()?;
    let name = address.to_string();
    std::thread::Builder::new().name("gt-watch".into()).spawn(move || watch(&signals, &hangs_up, &name))?;
    let at = address.to_string();
    child::work(socket, move |worker| {
        // Who cannot be told works all the same.
        let _ = writeln!(std::io::stdout(), "joined the daemon at {at} as worker {worker}; Ctrl-C leaves");
    })
    .unwrap_or_else(|error| end(1, &format!("gtd worker: {error}")));
    end(1, &ended(&address.to_string()))
}

/// Says why, and ends the process: once.
#[expect(clippy::print_stderr, reason = "a program that ends says why")]
fn end(status: i32, why: &str) -> ! {
    static ENDING: Mutex<()> = Mutex::new(());
    let _first = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    eprintln!("{why}");
    std::process::exit(status)
}

/// The Unix socket of the daemon at `address`: what a worker shares with others is memory.
fn socket_at(address: &Address) -> Result<PathBuf, Box<dyn Error>> {
    match address {
        Address::Unix(path) => Ok(path.clone()),
        Address::Tcp { host, port } => {
            let token = token::client_token(None)?;
            let hello = Hello::new(Role::Worker, None);
            Ok(Path::new(&handshake::ask_socket(host, *port, &token, hello)?).to_owned())
        }
        Address::Private => Err("a private daemon belongs to a program, and takes no workers: name another with \
                                 --connect unix:/run/gt/gtd.sock or -p PORT"
            .into()),
    }
}

fn ended(address: &str) -> String {
    format!("gtd worker: the daemon at {address} has ended, or has ended this worker")
}

/// Ends the process when somebody asks for that, or when the daemon hangs up.
fn watch(signals: &SignalFd, hangs_up: &OwnedFd, address: &str) {
    loop {
        let mut fds = [PollFd::new(signals, PollFlags::IN), PollFd::new(hangs_up, PollFlags::RDHUP)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            Err(error) => return tracing::error!(target: "gtd::worker", %error, "the daemon cannot be watched"),
            Ok(_) => {}
        }
        if !fds[0].revents().is_empty() {
            end(0, &format!("left the daemon at {address}"));
        }
        if !fds[1].revents().is_empty() {
            end(1, &ended(address));
        }
    }
}
