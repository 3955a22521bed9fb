//! An inspection as one JSON object.

use engine::format::superblock::run_number;
use engine::inspect::{Inspection, JournalState, Outlook};
use engine::journal::{JournalError, Unusable};
use engine::{Distrust, SuperblockCopy};
use serde_json::{Value, json};
use server::in_options;

use super::subject::{Count, Subject};

pub(super) fn object(subject: &Subject<'_>) -> Value {
    let inspection = &subject.inspection;
    let superblock = &inspection.superblock;
    let shape = superblock.shape();
    json!({
        "path": subject.path,
        "sound": inspection.is_sound(),
        "live": subject.is_live(),
        "in_use": subject.in_use,
        "changing": inspection.is_changing,
        "format": engine::format::superblock::IMAGE_FORMAT,
        "placement": superblock.placement(),
        "image": format!("{:016x}", shape.image_id),
        "geometry": {
            "device_bytes": subject.device_bytes,
            "image_bytes": shape.image_bytes,
            "segment_bytes": shape.segment_bytes,
            "segments": shape.segments,
            "channels": shape.channels,
            "partitions": shape.partitions,
            "expected_items": shape.expected_items,
        },
        "superblock": {
            "generation": superblock.generation.get(),
            "copies": inspection.copies.iter().map(copy).collect::<Vec<_>>(),
            "run": run_number(superblock.run.get()),
            "clean": superblock.is_clean(),
            "version_limit": superblock.version_limit.get(),
            "sequence_limit": superblock.sequence_limit.get(),
            "floor_sequence": superblock.floor_sequence.get(),
            "stale_below": superblock.stale_below.get(),
            "journal_first": superblock.journal_first.get(),
        },
        "journal": journal(subject),
        "checkpoint": checkpoint(inspection),
        "segments": segments(inspection),
        "items": object_of(subject.items()),
        "recovery": recovery(inspection),
        "verified": subject.verified().map(object_of),
        "flaws": {
            "count": inspection.flaw_count,
            "first": inspection.flaws.iter().map(|place| json!({
                "segment": place.segment,
                "offset": place.offset,
                "what": place.flaw.to_string(),
            })).collect::<Vec<_>>(),
        },
        "segments_changed": inspection.segments_changed,
    })
}

/// Returns an object with the counts under their JSON names.
fn object_of(counts: impl IntoIterator<Item = Count>) -> Value {
    let fields = counts.into_iter().map(|(name, _, count)| (name, count));
    fields.collect()
}

fn copy(copy: &SuperblockCopy) -> Value {
    match copy {
        SuperblockCopy::Blank => json!({ "state": "blank" }),
        SuperblockCopy::Valid(found) => {
            json!({ "state": "valid", "generation": found.generation.get() })
        }
        SuperblockCopy::Invalid(error) => {
            json!({ "state": "damaged", "problem": error.to_string() })
        }
    }
}

fn journal(subject: &Subject<'_>) -> Value {
    let journal = &subject.inspection.journal;
    let problem = match journal.state {
        JournalState::Usable => None,
        JournalState::Unusable(why) => Some(why.to_string()),
        JournalState::Refused(why) => Some(in_options(&why)),
    };
    json!({
        "path": subject.journal,
        "state": state(journal.state),
        "problem": problem,
        "run": journal.run.map(run_number),
        "clock": journal.clock,
        "ring_chunks": journal.ring_chunks,
        "ring_bytes": journal.ring_chunks * journal.chunk_bytes,
        "chunks": journal.chunks,
        "bytes": journal.chunks * journal.chunk_bytes,
        "has_gap": journal.has_gap,
        "records": object_of(subject.records()),
    })
}

/// Returns the word for the state of a journal.
fn state(state: JournalState) -> &'static str {
    match state {
        JournalState::Usable => "usable",
        JournalState::Unusable(Unusable::Missing) => "missing",
        JournalState::Unusable(Unusable::Short { .. }) => "short",
        JournalState::Unusable(Unusable::Blank) => "blank",
        JournalState::Unusable(Unusable::Other) => "other-image",
        JournalState::Unusable(Unusable::Run) => "other-run",
        JournalState::Unusable(Unusable::Size) => "other-size",
        JournalState::Unusable(Unusable::Void) => "void",
        JournalState::Unusable(Unusable::Damaged) => "damaged",
        JournalState::Unusable(Unusable::Format) => "other-format",
        JournalState::Refused(JournalError::Foreign) => "foreign",
        JournalState::Refused(JournalError::OtherImage) => "other-image",
        JournalState::Refused(JournalError::TooShort { .. }) => "too-short",
    }
}

fn checkpoint(inspection: &Inspection) -> Value {
    let Some(checkpoint) = &inspection.checkpoint else {
        return Value::Null;
    };
    let mut object = json!({
        "bytes": checkpoint.bytes,
        "sequence": inspection.superblock.checkpoint_sequence.get(),
        "segments": checkpoint.segments.iter().map(|segment| segment.0).collect::<Vec<_>>(),
        "readable": checkpoint.contents.is_ok(),
    });
    match &checkpoint.contents {
        Ok(contents) => {
            object["segments_listed"] = contents.living.into();
            object["positions_dead"] = contents.dead.into();
            object["keys_dead"] = contents.dead_keys.into();
            object["section_bytes"] = contents.section_bytes.into();
            object["retired"] = contents.retired.into();
        }
        Err(problem) => object["problem"] = problem.as_str().into(),
    }
    object
}

fn segments(inspection: &Inspection) -> Value {
    let bytes = u64::from(inspection.superblock.segment_bytes.get());
    let states = inspection.segments.by_state();
    let each = |(name, count)| (name, json!({ "count": count, "bytes": count * bytes }));
    states.map(each).into_iter().collect()
}

fn recovery(inspection: &Inspection) -> Value {
    let mut object = match inspection.outlook {
        Outlook::Warm { orderly } => json!({
            "outcome": "warm",
            "orderly": orderly,
            "items": inspection.items.alive,
            "bytes": inspection.items.alive_bytes,
        }),
        Outlook::Empty(why) => json!({
            "outcome": "empty",
            "reason": reason(why),
            "problem": why.to_string(),
        }),
        Outlook::Refused(why) => json!({ "outcome": "refused", "problem": in_options(&why) }),
    };
    if let Some(deadline) = inspection.flush_deadline {
        object["flush_deadline"] = deadline.into();
    }
    object
}

/// Returns the word for the reason why a start would be empty.
fn reason(why: Distrust) -> &'static str {
    match why {
        Distrust::Journal(_) => "journal",
        Distrust::JournalGap => "journal-gap",
        Distrust::Checkpoint => "checkpoint",
        Distrust::Index => "index",
        Distrust::Unreadable => "unreadable",
        Distrust::Memory => "memory",
        Distrust::Clock => "clock",
        Distrust::Downtime => "downtime",
    }
}
