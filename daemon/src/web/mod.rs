//! The HTTP interface of the daemon, if it is asked for one: metrics for Prometheus.
//!
//! One thread serves all of it. It never touches the dispatcher's state: it asks the dispatcher for a
//! [`snapshot`], by the [`desk`], at most every [`server::SNAPSHOT_FRESH`], and answers everybody else from the last
//! one. [`server`] is the HTTP side, [`metrics`] writes a snapshot in the format of OpenMetrics.

pub mod desk;
pub mod metrics;
pub mod server;
pub mod snapshot;
