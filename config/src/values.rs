//! What values look like: quantities of memory, lists of workers, levels of the log.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Where a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerKind {
    /// On the processor, in a thread of the daemon.
    Cpu,
    /// On the processor, in a process of its own.
    ProcCpu,
    /// On the NVIDIA device of this number, in a process of its own.
    Cuda(u32),
    /// On NVIDIA's devices, one worker each.
    EachCuda,
    /// As on an NVIDIA device, whose kernels the processor runs: for tests.
    EmulatedCuda,
}

impl WorkerKind {
    /// Those of which one asks for a number of workers.
    const COUNTED: [WorkerKind; 3] = [WorkerKind::Cpu, WorkerKind::ProcCpu, WorkerKind::EmulatedCuda];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            WorkerKind::Cpu => "cpu",
            WorkerKind::ProcCpu => "proc-cpu",
            WorkerKind::Cuda(_) | WorkerKind::EachCuda => "cuda",
            WorkerKind::EmulatedCuda => "emulated-cuda",
        }
    }
}

impl std::fmt::Display for WorkerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WorkerKind::Cuda(number) => write!(f, "cuda:{number}"),
            kind => f.write_str(kind.name()),
        }
    }
}

/// Which workers: the kind of each, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerKinds(pub Vec<WorkerKind>);

/// WorkerKinds of all kinds, at most.
const WORKERS_MAX: usize = 64;

impl FromStr for WorkerKinds {
    type Err = String;
    fn from_str(text: &str) -> Result<WorkerKinds, String> {
        let mut workers = Vec::new();
        for part in text.split(',') {
            // A number alone is one more device, as in cuda:0,1.
            let more = matches!(workers.last(), Some(WorkerKind::Cuda(_))) && part.parse::<u32>().is_ok();
            let (name, number) = if more { ("cuda", Some(part)) } else { split(part) };
            let (kind, count) = match (name, number) {
                ("cuda", None) => (WorkerKind::EachCuda, 1),
                ("cuda", Some(number)) => {
                    let number = number.parse().map_err(|_| {
                        format!("`{number}` is no number of a device: write cuda for all, or cuda:0, or cuda:0,1")
                    })?;
                    (WorkerKind::Cuda(number), 1)
                }
                (name, count) => {
                    let kind = WorkerKind::COUNTED.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                        format!("`{name}` is no kind of worker: write cpu, proc-cpu or cuda, as in cpu:2 or cuda:0,1")
                    })?;
                    let count = count.unwrap_or("1");
                    (
                        kind,
                        count
                            .parse()
                            .map_err(|_| format!("`{count}` is no number of workers: write {name}:1 or {name}:2"))?,
                    )
                }
            };
            if count == 0 || count > WORKERS_MAX - workers.len() {
                return Err(format!(
                    "`{text}` asks for {count} workers of {name}; 1 to {WORKERS_MAX} in all are possible"
                ));
            }
            workers.extend(std::iter::repeat_n(kind, count));
        }
        match twice(&workers) {
            Some(kind) => Err(format!("`{text}` asks for {kind} twice: a device has one worker")),
            None => Ok(WorkerKinds(workers)),
        }
    }
}

/// The one device that a worker computes on.
///
/// # Errors
/// What is none, or several.
pub fn device(text: &str) -> Result<WorkerKind, String> {
    match text.parse::<WorkerKinds>()?.0[..] {
        [kind @ (WorkerKind::Cpu | WorkerKind::Cuda(_) | WorkerKind::EmulatedCuda)] => Ok(kind),
        _ => Err(format!("`{text}` is not one device: write cpu, or cuda:0 with the number of the device")),
    }
}

fn split(part: &str) -> (&str, Option<&str>) {
    part.split_once(':').map_or((part, None), |(name, number)| (name, Some(number)))
}

/// A device that two workers would have.
fn twice(workers: &[WorkerKind]) -> Option<WorkerKind> {
    let devices = |kind: &WorkerKind| matches!(kind, WorkerKind::Cuda(_) | WorkerKind::EachCuda);
    let mut seen: Vec<WorkerKind> = Vec::new();
    for kind in workers.iter().copied().filter(devices) {
        let shared = |other: &WorkerKind| [*other, kind].contains(&WorkerKind::EachCuda) || *other == kind;
        if seen.iter().any(shared) {
            return Some(kind);
        }
        seen.push(kind);
    }
    None
}

