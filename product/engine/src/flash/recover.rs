//! Recovery: the index is rebuilt from the summaries of live segments, less dead items.
//!
//! ```text
//!   unread segments, newest first ──claim──> summary ──> each live item ──> Placement::restore
//!                                                          │ dead if this run has written the key,
//!                                                          │ or if there is a higher version
//! ```
//!
//! If displaced copies are located, a copy that loses is journalled as dead. If they are not, versions decide at every
//! start: an expired item is removed only after it has superseded older copies, and an unreadable segment takes all
//! older segments with it, since it may have held items that superseded theirs.
//!
//! If dead copies are told at reads, segments name runs by headers, and no item of a run is read. A header lost twice takes all
//! older segments with it if a checkpoint counts on its segment. Otherwise the keys of the run's items are still recorded as
//! dead, and the run is left out. Headers and items come to the index in the order in which they were written, the newest first, so
//! that copies are found before recovery has ended.
//!
//! Recovery waits for journal space as requests do, except in a segment that reclaim waits for: a checkpoint makes that
//! space, and may need the segment. If the keys written during recovery take too much memory, the segments not read yet
//! are given up.

use std::cmp::Reverse;
use std::collections::HashSet;

use futures_util::future::{join_all, select};

use super::FlashTier;
use crate::counter::Count as _;
use crate::durability::dead::{DeadItems, DeadSet, ItemState};
use crate::format::location::Place;
use crate::format::run_header::{RunHeader, is_header};
use crate::format::segment::{Position, SegmentId, SummaryEntry};
use crate::placement::{Batch, Displaced, Event, Restored, Space, Unlocated};
use crate::reclaim::Resident;
use crate::store::{ReadError, SegmentRecord};
use crate::sync::atomic::Ordering;

/// Records that a task appends before it checks the journal's space again.
const RECORDS_AT_ONCE: usize = 128;
/// Run headers that are read at once.
const HEADERS_AT_ONCE: usize = 16;
/// Contested keys whose copies are read at once to find the later one, if versions alone decide.
const CONTESTS_AT_ONCE: usize = 16;

/// Reads segments until none is left. The task that finishes the last segment ends the recovery.
pub(super) async fn read_segments(tier: &FlashTier) {
    let recovery = &tier.upkeep.recovery;
    let mut headers = Headers::default();
    if tier.upkeep.dead_copies.are_told_at_reads() && !recovery.is_running() {
        tier.placement.note(Event::Recovered);
    }
    while !tier.upkeep.is_ended.load(Ordering::Acquire) {
        if recovery.is_overgrown() {
            give_up_unread(tier).await;
        }
        let Some((record, dead)) = recovery.claim() else {
            break;
        };
        match read_segment(tier, &record, &dead, &mut headers).await {
            Reading::Ended => {
                drop(dead);
                recovery.finish(&record);
            }
            Reading::LeftOff => {
                // A later copy of a key, in the same segment, may not have come to the index yet.
                tier.forget_segment(&record);
                end_segment(tier, &record, &[], &[]);
                drop(dead);
                recovery.leave_off(&record);
            }
        }
        end_if_done(tier).await;
    }
    end_if_done(tier).await;
}

/// Gives up the segments not read yet, so that recovery ends.
async fn give_up_unread(tier: &FlashTier) {
    let unread = tier.upkeep.recovery.forget_unread(|_| false);
    if !unread.is_empty() {
        tracing::warn!(
            segments = unread.len(),
            "so many keys are written during recovery that the segments not read yet are given up"
        );
    }
    for record in unread {
        wait_for_journal(tier).await;
        tier.upkeep.declare_segment_dead(&record);
        tier.upkeep.recovery.counters.segments_unreadable.add(1);
    }
}

/// Waits until the journal has space for [`RECORDS_AT_ONCE`] records, or the cache ends.
async fn wait_for_journal(tier: &FlashTier) {
    loop {
        let space = tier.space().listener();
        if tier.may_displace() || tier.upkeep.is_ended.load(Ordering::Acquire) {
            return;
        }
        space.await;
    }
}

