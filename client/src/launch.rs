//! Finding a daemon, or starting a private one.
//!
//! If the program ([`set_connect_options`]), `GT_CONNECT` or `GT_SOCKET` names a daemon, only that one is used.
//! Otherwise the machine's daemon is used if its socket exists; if not, a private `gtd` is started. Its clients are
//! this process and the children that it forks, which connect by its abstract socket name. It ends with the last of
//! them.

use crate::error::{ClientError, Result};
use crate::lock::lock;
use crate::visible_workers::VisibleWorkers;
use gt_bridge::client_end::{Interrupter, TcpSession};
use gt_ops::OpError;
use gt_protocol::address::{CONNECT_ENV, NoAddress, TcpAddress, VISIBLE_DEVICES_ENV, named_address};
use gt_protocol::path::SYSTEM_SOCKET;
pub use gt_protocol::{Address, DeviceSet};
use gt_protocol::{Connection, Hello, ProtocolError, Role, connect, connect_over};
use gt_shm::Socket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A daemon that has accepted this client.
pub(crate) struct Daemon {
    pub connection: Connection,
    pub private: Option<PrivateDaemon>,
    pub address: Address,
    /// Interrupts the session ahead of its stream; none where its control socket does.
    pub interrupter: Option<Interrupter>,
}

/// The process of a private daemon. Dropping this does not end it: it ends with its last client.
pub(crate) struct PrivateDaemon {
    child: Child,
}

/// The longest wait of a disconnecting client for its private daemon to end.
const REAP_DEADLINE: Duration = Duration::from_millis(500);

impl PrivateDaemon {
    /// Waits until the process ends, at most [`REAP_DEADLINE`]: other clients may keep it alive.
    pub(crate) fn reap(mut self) {
        let deadline = Instant::now() + REAP_DEADLINE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The folder where installers put `gtd`, searched before `PATH`.
static SCRIPTS_FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);
/// The socket name of the private daemon that this process, or the one it was forked from, has started.
static PRIVATE_NAME: Mutex<Option<String>> = Mutex::new(None);

/// The daemon to connect to, and the session's name.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// The daemon's address; by default the environment's.
    pub address: Option<Address>,
    /// The access token for TCP; by default the environment's, or that of a token file.
    pub token: Option<String>,
    /// The session's name, which [`check_name`] must accept.
    pub name: Option<String>,
    /// The daemon's devices that the session may use; by default the environment's, or all that its user may use.
    pub devices: Option<DeviceSet>,
}

/// The options of sessions that are opened without any.
static OPTIONS: Mutex<ConnectOptions> =
    Mutex::new(ConnectOptions { address: None, token: None, name: None, devices: None });

/// Sets the options of the sessions opened later.
pub fn set_connect_options(options: ConnectOptions) {
    *lock(&OPTIONS) = options;
}

/// The options of the sessions opened later.
pub fn connect_options() -> ConnectOptions {
    lock(&OPTIONS).clone()
}

/// Parses an address, such as `unix:/run/gt/gtd.sock`.
///
/// # Errors
/// Text that is not an address.
pub fn parse_address(text: &str) -> Result<Address> {
    text.parse().map_err(|error: NoAddress| OpError::value(error.to_string()).into())
}

/// Checks the name of a session.
///
/// # Errors
/// A name that is too long, or has characters that cannot be printed.
pub fn check_name(name: Option<&str>) -> Result<()> {
    gt_protocol::check_name(name).map_err(|error| match error {
        ProtocolError::Malformed(why) => OpError::value(why).into(),
        error => launch_error(error),
    })
}

/// Sets the folder to search for `gtd` before `PATH`: Python's `sysconfig.get_path("scripts")`.
pub fn set_scripts_folder(folder: PathBuf) {
    *lock(&SCRIPTS_FOLDER) = Some(folder);
}

