//! Reclaim: a segment goes; what is worth it is kept by copying where that gains, the rest is
//! dropped.
//!
//! Where victims are taken in order of age, a segment may be all valid though others have next to nothing in
//! them; so it is the average of the last victims that says whether copying gains.
//!
//! Valid items of segments of many slab classes may fill as many segments as they come from, however few
//! they are, and leave no buffers to writes. So it is counted what copies cost of the segments that are sealed, and
//! when that is more than a share of those that are reclaimed, the next segment is dropped.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::reserve::{Load, Regulator, Watermarks};
use super::{Counters, Exact, background, entry_location};
use crate::averaged::Averaged;
use crate::config::{EngineConfig, ReclaimPolicy, ReclaimSettings, Reserve};
use crate::format::item::ItemRef;
use crate::format::journal::Record;
use crate::format::segment::{PAGE_BYTES, Position, SummaryEntry};
use crate::key::KeyHash;
use crate::placement::{DumpCursor, DumpItem};
use crate::store::{AppendItem, ReadError, SegmentPin, SegmentRecord, Source, Victim};

/// Bytes read at once while copying; holes shorter than [`HOLE_BYTES`] are read through.
const RUN_BYTES: u32 = 256 << 10;
const HOLE_BYTES: u32 = 32 << 10;
/// Segments that copying may be ahead, either way.
const GAIN_LIMIT: i64 = 4;
/// So many victims the average of what is valid in them is taken over.
const AVERAGED: u64 = 16;
/// When copying has found nothing that gains, it rests until one of so many written segments is new.
const RESTING_SHARE: u32 = 64;
/// The most that copies may cost of as many segments as are reclaimed, in sixteenths.
const MOST_FOR_COPIES_SIXTEENTHS: u32 = 12;
/// Entries looked at before others get a turn.
const SIFT_TURN: usize = 256;

/// Which items of a reclaimed segment are kept by copying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// None: it is dropped.
    Nothing,
    /// Those read since they were written, as many as may be kept.
    #[default]
    Recent,
    /// All that are valid; but none when victims have more of them than may be kept.
    Valid,
}

/// What is done when fewer segments are free than the low watermark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Victims are dropped whole, these ones, so that writes need not wait for copying. Above the low watermark
    /// nothing is copied that does not gain.
    Drop(Victim),
    /// Writes wait for the copying.
    Wait,
}

/// When and how segments are reclaimed.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimConfig {
    /// How the watermarks are found.
    pub reserve: Reserve,
    /// Those that an orderly stop needs.
    pub for_stop: Watermarks,
    /// What is done below the low one.
    pub pressure: Pressure,
    /// Which segment goes.
    pub victim: Victim,
    /// What of it is kept.
    pub keep: Keep,
    /// The most of a segment that is kept by copying, in sixteenths, at most 15.
    pub max_copy_sixteenths: u32,
    /// Wear is leveled after so many erases for each segment; never if `None`.
    pub wear_leveling: Option<u32>,
}

impl ReclaimConfig {
    /// The settings for an image of `segments` segments: enough are kept free for an orderly stop to
    /// write all of memory and the checkpoint, but never more than a quarter of the flash.
    #[must_use]
    pub fn new(config: &EngineConfig, segments: u32, segment_bytes: u32) -> Self {
        let ReclaimSettings {
            policy,
            reserve,
            wear_leveling,
            ..
        } = config.reclaim;
        let (victim, keep, pressure) = match policy {
            ReclaimPolicy::Drop { victim } => (victim, Keep::Nothing, Pressure::Drop(victim)),
            ReclaimPolicy::CopyRecent { victim, .. } => {
                (victim, Keep::Recent, Pressure::Drop(Victim::Oldest))
            }
            ReclaimPolicy::CopyValid { victim, .. } => (victim, Keep::Valid, Pressure::Wait),
            ReclaimPolicy::Integrated { under_pressure, .. } => (
                Victim::FewestValid,
                Keep::Valid,
                Pressure::Drop(under_pressure),
            ),
        };
        let spare = (segments / 64).clamp(2, 16);
        let for_stop = config.segments_for_stop(segment_bytes);
        Self {
            reserve,
            for_stop: Watermarks {
                low: (spare / 2).max(2),
                high: for_stop.min(segments / 4).max(1) + spare,
            },
            pressure,
            victim,
            keep,
            max_copy_sixteenths: policy.max_copy_sixteenths(),
            wear_leveling,
        }
    }
}

