//! An inspection as a table for people.

use std::fmt::{self, Display, Write};

use engine::SuperblockCopy;
use engine::format::superblock::IMAGE_FORMAT;
use engine::inspect::{JournalState, Outlook};
use indicatif::{HumanBytes, HumanCount};

use super::subject::Subject;

/// Damaged places that are shown.
const PLACES: usize = 10;

pub(super) fn table(subject: &Subject<'_>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(out, "{}", Table(subject));
    out
}

struct Table<'a>(&'a Subject<'a>);

impl Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = self.0;
        image(f, subject)?;
        superblock(f, subject)?;
        journal(f, subject)?;
        checkpoint(f, subject)?;
        segments(f, subject)?;
        items(f, subject)?;
        verified(f, subject)?;
        recovery(f, subject)
    }
}

/// A line with its name in front.
fn line(f: &mut fmt::Formatter<'_>, name: &str, what: impl Display) -> fmt::Result {
    writeln!(f, "{name:<12} {what}")
}

/// A line of a table: a number, and the bytes of so many.
fn row(f: &mut fmt::Formatter<'_>, name: &str, count: u64, bytes: Option<u64>) -> fmt::Result {
    let count = HumanCount(count).to_string();
    let bytes = bytes.map_or(String::new(), |bytes| HumanBytes(bytes).to_string());
    let line = format!("  {name:<24} {count:>16} {bytes:>14}");
    writeln!(f, "{}", line.trim_end())
}

fn image(f: &mut fmt::Formatter<'_>, subject: &Subject<'_>) -> fmt::Result {
    let superblock = &subject.inspection.superblock;
    let shape = superblock.shape();
    let path = subject.path.display();
    let (placement, id) = (superblock.placement(), shape.hash_seed);
    let about = format!("{path}: format {IMAGE_FORMAT}, placement {placement}, id {id:016x}");
    line(f, "image", about)?;
    if subject.is_live() {
        let what = "in use: it changes while it is looked at, and the figures are of about now";
        line(f, "", what)?;
    }
    let (image, segment) = (HumanBytes(shape.image_bytes), shape.segment_bytes);
    let (segments, channels) = (shape.segments, plural(shape.channels, "channel"));
    let partitions = plural(shape.partitions, "partition");
    let segment = HumanBytes(u64::from(segment));
    let geometry = format!("{image}: {segments} segments of {segment}, {channels}, {partitions}");
    line(f, "geometry", geometry)
}

fn plural(count: u32, of: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {of}{s}")
}

fn superblock(f: &mut fmt::Formatter<'_>, subject: &Subject<'_>) -> fmt::Result {
    let superblock = &subject.inspection.superblock;
    for (number, copy) in subject.inspection.copies.iter().enumerate() {
        let what = match copy {
            SuperblockCopy::Blank => "blank".to_owned(),
            SuperblockCopy::Valid(found) if found.generation == superblock.generation => {
                format!("generation {}, the one that counts", found.generation)
            }
            SuperblockCopy::Valid(found) => format!("generation {}", found.generation),
            SuperblockCopy::Invalid(error) => format!("damaged: {error}"),
        };
        let name = if number == 0 { "superblock" } else { "" };
        line(f, name, format!("copy {number}: {what}"))?;
    }
    let clean = if superblock.is_clean() {
        "clean: stopped orderly"
    } else {
        "dirty: in use, or not stopped orderly"
    };
    line(f, "", format!("run {}, {clean}", superblock.run))?;
    let versions = superblock.version_limit;
    line(f, "", format!("versions of items are below {versions}"))?;
    let (sequences, floor) = (superblock.sequence_limit, superblock.floor_sequence);
    let what = format!("sequence numbers of segments are from {floor} to below {sequences}");
    line(f, "", what)?;
    if superblock.stale_below.get() > 0 {
        let what = format!(
            "items with versions below {} are stale",
            superblock.stale_below
        );
        line(f, "", what)?;
    }
    Ok(())
}

fn journal(f: &mut fmt::Formatter<'_>, subject: &Subject<'_>) -> fmt::Result {
    let journal = &subject.inspection.journal;
    let path = subject.journal.display();
    let state = match journal.state {
        JournalState::Usable if journal.has_gap => "part of it is missing".to_owned(),
        JournalState::Usable => "usable".to_owned(),
        JournalState::Unusable(why) => why.to_string(),
        JournalState::Refused(why) => why.to_string(),
    };
    line(f, "journal", format!("{path}: {state}"))?;
    let Some(run) = journal.run else {
        return Ok(());
    };
    let used = HumanBytes(journal.chunks * journal.chunk_bytes);
    let (chunks, ring) = (journal.chunks, journal.ring_chunks);
    let ago = runtime::unix_seconds().saturating_sub(journal.clock);
    let clock = journal.clock;
    let what = format!(
        "run {run}; {chunks} of {ring} chunks hold records, {used}; last synced at Unix second \
         {clock}, {ago} s ago"
    );
    line(f, "", what)?;
    let records = journal.records;
    for (name, count) in [
        ("item dead", records.dead),
        ("segment dead", records.segment_dead),
        ("key dead", records.key_dead),
        ("segment retired", records.retired),
        ("flush applied", records.cutoff),
        ("flush to come", records.flush_at),
    ] {
        row(f, name, count, None)?;
    }
    Ok(())
}