/// Waits until journal and index have space for [`RECORDS_AT_ONCE`] items of a segment, or the cache ends. Returns
/// false if there is no space and reclaim waits for the segment.
async fn has_space_for(tier: &FlashTier, record: &SegmentRecord) -> bool {
    let recovery = &tier.upkeep.recovery;
    loop {
        let space = tier.space().listener();
        let wanted = recovery.wanted.listener();
        let is_behind = tier.placement.pressure().space >= Space::Behind;
        let has_space = tier.may_displace() && !is_behind;
        if has_space || tier.upkeep.is_ended.load(Ordering::Acquire) {
            return true;
        }
        if recovery.is_wanted(record) {
            return false;
        }
        select(space, wanted).await;
    }
}

/// Ends the recovery once every segment has been read.
///
/// Makes its records of dead items durable first: a checkpoint in progress has them behind its cut, and keeps the dead
/// keys that they replace only while recovery runs.
async fn end_if_done(tier: &FlashTier) {
    let recovery = &tier.upkeep.recovery;
    if !recovery.is_all_read() {
        return;
    }
    if let Err(error) = tier.upkeep.journal.sync(runtime::unix_seconds()).await {
        tracing::warn!(%error, "what recovery has found to be dead could not be made durable");
    }
    if !recovery.end_if_done() {
        return;
    }
    tier.placement.note(Event::Recovered);
    // Reclaim can take the victims that it has put off.
    tier.store().pool().work().notify_all();
    tier.store().pool().space().notify_all();
    let stats = recovery.stats();
    tracing::info!(
        items = stats.items,
        dead = stats.items_dead,
        segments = stats.segments,
        unreadable = stats.segments_unreadable,
        milliseconds = stats.micros / 1000,
        "recovered"
    );
}

/// A live item of an earlier run. If displaced copies are not located, also an expired item, which supersedes older
/// copies.
#[derive(Clone, Copy)]
struct Offer {
    item: Resident,
    is_expired: bool,
}

/// Positions of the items of a segment that were taken, from which the left out ones follow.
#[derive(Default)]
struct LeftOut {
    taken: Vec<Position>,
    /// Items that have superseded older copies and are dead themselves.
    expired: Vec<Resident>,
}

impl LeftOut {
    fn note_taken(&mut self, offer: &Offer) {
        self.taken.push(offer.item.place.position);
        if offer.is_expired {
            self.expired.push(offer.item);
        }
    }

    /// Returns the items of a segment that have not been taken.
    fn dead(&mut self, record: &SegmentRecord, entries: &[SummaryEntry]) -> Vec<Resident> {
        self.taken.sort_unstable();
        let items = entries.iter().map(|entry| Resident::of(record, entry));
        let is_left_out = |item: &Resident| {
            let position = item.place.position;
            self.taken.binary_search(&position).is_err()
        };
        items.filter(is_left_out).collect()
    }
}

/// The run headers that have been read, each by the hash of its item's key. Its two copies lie one behind the other.
#[derive(Default)]
struct Headers {
    /// Runs that the index has.
    found: HashSet<u64>,
    /// A header whose copy at the start of the last segment cannot be read, and on which a checkpoint counts.
    lost: Option<u64>,
}