/// Decides when and how segments are reclaimed.
pub(super) struct Policy {
    config: ReclaimConfig,
    regulator: Regulator,
    balance: Mutex<Balance>,
    /// Reclaims whose copies wait for a free segment.
    out_of_room: AtomicU32,
    /// Valid bytes of a victim, averaged over the last of them.
    valid_of_late: AtomicU64,
    /// What it takes to drop a segment.
    drop_time: Averaged,
    /// Segments that are being dropped.
    dropping: AtomicU32,
    /// So many segments are opened before one to copy from is looked for again.
    copying_rests_until: AtomicU64,
    /// Erases when wear was leveled last.
    leveled_at: AtomicU64,
}

impl Policy {
    pub(super) fn new(config: ReclaimConfig) -> Self {
        Self {
            config,
            regulator: Regulator::new(config.reserve, config.for_stop),
            balance: Mutex::default(),
            out_of_room: AtomicU32::new(0),
            valid_of_late: AtomicU64::new(0),
            drop_time: Averaged::default(),
            dropping: AtomicU32::new(0),
            copying_rests_until: AtomicU64::new(0),
            leveled_at: AtomicU64::new(0),
        }
    }

    /// The watermarks as they were found last.
    pub(super) fn last_watermarks(&self) -> Watermarks {
        self.regulator.last()
    }

    /// Free segments that only copies may fill.
    pub(super) fn kept_back(&self) -> u32 {
        match self.config.pressure {
            Pressure::Drop(_) => 0,
            Pressure::Wait => self.config.for_stop.low,
        }
    }
}

/// What copying has gained of late, in bytes: a share of those of the segments that were reclaimed, less those
/// that copies have cost of the segments that were sealed.
#[derive(Default)]
struct Balance {
    gained: i64,
    /// Segments and bytes that are in it.
    reclaimed: u64,
    for_copies: u64,
}

/// What is done with a segment's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Copy what was read recently, up to so many bytes.
    Recent { max_bytes: u64 },
    /// Copy what is valid.
    Valid,
    /// The same, for the sake of wear leveling.
    Wear,
    /// Drop everything.
    Drop,
}

/// Reclaims whenever there are too few free segments or the index is full, until told to stop.
pub(super) async fn keep_room(exact: &Exact) {
    loop {
        let work = exact.store.work().listener();
        if exact.stopping.load(Ordering::Acquire) {
            return;
        }
        if !exact.works_in_background() || !reclaim_one(exact).await {
            work.await;
        }
    }
}

/// Reclaims a segment if one has to go; whether it has.
pub(super) async fn reclaim_one(exact: &Exact) -> bool {
    // Said before it is decided: who settles the flash looks at both in the other order.
    let reclaiming = Reclaiming::begin(exact);
    let taken = choose(exact);
    if let Some((record, choice)) = &taken {
        reclaim(exact, record, *choice).await;
    }
    drop(reclaiming);
    taken.is_some()
}

/// Counted for as long as a reclaim goes on, also one that is given up with its task.
struct Reclaiming<'a>(&'a Exact);

impl<'a> Reclaiming<'a> {
    fn begin(exact: &'a Exact) -> Self {
        exact.reclaiming.fetch_add(1, Ordering::SeqCst);
        Self(exact)
    }
}

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.reclaiming.fetch_sub(1, Ordering::SeqCst);
        self.0.progress.notify_all();
    }
}

