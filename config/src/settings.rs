//! The keys of the configuration file and their settings.

use crate::values::{
    Bytes, DeviceChoice, Level, WorkerKinds, listen_address, metrics_address, workers_default, workers_help,
};
use crate::yaml::{self, About, ConfigError, Key, YamlValue};
use gt_protocol::{DeviceSet, InsecureNetwork, QuotaSettings};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::LazyLock;

/// The settings of a configuration file, `None` where it has no such key. The command line and the environment take
/// precedence over the file, and the file over the defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The workers to run.
    pub workers: Option<WorkerKinds>,
    /// Compute threads of all workers together.
    pub threads: Option<u32>,
    /// The memory limit for all tensors.
    pub memory: Option<Bytes>,
    /// True if large tensors are sharded over several workers even where the program does not ask for it by a signal.
    pub auto_shard: Option<bool>,
    /// The smallest size of the tensors that `auto_shard` shards.
    pub shard_bytes_min: Option<Bytes>,
    /// The socket at which clients connect.
    pub socket: Option<PathBuf>,
    /// The address at which clients connect by TCP.
    pub listen: Option<SocketAddr>,
    /// The file of the token that TCP clients must know.
    pub token_file: Option<PathBuf>,
    /// The file of the certificate for TLS.
    pub tls_certificate: Option<PathBuf>,
    /// The file of its key.
    pub tls_key: Option<PathBuf>,
    /// True if other machines may connect without TLS.
    pub listen_plain: Option<bool>,
    /// The address at which other machines join as nodes.
    pub nodes: Option<SocketAddr>,
    /// Where tensors travel unencrypted between machines.
    pub insecure_network: Option<InsecureNetwork>,
    /// The address of the page and the metrics, by HTTP.
    pub metrics: Option<SocketAddr>,
    /// The limit of all records of ended sessions.
    pub session_records: Option<Bytes>,
    /// False if daemons that users start themselves are asked not to use this machine's devices.
    pub private_devices: Option<bool>,
    /// The log level.
    pub log: Option<Level>,
    /// The file of the instruction log.
    pub instruction_log: Option<PathBuf>,
    /// The length at which that file is renamed and begun again.
    pub instruction_log_bytes_max: Option<Bytes>,
    /// The default quota.
    pub limits: QuotaSettings,
    /// The quotas of the members of some groups, by group id, in the order of the file.
    pub groups: Vec<(u32, QuotaSettings)>,
    /// The quotas of some users, by user id.
    pub users: BTreeMap<u32, QuotaSettings>,
    /// Every place that names devices.
    pub named_devices: Vec<NamedDevices>,
}

/// Devices that a quota names, with their place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDevices {
    /// The devices.
    pub devices: DeviceSet,
    /// The line, from 1.
    pub line: usize,
    /// The key, as `users.ana.devices`.
    pub key: String,
}

impl Settings {
    /// The number of devices that `workers` asks for, unless that depends on the machine.
    pub fn devices(&self) -> Option<usize> {
        let WorkerKinds(kinds) = self.workers.as_ref()?;
        kinds.iter().all(|kind| kind.device != DeviceChoice::Each).then_some(kinds.len())
    }

    /// Checks that a daemon with `count` devices has those that quotas name. Errors name `path` as the file.
    ///
    /// # Errors
    /// A device that the daemon does not have.
    pub fn check_devices(&self, path: &Path, count: usize) -> Result<(), ConfigError> {
        for NamedDevices { devices, line, key } in &self.named_devices {
            if let Some(text) = devices.complaint(count as u32) {
                return Err(ConfigError::Invalid { path: path.into(), line: *line, key: key.clone(), text });
            }
        }
        Ok(())
    }
}

/// Documents a key whose new value takes effect at a reload of the configuration.
const fn soon(value: &'static str, default: &'static str, text: &'static str) -> About {
    About { value, default, text, needs_start: false }
}

/// Documents a key whose new value takes effect only when the daemon starts again.
const fn at_start(value: &'static str, default: &'static str, text: &'static str) -> About {
    About { needs_start: true, ..soon(value, default, text) }
}

/// The text about the key `workers`, which names every backend.
static WORKERS_TEXT: LazyLock<String> = LazyLock::new(|| format!("Workers: {}.", workers_help()));
static WORKERS_DEFAULT: LazyLock<String> = LazyLock::new(workers_default);

