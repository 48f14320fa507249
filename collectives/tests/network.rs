//! Groups over a network pass the conformance suite. Here the network is memory; `gt-bridge` runs the suite by TCP.
#![cfg(not(loom))]

use gt_collectives::CollectiveError;
use gt_collectives::conformance::PROGRAMS;
use gt_collectives::network::{GroupNotice, Mailbox, NetworkCommunicator, RankStream, RankTransport};
use gt_collectives::{Communicator, Reduce};
use gt_ops::DType;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Delivers to the mailboxes of all ranks at once.
struct InMemory {
    own: usize,
    mailboxes: Vec<Arc<Mailbox>>,
}

impl RankTransport for InMemory {
    fn send(&self, to: usize, channel: RankStream, parts: &[&[u8]]) {
        // In pieces of odd lengths, as a network may deliver them.
        for piece in parts.concat().chunks(100_003) {
            self.mailboxes[to].deliver(self.own, channel, piece.to_vec(), 0);
        }
    }
    fn tell(&self, to: usize, notice: GroupNotice) {
        self.mailboxes[to].notice(self.own, notice);
    }
}

fn ranks(size: usize, patience: Duration) -> (Vec<NetworkCommunicator>, Vec<Arc<Mailbox>>) {
    let mailboxes: Vec<Arc<Mailbox>> = (0..size).map(|_| Arc::default()).collect();
    let rank = |own: usize| {
        let transport = Arc::new(InMemory { own, mailboxes: mailboxes.clone() });
        NetworkCommunicator::new((own, size), mailboxes[own].clone(), transport, patience)
    };
    ((0..size).map(rank).collect(), mailboxes)
}

fn on_ranks(ranks: Vec<NetworkCommunicator>, run: impl Fn(&mut NetworkCommunicator) + Sync) {
    let run = &run;
    std::thread::scope(|scope| {
        for mut rank in ranks {
            scope.spawn(move || run(&mut rank));
        }
    });
}

#[test]
fn groups_over_a_network_conform() {
    for size in [1, 2, 3, 5] {
        for (_, run) in PROGRAMS {
            on_ranks(ranks(size, PATIENCE).0, |rank| run(rank));
        }
    }
}

#[test]
fn a_rank_that_is_lost_ends_the_calls_of_all_others() {
    let (mut ranks, mailboxes) = ranks(3, PATIENCE);
    let lost = ranks.pop();
    // Rank 0 alone learns it from its transport, and tells rank 1.
    mailboxes[0].lost(2);
    on_ranks(ranks, |rank| {
        let error = rank.all_reduce(&mut [0; 4], DType::F32, Reduce::Sum).unwrap_err();
        assert!(matches!(error, CollectiveError::Died { peer: 2, .. }), "{error}");
        assert!(matches!(rank.health().check(), Err(CollectiveError::Died { peer: 2, .. })));
    });
    drop(lost);
}

#[test]
fn a_rank_that_leaves_or_does_not_come_is_named() {
    let (mut left, _) = ranks(2, PATIENCE);
    drop(left.pop());
    on_ranks(left, |rank| {
        assert!(rank.health().check().is_ok());
        assert!(matches!(rank.barrier(), Err(CollectiveError::Left { peer: 1, .. })));
    });
    let (mut late, _) = ranks(2, Duration::from_millis(1));
    let never = late.pop();
    on_ranks(late, |rank| assert!(matches!(rank.barrier(), Err(CollectiveError::TimedOut { by: 0, .. }))));
    drop(never);
}