/// The segment that has to go, if one has, and what becomes of its items.
fn choose(exact: &Exact) -> Option<(SegmentRecord, Choice)> {
    if exact.frozen.load(Ordering::SeqCst) {
        return None;
    }
    let (store, config) = (&exact.store, &exact.policy.config);
    let winding_down = exact.winding_down.load(Ordering::SeqCst);
    let index_short = exact.index_headroom() < exact.index_max_bytes / 64;
    let (free, low) = (store.free_segments(), watermarks(exact).low);
    if store.free_or_reclaiming() >= exact.free_target() && (!index_short || winding_down) {
        if winding_down {
            // What is there when it stops is to be there when it starts.
            return None;
        }
        return choose_by_wear(exact, free >= low);
    }
    if exact.recovery.is_running() && free > exact.policy.kept_back() {
        // What is not known yet cannot be kept: only writes that wait are worth it.
        return None;
    }
    let take = |victim, max_valid| store.take_victim(victim, max_valid);
    if index_short || winding_down {
        return Some((take(config.victim, u64::MAX)?, Choice::Drop));
    }
    if let Pressure::Drop(victim) = config.pressure
        && free + exact.policy.dropping.load(Ordering::SeqCst) < low
    {
        return Some((take(victim, u64::MAX)?, Choice::Drop));
    }
    match (config.keep, config.pressure) {
        (Keep::Nothing, _) => Some((take(config.victim, u64::MAX)?, Choice::Drop)),
        (Keep::Recent, _) => {
            let record = take(config.victim, u64::MAX)?;
            let max_bytes = max_bytes(exact);
            let choice = if may_copy(exact) {
                Choice::Recent { max_bytes }
            } else {
                Choice::Drop
            };
            Some((record, choice))
        }
        (Keep::Valid, Pressure::Wait) => {
            if let Some(worn_least) = choose_by_wear(exact, true) {
                return Some(worn_least);
            }
            let record = take(config.victim, u64::MAX)?;
            let gains = copying_gains(exact, &record) && may_copy(exact);
            let choice = if gains { Choice::Valid } else { Choice::Drop };
            Some((record, choice))
        }
        (Keep::Valid, Pressure::Drop(_)) => {
            choose_by_wear(exact, true).or_else(|| choose_what_gains(exact))
        }
    }
}

/// A segment of which copying what is valid gains, while nothing is pressing. When there is none, it is looked
/// for again when a share of the flash has been written.
fn choose_what_gains(exact: &Exact) -> Option<(SegmentRecord, Choice)> {
    let (store, policy) = (&exact.store, &exact.policy);
    let opened = store.counters().segments_opened.load(Ordering::Relaxed);
    let rests_until = &policy.copying_rests_until;
    if opened < rests_until.load(Ordering::Relaxed) {
        return None;
    }
    let max_valid = if may_copy(exact) { max_bytes(exact) } else { 0 };
    let record = store.take_victim(policy.config.victim, max_valid);
    if record.is_none() {
        let pause = u64::from(store.written_segments() / RESTING_SHARE);
        rests_until.store(opened + pause, Ordering::Relaxed);
    }
    Some((record?, Choice::Valid))
}