impl Headers {
    /// Reads the headers that these entries of a segment name, the newest first. Returns those of runs that were not found yet,
    /// each with its offset; `None` if a run is lost on which a checkpoint counts: older copies of its keys may count as alive.
    async fn read(
        &mut self,
        tier: &FlashTier,
        record: &SegmentRecord,
        entries: &[SummaryEntry],
        counts_on: bool,
    ) -> Option<Vec<(u32, RunHeader)>> {
        let mut headers = Vec::new();
        let mut left: Vec<&SummaryEntry> = entries.iter().collect();
        while !left.is_empty() {
            // The other copy of a header is read where the newer one is lost.
            let mut asked = HashSet::new();
            left.retain(|entry| !self.found.contains(&entry.hash.get()));
            let now: Vec<_> = left
                .extract_if(.., |entry| asked.insert(entry.hash.get()))
                .collect();
            for some in now.chunks(HEADERS_AT_ONCE) {
                let read = some.iter().map(|entry| read_header(tier, record, entry));
                for (entry, header) in some.iter().zip(join_all(read).await) {
                    if let Some(header) = header {
                        self.found.insert(entry.hash.get());
                        let offset = Position::from_bits(entry.position.get()).offset();
                        headers.push((offset, header));
                    }
                }
            }
        }
        let is_lost = |hash: &u64| !self.found.contains(hash);
        if self.lost.take().as_ref().is_some_and(is_lost) {
            return None;
        }
        let mut lost = entries
            .iter()
            .filter(|entry| counts_on && is_lost(&entry.hash.get()));
        let lost = lost.try_fold(None, |_, entry| {
            // The other copy may be at the end of the segment before.
            let offset = Position::from_bits(entry.position.get()).offset();
            (offset == 0).then_some(Some(entry.hash.get()))
        });
        self.lost = lost?;
        headers.sort_by_key(|(offset, _)| Reverse(*offset));
        Some(headers)
    }
}

/// Counts the items of a run in the segments that are there. Returns their number.
fn count_run(tier: &FlashTier, header: &RunHeader) -> u64 {
    let table = tier.store().table();
    let mut items = 0;
    for piece in &header.pieces {
        let segment = SegmentId(piece.segment);
        if piece.segment < table.segments() && table.sequence(segment) == piece.sequence {
            table
                .unlisted
                .set(segment, table.unlisted.of(segment) + piece.items);
            table.count_all_in(segment, piece.items);
            items += u64::from(piece.items);
        }
    }
    items
}

/// Reads a run header; `None` if it is lost.
async fn read_header(
    tier: &FlashTier,
    record: &SegmentRecord,
    entry: &SummaryEntry,
) -> Option<RunHeader> {
    let position = Position::from_bits(entry.position.get());
    let reader = tier.store().reader();
    reader
        .read_run_header(record, position)
        .await
        .inspect_err(|error| {
            tracing::warn!(segment = record.segment.0, %error, "a run header cannot be read");
        })
        .ok()
}

/// How the reading of a segment ended.
enum Reading {
    /// The whole segment has been read, or it cannot be read.
    Ended,
    /// Reclaim waits for the segment.
    LeftOff,
}

