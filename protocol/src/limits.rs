//! The limits of everything that can grow. Names end in their units.

use std::time::Duration;

/// Sessions of one user at a time, unless the user's quota says otherwise.
pub const SESSIONS_PER_UID_MAX: u32 = 128;
/// Sessions of all users at a time.
pub const SESSIONS_MAX: u32 = 1024;
/// Sessions, of [`SESSIONS_MAX`], that only administrators can open.
pub const SESSIONS_RESERVED: u32 = 64;
/// Connections whose hello has not come yet.
pub const HANDSHAKES_MAX: u32 = 64;
/// Connections of one user whose hello has not come yet.
pub const HANDSHAKES_PER_UID_MAX: u32 = 16;
/// Slots of a submission ring.
pub const SQ_SLOTS: u32 = 4096;
/// Slots of a completion ring: also the fetches that a session may have in flight.
pub const CQ_SLOTS: u32 = 512;
/// Slots of the largest ring that a client maps.
pub const RING_SLOTS_MAX: u32 = 1 << 20;
/// Bytes of the arenas of all sessions of one user, unless the user's quota says otherwise.
pub const ARENA_BYTES_PER_UID_MAX: u64 = 64 << 30;
/// The smallest arena worth a mapping, bytes. Every session may have one of this size, whatever others hold.
pub const ARENA_BYTES_MIN: u64 = 1 << 20;
/// Arenas of one session. Each is a mapping, of which Linux allows the daemon some 65,000. A new arena is usually as
/// large as all before it together, up to a bound, so a session needs few.
pub const ARENAS_PER_SESSION_MAX: u32 = 128;
/// Arenas that a session may have had, those that it returned included: their numbers are not used again.
pub const ARENAS_NUMBERED_MAX: u32 = 1 << 16;
/// Live tensors of all sessions of one user, unless the user's quota says otherwise. Each costs the daemon some hundred
/// bytes, whatever its size.
pub const TENSORS_PER_UID_MAX: u64 = 1 << 20;
/// Live tensors of one session, whatever its user's quota.
pub const TENSORS_PER_SESSION_MAX: usize = 1 << 22;
/// Tensors beyond a user's quota. Each of them is an error for the program; a session that goes on beyond these ends.
pub const REFUSED_TENSORS_MAX: u64 = 1 << 16;
/// Bytes of a session's name, in UTF-8.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of one message on the control socket.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Sessions in one status message. They fit even with the longest names, every character escaped, and many devices.
pub const STATUS_SESSIONS_MAX: usize = 48;
/// Users in one message of quotas.
pub const STATUS_USERS_MAX: usize = 64;
/// Access tokens of one user that have not expired.
pub const TOKENS_PER_UID_MAX: usize = 16;
/// Access tokens of all users.
pub const TOKENS_MAX: usize = 1024;
/// Access tokens in one message.
pub const STATUS_TOKENS_MAX: usize = 128;
/// Sessions beside nodes in one status message.
pub const STATUS_SESSIONS_BESIDE_NODES_MAX: usize = 24;
/// Nodes in one message.
pub const STATUS_NODES_MAX: usize = 40;
/// Links between machines in one message: the slowest.
pub const STATUS_NODE_LINKS_MAX: usize = 32;
/// Bytes of the reason why a link does not go by UCX.
pub const LINK_REASON_BYTES_MAX: usize = 160;
/// The longest time after which an invitation of a node expires, seconds: a week.
pub const INVITATION_LIFETIME_S_MAX: u64 = 7 * 24 * 3600;
/// The longest time after which an access token expires, seconds: ten years.
pub const TOKEN_LIFETIME_S_MAX: u64 = 3653 * 24 * 3600;
/// The longest estimated time of a step unless the configuration says otherwise, seconds.
pub const STEP_S_MAX: u32 = 3600;
/// The smallest weight of a user.
pub const WEIGHT_MIN: f64 = 0.01;
/// The largest weight of a user.
pub const WEIGHT_MAX: f64 = 100.0;
/// Records of the daemon's tape, the ring of the instruction log's events; each has 64 bytes.
pub const TAPE_RECORDS: u64 = 1 << 16;
/// A client is disconnected if its hello takes longer, milliseconds.
pub const HANDSHAKE_DEADLINE_MS: u64 = 2_000;
/// A client waits this long for an answer on the control socket, milliseconds.
pub const REPLY_DEADLINE_MS: u64 = 10_000;

/// [`HANDSHAKE_DEADLINE_MS`] as a duration.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_millis(HANDSHAKE_DEADLINE_MS);
/// [`REPLY_DEADLINE_MS`] as a duration.
pub const REPLY_DEADLINE: Duration = Duration::from_millis(REPLY_DEADLINE_MS);