/// An address: `12345` on loopback, or `127.0.0.1:12345`.
///
/// # Errors
/// If it is none.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let found = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    found.ok_or_else(|| format!("`{text}` is no address to listen at: write 12345, or 127.0.0.1:12345"))
}

/// A number of bytes, written with a suffix K, M, G or T (of 1024) or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let suffixes = ["", "K", "M", "G", "T"];
        let (mut number, mut power) = (self.0, 0);
        while power + 1 < suffixes.len() && number != 0 && number.is_multiple_of(1024) {
            (number, power) = (number / 1024, power + 1);
        }
        write!(f, "{number}{}", suffixes[power])
    }
}

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Bytes, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(format!("`{text}` is no number of bytes: write 512M or 8G")),
        };
        let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no number of bytes: write 512M or 8G"))?;
        number
            .checked_shl(shift)
            .filter(|bytes| bytes >> shift == number)
            .map(Bytes)
            .ok_or_else(|| format!("`{text}` is more than any machine has"))
    }
}

/// How much the daemon says: what is on one level, and what is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only what failed.
    Error,
    /// And what is wrong with somebody's doing: a client that breaks the rules, a worker that died.
    Warn,
    /// And what happens: sessions that begin and end, limits that change.
    Info,
    /// And all about the daemon's insides,
    Debug,
    /// each instruction included.
    Trace,
}

impl Level {
    const ALL: [Level; 5] = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Level, String> {
        let known = Level::ALL.into_iter().find(|level| level.name() == text);
        known.ok_or_else(|| format!("`{text}` is no level: write error, warn, info, debug or trace"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_suffixes() {
        for (text, bytes) in [("512", 512), ("3K", 3 << 10), ("512M", 512 << 20), ("8G", 8 << 30), ("1GiB", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for text in ["", "G", "1X", "-1", "99999999T", "1.5G"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn workers_name_their_kind() {
        use WorkerKind::{Cpu, Cuda, EachCuda, EmulatedCuda, ProcCpu};
        for (text, kinds) in [
            ("cpu", vec![Cpu]),
            ("cpu:2", vec![Cpu; 2]),
            ("proc-cpu", vec![ProcCpu]),
            ("cpu:1,proc-cpu:2,cpu", vec![Cpu, ProcCpu, ProcCpu, Cpu]),
            ("cpu:64", vec![Cpu; 64]),
            ("cuda", vec![EachCuda]),
            ("cuda:1", vec![Cuda(1)]),
            ("cuda:0,2,1", vec![Cuda(0), Cuda(2), Cuda(1)]),
            ("cpu:1,cuda:0,1,cpu", vec![Cpu, Cuda(0), Cuda(1), Cpu]),
            ("emulated-cuda:2", vec![EmulatedCuda; 2]),
        ] {
            assert_eq!(text.parse(), Ok(WorkerKinds(kinds)), "{text}");
        }
        for (text, why) in [
            ("", "is no kind of worker"),
            ("tpu:1", "`tpu` is no kind of worker"),
            ("cpu,", "`` is no kind of worker"),
            ("cpu:x", "`x` is no number of workers"),
            ("cpu:", "is no number of workers"),
            ("cpu:-1", "is no number of workers"),
            ("cpu:0", "1 to 64 in all are possible"),
            ("cpu:65", "1 to 64 in all are possible"),
            ("cpu:60,proc-cpu:5", "1 to 64 in all are possible"),
            ("cuda:", "is no number of a device"),
            ("cuda:x", "is no number of a device"),
            ("cuda:-1", "is no number of a device"),
            ("cuda,1", "`1` is no kind of worker"),
            ("cuda:0,cpu,1", "`1` is no kind of worker"),
            ("cuda:0,0", "asks for cuda:0 twice"),
            ("cuda,cuda:0", "asks for cuda:0 twice"),
            ("cuda:1,cuda", "asks for cuda twice"),
        ] {
            let error = text.parse::<WorkerKinds>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_the_same() {
        for (bytes, text) in [(0, "0"), (1000, "1000"), (3 << 10, "3K"), (8 << 30, "8G"), (2048 << 40, "2048T")] {
            assert_eq!(Bytes(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        for (text, address) in [
            ("12345", "127.0.0.1:12345"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:12345", "[::1]:12345"),
        ] {
            assert_eq!(listen_address(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in ["", "x", "65536", "127.0.0.1", "127.0.0.1:"] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }
}
