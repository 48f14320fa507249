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
}

impl WorkerKind {
    const ALL: [WorkerKind; 2] = [WorkerKind::Cpu, WorkerKind::ProcCpu];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            WorkerKind::Cpu => "cpu",
            WorkerKind::ProcCpu => "proc-cpu",
        }
    }
}

/// Which workers: the kind of each, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers(pub Vec<WorkerKind>);

/// Workers of all kinds, at most.
const WORKERS_MAX: usize = 64;

impl FromStr for Workers {
    type Err = String;
    fn from_str(text: &str) -> Result<Workers, String> {
        let mut workers = Vec::new();
        for part in text.split(',') {
            let (name, count) = part.split_once(':').unwrap_or((part, "1"));
            let kind = WorkerKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                format!("`{name}` is no kind of worker: write cpu or proc-cpu, as in cpu:2 or cpu:1,proc-cpu:1")
            })?;
            let count: usize =
                count.parse().map_err(|_| format!("`{count}` is no number of workers: write {name}:1 or {name}:2"))?;
            if count == 0 || count > WORKERS_MAX - workers.len() {
                return Err(format!(
                    "`{text}` asks for {count} workers of {name}; 1 to {WORKERS_MAX} in all are possible"
                ));
            }
            workers.extend(std::iter::repeat_n(kind, count));
        }
        Ok(Workers(workers))
    }
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
        use WorkerKind::{Cpu, ProcCpu};
        for (text, kinds) in [
            ("cpu", vec![Cpu]),
            ("cpu:2", vec![Cpu; 2]),
            ("proc-cpu", vec![ProcCpu]),
            ("cpu:1,proc-cpu:2,cpu", vec![Cpu, ProcCpu, ProcCpu, Cpu]),
            ("cpu:64", vec![Cpu; 64]),
        ] {
            assert_eq!(text.parse(), Ok(Workers(kinds)), "{text}");
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
        ] {
            let error = text.parse::<Workers>().unwrap_err();
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
