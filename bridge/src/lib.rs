//! Sessions over TCP, for clients that do not share the daemon's memory.
//!
//! Each end of a connection is an ordinary end of rings and arenas. [`client_end`] takes the daemon's place for a
//! client: it pops instructions from the session's submission ring and sends them, each after the arena bytes that it
//! reads. [`daemon_end`] takes a client's place for the daemon: it pushes the instructions into the ring of a session
//! of its own, and sends the completions back, each after the bytes that were fetched. So neither the client nor the
//! dispatcher knows of TCP, and the dispatcher validates such a client as any other.
//!
//! Machines whose workers compute for the daemon have a [`lasting_link`] with it, which carries each [`link_frame`]
//! once and in order however often its connection breaks.
//!
//! `gtctl` connects by TCP without a session: [`control_client`] takes the daemon's place for it, and `control_relay` a
//! `gtctl`'s place for the daemon. The records of the tape are copied from one ring into another.
//!
//! This crate knows where commands begin and which of them move bytes, but not what they compute. Start at
//! [`mod@frame`], the format of the stream. `channel` carries it, encrypted or not, and [`tls`] has the certificates
//! for that. [`handshake`] is the first message each way, [`token`] the access token, [`user_tokens`] those of users,
//! [`wrong_tokens`] the limits on guesses, [`peer`] finds the user at the other end of a local connection, and
//! [`pending_handshakes`] bounds the connections that have not said who they are.

mod channel;
pub mod client_end;
pub mod control_client;
mod control_relay;
pub mod daemon_end;
pub mod frame;
pub mod frame_assembly;
pub mod handshake;
pub mod lasting_link;
pub mod link_frame;
mod link_write;
pub mod machine_port;
pub mod peer;
pub mod pending_handshakes;
mod stream;
pub mod tls;
pub mod token;
mod unacknowledged;
pub mod user_tokens;
pub mod wrong_tokens;