/// The keys of the file.
static KEYS: LazyLock<Vec<Key<Settings>>> = LazyLock::new(|| {
    vec![
        Key {
            name: "workers",
            about: at_start("KIND:N,…", &WORKERS_DEFAULT, &WORKERS_TEXT),
            set: |to, value| value.word(&mut to.workers),
        },
        Key {
            name: "threads",
            about: at_start("1 to 4096", "one a core", "Threads that compute, all workers together."),
            set: |to, value| value.with(&mut to.threads, threads),
        },
        Key {
            name: "memory",
            about: at_start("bytes", "three quarters of the machine's", "Memory of all tensors of all sessions."),
            set: |to, value| value.word(&mut to.memory),
        },
        Key {
            name: "auto_shard",
            about: at_start(
                "on or off",
                "on",
                "Whether large tensors are sharded over several workers without a signal.",
            ),
            set: |to, value| value.with(&mut to.auto_shard, switch),
        },
        Key {
            name: "shard_bytes_min",
            about: at_start(
                "bytes",
                "4M",
                "The smallest size of tensors that auto_shard shards; with 0, everything is divided that can be.",
            ),
            set: |to, value| value.word(&mut to.shard_bytes_min),
        },
        Key {
            name: "socket",
            about: at_start(
                "path or @name",
                "/run/gt/gtd.sock",
                "The socket at which clients connect. Under systemd the unit gtd.socket names it, and this is not used.",
            ),
            set: |to, value| value.with(&mut to.socket, socket),
        },
        Key {
            name: "listen",
            about: at_start(
                "[host:]port",
                "none",
                "The address at which clients connect by TCP; they need a token. A port alone is on loopback.",
            ),
            set: |to, value| value.with(&mut to.listen, listen_address),
        },
        Key {
            name: "nodes",
            about: at_start(
                "[host:]port",
                "none",
                "The address at which other machines join as nodes, whose workers then compute for this daemon; they need \
                 an invitation of gtctl invite. A port alone is on loopback.",
            ),
            set: |to, value| value.with(&mut to.nodes, listen_address),
        },
        Key {
            name: "insecure_network",
            about: at_start(
                "off, on, rdma or ucx",
                "off",
                "Lets tensors travel unencrypted between machines, so that whoever is on the network can read and change \
                 them: by RDMA where both machines have it, and otherwise by TCP (on), by RDMA alone (rdma), or by UCX \
                 where both have it, and otherwise by TCP (ucx).",
            ),
            set: |to, value| value.word(&mut to.insecure_network),
        },
        Key {
            name: "token_file",
            about: at_start(
                "path",
                "/run/gt/token",
                "The file of the token for users of this machine, which the daemon creates if it does not exist.",
            ),
            set: |to, value| value.with(&mut to.token_file, absolute),
        },
        Key {
            name: "tls_certificate",
            about: at_start(
                "path",
                "one that the daemon makes",
                "The certificate for TLS by TCP, and those that sign it (PEM).",
            ),
            set: |to, value| value.with(&mut to.tls_certificate, absolute),
        },
        Key {
            name: "tls_key",
            about: at_start("path", "none", "The key of tls_certificate (PEM), which others must not be able to read."),
            set: |to, value| value.with(&mut to.tls_key, absolute),
        },
        Key {
            name: "listen_plain",
            about: at_start(
                "on or off",
                "off",
                "Whether other machines may connect without TLS: tokens and tensors can then be read on the way.",
            ),
            set: |to, value| value.with(&mut to.listen_plain, switch),
        },
        Key {
            name: "metrics",
            about: at_start(
                "[host:]port",
                "none",
                "The address of this machine at which a page for browsers and metrics are read by HTTP, as in 9400. Other \
                 machines cannot reach it.",
            ),
            set: |to, value| value.with(&mut to.metrics, metrics_address),
        },
        Key {
            name: "session_records",
            about: at_start(
                "bytes",
                "64M",
                "Records of ended sessions that are kept for gtctl usage, the oldest deleted first; 0 keeps none.",
            ),
            set: |to, value| value.word(&mut to.session_records),
        },
        Key {
            name: "private_devices",
            about: soon(
                "on or off",
                "on",
                "Whether daemons without this configuration, as users start them, may use GPUs. They read this file and \
                 comply; only the modes of /dev/nvidia* can enforce it.",
            ),
            set: |to, value| value.with(&mut to.private_devices, switch),
        },
        Key {
            name: "log",
            about: soon("error, warn, info, debug or trace", "warn", "The log level."),
            set: |to, value| value.word(&mut to.log),
        },
        Key {
            name: "instruction_log",
            about: at_start("path", "none", "The file to which a line is written for each event, after those it has."),
            set: |to, value| value.with(&mut to.instruction_log, absolute),
        },
        Key {
            name: "instruction_log_bytes_max",
            about: at_start("bytes", "1G", "The length at which that file is renamed to PATH.1 and begun again."),
            set: |to, value| value.word(&mut to.instruction_log_bytes_max),
        },
        Key {
            name: "limits",
            about: soon("the keys below", "", "The limits of each user."),
            set: |to, value| limits(&mut to.limits, &mut to.named_devices, value),
        },
        Key {
            name: "groups",
            about: soon(
                "names or numbers, each with the keys below",
                "",
                "The limits of each member of some groups; of several groups, the first here that sets a key counts.",
            ),
            set: |to, value| groups(&mut to.groups, &mut to.named_devices, value),
        },
        Key {
            name: "users",
            about: soon(
                "names or numbers, each with the keys below",
                "",
                "The limits of some users; a key that is not set here has the value in groups, then in limits.",
            ),
            set: |to, value| users(&mut to.users, &mut to.named_devices, value),
        },
    ]
});

