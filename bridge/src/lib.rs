//! Sessions with a daemon by TCP: for clients that do not share its memory.
//!
//! Each end of a connection is an ordinary end of rings and arenas. At the client's, [`near`] is what a daemon would
//! be: it takes instructions out of the session's ring and sends them, with the bytes of the arena that they read. At
//! the daemon's, [`far`] is what a client would be: it puts them into the ring of a session of its own, and sends back
//! what completes, with the bytes that were fetched. So neither the client nor the dispatcher knows of TCP, and the
//! dispatcher believes a client that came so no more than any other.
//!
//! This crate knows where commands begin and which of them move bytes, not what they mean. Start at [`mod@frame`], what
//! travels; [`greeting`] is what is said first, [`token`] who may come in, [`peer`] who came.

pub mod far;
pub mod frame;
pub mod greeting;
pub mod near;
pub mod peer;
mod stream;
pub mod token;
