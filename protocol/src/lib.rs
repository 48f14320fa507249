//! The control protocol between GT's clients and the daemon.
//!
//! The control socket opens sessions and answers requests; instructions go through the rings. Each message is one JSON
//! document in one datagram, with file descriptors attached. This crate must not know instructions, nor how the client
//! or the daemon is implemented.
//!
//! Start reading at [`message`], the messages; [`mod@link`] sends them and awaits answers. [`quota`] has the quotas of
//! users, [`version`] the versions, [`notice`] the notices of administrators, [`record`] the records of ended sessions,
//! [`tape`] the readers of the tape, [`limits`] the constants that bound everything, [`path`] the path of the socket,
//! [`address`] the addresses of daemons as users write them.
//!
//! ```no_run
//! use gt_protocol::{Hello, Role, connect};
//! let connection = connect(&gt_protocol::path::socket_path(), &Hello::new(Role::Control, None))?;
//! let status = gt_protocol::ask_status(&connection.socket)?;
//! assert_eq!(status.pid, connection.welcome.daemon_pid);
//! # Ok::<(), gt_protocol::ProtocolError>(())
//! ```

pub mod address;
mod device_set;
mod error;
pub mod limits;
pub mod link;
pub mod message;
pub mod notice;
pub mod path;
pub mod quota;
pub mod record;
pub mod tape;
pub mod version;

pub use address::Address;
pub use device_set::DeviceSet;
pub use error::{ProtocolError, Result};
pub use link::{
    Connection, GrantedArena, ask_arena, ask_drain, ask_error_detail, ask_kill, ask_limits, ask_lines, ask_node_invite,
    ask_node_list, ask_node_remove, ask_notice, ask_placement, ask_records, ask_reload, ask_reset_peak,
    ask_return_arena, ask_revoke_token, ask_session, ask_set_limits, ask_status, ask_tensors, ask_token, ask_tokens,
    ask_traffic, attach_lines, attach_tape, check_grant, check_name, connect, connect_over, recv_client_message,
    recv_daemon_message, recv_hello, refusal_for, send_client_message, send_daemon_message,
};
pub use message::{
    ClientMessage, CollectiveTraffic, DaemonMessage, DeviceInfo, Hello, InsecureNetwork, LinkTransport, NodeInfo,
    NodeLink, NodeState, OperationCount, PlacementInfo, PlacementLayout, RefusalCode, Refused, Role, RowInfo,
    RunningInfo, SequenceCounts, SessionDetail, SessionGrant, SessionStatus, StatusDocument, TcpStatus, TokenInfo,
    UcxStatus, Welcome, WorkerInfo, WorkerMemory, WorkerOffer, WorkerState, WorkerTraffic,
};
pub use notice::Notice;
pub use quota::{Quota, QuotaChange, QuotaDocument, QuotaSettings, Setting, UserStatus, bytes_text};
pub use record::{RecordPage, RecordPosition, RecordQuery, SessionRecord};
pub use tape::{NumberedRecord, TapeReader};
pub use version::{PROTOCOL_VERSION, VersionRange};