/// The keys of a quota: below `limits`, and below each user.
const LIMITS: &[Key<QuotaSettings>] = &[
    Key {
        name: "memory",
        about: soon("bytes", "0", "Memory of the tensors of all sessions of a user; 0 is no limit."),
        set: |to, value| value.with(&mut to.memory_bytes, bytes),
    },
    Key {
        name: "session_memory",
        about: soon("bytes", "0", "Memory of the tensors of each session; 0 is no limit."),
        set: |to, value| value.with(&mut to.session_memory_bytes, bytes),
    },
    Key {
        name: "sessions",
        about: soon("number", "128", "Sessions at a time."),
        set: |to, value| value.with(&mut to.sessions, number),
    },
    Key {
        name: "tensors",
        about: soon("number", "1048576", "Tensors of all sessions of a user, whatever their size; 0 is no limit."),
        set: |to, value| value.with(&mut to.tensors, number),
    },
    Key {
        name: "arena",
        about: soon(
            "bytes",
            "64G",
            "Memory that all sessions of a user may share with the daemon for uploads and fetches, and for arrays that \
             view tensors.",
        ),
        set: |to, value| value.with(&mut to.arena_bytes, bytes),
    },
    Key {
        name: "queued",
        about: soon("number", "0", "Instructions in flight of each session; 0 is no limit."),
        set: |to, value| value.with(&mut to.queued, number),
    },
    Key {
        name: "weight",
        about: soon("number", "1", "The weight of a user's part of the devices' time."),
        set: |to, value| value.with(&mut to.weight, number),
    },
    Key {
        name: "max_step",
        about: soon(
            "seconds",
            "3600",
            "The longest estimated time of a single step, such as one matrix product; 0 is no limit.",
        ),
        set: |to, value| value.with(&mut to.max_step_s, number),
    },
    Key {
        name: "devices",
        about: soon(
            "numbers, as in [0-3] or [0, 2], or all",
            "all",
            "The devices that the sessions of a user may use, numbered from 0 in the order of gtctl status. A change is \
             for sessions that begin later.",
        ),
        set: |to, value| value.words(&mut to.devices),
    },
];

