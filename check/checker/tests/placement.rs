//! The crash simulation with a placement that answers Perhaps and cannot locate the copies it displaces. No
//! item that was overwritten, deleted, expired or flushed comes back, whatever the moment of the crash.

use std::sync::Arc;

extern crate engine as flowstone_engine;

use engine::config::ConfigError;
use engine::placement::{
    Description, IndexRoom, IndexSizes, Parts, Placement, PlacementKind, RunsSettings, StreamPlan,
};
use engine::store::{AppendItem, Layout, Source, StreamLayout, Streams};
use engine::{ExactSettings, OpenError};

#[path = "../../../product/engine/tests/sim/map_placement.rs"]
mod map_placement;
mod seeds;

use map_placement::MapKind;
use seeds::simulate_each;

/// A map whose copies go to their own segments: a version may lie in an older segment than an earlier
/// version.
#[derive(Debug)]
struct CopiesApart(MapKind);

impl PlacementKind for CopiesApart {
    fn describe(&self) -> Description {
        Description {
            name: "apart",
            streams: StreamPlan::Own(Arc::new(Two)),
            ..self.0.describe()
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        self.0.sizes(room)
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        self.0.open(parts)
    }
}

/// A stream for new items and one for copies.
struct Two;

impl Streams for Two {
    fn layouts(&self) -> Box<[StreamLayout]> {
        [StreamLayout::Packed; 2].into()
    }

    fn stream_of(&self, _item: &AppendItem<'_>, source: Source) -> usize {
        usize::from(source == Source::Copy)
    }
}

#[test]
fn dead_keys_stay_dead() {
    simulate(MapKind::REBUILT);
}

/// The same with an index that each start finds in a checkpoint.
#[test]
fn dead_keys_stay_dead_where_the_index_survives() {
    simulate(MapKind::SURVIVING);
}

/// The same with copies in their own segments and victims that are not the oldest segment. Uses as many
/// priorities as the minimum number of buffers allows.
#[test]
fn dead_keys_stay_dead_where_segments_have_priorities() {
    simulate_each(|_| {
        Arc::new(ExactSettings {
            layout: Layout::Packed,
            priorities: 2,
        })
    });
}

/// The same with items that collect in memory and are written in the order of their hashes.
#[test]
fn dead_keys_stay_dead_in_runs() {
    simulate_each(|seed| {
        Arc::new(RunsSettings {
            marks_reads: true,
            collecting_sixteenths: 1 + (seed % 14) as u32,
        })
    });
}

fn simulate(map: MapKind) {
    simulate_each(|seed| {
        if seed % 2 == 0 {
            Arc::new(CopiesApart(map))
        } else {
            Arc::new(map)
        }
    });
}
