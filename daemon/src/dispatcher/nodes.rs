//! Requests about nodes: to invite, list and remove them.

use super::Dispatcher;
use super::admin::not_permitted;
use crate::nodes::server::Nodes;
use gt_protocol::limits::{INVITATION_LIFETIME_S_MAX, STATUS_NODE_LINKS_MAX, STATUS_NODES_MAX};
use gt_protocol::{DaemonMessage, RefusalCode, Refused};
use std::sync::Arc;
use std::time::Duration;

impl Dispatcher {
    fn nodes(&self) -> Result<&Arc<Nodes>, Refused> {
        self.nodes.as_ref().ok_or_else(|| {
            let text = "this daemon takes no nodes: start it with gtd --nodes HOST:PORT, or set nodes: in its \
                        configuration";
            Refused::new(RefusalCode::Config, text)
        })
    }

    /// Checks that the peer in `slot` may change the nodes: their workers see everybody's tensors.
    fn may_change_nodes(&self, slot: usize) -> Result<(), Refused> {
        let connection = self.connections.get(slot).and_then(Option::as_ref);
        match connection.filter(|connection| !connection.is_by_tcp() && self.is_administrator(connection)) {
            Some(_) => Ok(()),
            None => Err(not_permitted(
                "a node computes on everybody's tensors: only root, the daemon's user and members of the group gt-admin \
                 may invite or remove one, by the daemon's socket"
                    .into(),
            )),
        }
    }

    /// Makes an invitation.
    pub(super) fn invite_node(
        &self,
        slot: usize,
        lifetime_s: u64,
        workers_max: Option<u32>,
    ) -> Result<DaemonMessage, Refused> {
        let nodes = self.nodes()?;
        self.may_change_nodes(slot)?;
        if !(1..=INVITATION_LIFETIME_S_MAX).contains(&lifetime_s) {
            let text =
                format!("an invitation lasts 1 s to {INVITATION_LIFETIME_S_MAX} s, and {lifetime_s} s are asked for");
            return Err(Refused::new(RefusalCode::Malformed, text));
        }
        let made = nodes.invite(Duration::from_secs(lifetime_s), workers_max);
        let (fingerprint, secret) = made.map_err(|text| Refused::new(RefusalCode::Exhausted, text))?;
        tracing::info!(target: "gtd::nodes", "a node was invited, for {lifetime_s} s");
        Ok(DaemonMessage::NodeInvited { address: nodes.address().to_string(), fingerprint, secret })
    }

    /// The nodes with names after `after`, as many as one message holds.
    pub(super) fn list_nodes(&self, after: &str) -> Result<DaemonMessage, Refused> {
        let mut links = self.nodes()?.links();
        links.truncate(STATUS_NODE_LINKS_MAX);
        let mut nodes = self.nodes()?.list();
        nodes.retain(|node| node.name.as_str() > after);
        let more = nodes.len() > STATUS_NODES_MAX;
        nodes.truncate(STATUS_NODES_MAX);
        Ok(DaemonMessage::Nodes { nodes, links, more })
    }

    /// Begins to remove a node; the answer follows when that is stored.
    pub(super) fn remove_node(&mut self, slot: usize, name: String) -> Result<(), Refused> {
        let nodes = self.nodes()?.clone();
        self.may_change_nodes(slot)?;
        let Some(Some(connection)) = self.connections.get(slot) else { return Ok(()) };
        self.tokens.answer_later(connection.serial, move || {
            nodes.remove(&name)?;
            tracing::info!(target: "gtd::nodes", "node {name} was removed");
            Ok(DaemonMessage::NodeRemoved { name })
        })
    }
}