/// The documentation of all keys: those of the file, then those of a quota.
pub fn about() -> [Vec<(&'static str, About)>; 2] {
    [KEYS.iter().map(|key| (key.name, key.about)).collect(), LIMITS.iter().map(|key| (key.name, key.about)).collect()]
}

/// The mode bit that lets every user write a file.
const WRITABLE_BY_ALL: u32 = 0o002;

/// Reads the file at `path`.
///
/// # Errors
/// A file that every user may change, or the first error in the file, with its line and key.
pub fn read(path: &Path) -> Result<Settings, ConfigError> {
    let failed = |error: std::io::Error| {
        let no_text = error.kind() == std::io::ErrorKind::InvalidData;
        let text =
            if no_text { "it is no text, of which a configuration is (UTF-8)".into() } else { error.to_string() };
        ConfigError::File { path: path.into(), text }
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.is_file() && about.mode() & WRITABLE_BY_ALL != 0 {
        return Err(ConfigError::Open { path: path.into() });
    }
    parse(&std::io::read_to_string(file).map_err(failed)?, path)
}

/// Parses a text. Errors name `path` as its file.
///
/// # Errors
/// The errors of [`read`].
pub fn parse(text: &str, path: &Path) -> Result<Settings, ConfigError> {
    yaml::read(text, path, &KEYS)
}

fn limits(to: &mut QuotaSettings, named: &mut Vec<NamedDevices>, value: &YamlValue<'_>) -> Result<(), ConfigError> {
    value.keys(to, LIMITS)?;
    let devices = value.entries()?.into_iter().filter(|(name, _)| name == "devices");
    for ((_, at), devices) in devices.zip(to.devices) {
        let (line, key) = at.place();
        named.push(NamedDevices { devices, line, key: key.into() });
    }
    to.complaint().map_or(Ok(()), |text| Err(value.wrong(text)))
}

fn users(
    to: &mut BTreeMap<u32, QuotaSettings>,
    named: &mut Vec<NamedDevices>,
    value: &YamlValue<'_>,
) -> Result<(), ConfigError> {
    for (name, value) in value.entries()? {
        let uid = user(&name).map_err(|text| value.wrong(text))?;
        if to.contains_key(&uid) {
            return Err(value.wrong(format!("user {uid} is here twice")));
        }
        limits(to.entry(uid).or_default(), named, &value)?;
    }
    Ok(())
}

fn groups(
    to: &mut Vec<(u32, QuotaSettings)>,
    named: &mut Vec<NamedDevices>,
    value: &YamlValue<'_>,
) -> Result<(), ConfigError> {
    for (name, value) in value.entries()? {
        let gid = group(&name).map_err(|text| value.wrong(text))?;
        if to.iter().any(|(known, _)| *known == gid) {
            return Err(value.wrong(format!("group {gid} is here twice")));
        }
        let mut settings = QuotaSettings::default();
        limits(&mut settings, named, &value)?;
        to.push((gid, settings));
    }
    Ok(())
}

fn group(name: &str) -> Result<u32, String> {
    if let Ok(gid) = name.parse() {
        return Ok(gid);
    }
    match nix::unistd::Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("the system knows no group `{name}`: `getent group` lists them")),
        Err(errno) => Err(format!("the system could not look the group up: {errno}; write the number")),
    }
}

/// The user id for a user's name or number.
///
/// # Errors
/// If the system has no user of that name.
pub fn user(name: &str) -> Result<u32, String> {
    if let Ok(uid) = name.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("the system knows no user `{name}`: `getent passwd` lists them")),
        Err(errno) => Err(format!("the system could not look the user up: {errno}; write the number")),
    }
}

fn threads(text: &str) -> Result<u32, String> {
    let threads = text.parse().ok().filter(|threads| (1..=4096).contains(threads));
    threads.ok_or_else(|| format!("`{text}` is no number of threads: write one from 1 to 4096"))
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "yes" => Ok(true),
        "off" | "no" => Ok(false),
        _ => Err(format!("`{text}` is neither on nor off")),
    }
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let known = text.starts_with(['/', '@']);
    if known {
        Ok(text.into())
    } else {
        Err(format!("`{text}` is no socket: write a path from / on, or a name with @"))
    }
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') { Ok(text.into()) } else { Err(format!("`{text}` is no file: write a path from / on")) }
}