async fn read_segment(
    tier: &FlashTier,
    record: &SegmentRecord,
    dead: &DeadSet,
    headers: &mut Headers,
) -> Reading {
    let recovery = &tier.upkeep.recovery;
    let Some(_pin) = tier.store().table().pin(record.segment, record.sequence) else {
        return Reading::Ended;
    };
    let entries = match tier.store().reader().read_summary_patiently(record).await {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(
                segment = record.segment.0,
                %error,
                "a summary could not be read; the segment's items are lost"
            );
            lose(tier, record);
            return Reading::Ended;
        }
    };
    let covered = (recovery.covered(record) as usize).min(entries.len());
    let mut entries = entries[covered..].to_vec();
    let mut runs = Vec::new();
    if tier.upkeep.dead_copies.are_told_at_reads() {
        // The newest first: a copy that is found is never older than one that the index does not know yet.
        entries.reverse();
        let of_runs: Vec<SummaryEntry> = entries.extract_if(.., |entry| is_header(entry)).collect();
        let counts_on = dead.supersedes(record);
        match headers.read(tier, record, &of_runs, counts_on).await {
            Some(found) => runs = found,
            None => {
                lose(tier, record);
                return Reading::Ended;
            }
        }
    }
    let entries = &entries[..];
    let mut offers = Vec::new();
    let items = dead.of_segment(record);
    for batch in entries.chunks(RECORDS_AT_ONCE) {
        if !has_space_for(tier, record).await {
            return Reading::LeftOff;
        }
        offers.extend(classify(tier, record, batch, &items));
    }
    let lost_marks = items.into_lost_marks();
    recovery.counters.items_unnamed.add(lost_marks.len() as u64);
    let mut restoring = Restoring {
        tier,
        record,
        lost_marks: &lost_marks,
        left: LeftOut::default(),
        alive: 0,
    };
    let mut in_runs = 0;
    for (offset, header) in runs {
        let is_later = |offer: &&Offer| offer.item.place.position.offset() > offset;
        let later = offers.iter().take_while(is_later).count();
        if !restoring.restore(offers.drain(..later)).await {
            return Reading::LeftOff;
        }
        in_runs += count_run(tier, &header);
        tier.placement.note(Event::RunFound(&header));
    }
    if !restoring.restore(offers.drain(..)).await {
        return Reading::LeftOff;
    }
    let Restoring {
        mut left, alive, ..
    } = restoring;
    if !tier.upkeep.dead_copies.are_located() {
        let dead = left.dead(record, entries);
        end_segment(tier, record, &dead, &left.expired);
    }
    recovery.counters.items.add(alive + in_runs);
    recovery
        .counters
        .items_dead
        .add(entries.len() as u64 - alive);
    Reading::Ended
}

/// The items of a segment on their way into the index.
struct Restoring<'a> {
    tier: &'a FlashTier,
    record: &'a SegmentRecord,
    /// Marks of the entries for the segment whose loss is recorded.
    lost_marks: &'a [u32],
    left: LeftOut,
    /// Living items that were taken.
    alive: u64,
}

impl Restoring<'_> {
    /// Offers items to the index. Returns false if reclaim waits for the segment.
    async fn restore(&mut self, offers: impl Iterator<Item = Offer>) -> bool {
        let (tier, record) = (self.tier, self.record);
        let (recovery, dead_copies) = (&tier.upkeep.recovery, tier.upkeep.dead_copies);
        let partition_of = |offer: &Offer| offer.item.hash.partition(tier.partition_bits);
        let mut offers: Vec<Offer> = offers.collect();
        // Those of a partition stay in their order.
        offers.sort_by_key(partition_of);
        for group in offers.chunk_by(|one, next| partition_of(one) == partition_of(next)) {
            let partition = partition_of(&group[0]);
            let mut contested = Vec::new();
            // It takes time to find out whether a copy below Tier 1 is later: nobody may put another copy in its place
            // meanwhile.
            let _turn = match dead_copies.are_located() {
                true => None,
                false => Some(recovery.restoring[partition].acquire().await),
            };
            for batch in group.chunks(RECORDS_AT_ONCE) {
                if !has_space_for(tier, record).await {
                    return false;
                }
                let claim = Claim {
                    partition,
                    offers: batch,
                    beaten: None,
                    lost_marks: self.lost_marks,
                };
                restore(tier, &claim, |offer, answer| match answer {
                    Answer::Taken => self.note_taken(offer),
                    Answer::Refused => {}
                    Answer::Contested(rival) => contested.push((*offer, rival)),
                });
            }
            let at_once = match dead_copies.are_located() {
                true => 1,
                false => CONTESTS_AT_ONCE,
            };
            while !contested.is_empty() {
                if !has_space_for(tier, record).await {
                    return false;
                }
                // Items of one key go one after the other, since the second contends with the first.
                let mut keys = HashSet::new();
                let mut is_next = |hash| keys.len() < at_once && keys.insert(hash);
                let (batch, later): (Vec<_>, Vec<_>) = contested
                    .into_iter()
                    .partition(|(offer, _): &(Offer, _)| is_next(offer.item.hash));
                contested = later;
                let decided = batch
                    .iter()
                    .map(|(offer, rival)| contest(tier, partition, offer, *rival));
                let decided = join_all(decided).await;
                for ((offer, _), _) in batch.iter().zip(decided).filter(|(_, is_taken)| *is_taken) {
                    self.note_taken(offer);
                }
            }
            runtime::yield_now().await;
        }
        true
    }

    fn note_taken(&mut self, offer: &Offer) {
        self.alive += u64::from(!offer.is_expired);
        self.left.note_taken(offer);
    }
}

