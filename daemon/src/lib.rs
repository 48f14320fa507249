//! The GT daemon.
