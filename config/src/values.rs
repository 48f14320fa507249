//! Values of the configuration: quantities of memory, lists of workers, levels of the log.

use gt_backend::{BackendFacts, Site};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// The backend of a worker, whether it runs in a process, and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerKind {
    /// The backend.
    pub backend: &'static BackendFacts,
    /// True if the worker runs in a process although it could be a thread of the daemon: `proc-NAME`.
    pub process: bool,
    /// The device.
    pub device: DeviceChoice,
}

/// The device of a worker, among those of its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The backend's only device: the backend does not number devices.
    Only,
    /// The device of this number.
    Number(u32),
    /// One worker on each device.
    Each,
}

/// The prefix of a backend's name for workers that run in processes although they could be threads.
const PROCESS_PREFIX: &str = "proc-";

impl WorkerKind {
    /// A worker of `backend`, on the device of this number if its devices have numbers.
    pub fn on(backend: &'static BackendFacts, number: u32) -> WorkerKind {
        let device = if backend.is_numbered { DeviceChoice::Number(number) } else { DeviceChoice::Only };
        WorkerKind { backend, process: false, device }
    }

    /// The kind that users write as `name`, without a number.
    fn named(name: &str) -> Option<WorkerKind> {
        let (process, backend) = match name.strip_prefix(PROCESS_PREFIX) {
            Some(rest) => (true, gt_backends::find(rest).filter(|backend| backend.site == Site::Host)?),
            None => (false, gt_backends::find(name)?),
        };
        let device = match (backend.is_numbered, &backend.discovery) {
            (false, _) => DeviceChoice::Only,
            (true, None) => DeviceChoice::Number(0),
            (true, Some(_)) => DeviceChoice::Each,
        };
        Some(WorkerKind { backend, process, device })
    }

    /// Whether it is a thread of the daemon.
    pub fn is_thread(self) -> bool {
        self.backend.site == Site::Host && !self.process
    }
}

impl std::fmt::Display for WorkerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = if self.process { PROCESS_PREFIX } else { "" };
        write!(f, "{prefix}{}", self.backend.name)?;
        match self.device {
            DeviceChoice::Number(number) => write!(f, ":{number}"),
            DeviceChoice::Only | DeviceChoice::Each => Ok(()),
        }
    }
}

/// The workers to run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerKinds(pub Vec<WorkerKind>);

/// The most workers of all kinds together, those of nodes not counted.
const WORKERS_MAX: usize = 64;