/// Tells the index that a segment has been restored, or left.
fn end_segment(tier: &FlashTier, segment: &SegmentRecord, dead: &[Resident], expired: &[Resident]) {
    tier.placement.note(Event::SegmentRestored {
        segment,
        dead,
        expired,
    });
}

/// Declares a segment with an unreadable summary dead, so that no later start finds it. If versions alone decide, older
/// unread segments as well.
fn lose(tier: &FlashTier, record: &SegmentRecord) {
    let upkeep = &tier.upkeep;
    let mut lost = vec![*record];
    if !upkeep.dead_copies.are_located() && !upkeep.dead_copies.are_in_section() {
        let older = |unread: &SegmentRecord| unread.sequence < record.sequence;
        lost.extend(upkeep.recovery.forget_unread(|unread| !older(unread)));
    }
    for record in lost {
        upkeep.declare_segment_dead(&record);
        upkeep.recovery.counters.segments_unreadable.add(1);
    }
}

/// Returns the items of a segment that no record declares dead.
fn classify(
    tier: &FlashTier,
    record: &SegmentRecord,
    entries: &[SummaryEntry],
    items: &DeadItems<'_>,
) -> Vec<Offer> {
    let upkeep = &tier.upkeep;
    let is_located = upkeep.dead_copies.are_located();
    let offer = |entry: &SummaryEntry| {
        let item = Resident::of(record, entry);
        let state = items.classify(entry, &upkeep.cutoffs, upkeep.recovery.clock);
        if state == ItemState::Overwritten && upkeep.dead_copies.have_places() {
            // The key's record is not kept for as long as copies of the key exist, so this copy is recorded by its place.
            upkeep.declare_dead(item.place);
        }
        let is_expired = state == ItemState::Expired && !is_located;
        let is_offered = state == ItemState::Live || is_expired;
        // A copy that is told to be expired when it is read supersedes older ones until then.
        let is_expired = is_expired && !upkeep.dead_copies.are_told_at_reads();
        is_offered.then_some(Offer { item, is_expired })
    };
    entries.iter().filter_map(offer).collect()
}

/// Outcome of an [`Offer`].
#[derive(Clone, Copy)]
enum Answer {
    Taken,
    Refused,
    /// Another copy has the item's place in the index, and the higher version is to stay. `None` if the index has to be
    /// asked for that copy first.
    Contested(Option<Place>),
}

/// Offers of one partition and one segment that are made to the index together.
struct Claim<'a> {
    partition: usize,
    offers: &'a [Offer],
    /// The copy that the offers supersede.
    beaten: Option<Place>,
    /// Marks of the entries for the segment whose loss is recorded.
    lost_marks: &'a [u32],
}

