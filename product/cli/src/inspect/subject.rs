//! The subject of `flowstone inspect`, and its counts for JSON and the table.

use std::path::{Path, PathBuf};

use engine::inspect::Inspection;

/// The inspected image and the findings.
pub(super) struct Subject<'a> {
    pub(super) path: &'a Path,
    pub(super) device_bytes: u64,
    pub(super) journal: PathBuf,
    /// Whether a process holds the image's lock.
    pub(super) in_use: bool,
    pub(super) inspection: Inspection,
}

/// A count, or a number of bytes: name in JSON, name in the table, number.
pub(super) type Count = (&'static str, &'static str, u64);

impl Subject<'_> {
    /// Whether the image is in use, or has been during the inspection.
    pub(super) fn is_live(&self) -> bool {
        self.in_use || self.inspection.is_changing
    }

    /// Records of the journal by kind.
    pub(super) fn records(&self) -> [Count; 8] {
        let records = self.inspection.journal.records;
        [
            ("dead", "item dead", records.dead),
            ("segment_dead", "segment dead", records.segment_dead),
            ("key_dead", "key dead", records.key_dead),
            ("key_located", "key located", records.key_located),
            ("entry_lost", "entry lost", records.entry_lost),
            ("retired", "segment retired", records.retired),
            ("cutoff", "flush applied", records.cutoff),
            ("flush_at", "flush to come", records.flush_at),
        ]
    }

    /// Items in living segments by state, then the bytes of those segments by use.
    pub(super) fn items(&self) -> [Count; 13] {
        let items = self.inspection.items;
        [
            ("listed", "listed", items.listed),
            ("displaced", "dead by position", items.displaced),
            ("overwritten", "dead by hash", items.overwritten),
            ("flushed", "flushed", items.flushed),
            ("expired", "expired", items.expired),
            ("superseded", "older than another", items.superseded),
            ("unnamed", "in no run", items.unnamed),
            ("unreadable", "in damaged summaries", items.unreadable),
            ("alive", "alive", items.alive),
            ("alive_bytes", "alive", items.alive_bytes),
            ("dead_bytes", "dead", items.dead_bytes),
            ("summary_bytes", "summaries", items.summary_bytes),
            ("unused_bytes", "unused", items.unused_bytes),
        ]
    }

    /// The verified items, if verification was asked for.
    pub(super) fn verified(&self) -> Option<[Count; 5]> {
        let verified = self.inspection.verified?;
        Some([
            ("segments", "segments", verified.segments),
            ("items_sound", "items sound", verified.items_sound),
            ("items_corrupt", "items corrupt", verified.items_corrupt),
            ("dead_sound", "dead sound", verified.dead_sound),
            ("dead_corrupt", "dead corrupt", verified.dead_corrupt),
        ])
    }
}
