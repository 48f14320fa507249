//! What a GT client and the daemon say to each other over the control socket.
//!
//! The control socket makes sessions and grows them; work itself goes through the rings. Each
//! message is one JSON document in one datagram, descriptors beside it. This crate must not know
//! what an instruction is, nor how either side is written.
//!
//! Where to start reading: [`message`] for what is said, [`allowance`] for what users may have, [`mod@link`] for how it
//! is sent and awaited, [`limits`] for how much of anything there may be, [`path`] for where the socket is, [`address`]
//! for how people say where a daemon is.
//!
//! ```no_run
//! use gt_protocol::{Hello, Role, connect};
//! let connection = connect(&gt_protocol::path::socket_path(), &Hello::new(Role::Control, None))?;
//! let status = gt_protocol::ask_status(&connection.socket)?;
//! assert_eq!(status.pid, connection.welcome.daemon_pid);
//! # Ok::<(), gt_protocol::ProtocolError>(())
//! ```

pub mod address;
mod error;
pub mod limits;
pub mod link;
pub mod message;
pub mod path;
pub mod quota;

pub use address::Address;
pub use error::{ProtocolError, Result};
pub use link::{
    Connection, GrantedArena, ask_arena, ask_drain, ask_error_detail, ask_kill, ask_limits, ask_placement, ask_reload,
    ask_reset_peak, ask_session, ask_set_limits, ask_status, ask_traffic, attach_tape, check_grant, check_name,
    connect, connect_over, recv_client_message, recv_daemon_message, recv_hello, refusal_for, send_client_message,
    send_daemon_message, version_in,
};
pub use message::{
    ClientMessage, CollectiveTraffic, DaemonMessage, DeviceInfo, Hello, PlacementInfo, PlacementLayout, RefusalCode,
    Refused, Role, SessionDetail, SessionGrant, SessionStatus, StatusDocument, Welcome, WorkerInfo, WorkerMemory,
    WorkerOffer, WorkerState, WorkerTraffic,
};
pub use quota::{Quota, QuotaChange, QuotaDocument, QuotaSettings, Setting, UserStatus};

/// The version of this protocol, of the rings and of the instructions that travel in them. Both
/// sides must speak the same one.
pub const PROTOCOL_VERSION: u32 = 1;
