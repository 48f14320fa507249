//! The process of a worker that registers itself: `gtd worker --connect`, which `python -m gt.worker` runs.
//!
//! The process finds the daemon as a client does, sends a [`Hello`] with the role of a worker, and continues as
//! [`child`]. The kernel does not kill it when the daemon ends, so a thread watches for that, and for Ctrl-C.

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
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The worker that offers itself to a daemon.
pub struct Registration {
    /// The name that the worker asks for.
    pub name: Option<String>,
    /// The device that it computes on.
    pub device: WorkerKind,
    /// The number of computing threads; one per core by default.
    pub threads: Option<u32>,
    /// The limit of memory for tensors, bytes; by default three quarters of the host's, or all of the device's.
    pub memory_bytes_limit: Option<u64>,
}

/// Works for the daemon at `address`, or the one that a client would find, until the worker or the daemon ends.
///
/// # Errors
/// There is no daemon, or it refuses the worker.
pub fn run(address: Option<Address>, offer: &Registration) -> Result<Infallible, Box<dyn Error>> {
    devices::resolve(Some(&[offer.device]), 1, |_| true, |backend| devices::survey("/proc/self/exe", backend))?;
    if offer.device.backend.site == Site::Device && offer.threads.is_some() {
        return Err(
            format!("--threads are the processor's, and --device is {}: leave one of them out", offer.device).into()
        );
    }
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    // All threads inherit the mask, so it is set before any starts: only the watching thread takes these signals.
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
            node: None,
        }),
        ..Hello::new(Role::Worker, offer.name.clone())
    };
    let socket = gt_protocol::connect(&socket_at(&address)?, &hello)?.socket;
    let hangs_up = socket.as_fd().try_clone_to_owned()?;
    let name = address.to_string();
    // Why the worker cannot compute, which the daemon hears before this process ends and then hangs up.
    let refusal = Arc::new(OnceLock::new());
    let refused = refusal.clone();
    let ended_why = move || refused.get().cloned().unwrap_or_else(|| ended(&name));
    let at = address.to_string();
    std::thread::Builder::new().name("gt-watch".into()).spawn(move || watch(&signals, &hangs_up, &at, &ended_why))?;
    let at = address.to_string();
    child::work(socket, move |told| match told {
        // The worker works even if its standard output is closed.
        Ok(worker) => {
            let _ = writeln!(std::io::stdout(), "joined the daemon at {at} as worker {worker}; Ctrl-C leaves");
        }
        Err(why) => {
            let _ = refusal.set(format!("gtd worker: {why}"));
        }
    })
    .unwrap_or_else(|error| end(1, &format!("gtd worker: {error}")));
    end(1, &ended(&address.to_string()))
}

/// Prints the reason and exits. If several threads call it, only the first prints.
#[expect(clippy::print_stderr, reason = "a program that ends says why")]
fn end(status: i32, why: &str) -> ! {
    static ENDING: Mutex<()> = Mutex::new(());
    let _first = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    eprintln!("{why}");
    std::process::exit(status)
}

/// The Unix socket of the daemon at `address`. A daemon at a TCP address is asked for it, since a worker shares memory
/// with its daemon and cannot work over TCP.
fn socket_at(address: &Address) -> Result<PathBuf, Box<dyn Error>> {
    match address {
        Address::Unix(path) => Ok(path.clone()),
        Address::Tcp(address) => {
            let token = token::client_token(None)?;
            let hello = Hello::new(Role::Worker, None);
            Ok(Path::new(&handshake::ask_socket(address, &token, hello)?).to_owned())
        }
        Address::Private => Err("a private daemon belongs to a program, and takes no workers: name another with \
                                 --connect unix:/run/gt/gtd.sock or -p PORT"
            .into()),
    }
}

fn ended(address: &str) -> String {
    format!("gtd worker: the daemon at {address} has ended, or has ended this worker")
}

/// Ends the process on a signal, or when the daemon hangs up.
fn watch(signals: &SignalFd, hangs_up: &OwnedFd, address: &str, ended_why: &dyn Fn() -> String) {
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
            end(1, &ended_why());
        }
    }
}
