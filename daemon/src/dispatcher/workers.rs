//! The workers: those that the daemon started, and those that register themselves later.
//!
//! A session computes on the workers that are present when it begins; sessions on the same workers share a pipeline. A
//! worker that registers later is for later sessions. A worker that leaves is removed from the pipelines at once, but
//! its link stays and fails every step, naming the lost worker. Its number is reused once all sessions that began with
//! it have ended.

use super::{Dispatcher, WakeSource};
use crate::devices;
use crate::modifiers::links::{Machine, MachineLink};
use crate::nodes::server::Nodes;
use crate::worker::process::link::ProcessLink;
use crate::worker::process::worker_device::WorkerDevice;
use crate::worker::worker_link::{Availability, WorkerLink};
use gt_config::WorkerKind;
use gt_ops::Workers;
use gt_ops::failure::WORKER_NAME_CHARACTERS_MAX;
use gt_ops::placement::WORKERS_MAX;
use gt_protocol::{DaemonMessage, Hello, RefusalCode, Refused, WorkerInfo, WorkerOffer, WorkerState};
use gt_shm::Socket;
use std::os::fd::AsFd;

/// The machines, by the nodes that workers are on; none if all are on the daemon's.
fn machines_of(workers: impl Iterator<Item = Option<String>>, nodes: Option<&Nodes>) -> Vec<Machine> {
    let mut machines: Vec<(Option<String>, Workers)> = Vec::new();
    for (number, node) in workers.enumerate() {
        match machines.iter_mut().find(|(name, _)| *name == node) {
            Some((_, workers)) => *workers = workers.with(Workers::one(number)),
            None => machines.push((node, Workers::one(number))),
        }
    }
    if machines.len() < 2 {
        return Vec::new();
    }
    let link = |node: &Option<String>| match node {
        None => MachineLink::Own,
        Some(node) => nodes.and_then(|nodes| nodes.speed(node)).map_or(MachineLink::Unmeasured, MachineLink::Measured),
    };
    let name = |node: &Option<String>| node.clone().unwrap_or_default();
    let names: Vec<String> = machines.iter().map(|(node, _)| name(node)).collect();
    let between =
        |node: &Option<String>| nodes.map(|nodes| nodes.speeds_between(&name(node), &names)).unwrap_or_default();
    let machine = |(node, workers): &(Option<String>, Workers)| Machine {
        workers: *workers,
        link: link(node),
        between: between(node),
    };
    machines.iter().map(machine).collect()
}

impl Dispatcher {
    /// Registers a worker. Its connection becomes its link, and new sessions get it once it is ready.
    pub(super) fn register(&mut self, slot: usize, hello: &Hello) {
        let (number, name, kind, offer) = match self.may_register(slot, hello) {
            Ok(may) => may,
            Err(refused) => {
                let why = format!("its worker was refused: {refused}");
                self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                return self.disconnect(slot, &why);
            }
        };
        let welcome = self.new_welcome(slot);
        self.answer(slot, &DaemonMessage::Welcome(welcome), &[]);
        let Some((socket, pid)) = self.take_connection(slot) else { return };
        let info = WorkerInfo {
            name,
            kind: kind.backend.name.into(),
            threads: offer.threads,
            memory_bytes_limit: offer.memory_bytes_limit,
            process: offer.node.is_none().then_some(pid),
            node: offer.node,
            state: WorkerState::Starting,
            ..WorkerInfo::default()
        };
        let name = info.name.clone();
        let device = WorkerDevice::of(kind).unwrap_or_else(WorkerDevice::host);
        let relay = self.relay.as_ref();
        let taken = ProcessLink::adopt(socket, pid, number, device, info, relay).and_then(|link| {
            self.watch(link.bell(), WakeSource::Worker(number))?;
            Ok(Box::new(link))
        });
        match taken {
            Ok(link) if number == self.links.len() => self.links.push(link),
            Ok(link) => {
                let before = std::mem::replace(&mut self.links[number], link);
                self.unwatch(before.bell());
                self.forget_worker(number);
            }
            Err(error) => tracing::error!(target: "gtd::worker", worker = name, %error, "it could not be registered"),
        }
    }