fn checkpoint(f: &mut fmt::Formatter<'_>, subject: &Subject<'_>) -> fmt::Result {
    let Some(checkpoint) = &subject.inspection.checkpoint else {
        return line(f, "checkpoint", "none");
    };
    let bytes = HumanBytes(checkpoint.bytes);
    let numbers: Vec<String> = checkpoint
        .segments
        .iter()
        .map(|segment| segment.0.to_string())
        .collect();
    let s = if numbers.len() == 1 { "" } else { "s" };
    let where_ = format!("{bytes} in segment{s} {}", numbers.join(" "));
    match &checkpoint.contents {
        Err(problem) => line(f, "checkpoint", format!("{where_}: unreadable: {problem}")),
        Ok(contents) => {
            line(f, "checkpoint", where_)?;
            row(f, "living segments listed", contents.living, None)?;
            row(f, "positions of the dead", contents.dead, None)?;
            row(f, "dead keys", contents.dead_keys, None)?;
            row(f, "placement's section", contents.section_bytes, None)
        }
    }
}

fn segments(f: &mut fmt::Formatter<'_>, subject: &Subject<'_>) -> fmt::Result {
    let bytes = u64::from(subject.inspection.superblock.segment_bytes.get());
    writeln!(f, "segments")?;
    for (name, count) in subject.inspection.segments.by_state() {
        row(f, name, count, Some(count * bytes))?;
    }
    Ok(())
}

fn items(f: &mut fmt::Formatter<'_>, subject: &Subject<'_>) -> fmt::Result {
    if !matches!(subject.inspection.outlook, Outlook::Warm { .. }) {
        return Ok(());
    }
    let items = subject.inspection.items;
    writeln!(f, "items in living segments")?;
    row(f, "in summaries", items.listed, None)?;
    row(f, "dead by position", items.displaced, None)?;
    row(f, "dead by hash", items.overwritten, None)?;
    row(f, "flushed", items.flushed, None)?;
    row(f, "expired", items.expired, None)?;
    row(f, "older than another", items.superseded, None)?;
    row(f, "in damaged summaries", items.unreadable, None)?;
    row(f, "alive", items.alive, None)?;
    writeln!(f, "space in living segments")?;
    let mut space = |name: &str, bytes: u64| {
        let bytes = HumanBytes(bytes).to_string();
        writeln!(f, "  {name:<24} {:>16} {bytes:>14}", "")
    };
    space("alive", items.alive_bytes)?;
    space("dead", items.dead_bytes)?;
    space("summaries", items.summary_bytes)?;
    space("unused", items.unused_bytes)
}

fn verified(f: &mut fmt::Formatter<'_>, subject: &Subject<'_>) -> fmt::Result {
    let inspection = &subject.inspection;
    if let Some(verified) = inspection.verified {
        writeln!(f, "verified")?;
        row(f, "segments", verified.segments, None)?;
        row(f, "items sound", verified.items_sound, None)?;
        row(f, "items corrupt", verified.items_corrupt, None)?;
        row(f, "dead sound", verified.dead_sound, None)?;
        row(f, "dead corrupt", verified.dead_corrupt, None)?;
    }
    if inspection.segments_changed > 0 {
        let changed = HumanCount(inspection.segments_changed);
        let what = format!("{changed} segments were written meanwhile and are left out");
        line(f, "", what)?;
    }
    for place in inspection.flaws.iter().take(PLACES) {
        let (segment, offset) = (place.segment, place.offset);
        let what = format!("segment {segment}, byte {offset}: {}", place.flaw);
        line(f, "DAMAGED", what)?;
    }
    let more = inspection.flaw_count.saturating_sub(PLACES as u64);
    if more > 0 {
        line(f, "", format!("and {} more", HumanCount(more)))?;
    }
    Ok(())
}

fn recovery(f: &mut fmt::Formatter<'_>, subject: &Subject<'_>) -> fmt::Result {
    let inspection = &subject.inspection;
    let what = match inspection.outlook {
        Outlook::Warm { orderly } => {
            let items = HumanCount(inspection.items.alive);
            let bytes = HumanBytes(inspection.items.alive_bytes);
            let end = if orderly {
                "memory was saved, too"
            } else {
                "what was in memory only is not among them"
            };
            let s = if inspection.items.alive == 1 { "" } else { "s" };
            format!("would find {items} item{s}, {bytes}; {end}")
        }
        Outlook::Empty(why) => format!("would start empty: {why}"),
        Outlook::Refused(why) => format!("would be refused: {why}"),
    };
    line(f, "recovery", what)?;
    if let Some(deadline) = inspection.flush_deadline {
        line(f, "", format!("a flush_all is due at second {deadline}"))?;
    }
    Ok(())
}
