//! Nodes: other machines whose workers this daemon uses.
//!
//! A node runs `gtd node`, its *agent*, which has one connection with the daemon and starts the node's workers as
//! processes. In the daemon a [`stand_in`] takes the place of each worker's process, and registers itself as a worker
//! of this machine does; it has a lane of the [`relay`] in place of rings, so that the dispatcher writes a step for
//! several workers once. On the node a [`hosted_worker`] takes the daemon's place for the process, and has the daemon's
//! ends of its rings. So neither the dispatcher nor a worker knows of the network. What travels are slots of steps and
//! reports, and before them the bytes of the arenas that a step reads or a fetch has written.
//!
//! Tensors do not pass through the daemon when workers of several machines reshard them: each process of a worker has a
//! [`data_port`], by which it reaches the others.
//!
//! - [`registry`]: the invitations, and the nodes that have joined, known by their certificates.
//! - [`messages`]: what travels over a node's connection.
//! - [`server`]: the daemon's end of the nodes' connections.
//! - [`relay`]: the steps of all nodes' workers on their way from the dispatcher, and their reports.
//! - [`stand_in`]: a node's worker, as the daemon's own machine sees it.
//! - [`agent`]: the program `gtd node`.
//! - [`hosted_worker`]: one worker of a node, as its agent sees it.
//! - [`life_port`]: how other machines see that a process has ended.
//! - [`link_speed`]: the measurement of a node's link when it joins.
//! - [`endpoint`]: how processes of workers reach each other.
//! - [`data_path`]: the way of bytes from one process to another, over their connection or by UCX.
//! - [`data_port`]: the connections between processes of workers, and the communicators over them.

pub mod agent;
pub mod data_path;
pub mod data_port;
pub mod endpoint;
pub mod hosted_worker;
pub mod life_port;
pub mod link_speed;
pub mod messages;
pub mod registry;
pub mod relay;
pub mod server;
pub mod stand_in;
