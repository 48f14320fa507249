//! The daemon that a command is for, and the connection to it.

use crate::arguments::Arguments;
use crate::failure::{CommandFailure, Exit};
use crate::status;
use gt_bridge::handshake::ConnectError;
use gt_bridge::token::{Token, client_token};
use gt_protocol::address::{Address, TcpAddress, TcpSecurity};
use gt_protocol::{Connection, Hello, ProtocolError, Role};
use std::fmt;
use std::path::{Path, PathBuf};

/// The daemon that a command is for.
pub enum DaemonTarget {
    /// The one that listens on this socket.
    Socket(PathBuf),
    /// The one that listens on this TCP port, with the token for it.
    Tcp(TcpAddress, Token),
}

impl fmt::Display for DaemonTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonTarget::Socket(path) => write!(f, "{}", path.display()),
            DaemonTarget::Tcp(address, _) => f.write_str(&address.authority()),
        }
    }
}

impl DaemonTarget {
    /// The daemon that the command line names, else the one of `GT_SOCKET`, else the machine's.
    ///
    /// # Errors
    /// Two daemons are named, an address is none, or there is no token for a TCP port.
    pub fn of(arguments: &Arguments) -> Result<DaemonTarget, CommandFailure> {
        let wrong = |text: &str| {
            CommandFailure::new(
                Exit::Usage,
                text,
                "Write --socket PATH, --host HOST --port PORT, or --connect ADDRESS.",
            )
        };
        let Arguments { socket, host, port, connect, .. } = arguments;
        let by_port = match (host, port) {
            (Some(_), None) => return Err(wrong("--host takes the port as well: --host HOST --port PORT")),
            (host, Some(port)) => {
                let host = host.clone().unwrap_or_else(|| "localhost".into());
                Some(Address::Tcp(TcpAddress { host, port: *port, security: TcpSecurity::ThisMachine }))
            }
            (None, None) => None,
        };
        let by_address = connect.as_deref().map(str::parse::<Address>).transpose();
        let by_address = by_address.map_err(|error| wrong(&error.to_string()))?;
        let by_socket = socket.clone().map(Address::Unix);
        let mut named = [by_socket, by_port, by_address].into_iter().flatten();
        match (named.next(), named.next()) {
            (_, Some(_)) => Err(wrong("several daemons are named, and a command is for one")),
            (None, None) => Ok(DaemonTarget::Socket(gt_protocol::path::socket_path())),
            (Some(Address::Unix(path)), None) => Ok(DaemonTarget::Socket(path)),
            (Some(Address::Tcp(address)), None) => {
                let token = client_token(None).map_err(|error| {
                    CommandFailure::new(Exit::NotPermitted, error.to_string(), "gtctl token create makes one there.")
                })?;
                Ok(DaemonTarget::Tcp(address, token))
            }
            (Some(Address::Private), None) => Err(wrong("a private daemon has no address: name its socket")),
        }
    }

    /// The socket, for commands that look at this machine.
    ///
    /// # Errors
    /// The daemon is reached by TCP.
    pub fn socket(&self) -> Result<&Path, CommandFailure> {
        match self {
            DaemonTarget::Socket(path) => Ok(path),
            DaemonTarget::Tcp(..) => Err(CommandFailure::new(
                Exit::Usage,
                "this command looks at the daemon's machine, and does not go by TCP",
                "Run it there.",
            )),
        }
    }

    /// Connects to the daemon.
    ///
    /// # Errors
    /// The errors of [`gt_protocol::connect`]; by TCP, those of [`gt_bridge::control_client::connect`].
    pub fn connect(&self) -> gt_protocol::Result<Connection> {
        match self {
            DaemonTarget::Socket(path) => connect(path),
            DaemonTarget::Tcp(address, token) => {
                if address.security != TcpSecurity::ThisMachine {
                    status::show_numbers_of_users();
                }
                gt_bridge::control_client::connect(address, token, hello()).map_err(|error| match error {
                    ConnectError::Refused { source, .. } => source,
                    error => ProtocolError::Tcp(error.to_string()),
                })
            }
        }
    }
}

fn hello() -> Hello {
    Hello::new(Role::Control, Some("gtctl".into()))
}

/// Connects to the daemon at `socket`.
///
/// # Errors
/// The errors of [`gt_protocol::connect`].
pub fn connect(socket: &Path) -> gt_protocol::Result<Connection> {
    gt_protocol::connect(socket, &hello())
}
