//! An inspection as a table for people.

use std::fmt::{Display, Write};

use engine::SuperblockCopy;
use engine::format::superblock::{IMAGE_FORMAT, run_number};
use engine::inspect::{JournalState, Outlook};
use indicatif::{HumanBytes, HumanCount};
use server::in_options;

use super::subject::{Count, Subject};

/// Most damaged places to show.
const PLACES: usize = 10;

pub(super) fn table(subject: &Subject<'_>) -> String {
    let mut table = Table(String::new());
    table.image(subject);
    table.superblock(subject);
    table.journal(subject);
    table.checkpoint(subject);
    table.segments(subject);
    table.items(subject);
    table.verified(subject);
    table.recovery(subject);
    table.0
}

/// Returns the counted noun, in the plural unless the count is one.
fn plural(count: u64, of: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{of}{s}")
}

/// The text so far. Writing to a string cannot fail.
struct Table(String);

impl Table {
    /// A line with its name in front.
    fn line(&mut self, name: &str, what: impl Display) {
        let _ = writeln!(self.0, "{name:<12} {what}");
    }

    /// A line of a list: a number, or bytes, or both.
    fn row(&mut self, name: &str, count: Option<u64>, bytes: Option<u64>) {
        let count = count.map_or(String::new(), |count| HumanCount(count).to_string());
        let bytes = bytes.map_or(String::new(), |bytes| HumanBytes(bytes).to_string());
        let line = format!("  {name:<24} {count:>16} {bytes:>14}");
        let _ = writeln!(self.0, "{}", line.trim_end());
    }

    fn counts(&mut self, counts: &[Count]) {
        for &(_, name, count) in counts {
            self.row(name, Some(count), None);
        }
    }

    fn image(&mut self, subject: &Subject<'_>) {
        let superblock = &subject.inspection.superblock;
        let shape = superblock.shape();
        let path = subject.path.display();
        let (placement, id) = (superblock.placement(), shape.image_id);
        let about = format!("{path}: format {IMAGE_FORMAT}, placement {placement}, id {id:016x}");
        self.line("image", about);
        if subject.is_live() {
            let what = "in use: it changes while it is looked at, and the figures are of about now";
            self.line("", what);
        }
        let (image, segment) = (shape.image_bytes, u64::from(shape.segment_bytes));
        let (image, segment) = (HumanBytes(image), HumanBytes(segment));
        let (segments, channels) = (shape.segments, shape.channels);
        let channel = plural(channels.into(), "channel");
        let partitions = shape.partitions;
        let partition = plural(partitions.into(), "partition");
        let what = format!(
            "{image}: {segments} segments of {segment}, {channels} {channel}, {partitions} \
             {partition}"
        );
        self.line("geometry", what);
    }

    fn superblock(&mut self, subject: &Subject<'_>) {
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
            self.line(name, format!("copy {number}: {what}"));
        }
        let clean = if superblock.is_clean() {
            "clean: stopped orderly"
        } else {
            "dirty: in use, or not stopped orderly"
        };
        self.line(
            "",
            format!("run {}, {clean}", run_number(superblock.run.get())),
        );
        let versions = superblock.version_limit;
        self.line("", format!("versions of items are below {versions}"));
        let (sequences, floor) = (superblock.sequence_limit, superblock.floor_sequence);
        let what = format!("sequence numbers of segments are from {floor} to below {sequences}");
        self.line("", what);
        let stale = superblock.stale_below;
        if stale.get() > 0 {
            self.line("", format!("items with versions below {stale} are stale"));
        }
    }

    fn journal(&mut self, subject: &Subject<'_>) {
        let journal = &subject.inspection.journal;
        let path = subject.journal.display();
        let state = match journal.state {
            JournalState::Usable if journal.has_gap => {
                "part of it is missing or damaged".to_owned()
            }
            JournalState::Usable => "usable".to_owned(),
            JournalState::Unusable(why) => in_options(&why),
            JournalState::Refused(why) => in_options(&why),
        };
        self.line("journal", format!("{path}: {state}"));
        let Some(run) = journal.run.map(run_number) else {
            return;
        };
        let used = HumanBytes(journal.chunks * journal.chunk_bytes);
        let (chunks, ring) = (journal.chunks, journal.ring_chunks);
        let ago = runtime::unix_seconds().saturating_sub(journal.clock);
        let clock = journal.clock;
        let what = format!(
            "run {run}; {chunks} of {ring} chunks hold records, {used}; last synced at Unix second \
             {clock}, {ago} s ago"
        );
        self.line("", what);
        self.counts(&subject.records());
    }

    fn checkpoint(&mut self, subject: &Subject<'_>) {
        let Some(checkpoint) = &subject.inspection.checkpoint else {
            return self.line("checkpoint", "none");
        };
        let bytes = HumanBytes(checkpoint.bytes);
        let segments = checkpoint.segments.iter();
        let numbers: Vec<String> = segments.map(|segment| segment.0.to_string()).collect();
        let segment = plural(numbers.len() as u64, "segment");
        let where_ = format!("{bytes} in {segment} {}", numbers.join(" "));
        match &checkpoint.contents {
            Err(problem) => self.line("checkpoint", format!("{where_}: unreadable: {problem}")),
            Ok(contents) => {
                self.line("checkpoint", where_);
                self.row("living segments listed", Some(contents.living), None);
                self.row("positions of the dead", Some(contents.dead), None);
                self.row("dead keys", Some(contents.dead_keys), None);
                self.row("placement's section", Some(contents.section_bytes), None);
            }
        }
    }

    fn segments(&mut self, subject: &Subject<'_>) {
        let bytes = u64::from(subject.inspection.superblock.segment_bytes.get());
        self.0.push_str("segments\n");
        for (name, count) in subject.inspection.segments.by_state() {
            self.row(name, Some(count), Some(count * bytes));
        }
    }

    fn items(&mut self, subject: &Subject<'_>) {
        if !matches!(subject.inspection.outlook, Outlook::Warm { .. }) {
            return;
        }
        let items = subject.items();
        let (states, space) = items.split_at(9);
        self.0.push_str("items in living segments\n");
        self.counts(states);
        self.0.push_str("space in living segments\n");
        for &(_, name, bytes) in space {
            self.row(name, None, Some(bytes));
        }
    }

    fn verified(&mut self, subject: &Subject<'_>) {
        let inspection = &subject.inspection;
        if let Some(verified) = subject.verified() {
            self.0.push_str("verified\n");
            self.counts(&verified);
        }
        if inspection.segments_changed > 0 {
            let changed = HumanCount(inspection.segments_changed);
            let what = format!("{changed} segments were written meanwhile and are left out");
            self.line("", what);
        }
        for place in inspection.flaws.iter().take(PLACES) {
            let (segment, offset) = (place.segment, place.offset);
            let what = format!("segment {segment}, byte {offset}: {}", place.flaw);
            self.line("DAMAGED", what);
        }
        let more = inspection.flaw_count.saturating_sub(PLACES as u64);
        if more > 0 {
            self.line("", format!("and {} more", HumanCount(more)));
        }
    }

    fn recovery(&mut self, subject: &Subject<'_>) {
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
                let item = plural(inspection.items.alive, "item");
                format!("would find {items} {item}, {bytes}; {end}")
            }
            Outlook::Empty(why) => format!("would start empty: {why}"),
            Outlook::Refused(why) => format!("would be refused: {}", in_options(&why)),
        };
        self.line("recovery", what);
        if let Some(deadline) = inspection.flush_deadline {
            self.line("", format!("a flush_all is due at second {deadline}"));
        }
    }
}