/// A segment that is erased for the sake of wear leveling (section 4.1.5): what is read much is copied, unless
/// there is no room.
fn choose_by_wear(exact: &Exact, may_copy: bool) -> Option<(SegmentRecord, Choice)> {
    let (store, policy) = (&exact.store, &exact.policy);
    let multiple = policy.config.wear_leveling?;
    let erases = store.counters().erases.load(Ordering::Relaxed);
    let last = policy.leveled_at.load(Ordering::Relaxed);
    let due = u64::from(multiple) * u64::from(store.segments());
    if erases.saturating_sub(last) >= due
        && policy
            .leveled_at
            .compare_exchange(last, erases, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    {
        let segments = store.level_wear();
        Counters::add(&exact.counters.wear_levelings, 1);
        tracing::info!(
            segments,
            "wear leveling: the least worn segments are erased"
        );
    }
    let record = store.take_worn_least()?;
    Counters::add(&exact.counters.segments_leveled, 1);
    let choice = if may_copy && store.is_read_much(record.segment) {
        Choice::Wear
    } else {
        Choice::Drop
    };
    Some((record, choice))
}

/// The watermarks at present.
pub(super) fn watermarks(exact: &Exact) -> Watermarks {
    let (store, policy) = (&exact.store, &exact.policy);
    policy.regulator.watermarks(&Load {
        free: store.free_segments(),
        channels: store.channels_in_use(),
        segments: store.segments_in_use(),
        opened: store
            .counters()
            .segments_opened_for_writes
            .load(Ordering::Relaxed),
        service: policy.drop_time.get() + store.erase_time(),
    })
}

/// Whether copying gains. Copies of slots may fill as many segments as they came from, short ones, and keep writes
/// from filling theirs.
fn may_copy(exact: &Exact) -> bool {
    let policy = &exact.policy;
    let sixteenths = policy
        .config
        .max_copy_sixteenths
        .min(MOST_FOR_COPIES_SIXTEENTHS);
    let segment_bytes = i64::from(exact.store.segment_bytes());
    let limit = GAIN_LIMIT * segment_bytes;
    let mut balance = policy.balance.lock();
    let reclaimed = exact.counters.segments_reclaimed.load(Ordering::Relaxed);
    let for_copies = exact
        .store
        .counters()
        .bytes_for_copies
        .load(Ordering::Relaxed);
    let allowed =
        (reclaimed - balance.reclaimed) as i64 * segment_bytes * i64::from(sixteenths) / 16;
    let cost = (for_copies - balance.for_copies) as i64;
    *balance = Balance {
        gained: (balance.gained + allowed - cost).clamp(-limit, limit),
        reclaimed,
        for_copies,
    };
    balance.gained > -limit
}

/// The most of a segment that is kept.
fn max_bytes(exact: &Exact) -> u64 {
    let sixteenths = u64::from(exact.policy.config.max_copy_sixteenths.min(15));
    u64::from(exact.store.segment_bytes()) * sixteenths / 16
}

/// Whether there is little enough in a victim, or in the last of them where they are taken as they come.
fn copying_gains(exact: &Exact, record: &SegmentRecord) -> bool {
    let valid = exact.store.valid_bytes(record.segment);
    let average = exact.policy.valid_of_late.load(Ordering::Relaxed);
    let average = (average * (AVERAGED - 1) + valid) / AVERAGED;
    exact.policy.valid_of_late.store(average, Ordering::Relaxed);
    let judged = match exact.policy.config.victim {
        Victim::Oldest | Victim::LeastRecentlyRead => average,
        Victim::FewestValid => valid,
    };
    judged <= max_bytes(exact)
}

async fn reclaim(exact: &Exact, record: &SegmentRecord, choice: Choice) {
    let policy = &exact.policy;
    let begun = runtime::now();
    let dropping = (choice == Choice::Drop).then(|| Counted::begin(&policy.dropping));
    exact.recovery.give_up(record.segment).await;
    // Before anything of it leaves the index: from here on a start finds nothing in it.
    exact.journal.append(Record::SegmentDead {
        segment: record.segment.0,
        life: record.sequence,
    });
    match exact.store.read_summary(record).await {
        Ok(entries) => {
            let kept = sift(exact, record, choice, &entries).await;
            if !kept.is_empty() {
                keep(exact, record, choice, &kept).await;
            }
        }
        Err(error) => {
            tracing::warn!(
                segment = record.segment.0,
                %error,
                "a summary could not be read; the segment's items are lost"
            );
            forget_segment(exact, record);
        }
    }
    exact.store.release(record.segment).await;
    Counters::add(&exact.counters.segments_reclaimed, 1);
    if dropping.is_some() {
        Counters::add(&exact.counters.segments_dropped, 1);
        policy.drop_time.add(runtime::now().since(begun));
    }
}

/// Counted for as long as it lives.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn begin(counter: &'a AtomicU32) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Takes everything that is not kept out of the index; returns what is.
async fn sift(
    exact: &Exact,
    record: &SegmentRecord,
    choice: Choice,
    entries: &[SummaryEntry],
) -> Vec<SummaryEntry> {
    let now = runtime::unix_seconds();
    let (mut left, all) = match choice {
        Choice::Recent { max_bytes } => (max_bytes, false),
        Choice::Valid | Choice::Wear => (u64::MAX, true),
        Choice::Drop => (0, false),
    };
    let mut kept = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        if number % SIFT_TURN == SIFT_TURN - 1 {
            // The worker has clients to serve.
            runtime::yield_now().await;
        }
        let hash = KeyHash(entry.hash.get());
        let value = exact
            .codec
            .encode(entry_location(record.segment, entry.position.get()));
        let live = exact
            .horizon
            .is_live(hash, entry.version.get(), entry.expiry.get(), now);
        let bytes = entry_bytes(entry, entries.get(number + 1), record.slot_bytes);
        let keep = exact.change(hash, |shard| {
            let table = &mut shard.table;
            let Some(found) = table.lookup(hash.0).filter(|found| found.value == value) else {
                return false;
            };
            if live && (all || found.recent) && bytes <= left {
                return true;
            }
            table.remove(hash.0);
            let counter = if live {
                &exact.counters.items_evicted
            } else {
                &exact.counters.items_expired
            };
            Counters::add(counter, 1);
            false
        });
        if keep {
            left -= bytes;
            kept.push(*entry);
        }
    }
    kept
}

