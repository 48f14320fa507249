//! Finding a daemon, or starting one of our own.
//!
//! A daemon that the program names ([`choose`]), or `GT_CONNECT` or `GT_SOCKET` does, is the one: nothing else will do.
//! Otherwise the box's daemon is used if its socket is there, and if not, a private `gtd` is started that lives as long
//! as its clients: this process and the children it forks, which join it by its abstract name.

use crate::error::{Error, Result};
use gt_ops::OpError;
pub use gt_protocol::Address;
use gt_protocol::address::{CONNECT_ENV, NoAddress, named_address};
use gt_protocol::path::SYSTEM_SOCKET;
use gt_protocol::{Connection, Error as ProtocolError, Hello, Role, connect, connect_over};
use gt_shm::Socket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A daemon that has welcomed us.
pub(crate) struct Daemon {
    pub connection: Connection,
    pub private: Option<PrivateDaemon>,
    pub address: Address,
}

/// The process of a private daemon. Dropping it leaves the process alone: it ends with its last client.
pub(crate) struct PrivateDaemon {
    child: Child,
}

/// How long a disconnecting client waits for its private daemon to end before leaving it to itself.
const REAP_DEADLINE: Duration = Duration::from_millis(500);

impl PrivateDaemon {
    /// Collects the process if it ends now; other clients may keep it alive.
    pub(crate) fn reap(mut self) {
        let deadline = Instant::now() + REAP_DEADLINE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Where installers put `gtd`, tried before `PATH`.
static BESIDE: Mutex<Option<PathBuf>> = Mutex::new(None);
/// The name of the private daemon this process, or the one it was forked from, has started.
static PRIVATE_NAME: Mutex<Option<String>> = Mutex::new(None);

/// The daemon that a program wants.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Where it is; none leaves that to the environment.
    pub address: Option<Address>,
    /// What lets one in by TCP; none leaves that to the environment, too.
    pub token: Option<String>,
    /// What the session is called; [`check_name`] says what is a name.
    pub name: Option<String>,
}

/// What the program wants where it does not say so at once.
static CHOICE: Mutex<Choice> = Mutex::new(Choice { address: None, token: None, name: None });

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says what the sessions opened from now on are like.
pub fn choose(choice: Choice) {
    *lock(&CHOICE) = choice;
}

/// What was chosen.
pub fn choice() -> Choice {
    lock(&CHOICE).clone()
}

/// The address that `text` is, as in `unix:/run/gt/gtd.sock`.
///
/// # Errors
/// If it is none.
pub fn parse_address(text: &str) -> Result<Address> {
    text.parse().map_err(|error: NoAddress| OpError::value(error.to_string()).into())
}

/// Whether a session can be called `name`.
///
/// # Errors
/// If it is too long, or cannot be shown.
pub fn check_name(name: Option<&str>) -> Result<()> {
    gt_protocol::check_name(name).map_err(|error| match error {
        ProtocolError::Malformed(why) => OpError::value(why).into(),
        error => launch_error(error),
    })
}

/// Tells where to look for `gtd` first, as `sysconfig.get_path("scripts")`.
pub fn set_scripts_folder(folder: PathBuf) {
    *lock(&BESIDE) = Some(folder);
}

/// The program `gtd`: what `GT_DAEMON` names, the one beside the package, or the first on `PATH`.
///
/// # Errors
/// If it is not there.
pub fn find_gtd() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GT_DAEMON") {
        let path = PathBuf::from(path);
        if path.is_file() {
            return Ok(path);
        }
        return Err(Error::Launch(format!(
            "GT_DAEMON names {}, where there is no file: unset it, or set it to the gtd program",
            path.display()
        )));
    }
    let beside = lock(&BESIDE).clone();
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join("gtd"))
        .find(|p| p.is_file())
        .ok_or_else(|| {
            Error::Launch(
                "there is no GT daemon on this machine and the program gtd to start one was not found: \
                 reinstall the gt package, or set GT_DAEMON to the program"
                    .into(),
            )
        })
}

/// How many workers the program asks for; 0 if it does not say.
static WORKERS_WANTED: AtomicUsize = AtomicUsize::new(0);
/// What says which workers a daemon has that is started without being told, the strongest first.
const WORKERS_ENV: [&str; 2] = ["GT_WORKERS", "GT_DEVICES"];

/// Asks for at least `count` workers, 0 for any number: a private daemon is started with as many, another must have
/// them.
pub fn want_workers(count: usize) {
    WORKERS_WANTED.store(count, Relaxed);
}

/// How many were asked for.
pub fn workers_wanted() -> usize {
    WORKERS_WANTED.load(Relaxed)
}

