//! The command line of the GT daemon.
