//! The connection of `gtctl` to the daemon.

use gt_protocol::{Connection, Hello, Role};
use std::path::Path;

/// Connects to the daemon at `socket`.
///
/// # Errors
/// The errors of [`gt_protocol::connect`].
pub fn connect(socket: &Path) -> gt_protocol::Result<Connection> {
    gt_protocol::connect(socket, &Hello::new(Role::Control, Some("gtctl".into())))
}