impl FromStr for WorkerKinds {
    type Err = String;
    fn from_str(text: &str) -> Result<WorkerKinds, String> {
        let mut workers: Vec<WorkerKind> = Vec::new();
        for part in text.split(',') {
            // A number alone is one more device of the backend named before it, as in cuda:0,1.
            let before = workers.last().filter(|kind| matches!(kind.device, DeviceChoice::Number(_)));
            let (name, number) = match before.filter(|_| part.parse::<u32>().is_ok()) {
                Some(kind) => (kind.backend.name, Some(part)),
                None => split(part),
            };
            let kind = WorkerKind::named(name).ok_or_else(|| unknown_kind(name))?;
            let (kind, count) = match (kind.device, number) {
                (DeviceChoice::Only, count) => (kind, counted(name, count.unwrap_or("1"))?),
                (_, None) => (kind, 1),
                (_, Some(number)) => (WorkerKind { device: numbered(name, number)?, ..kind }, 1),
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

fn counted(name: &str, count: &str) -> Result<usize, String> {
    count.parse().map_err(|_| format!("`{count}` is no number of workers: write {name}:1 or {name}:2"))
}

fn numbered(name: &str, number: &str) -> Result<DeviceChoice, String> {
    number
        .parse()
        .map(DeviceChoice::Number)
        .map_err(|_| format!("`{number}` is no number of a device: write {name} for all, or {name}:0, or {name}:0,1"))
}

/// Parses the name of one device, such as `cuda:0`.
///
/// # Errors
/// A text that names none, or several.
pub fn device(text: &str) -> Result<WorkerKind, String> {
    match text.parse::<WorkerKinds>()?.0[..] {
        [kind @ WorkerKind { process: false, device: DeviceChoice::Only | DeviceChoice::Number(_), .. }] => Ok(kind),
        _ => Err(format!("`{text}` is not one device: write {}", device_help())),
    }
}

fn split(part: &str) -> (&str, Option<&str>) {
    part.split_once(':').map_or((part, None), |(name, number)| (name, Some(number)))
}

/// A device that occurs twice in the list.
fn twice(workers: &[WorkerKind]) -> Option<WorkerKind> {
    let mut seen: Vec<WorkerKind> = Vec::new();
    for kind in workers.iter().copied().filter(|kind| kind.device != DeviceChoice::Only) {
        let either_is_each = |other: &WorkerKind| [other.device, kind.device].contains(&DeviceChoice::Each);
        let shared = |other: &WorkerKind| other.backend == kind.backend && (either_is_each(other) || *other == kind);
        if seen.iter().any(shared) {
            return Some(kind);
        }
        seen.push(kind);
    }
    None
}

/// The backends that help texts name: all but those for tests.
fn told() -> impl Iterator<Item = &'static BackendFacts> {
    gt_backends::BACKENDS.iter().copied().filter(|facts| !facts.help.is_empty())
}

/// Joins words as in `a, b or c`.
fn any_of(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}

fn unknown_kind(name: &str) -> String {
    let (mut names, mut examples) = (Vec::new(), Vec::new());
    for facts in told() {
        names.push(facts.name.to_owned());
        if facts.site == Site::Host {
            names.push(format!("{PROCESS_PREFIX}{}", facts.name));
        }
        examples.push(format!("{}:{}", facts.name, if facts.is_numbered { "0,1" } else { "2" }));
    }
    format!("`{name}` is no kind of worker: write {}, as in {}", any_of(&names), any_of(&examples))
}

/// How one device is written: "cpu, or cuda:0 with the number of the device".
pub fn device_help() -> String {
    let written = |facts: &BackendFacts| match facts.is_numbered {
        true => format!("{}:0 with the number of the device", facts.name),
        false => facts.name.to_owned(),
    };
    told().map(written).collect::<Vec<_>>().join(", or ")
}

/// How every kind of worker is written, a clause for each backend.
pub fn workers_help() -> String {
    told().map(|facts| facts.help).collect::<Vec<_>>().join("; ")
}

/// The workers that run if the user names none: "cuda where there is an NVIDIA device, otherwise cpu:1".
pub fn workers_default() -> String {
    let devices = told().filter_map(|facts| Some((facts.name, facts.discovery.as_ref()?)));
    let taken = devices.map(|(name, discovery)| format!("{name} where there is {}, otherwise ", discovery.product));
    format!("{}{}:1", taken.collect::<String>(), gt_backends::host().name)
}

/// Parses an address to listen at: `12345` on loopback, or `127.0.0.1:12345`.
///
/// # Errors
/// A text that is no address.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let found = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    found.ok_or_else(|| format!("`{text}` is no address to listen at: write 12345, or 127.0.0.1:12345"))
}

/// The address of metrics, which is one of loopback: they travel without TLS and without a token.
///
/// # Errors
/// A text that is no address, or an address that other machines could reach.
pub fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let address = listen_address(text)?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!(
        "other machines could reach {address}, and metrics travel without TLS and without a token: write a port, which is \
         on loopback, and let a proxy or Prometheus on this machine pass them on"
    ))
}

/// A number of bytes, written alone or with a suffix K, M, G or T: powers of 1024.
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

/// A log level: its messages and all that are more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Failures of the daemon.
    Error,
    /// Failures of others: a client that breaks the rules, a worker that died.
    Warn,
    /// Events: sessions that begin and end, quotas that change.
    Info,
    /// Details of the daemon's work.
    Debug,
    /// Details of each instruction.
    Trace,
}

impl Level {
    const ALL: [Level; 5] = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];

    /// The name, as users write it.
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
        let kind = |name| WorkerKind::named(name).unwrap();
        let (cpu, proc_cpu, each_cuda, emulated) = (kind("cpu"), kind("proc-cpu"), kind("cuda"), kind("emulated-cuda"));
        let cuda = |number| WorkerKind::on(each_cuda.backend, number);
        let torch_cuda = |number| WorkerKind::on(kind("torch-cuda").backend, number);
        for (text, kinds) in [
            ("cpu", vec![cpu]),
            ("cpu:2", vec![cpu; 2]),
            ("proc-cpu", vec![proc_cpu]),
            ("cpu:1,proc-cpu:2,cpu", vec![cpu, proc_cpu, proc_cpu, cpu]),
            ("cpu:64", vec![cpu; 64]),
            ("cuda", vec![each_cuda]),
            ("cuda:1", vec![cuda(1)]),
            ("cuda:0,2,1", vec![cuda(0), cuda(2), cuda(1)]),
            ("cpu:1,cuda:0,1,cpu", vec![cpu, cuda(0), cuda(1), cpu]),
            ("emulated-cuda:2", vec![emulated; 2]),
            ("torch-cpu:2", vec![kind("torch-cpu"); 2]),
            // Devices that are numbered but not looked for: the first, or those with these numbers.
            ("torch-cuda", vec![torch_cuda(0)]),
            ("torch-cuda:1,0", vec![torch_cuda(1), torch_cuda(0)]),
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