    /// Checks a worker that wants to register. Returns its number, its name, its device and its resources.
    fn may_register(
        &mut self,
        slot: usize,
        hello: &Hello,
    ) -> Result<(usize, String, WorkerKind, WorkerOffer), Refused> {
        let Some(Some(connection)) = self.connections.get(slot) else {
            return Err(Refused::new(RefusalCode::Other, "the connection has ended"));
        };
        let version = env!("CARGO_PKG_VERSION");
        if hello.client_version != version {
            let theirs = &hello.client_version;
            let text = format!("the worker is version {theirs}, the daemon is {version}: they must be the same");
            return Err(Refused::new(RefusalCode::ProtocolVersion, text));
        }
        if !self.is_administrator(connection) {
            let text = "a worker computes on everybody's tensors: only root, the daemon's user and members of the group \
                        gt-admin may register one";
            return Err(Refused::new(RefusalCode::NotPermitted, text));
        }
        let Some(offer) = &hello.offer else {
            return Err(Refused::new(RefusalCode::Malformed, "a worker says what it has to offer"));
        };
        if offer.pid != connection.peer.pid {
            // Workers notice each other's end by their process ids.
            let text = "the worker and the daemon do not see the same processes: start it outside the container";
            return Err(Refused::new(RefusalCode::NotPermitted, text));
        }
        if offer.node.is_some() && connection.peer.pid != std::process::id() {
            return Err(Refused::new(RefusalCode::NotPermitted, "only the daemon itself registers workers of nodes"));
        }
        let sessions = self.connections.iter().flatten().filter_map(|connection| connection.session.as_ref());
        let known = sessions.fold(Workers::NONE, |all, session| all.with(session.workers()));
        let free =
            |number: &usize| self.links[*number].availability() == Availability::Left && !known.contains(*number);
        let number = (0..self.links.len()).find(free).unwrap_or(self.links.len());
        if number >= WORKERS_MAX {
            let text = format!("the daemon has {WORKERS_MAX} workers, and no more are possible");
            return Err(Refused::new(RefusalCode::Exhausted, text).with_limit(WORKERS_MAX as u64, WORKERS_MAX as u64));
        }
        let kind =
            offer.device.as_deref().map_or_else(|| Ok(WorkerKind::on(gt_backends::host(), 0)), gt_config::device);
        let kind = kind.map_err(|why| Refused::new(RefusalCode::Malformed, why))?;
        let name = match &hello.name {
            // The daemon made this name itself.
            Some(name) if offer.node.is_some() => name.clone(),
            Some(name) => checked_name(name)?,
            None => devices::worker_name(kind, number),
        };
        self.must_be_free(&name)?;
        Ok((number, name, kind, offer.clone()))
    }

    /// Refuses a name that another worker has.
    fn must_be_free(&mut self, name: &str) -> Result<(), Refused> {
        let links = self.links.iter_mut().filter(|link| link.availability() != Availability::Left);
        let Some(taken) = links.map(|link| link.info()).find(|info| info.name == name) else { return Ok(()) };
        let process = taken.process.map_or_else(String::new, |process| format!(", process {process}"));
        let text = format!("a worker called {name} is there{process}: choose another --name, or end that one first");
        Err(Refused::new(RefusalCode::Other, text))
    }

    /// Removes a connection. Returns its socket and its peer's process id.
    fn take_connection(&mut self, slot: usize) -> Option<(Socket, u32)> {
        let connection = self.connections.get_mut(slot)?.take()?;
        self.slot_of_serial.remove(&connection.serial);
        self.unwatch(connection.socket.as_fd());
        if let Some(pidfd) = &connection.pidfd {
            self.unwatch(pidfd.as_fd());
        }
        Some((connection.socket, connection.peer.pid))
    }

    /// Updates the set of workers that new sessions get, and drops pipelines that no session uses.
    pub(super) fn update_present_workers(&mut self) {
        let computes =
            |link: &dyn WorkerLink| matches!(link.availability(), Availability::Available | Availability::Down);
        let here = self.links.iter().enumerate().filter(|(_, link)| computes(&***link));
        let present = here.fold(Workers::NONE, |all, (number, _)| all.with(Workers::one(number)));
        let measured = self.nodes.as_ref().map_or(0, |nodes| nodes.measured());
        let others = present != std::mem::replace(&mut self.present, present);
        if others || measured != std::mem::replace(&mut self.measured, measured) {
            let (nodes, links) = (self.nodes.as_deref(), &mut self.links);
            self.machines = machines_of(links.iter_mut().map(|link| link.info().node), nodes);
            self.drop_unused_pipelines();
            self.pipelines.set_machines(&self.machines);
        }
    }

    /// Drops the pipelines that no session uses.
    pub(super) fn drop_unused_pipelines(&mut self) {
        let sessions = || self.connections.iter().flatten().filter_map(|connection| connection.session.as_ref());
        self.pipelines.retain(|of| sessions().any(|session| session.present(self.present) == of));
    }
}

/// Checks the name that a worker requests. Names with a colon are reserved for the daemon.
fn checked_name(name: &str) -> Result<String, Refused> {
    let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=WORKER_NAME_CHARACTERS_MAX).contains(&name.chars().count()) && name.chars().all(known) {
        return Ok(name.into());
    }
    let text = format!(
        "`{name}` is no name of a worker: write 1 to {WORKER_NAME_CHARACTERS_MAX} letters, digits, `-`, `_` or `.`"
    );
    Err(Refused::new(RefusalCode::Malformed, text))
}