/// Bytes from an entry's item to the next one's, or of its slot.
fn entry_bytes(entry: &SummaryEntry, next: Option<&SummaryEntry>, slot_bytes: u32) -> u64 {
    let position = Position::from_bits(entry.position.get());
    match next {
        _ if slot_bytes > 0 => u64::from(slot_bytes),
        Some(next) => {
            u64::from(Position::from_bits(next.position.get()).offset() - position.offset())
        }
        None => u64::from(position.read_bytes(0)),
    }
}

/// Copies items to the segment being filled.
async fn keep(exact: &Exact, record: &SegmentRecord, choice: Choice, kept: &[SummaryEntry]) {
    let mut rest = kept;
    while !rest.is_empty() {
        let (run, start, len) = next_run(rest, record.slot_bytes, exact.store.segment_bytes());
        rest = &rest[run.len()..];
        match exact
            .store
            .read_range(record.segment, start, len as usize)
            .await
        {
            Ok(bytes) => copy_run(exact, record, choice, run, (&bytes, start)).await,
            Err(error) => {
                tracing::warn!(segment = record.segment.0, %error, "items could not be copied");
                drop_run(exact, record, run);
            }
        }
    }
}

/// The entries at the front of `kept` that one read covers, with its offset and length in bytes.
fn next_run(
    kept: &[SummaryEntry],
    slot_bytes: u32,
    segment_bytes: u32,
) -> (&[SummaryEntry], u32, u32) {
    let reach = |entry: &SummaryEntry| {
        let position = Position::from_bits(entry.position.get());
        let page = position.offset() / PAGE_BYTES * PAGE_BYTES;
        (
            page,
            (page + position.read_bytes(slot_bytes)).min(segment_bytes),
        )
    };
    let (start, mut end) = reach(&kept[0]);
    let mut count = 1;
    for entry in &kept[1..] {
        let (page, entry_end) = reach(entry);
        if page > end + HOLE_BYTES || entry_end > start + RUN_BYTES {
            break;
        }
        end = end.max(entry_end);
        count += 1;
    }
    (&kept[..count], start, end - start)
}

async fn copy_run(
    exact: &Exact,
    record: &SegmentRecord,
    choice: Choice,
    run: &[SummaryEntry],
    (bytes, start): (&[u8], u32),
) {
    let mut items = Vec::with_capacity(run.len());
    let mut entries = Vec::with_capacity(run.len());
    for entry in run {
        let offset = Position::from_bits(entry.position.get()).offset();
        match ItemRef::decode(&bytes[(offset - start) as usize..], record.sequence, offset) {
            Ok(item) => {
                items.push(AppendItem {
                    hash: KeyHash(entry.hash.get()),
                    item,
                });
                entries.push(*entry);
            }
            Err(error) => {
                tracing::warn!(segment = record.segment.0, offset, %error, "a damaged item");
                drop_run(exact, record, std::slice::from_ref(entry));
            }
        }
    }
    let mut done = 0;
    while done < items.len() {
        // What has gone since it was read is not written again: a power cut could take the record that
        // declares the copy dead, and leave the copy.
        let left = &entries[done..];
        let current = left
            .iter()
            .take_while(|entry| is_current(exact, record, entry));
        let end = done + current.count();
        if end == done {
            done += 1;
            continue;
        }
        let room = exact.store.room().listener();
        done += exact
            .store
            .append(&items[done..end], Source::Copy, |number, filled| {
                let AppendItem { hash, item } = items[done + number];
                let old = entry_location(record.segment, entries[done + number].position.get());
                if exact.move_entry(hash, exact.codec.encode(old), filled) {
                    Counters::add(&exact.counters.items_copied, 1);
                    let bytes = item.flash_bytes() as u64;
                    Counters::add(&exact.counters.bytes_copied, bytes);
                    if choice == Choice::Wear {
                        Counters::add(&exact.counters.bytes_copied_to_level, bytes);
                    }
                }
            });
        if done < end {
            let out_of_room = (exact.store.free_segments() == 0)
                .then(|| Counted::begin(&exact.policy.out_of_room));
            if out_of_room.is_some() && is_room_up_to_this(exact) {
                drop_run(exact, record, &entries[done..]);
                return;
            }
            if exact.works_in_background() || out_of_room.is_some() {
                room.await;
            } else if !background::write_one(exact).await && exact.store.free_buffers() == 0 {
                // Others write them.
                room.await;
            }
        }
    }
}