/// Offers items to the index, except those that are superseded. `each` is called with the outcome of every offer, in any order.
fn restore(tier: &FlashTier, claim: &Claim<'_>, mut each: impl FnMut(&Offer, Answer)) {
    let (partition, beaten, lost_marks) = (claim.partition, claim.beaten, claim.lost_marks);
    let superseded = &mut tier.upkeep.recovery.superseded(partition);
    let (mut offered, mut items) = (Vec::new(), Vec::new());
    for offer in claim.offers {
        if superseded.kills(offer.item.hash, offer.item.version) {
            each(offer, refuse(tier, &offer.item));
        } else {
            offered.push(offer);
            items.push(offer.item);
        }
    }
    let store = tier.store();
    let mut taken = Vec::new();
    let batch = Batch {
        items: &items,
        beaten,
        lost_marks,
    };
    tier.placement.restore(batch, &mut |number, restored| {
        let (offer, place) = (offered[number], items[number].place);
        let answer = match restored {
            Restored::Contested(rival) => Answer::Contested(Some(rival)),
            Restored::Unclear => Answer::Contested(None),
            Restored::Refused => {
                let dropped = u64::from(!offer.is_expired);
                tier.upkeep.counters.index_full.add(dropped);
                refuse(tier, &offer.item)
            }
            Restored::Lost => Answer::Refused,
            Restored::Taken(displaced) => {
                store.table().count_in(place.segment);
                taken.push((offer, displaced));
                Answer::Taken
            }
        };
        each(offer, answer);
    });
    for (offer, displaced) in taken {
        let (hash, version) = (offer.item.hash, offer.item.version);
        match displaced {
            Displaced::Known(place) if tier.upkeep.dead_copies.are_located() => {
                tier.upkeep.displace(place);
            }
            Displaced::Known(place) => store.table().count_out(place.segment, place.generation),
            Displaced::None | Displaced::Unknown => {}
        }
        if offer.is_expired {
            // The expired item has superseded older copies; now it is removed itself.
            superseded.insert(hash, version);
            tier.placement.invalidate(hash, version + 1);
            store
                .table()
                .count_out(offer.item.place.segment, offer.item.place.generation);
        }
    }
}

fn refuse(tier: &FlashTier, item: &Resident) -> Answer {
    // The copy that outranks it may die some day, by a record of its own.
    if tier.upkeep.dead_copies.have_places() {
        tier.upkeep.declare_dead(item.place);
    }
    Answer::Refused
}

/// Decides on an offer whose place another copy has: the higher version stays. Returns whether the offer was taken.
async fn contest(
    tier: &FlashTier,
    partition: usize,
    offer: &Offer,
    mut rival: Option<Place>,
) -> bool {
    loop {
        if rival.is_none() {
            match tier.placement.locate(offer.item.hash).await {
                Ok(place) => rival = place,
                // An unreadable copy may be the later one.
                Err(Unlocated) => {
                    refuse(tier, &offer.item);
                    return false;
                }
            }
        }
        if let Some(rival) = rival.filter(|rival| *rival != offer.item.place)
            && is_later(tier, rival, &offer.item).await
        {
            refuse(tier, &offer.item);
            return false;
        }
        let mut answer = Answer::Refused;
        let claim = Claim {
            partition,
            offers: std::slice::from_ref(offer),
            beaten: Some(rival.unwrap_or(offer.item.place)),
            lost_marks: &[],
        };
        restore(tier, &claim, |_, said| answer = said);
        match answer {
            Answer::Taken => return true,
            Answer::Refused => return false,
            Answer::Contested(other) => rival = other,
        }
    }
}

/// Returns whether the copy at a place is to stay instead of `item`.
async fn is_later(tier: &FlashTier, rival: Place, item: &Resident) -> bool {
    let version = version_at(tier, rival).await;
    let is_there = tier.store().table().sequence(rival.segment) == rival.generation;
    // An unreadable copy may be the later one: if versions alone decide, neither copy counts.
    let is_unknown = version.is_err() && is_there && !tier.upkeep.dead_copies.are_located();
    let version = version.ok().flatten();
    // If both copies have the same version, the one in the younger segment stays: it will be reclaimed later.
    let rank = version.map(|version| (version, rival.generation));
    is_unknown || rank >= Some((item.version, item.place.generation))
}

/// Returns the version of the item at a place; `None` if there is none.
async fn version_at(tier: &FlashTier, place: Place) -> Result<Option<u64>, ReadError> {
    let Some(pin) = tier.store().table().pin(place.segment, place.generation) else {
        return Ok(None);
    };
    match tier.store().reader().read(&pin, place.position).await {
        Ok(item) => Ok(Some(item.header().version.get())),
        Err(ReadError::Unwritten { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
