//! Information about a session, for users.

use super::Session;
use crate::modifiers::stream_modifier::MODIFIER_ID_MIN;
use crate::table::TensorEntry;
use gt_ops::mesh::MeshLayout;
use gt_ops::result_meta::ResultMeta;
use gt_ops::{Placement, TensorId};
use gt_protocol::{
    CollectiveTraffic, OperationCount, PlacementInfo, PlacementLayout, RowInfo, SessionRecord, SessionStatus,
};
use std::collections::BTreeMap;
use std::time::SystemTime;

impl Session {
    /// The collectives of `worker` for this session, by name.
    pub fn traffic(&self, worker: usize) -> BTreeMap<String, CollectiveTraffic> {
        let own = self.traffic.range((worker, "")..(worker + 1, ""));
        own.map(|((_, name), traffic)| ((*name).to_owned(), *traffic)).collect()
    }

    /// The collectives of all workers for this session, by worker and name.
    pub fn collectives(&self) -> &BTreeMap<(usize, &'static str), CollectiveTraffic> {
        &self.traffic
    }

    /// Steps that are queued or running, by worker.
    pub fn queued_at(&self) -> &[u64] {
        &self.queued_at
    }

    /// The steps that ended at `worker`, by operation, at most `most` operations.
    pub fn operations(&self, worker: usize, most: usize) -> BTreeMap<String, OperationCount> {
        self.operations.report(worker, most)
    }

    /// The placement of tensor `id`; `names` are the names of all workers.
    pub fn placement(&self, id: TensorId, names: &[String]) -> Option<PlacementInfo> {
        let placement = self.tensors.get(id)?.placement;
        let of = |layout| match layout {
            MeshLayout::Replicated => (PlacementLayout::Replicated, None, None),
            MeshLayout::Sharded { axis } => (PlacementLayout::Sharded, Some(axis), None),
            MeshLayout::Partial(reduce_op) => (PlacementLayout::Partial, None, Some(reduce_op.name().into())),
        };
        let ((layout, axis, join), mesh) = match placement {
            Placement::Replicated { .. } => (of(MeshLayout::Replicated), None),
            Placement::Sharded { axis, .. } => (of(MeshLayout::Sharded { axis }), None),
            Placement::Partial { reduce_op, .. } => (of(MeshLayout::Partial(reduce_op)), None),
            Placement::Mesh { mesh, layouts: [across, within] } => {
                let (layout, axis, join) = of(within);
                (of(across), Some(RowInfo { rows: mesh.rows(), layout, axis, join }))
            }
        };
        let workers = placement.workers().iter().filter_map(|worker| names.get(worker).cloned()).collect();
        Some(PlacementInfo { layout, workers, axis, join, within_rows: mesh })
    }

    /// The client's tensors with ids above `after`, by id and at most `most`, each with its dtype and sizes; and
    /// whether there are more.
    pub fn tensors_after(&self, after: TensorId, most: usize) -> (Vec<(TensorId, String)>, bool) {
        let is_listed = |tensor: &&TensorEntry| tensor.id > after && tensor.id < MODIFIER_ID_MIN;
        let mut found: Vec<_> = self.tensors.iter().filter(is_listed).map(|tensor| (tensor.id, tensor.meta)).collect();
        let more = found.len() > most;
        if more {
            found.select_nth_unstable_by_key(most, |(id, _)| *id);
            found.truncate(most);
        }
        found.sort_unstable_by_key(|(id, _)| *id);
        (found.into_iter().map(|(id, meta)| (id, ResultMeta::Whole(meta).to_string())).collect(), more)
    }

    /// The number of the client's tensors whose placement satisfies `is_counted`.
    pub fn count(&self, is_counted: impl Fn(&Placement) -> bool) -> u64 {
        self.tensors.iter().filter(|tensor| tensor.id < MODIFIER_ID_MIN && is_counted(&tensor.placement)).count() as u64
    }

    /// The session's part of its record; the connection adds the user, and the dispatcher the end.
    pub fn record(&self) -> SessionRecord {
        let started = self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SessionRecord {
            session: self.slot.session,
            started: started.as_secs_f64(),
            device_s: self.share.device_s(),
            memory_bytes_peak: self.earlier_peak_bytes,
            instructions: self.instructions,
            bytes_moved: self.bytes_moved,
            errors: self.errors,
            ..SessionRecord::default()
        }
    }

    /// The session's part of the status document; the connection adds name and process.
    pub fn status(&self) -> SessionStatus {
        let since = self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SessionStatus {
            id: self.slot.session,
            devices: self.devices,
            tensors: self.tensors.len() as u64,
            tensor_bytes: self.tensors.bytes(),
            arena_bytes: self.arena_bytes_total,
            instructions: self.instructions,
            queued: self.queued,
            share: self.share.share(),
            device_s: self.share.device_s(),
            since: since.as_secs_f64(),
            ..SessionStatus::default()
        }
    }
}