/// Whether only this reclaim can make room: the others wait for it, too.
fn is_room_up_to_this(exact: &Exact) -> bool {
    exact.policy.out_of_room.load(Ordering::SeqCst) >= exact.store.reclaiming_segments()
}

/// Whether the index still names an item of a segment.
fn is_current(exact: &Exact, record: &SegmentRecord, entry: &SummaryEntry) -> bool {
    let location = entry_location(record.segment, entry.position.get());
    exact.entry(KeyHash(entry.hash.get())) == Some(exact.codec.encode(location))
}

fn drop_run(exact: &Exact, record: &SegmentRecord, run: &[SummaryEntry]) {
    for entry in run {
        let hash = KeyHash(entry.hash.get());
        let value = exact
            .codec
            .encode(entry_location(record.segment, entry.position.get()));
        if exact.change(hash, |shard| shard.table.remove_if(hash.0, value)) {
            Counters::add(&exact.counters.items_evicted, 1);
        }
    }
}

/// Takes every entry that names a segment out of the index, without its summary.
fn forget_segment(exact: &Exact, record: &SegmentRecord) {
    for (number, shard) in (0u64..).zip(&exact.shards) {
        let shard_bits = (number << 1) << (63 - exact.partition_bits);
        let mut named = Vec::new();
        shard.lock().table.for_each(|hash, value, _| {
            if exact.codec.decode(value).segment == record.segment {
                named.push((KeyHash(hash | shard_bits), value));
            }
        });
        for (hash, value) in named {
            if exact.change(hash, |shard| shard.table.remove_if(hash.0, value)) {
                Counters::add(&exact.counters.items_lost, 1);
            }
        }
    }
}