/// The path of the program `gtd`: that of `GT_DAEMON`, the one in the scripts folder, or the first on `PATH`.
///
/// # Errors
/// No such file.
pub fn find_gtd() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GT_DAEMON") {
        let path = PathBuf::from(path);
        if path.is_file() {
            return Ok(path);
        }
        return Err(ClientError::Launch(format!(
            "GT_DAEMON names {}, where there is no file: unset it, or set it to the gtd program",
            path.display()
        )));
    }
    let scripts = lock(&SCRIPTS_FOLDER).clone();
    let path = std::env::var_os("PATH").unwrap_or_default();
    scripts
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join("gtd"))
        .find(|p| p.is_file())
        .ok_or_else(|| {
            ClientError::Launch(
                "there is no GT daemon on this machine and the program gtd to start one was not found: \
                 reinstall the gt package, or set GT_DAEMON to the program"
                    .into(),
            )
        })
}

/// The number of workers that the program asks for; 0 for any number.
static WORKERS_WANTED: AtomicUsize = AtomicUsize::new(0);
/// The environment variables that configure the workers of a private daemon, in order of precedence.
const WORKERS_ENV: [&str; 2] = ["GT_WORKERS", "GT_DEVICES"];

/// Asks for at least `count` workers, 0 for any number: a private daemon is started with them, another daemon must have
/// them.
pub fn want_workers(count: usize) {
    WORKERS_WANTED.store(count, Relaxed);
}

/// The number of workers asked for by [`want_workers`].
pub fn workers_wanted() -> usize {
    WORKERS_WANTED.load(Relaxed)
}

