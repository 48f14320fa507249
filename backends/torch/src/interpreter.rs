//! The Python process: which Python, how it gets its program, and what it says of its device.

use crate::connection::ProcessConnection;
use gt_ops::Op;
use gt_ops::row::ROWS;
use gt_shm::Arena;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The setting that names the Python whose PyTorch computes.
pub const PYTHON_SETTING: &str = "GT_TORCH_PYTHON";
/// How long PyTorch may take to be imported: seconds from a warm disk, a minute and more from a cold one.
pub const START_DEADLINE: Duration = Duration::from_secs(180);
/// The size of the memory through which tensor bytes travel. Pages that no transfer has used take no memory.
pub const STAGING_BYTES: u64 = 64 << 20;

/// The modules of the Python program, in the order in which they are imported.
const SOURCES: [(&str, &str); 9] = [
    ("checks", include_str!("../python/checks.py")),
    ("elementwise", include_str!("../python/elementwise.py")),
    ("structure", include_str!("../python/structure.py")),
    ("reductions", include_str!("../python/reductions.py")),
    ("windows", include_str!("../python/windows.py")),
    ("rows", include_str!("../python/rows.py")),
    ("alignments", include_str!("../python/alignments.py")),
    ("philox", include_str!("../python/philox.py")),
    ("worker", include_str!("../python/worker.py")),
];

/// The program that Python is started with: it reads the modules from its standard input, which is the socket. Its
/// standard output is the shared memory, so what it prints goes to standard error.
const BOOTSTRAP: &str = include_str!("../python/bootstrap.py");

/// How the process is started.
#[derive(Clone, Debug)]
pub struct InterpreterOptions {
    /// The program to run.
    pub python: PathBuf,
    /// The device, as PyTorch names it, or `hip:0` for a device of AMD's, which PyTorch calls `cuda:0`.
    pub device: String,
    /// Whether errors that depend on elements are looked for later even where the device would tell at once: for tests.
    pub deferred: bool,
}

impl InterpreterOptions {
    /// The Python that [`PYTHON_SETTING`] names, else one beside this program, else the first in PATH.
    pub fn on(device: String) -> InterpreterOptions {
        let named = std::env::var_os(PYTHON_SETTING).filter(|name| !name.is_empty()).map(PathBuf::from);
        let beside = || std::env::current_exe().ok().map(|gtd| gtd.with_file_name("python3")).filter(|p| p.exists());
        let python = named.or_else(beside).unwrap_or_else(|| "python3".into());
        InterpreterOptions { python, device, deferred: false }
    }
}

/// The first message to the process.
#[derive(Serialize)]
struct Setup<'a> {
    sources: [(&'a str, &'a str); SOURCES.len()],
    device: &'a str,
    deferred: bool,
    staging_bytes: u64,
    /// Every op's number and name.
    ops: Vec<(u16, &'a str)>,
}

/// The device, as the process describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct DeviceReport {
    /// PyTorch's version.
    pub torch: String,
    /// The product name.
    pub name: String,
    /// The device's memory in bytes, or the machine's.
    pub memory_bytes: u64,
    /// Compute capability, major and minor; zeros for a device without one.
    pub capability: (u32, u32),
    /// The number of multiprocessors, or 0.
    pub multiprocessors: u32,
    /// The names of the ops that the program has no function for.
    pub missing: Vec<String>,
}

/// The process's answer to the setup.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Ready(DeviceReport),
    Error(String),
}

/// Starts the process and waits until PyTorch is ready.
///
/// # Errors
/// Why it is not, as a sentence that says what to do.
pub fn start(options: &InterpreterOptions) -> Result<(ProcessConnection, Arena, DeviceReport), String> {
    let python = options.python.display();
    let told =
        |error: &dyn std::fmt::Display| format!("{python}, which is to run PyTorch, could not be started: {error}");
    let (ours, theirs) = UnixStream::pair().map_err(|error| told(&error))?;
    let (staging, staging_fd) = Arena::create(STAGING_BYTES).map_err(|error| told(&error))?;
    let process = Command::new(&options.python)
        .args(["-c", BOOTSTRAP])
        .stdin(OwnedFd::from(theirs))
        .stdout(staging_fd)
        .spawn()
        .map_err(|error| {
            format!("{}; install Python with PyTorch, or name the Python that has it in {PYTHON_SETTING}", told(&error))
        })?;
    let mut connection = ProcessConnection::new(process, ours).map_err(|error| told(&error))?;
    let setup = Setup {
        sources: SOURCES,
        device: &options.device,
        deferred: options.deferred,
        staging_bytes: staging.len(),
        // Clients compute this one; it makes no instruction.
        ops: ROWS.iter().filter(|row| row.op != Op::Reinterpret).map(|row| (row.op as u16, row.name)).collect(),
    };
    let text = serde_json::to_vec(&setup).map_err(|error| told(&error))?;
    let frame = [&(text.len() as u32).to_le_bytes(), text.as_slice()].concat();
    let reply = connection.send(&frame).and_then(|()| connection.first_frame(START_DEADLINE));
    let reply = reply.map_err(|error| told(&error))?;
    match serde_json::from_slice(&reply).map_err(|error| told(&error))? {
        Reply::Ready(report) => Ok((connection, staging, report)),
        Reply::Error(why) => Err(why),
    }
}