/// Visits the live items of the oldest segment after the cursor, in memory or on flash.
pub(super) async fn dump_segment(
    exact: &Exact,
    cursor: &mut DumpCursor,
    visit: &mut dyn FnMut(DumpItem<'_>),
) -> bool {
    // In this order: a segment that is written meanwhile is in both.
    let in_memory = exact.store.in_memory();
    let next = exact
        .store
        .written()
        .into_iter()
        .chain(in_memory)
        .filter(|record| record.sequence > cursor.after_sequence)
        .min_by_key(|record| record.sequence);
    let Some(record) = next else { return false };
    cursor.after_sequence = record.sequence;
    let Some(pin) = exact.store.pin(record.segment, record.sequence) else {
        return true;
    };
    if let Some(entries) = exact.store.summary_in_memory(&pin) {
        dump_entries(exact, &pin, &entries, visit).await;
    } else if let Err(error) = dump_pinned(exact, &record, visit).await {
        tracing::warn!(segment = record.segment.0, %error, "a segment could not be dumped");
    }
    true
}

/// Visits items of a segment in memory; one that is written meanwhile is read from flash.
async fn dump_entries(
    exact: &Exact,
    pin: &SegmentPin<'_>,
    entries: &[SummaryEntry],
    visit: &mut dyn FnMut(DumpItem<'_>),
) {
    let now = runtime::unix_seconds();
    for entry in entries {
        let hash = KeyHash(entry.hash.get());
        let location = entry_location(pin.segment(), entry.position.get());
        if exact.entry(hash) != Some(exact.codec.encode(location)) {
            continue;
        }
        if let Ok(found) = exact.store.read(pin, location.position).await
            && exact.horizon.is_item_live(hash, found.header(), now)
        {
            let item = found.item();
            visit(DumpItem { item, hash });
        }
    }
}

async fn dump_pinned(
    exact: &Exact,
    record: &SegmentRecord,
    visit: &mut dyn FnMut(DumpItem<'_>),
) -> Result<(), ReadError> {
    let entries = exact.store.read_summary(record).await?;
    let now = runtime::unix_seconds();
    let mut rest = &entries[..];
    while !rest.is_empty() {
        let (run, start, len) = next_run(rest, record.slot_bytes, exact.store.segment_bytes());
        rest = &rest[run.len()..];
        let bytes = exact
            .store
            .read_range(record.segment, start, len as usize)
            .await?;
        for entry in run {
            let hash = KeyHash(entry.hash.get());
            let location = entry_location(record.segment, entry.position.get());
            let offset = location.position.offset();
            let value = exact.codec.encode(location);
            if exact.entry(hash) != Some(value) {
                continue;
            }
            let item = &bytes[(offset - start) as usize..];
            if let Ok(item) = ItemRef::decode(item, record.sequence, offset)
                && exact.horizon.is_item_live(hash, item.header, now)
            {
                visit(DumpItem { item, hash });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::align;
    use proptest::prelude::*;

    const SEGMENT_BYTES: u32 = 4 << 20;

    /// Entries of items that lie one after the other, with their lengths.
    fn entries(lengths: &[u32]) -> Vec<(SummaryEntry, u32)> {
        let mut cursor = 0;
        let mut entries = Vec::new();
        for (number, &bytes) in (0u64..).zip(lengths) {
            let offset = align(cursor, bytes);
            cursor = offset + bytes;
            if cursor > SEGMENT_BYTES - 4096 {
                break;
            }
            let entry = SummaryEntry {
                hash: number.into(),
                version: number.into(),
                expiry: 0.into(),
                position: Position::new(offset, bytes).bits().into(),
            };
            entries.push((entry, bytes));
        }
        entries
    }

    proptest! {
        #[test]
        fn runs_cover_every_item_and_are_bounded(
            lengths in proptest::collection::vec(
                (prop_oneof![40u32..300, 40u32..9000, 9000u32..700_000], any::<bool>()),
                1..300,
            ),
        ) {
            let (bytes, picks): (Vec<u32>, Vec<bool>) = lengths.into_iter().unzip();
            let picked: Vec<(SummaryEntry, u32)> = entries(&bytes)
                .into_iter()
                .zip(picks)
                .filter_map(|(entry, pick)| pick.then_some(entry))
                .collect();
            let kept: Vec<SummaryEntry> = picked.iter().map(|(entry, _)| *entry).collect();
            let (mut rest, mut seen) = (&kept[..], 0);
            while !rest.is_empty() {
                let (run, start, len) = next_run(rest, 0, SEGMENT_BYTES);
                prop_assert!(!run.is_empty());
                prop_assert!(start % PAGE_BYTES == 0 && len % PAGE_BYTES == 0);
                prop_assert!(start + len <= SEGMENT_BYTES);
                prop_assert!(len <= RUN_BYTES || run.len() == 1);
                for (entry, bytes) in &picked[seen..seen + run.len()] {
                    let offset = Position::from_bits(entry.position.get()).offset();
                    prop_assert!(offset >= start && offset + bytes <= start + len);
                }
                seen += run.len();
                rest = &rest[run.len()..];
            }
            prop_assert_eq!(seen, kept.len());
        }

        #[test]
        fn an_entrys_bytes_are_at_least_its_items(
            bytes in proptest::collection::vec(40u32..20_000, 1..100),
        ) {
            let all = entries(&bytes);
            for (number, (entry, bytes)) in all.iter().enumerate() {
                let next = all.get(number + 1).map(|(next, _)| next);
                let counted = entry_bytes(entry, next, 0);
                prop_assert!(counted >= u64::from(*bytes));
                prop_assert!(counted <= u64::from(*bytes) * 4 / 3 + 2 * u64::from(PAGE_BYTES));
            }
        }
    }
}