fn bytes(text: &str) -> Result<u64, String> {
    text.parse().map(|Bytes(bytes)| bytes)
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no such number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerKind;

    fn settings(text: &str) -> Result<Settings, String> {
        parse(text, Path::new("gtd.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_says_what_is_written_there() {
        let text = "workers: cpu:2\nthreads: 4\nmemory: 8G\nauto_shard: off\nsocket: /run/x.sock\nlog: info\n\
                    listen: 12345\ntoken_file: /run/gt/token\ntls_certificate: /etc/gt/box.pem\n\
                    tls_key: /etc/gt/box.key\nlisten_plain: on\nnodes: 12346\ninsecure_network: rdma\nmetrics: 9400\nsession_records: 1M\nprivate_devices: off\n\
                    instruction_log: /var/lib/gt/ops.log\ninstruction_log_bytes_max: 64M\n\
                    groups: {1010: {weight: 2}, root: {queued: 3}}\n\
                    limits: {memory: 2G, weight: 1.5}\nusers:\n  root: {sessions: 3}\n  1234:\n    queued: 9\n";
        let expected = Settings {
            workers: Some(WorkerKinds(vec![WorkerKind::on(gt_backends::host(), 0); 2])),
            threads: Some(4),
            memory: Some(Bytes(8 << 30)),
            auto_shard: Some(false),
            shard_bytes_min: None,
            socket: Some("/run/x.sock".into()),
            listen: Some("127.0.0.1:12345".parse().unwrap()),
            token_file: Some("/run/gt/token".into()),
            tls_certificate: Some("/etc/gt/box.pem".into()),
            tls_key: Some("/etc/gt/box.key".into()),
            listen_plain: Some(true),
            nodes: Some("127.0.0.1:12346".parse().unwrap()),
            insecure_network: Some(InsecureNetwork::Rdma),
            metrics: Some("127.0.0.1:9400".parse().unwrap()),
            session_records: Some(Bytes(1 << 20)),
            private_devices: Some(false),
            log: Some(Level::Info),
            instruction_log: Some("/var/lib/gt/ops.log".into()),
            instruction_log_bytes_max: Some(Bytes(64 << 20)),
            limits: QuotaSettings { memory_bytes: Some(2 << 30), weight: Some(1.5), ..QuotaSettings::default() },
            groups: vec![
                (1010, QuotaSettings { weight: Some(2.0), ..QuotaSettings::default() }),
                (0, QuotaSettings { queued: Some(3), ..QuotaSettings::default() }),
            ],
            users: BTreeMap::from([
                (0, QuotaSettings { sessions: Some(3), ..QuotaSettings::default() }),
                (1234, QuotaSettings { queued: Some(9), ..QuotaSettings::default() }),
            ]),
            named_devices: Vec::new(),
        };
        assert_eq!(settings(text), Ok(expected));
    }

    #[test]
    fn devices_are_a_list_or_a_text() {
        for (written, read) in
            [("[0-3]", "0-3"), ("[0, 2]", "0,2"), ("[0-1, 3]", "0-1,3"), ("0-3", "0-3"), ("2", "2"), ("all", "all")]
        {
            let settings = settings(&format!("limits: {{devices: {written}}}")).unwrap();
            assert_eq!(settings.limits.devices, Some(read.parse().unwrap()), "{written}");
        }
        assert_eq!(settings("limits: {devices: }").unwrap().limits.devices, None);
        for wrong in ["[]", "[cpu]", "[[0]]", "3-1", "64", "{0: 1}"] {
            let text = settings(&format!("limits:\n  devices: {wrong}")).unwrap_err();
            assert!(text.starts_with("gtd.yaml:2: limits.devices: "), "{text}");
        }
    }

    #[test]
    fn a_device_that_there_is_not_has_a_line_and_a_key() {
        let text = "workers: cpu:2\nusers:\n  0:\n    devices: [0, 2]\ngroups:\n  0: {devices: 0-1}\n";
        let settings = settings(text).unwrap();
        let check = |count| settings.check_devices(Path::new("gtd.yaml"), count).map_err(|error| error.to_string());
        assert_eq!((settings.devices(), check(3)), (Some(2), Ok(())));
        let error = "gtd.yaml:4: users.0.devices: there is no device 2: the daemon has 2 devices, numbered from 0 to 1";
        assert_eq!(check(2).unwrap_err(), error);
        for unknown in ["", "workers: cuda", "workers: cpu,cuda"] {
            assert_eq!(parse(unknown, Path::new("gtd.yaml")).unwrap().devices(), None, "{unknown}");
        }
    }

    #[test]
    fn what_is_told_of_a_default_holds() {
        let [file, limits] = about();
        let written = |keys: &[(&str, About)], before: &str| -> String {
            let said = keys.iter().filter(|(_, about)| !about.default.contains(' ') && about.default != "none");
            said.filter(|(_, about)| !about.default.is_empty())
                .map(|(name, about)| format!("{before}{name}: {}\n", about.default))
                .collect()
        };
        let text = format!("{}limits:\n{}", written(&file, ""), written(&limits, "  "));
        let said = settings(&text).unwrap();
        assert_eq!(gt_protocol::Quota::from(said.limits), gt_protocol::Quota::default());
        assert_eq!(said.socket, Some(gt_protocol::path::SYSTEM_SOCKET.into()));
        assert!(said.limits.weight.is_some() && said.auto_shard.is_some() && said.shard_bytes_min.is_some(), "{text}");
    }

    #[test]
    fn a_file_may_say_nothing() {
        for text in ["", "# all of it\n", "limits:\nusers:\nmemory:\n", "--- {}\n"] {
            assert_eq!(settings(text), Ok(Settings::default()), "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_has_a_line_and_a_key() {
        for (text, error) in [
            ("\nmemroy: 8G", "gtd.yaml:2: memroy: there is no such key; did you mean `memory`?"),
            ("limits:\n  wait: 1", "gtd.yaml:2: limits.wait: there is no such key; did you mean `weight`?"),
            ("tea_with_milk: 1", "gtd.yaml:1: tea_with_milk: there is no such key; known are workers, threads,"),
            ("memory: lots", "gtd.yaml:1: memory: `lots` is no number of bytes: write 512M or 8G"),
            ("threads: 0", "gtd.yaml:1: threads: `0` is no number of threads"),
            ("workers: [cpu]", "gtd.yaml:1: workers: one value is expected, not a list"),
            ("limits: 3", "gtd.yaml:1: limits: keys with values are expected"),
            ("log: loud", "gtd.yaml:1: log: `loud` is no level"),
            ("auto_shard: maybe", "gtd.yaml:1: auto_shard: `maybe` is neither on nor off"),
            ("socket: run/x", "gtd.yaml:1: socket: `run/x` is no socket"),
            ("listen: here", "gtd.yaml:1: listen: `here` is no address to listen at"),
            ("metrics: here", "gtd.yaml:1: metrics: `here` is no address to listen at: write 12345, or"),
            ("metrics: 70000", "gtd.yaml:1: metrics: `70000` is no address"),
            ("metrics: 0.0.0.0:9400", "gtd.yaml:1: metrics: other machines could reach 0.0.0.0:9400"),
            ("token_file: token", "gtd.yaml:1: token_file: `token` is no file"),
            ("users:\n  nobody-knows:\n    weight: 1", "gtd.yaml:2: users.nobody-knows: the system knows no user"),
            ("groups:\n  nobody-knows: {}", "gtd.yaml:2: groups.nobody-knows: the system knows no group"),
            ("groups:\n  0: {}\n  root: {}", "gtd.yaml:3: groups.root: group 0 is here twice"),
            ("users:\n  0: {}\n  root: {}", "gtd.yaml:3: users.root: user 0 is here twice"),
            ("users:\n  root: {memroy: 1}", "gtd.yaml:2: users.root.memroy: there is no such key"),
            ("users:\n  root:\n    weight: 0", "gtd.yaml:2: users.root: a weight is a number from"),
            ("limits:\n  memory: -1", "gtd.yaml:2: limits.memory: `-1` is no number of bytes"),
            ("memory: 1\nmemory: 2", "gtd.yaml:2: "),
            ("a: [", "gtd.yaml:"),
            ("a: 1\n---\nb: 2", "gtd.yaml:"),
            ("- 1", "gtd.yaml:1: keys with values are expected"),
        ] {
            let said = settings(text).unwrap_err();
            assert!(said.starts_with(error), "{text:?}\n{said}\n{error}");
        }
    }

    #[test]
    fn a_file_that_every_user_may_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("gt-config-{}.yaml", std::process::id()));
        std::fs::write(&path, "log: info\n").unwrap();
        for (mode, good) in [(0o600, true), (0o664, true), (0o666, false), (0o602, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_ok(), good, "{mode:o}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Path::new("/nowhere/gtd.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/gtd.yaml: No such file"), "{error}");
    }
}
