//! How much of anything there may be. Units come last in the names.

use std::time::Duration;

/// Sessions of one user at a time.
pub const SESSIONS_PER_UID_MAX: u32 = 256;
/// Sessions of all users at a time.
pub const SESSIONS_MAX: u32 = 1024;
/// Connections that have not said hello yet.
pub const HANDSHAKES_MAX: u32 = 64;
/// Submission ring, slots.
pub const SQ_SLOTS: u32 = 4096;
/// Completion ring, slots. Also the fetches that one session may have in flight.
pub const CQ_SLOTS: u32 = 512;
/// Any ring, slots: a client refuses to map a larger one.
pub const RING_SLOTS_MAX: u32 = 1 << 20;
/// All arenas of one session, bytes.
pub const ARENA_BYTES_PER_SESSION_MAX: u64 = 64 << 30;
/// The smallest arena worth a mapping, bytes.
pub const ARENA_BYTES_MIN: u64 = 1 << 20;
/// Arenas of one session: each is a mapping, of which Linux allows the daemon some 65,000. They grow, so few
/// are needed.
pub const ARENAS_PER_SESSION_MAX: u32 = 128;
/// Tensors of one session that live at one time, whatever their size: each costs the daemon some hundred bytes.
pub const TENSORS_PER_SESSION_MAX: usize = 1 << 22;
/// A session's name, bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 64;
/// One message on the control socket, bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Sessions in one status message. With the longest names, and every character of them escaped, they
/// still fit.
pub const STATUS_SESSIONS_MAX: usize = 64;
/// Users in one message of limits.
pub const STATUS_USERS_MAX: usize = 64;
/// The least weight of a user,
pub const WEIGHT_MIN: f64 = 0.01;
/// and the largest.
pub const WEIGHT_MAX: f64 = 100.0;
/// Records in the tape: 64 B each.
pub const TAPE_RECORDS: u64 = 1 << 16;
/// A client that has not said hello by then is disconnected, milliseconds.
pub const HANDSHAKE_DEADLINE_MS: u64 = 2_000;
/// A client waits this long for an answer on the control socket, milliseconds.
pub const REPLY_DEADLINE_MS: u64 = 10_000;

/// [`HANDSHAKE_DEADLINE_MS`].
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_millis(HANDSHAKE_DEADLINE_MS);
/// [`REPLY_DEADLINE_MS`].
pub const REPLY_DEADLINE: Duration = Duration::from_millis(REPLY_DEADLINE_MS);