/// Whether a daemon with `count` workers has as many as were asked for.
pub(crate) fn check_workers(count: usize, started: bool) -> Result<()> {
    let wanted = workers_wanted();
    if count >= wanted {
        return Ok(());
    }
    let have = if count == 1 { "1 worker".to_owned() } else { format!("{count} workers") };
    let remedy = if started {
        let says = WORKERS_ENV.into_iter().find(|name| std::env::var_os(name).is_some()).unwrap_or(WORKERS_ENV[0]);
        format!("{says} says so: unset it, or set it to cpu:{wanted}")
    } else {
        format!("start it with --workers cpu:{wanted}, or use no daemon that is there already, by unsetting GT_SOCKET")
    };
    Err(OpError::runtime(format!("{wanted} workers are asked for, but the daemon has {have}: {remedy}")).into())
}

pub(crate) fn launch_error(error: ProtocolError) -> Error {
    Error::Launch(error.to_string())
}

/// Connects to the daemon that `choice` names, or the environment, the box's, or a private one.
pub(crate) fn connect_any(choice: &Choice) -> Result<Daemon> {
    check_name(choice.name.as_deref())?;
    let hello = Hello::new(Role::Client, choice.name.clone());
    let address = match &choice.address {
        Some(address) => Some(address.clone()),
        None => named_address().map_err(|error| Error::Launch(format!("{CONNECT_ENV}: {error}")))?,
    };
    match address {
        Some(Address::Unix(path)) => at(path, &hello).map_err(launch_error),
        Some(Address::Tcp { host, port }) => by_tcp(host, port, choice.token.as_deref(), hello),
        Some(Address::Private) => join_private(&hello).map_or_else(|| start_private(&hello), Ok),
        None => match join_private(&hello) {
            Some(daemon) => Ok(daemon),
            None => at(SYSTEM_SOCKET.into(), &hello).or_else(|error| match error {
                // Rather than a private daemon without being asked: it would not have the box's devices.
                error if error.is_forbidden() => Err(Error::Launch(format!(
                    "{error}. {CONNECT_ENV}=private, or gt.connect('private'), starts a daemon of your own"
                ))),
                ProtocolError::Connect { .. } => start_private(&hello),
                error => Err(launch_error(error)),
            }),
        },
    }
}

fn at(path: PathBuf, hello: &Hello) -> gt_protocol::Result<Daemon> {
    let connection = connect(&path, hello)?;
    Ok(Daemon { connection, private: None, address: Address::Unix(path) })
}

fn by_tcp(host: String, port: u16, token: Option<&str>, hello: Hello) -> Result<Daemon> {
    let failed = |error: gt_bridge::greeting::Error| Error::Launch(error.to_string());
    let token = gt_bridge::token::of_client(token).map_err(|error| failed(error.into()))?;
    let connection = gt_bridge::near::connect(&host, port, &token, hello).map_err(failed)?;
    Ok(Daemon { connection, private: None, address: Address::Tcp { host, port } })
}

/// The private daemon that this process, or the one it was forked from, has started, if it is still there.
fn join_private(hello: &Hello) -> Option<Daemon> {
    let name = lock(&PRIVATE_NAME).clone()?;
    let connection = connect(Path::new(&name), hello).ok()?;
    Some(Daemon { connection, private: None, address: Address::Private })
}

fn start_private(hello: &Hello) -> Result<Daemon> {
    use std::os::fd::OwnedFd;
    let gtd = find_gtd()?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Error::Launch(format!("{} could not be {what}: {error}", gtd.display()))
    };
    let (ours, theirs) = Socket::pair().map_err(|e| failed("started", &e))?;
    let name = format!("@gt-private-{}-{:016x}", std::process::id(), crate::random::random_seed());
    let mut command = Command::new(&gtd);
    // Who sets the environment decides what runs the program; whether that is enough is checked afterwards.
    let wanted = workers_wanted();
    if wanted > 0 {
        command.args(["--workers-wanted", &wanted.to_string()]);
    }
    // The daemon gets its end as standard input: the one descriptor that needs no unsafe code to pass.
    let child = command
        .args(["--private", "--client-fd", "0", "--name", &name])
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| failed("started", &e))?;
    tracing::info!(target: "gt_client", program = %gtd.display(), pid = child.id(), name, "started a private daemon");
    let mut private = PrivateDaemon { child };
    let connection = connect_over(ours, hello).map_err(|error| match private.child.try_wait() {
        // It says why itself.
        _ if matches!(error, ProtocolError::Refused(_)) => failed("used", &error),
        Ok(Some(status)) => failed("used", &format!("it ended at once ({status})")),
        _ => failed("used", &error),
    })?;
    let version = &connection.welcome.daemon_version;
    if version != env!("CARGO_PKG_VERSION") {
        return Err(Error::Launch(format!(
            "{} is version {version}, this gt is {}: reinstall so that gtd and gt are the same version",
            gtd.display(),
            env!("CARGO_PKG_VERSION")
        )));
    }
    *lock(&PRIVATE_NAME) = Some(name);
    Ok(Daemon { connection, private: Some(private), address: Address::Private })
}