/// Checks that a session has as many workers as were asked for. `started`: this process has started its daemon.
pub(crate) fn check_workers(visible: &VisibleWorkers, started: bool) -> Result<()> {
    let (wanted, count) = (workers_wanted(), visible.count);
    if count >= wanted {
        return Ok(());
    }
    if let Some(pinned) = visible.pinned_text() {
        return Err(OpError::runtime(format!("{wanted} workers are asked for, but {pinned}")).into());
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

pub(crate) fn launch_error(error: ProtocolError) -> ClientError {
    ClientError::Launch(error.to_string())
}

/// Connects to the daemon that `options` or the environment names, else to the machine's, else to a private one.
pub(crate) fn connect_any(options: &ConnectOptions) -> Result<Daemon> {
    check_name(options.name.as_deref())?;
    let devices = options.devices.map_or_else(visible_devices, |devices| Ok(Some(devices)))?;
    let hello = Hello { devices, ..Hello::new(Role::Client, options.name.clone()) };
    let daemon = connect_with(options, &hello)?;
    let grant = daemon.connection.welcome.session.as_ref();
    if devices.is_some() && grant.is_some_and(|grant| grant.daemon_devices == 0) {
        let version = &daemon.connection.welcome.daemon_version;
        return Err(ClientError::Launch(format!(
            "the daemon, of version {version}, cannot keep a session to some of its devices: upgrade it, or connect \
             without devices=… and {VISIBLE_DEVICES_ENV}"
        )));
    }
    Ok(daemon)
}

fn connect_with(options: &ConnectOptions, hello: &Hello) -> Result<Daemon> {
    let address = match &options.address {
        Some(address) => Some(address.clone()),
        None => named_address().map_err(|error| ClientError::Launch(format!("{CONNECT_ENV}: {error}")))?,
    };
    match address {
        Some(Address::Unix(path)) => by_unix(path, hello).map_err(launch_error),
        Some(Address::Tcp(address)) => by_tcp(address, options.token.as_deref(), hello.clone()),
        Some(Address::Private) => join_private(hello).map_or_else(|| start_private(hello), Ok),
        None => match join_private(hello) {
            Some(daemon) => Ok(daemon),
            None => by_unix(SYSTEM_SOCKET.into(), hello).or_else(|error| match error {
                // No private daemon is started here unasked: it would not have the machine's devices.
                error if error.is_forbidden() => Err(ClientError::Launch(format!(
                    "{error}. {CONNECT_ENV}=private, or gt.connect('private'), starts a daemon of your own"
                ))),
                ProtocolError::Connect { .. } => start_private(hello),
                error => Err(launch_error(error)),
            }),
        },
    }
}

/// Parses a set of devices, such as `0-3` or `0,2`.
///
/// # Errors
/// Text that names no devices.
pub fn parse_devices(text: &str) -> Result<DeviceSet> {
    text.parse().map_err(|why: String| OpError::value(why).into())
}

/// The devices that the environment names.
fn visible_devices() -> Result<Option<DeviceSet>> {
    let text = std::env::var(VISIBLE_DEVICES_ENV).unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |why| ClientError::Launch(format!("{VISIBLE_DEVICES_ENV}: {why}"));
    text.parse().map(Some).map_err(wrong)
}

fn by_unix(path: PathBuf, hello: &Hello) -> gt_protocol::Result<Daemon> {
    let connection = connect(&path, hello)?;
    Ok(Daemon { connection, private: None, address: Address::Unix(path), interrupter: None })
}

fn by_tcp(address: TcpAddress, token: Option<&str>, hello: Hello) -> Result<Daemon> {
    let failed = |error: gt_bridge::handshake::ConnectError| ClientError::Launch(error.to_string());
    let token = gt_bridge::token::client_token(token).map_err(|error| failed(error.into()))?;
    let TcpSession { connection, interrupter } =
        gt_bridge::client_end::connect(&address, &token, hello).map_err(failed)?;
    Ok(Daemon { connection, private: None, address: Address::Tcp(address), interrupter })
}

/// The private daemon that this process, or the one it was forked from, has started, if it is still there.
fn join_private(hello: &Hello) -> Option<Daemon> {
    let name = lock(&PRIVATE_NAME).clone()?;
    let connection = connect(Path::new(&name), hello).ok()?;
    Some(Daemon { connection, private: None, address: Address::Private, interrupter: None })
}

fn start_private(hello: &Hello) -> Result<Daemon> {
    use std::os::fd::OwnedFd;
    let gtd = find_gtd()?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        ClientError::Launch(format!("{} could not be {what}: {error}", gtd.display()))
    };
    let (ours, theirs) = Socket::pair().map_err(|e| failed("started", &e))?;
    let name = format!("@gt-private-{}-{:016x}", std::process::id(), crate::random::random_seed());
    let mut command = Command::new(&gtd);
    // The environment's GT_WORKERS or GT_DEVICES takes precedence; `check_workers` checks the result.
    let wanted = workers_wanted();
    if wanted > 0 {
        command.args(["--workers-wanted", &wanted.to_string()]);
    }
    // The daemon gets its end of the socket as standard input: passing another descriptor would need unsafe code.
    let child = command
        .args(["--private", "--client-fd", "0", "--name", &name])
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| failed("started", &e))?;
    // The command holds the daemon's end of the socket, which would hide that the daemon has ended.
    drop(command);
    tracing::info!(target: "gt_client", program = %gtd.display(), pid = child.id(), name, "started a private daemon");
    let mut private = PrivateDaemon { child };
    let connection = connect_over(ours, hello).map_err(|error| match private.child.try_wait() {
        // A refusal states its reason, so it precedes the exit status.
        _ if matches!(error, ProtocolError::Refused(_)) => failed("used", &error),
        Ok(Some(status)) => failed("used", &format!("it ended at once ({status})")),
        _ => failed("used", &error),
    })?;
    let version = &connection.welcome.daemon_version;
    if version != env!("CARGO_PKG_VERSION") {
        return Err(ClientError::Launch(format!(
            "{} is version {version}, this gt is {}: reinstall so that gtd and gt are the same version",
            gtd.display(),
            env!("CARGO_PKG_VERSION")
        )));
    }
    *lock(&PRIVATE_NAME) = Some(name);
    Ok(Daemon { connection, private: Some(private), address: Address::Private, interrupter: None })
}
