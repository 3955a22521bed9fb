//! Reclaim: a segment goes. Items that its policy keeps are copied or go back to memory; all others are dropped.
//!
//! Valid items of many slab classes, however few they are, may fill as many segments as they come from, and leave no
//! buffers to writes. So the bytes of sealed segments that copies take are counted. If they exceed a share of the
//! segments reclaimed, the next segment is dropped.

use std::sync::Arc;
use std::time::Duration;

use runtime::sync::{Permit, Semaphore};

use super::free_segments::TURNS;
use super::policy::{self, Choices, FlashView, Keep, Pick, SegmentView};
use super::unwritten::{Claim, UnwrittenCopies};
use super::upkeep::{Upkeep, UpkeepPlan};
use super::writing::Writing;
use super::{Entered, Named, Resident, Residents};
use crate::counter::Count as _;
use crate::durability::dead::{DeadSet, ItemState};
use crate::format::item::ItemRef;
use crate::format::segment::{PAGE_BYTES, Position, SummaryEntry};
use crate::key::HashSeed;
use crate::settings::ReclaimPolicy;
use crate::store::{AppendItem, Priority, ReadError, SegmentRecord, Source};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes read at once while copying. Holes shorter than [`HOLE_BYTES`] are read along with their neighbours.
const RUN_BYTES: u32 = 256 << 10;
const HOLE_BYTES: u32 = 32 << 10;
/// Number of segments by which copying may be ahead or behind.
const GAIN_LIMIT: i64 = 4;
/// After a search for a segment that gains has failed, copying rests until one in this many written segments is new.
const RESTING_SHARE: u32 = 64;
/// Longest time in which a segment that goes is read for items to take back: nothing is reclaimed meanwhile.
const TAKING: Duration = Duration::from_secs(1);
/// Entries checked, or items copied, before other tasks get a turn.
const ITEMS_A_TURN: usize = 64;

/// A segment to reclaim.
struct Chosen<'a> {
    record: SegmentRecord,
    keep: Keep,
    /// Whether it is reclaimed for wear leveling.
    is_leveling: bool,
    claim: Claim<'a>,
}

/// The next task.
enum Task<'a> {
    None,
    /// Copies have to be written before more are made.
    WriteCopies,
    Reclaim(Chosen<'a>),
}

/// Bytes of a segment in memory.
#[derive(Clone, Copy)]
struct SegmentPart<'a> {
    /// Offset of the first byte in the segment.
    start: u32,
    bytes: &'a [u8],
}

impl<'a> SegmentPart<'a> {
    /// Returns the bytes from an offset of the segment on.
    fn from(self, offset: u32) -> &'a [u8] {
        &self.bytes[(offset - self.start) as usize..]
    }
}

/// Bytes gained by copying: a share of the reclaimed segments, less the bytes of sealed segments that copies take.
#[derive(Default)]
struct CopyBalance {
    gained: i64,
    /// Number of segments reclaimed for space at the last update.
    reclaimed: i64,
    /// Bytes of sealed segments taken by copies at the last update.
    for_copies: u64,
}

/// Counts one for as long as it exists, even if the task that holds it is dropped.
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

/// Reclaim of one store. A segment is declared dead before its first item leaves the index, and segments die in the
/// order in which they are taken.
pub(crate) struct Reclaimer {
    pub(crate) upkeep: Arc<Upkeep>,
    pub(crate) writing: Arc<Writing>,
    pub(crate) copies: UnwrittenCopies,
    policy: ReclaimPolicy,
    wear_leveling: Option<u32>,
    /// Segments reclaimed at once.
    pub(crate) reclaimers: u32,
    /// Whether entries of the index tell by themselves that their segment has gone.
    demaps_by_itself: bool,
    hash_seed: HashSeed,
    /// Held by a reclaim that checks items or copies them.
    turns: Semaphore,
    /// Held while a victim is taken and declared dead, so that victims die in the order in which they are taken.
    taking: Mutex<()>,
    balance: Mutex<CopyBalance>,
    /// Number of reclaims whose copies wait for a free segment.
    starved: AtomicU32,
    dropping: AtomicU32,
    /// Count of `segments_opened` before which no segment to copy from is searched.
    copying_rests_until: AtomicU64,
    /// Number of erases of use at the last wear leveling.
    leveled_at: AtomicU64,
    /// Number of segments marked at the last wear leveling.
    leveled_segments: AtomicU64,
}

impl Reclaimer {
    pub(crate) fn new(upkeep: Arc<Upkeep>, plan: &UpkeepPlan) -> Self {
        let reclaim = &plan.reclaim;
        let writing = Arc::new(Writing::new(Arc::clone(&upkeep), plan));
        Self {
            copies: UnwrittenCopies::new(Arc::clone(&upkeep), Arc::clone(&writing), reclaim),
            upkeep,
            writing,
            policy: reclaim.policy,
            wear_leveling: reclaim.wear_leveling,
            reclaimers: reclaim.reclaimers as u32,
            demaps_by_itself: plan.demaps_by_itself,
            hash_seed: plan.hash_seed,
            turns: Semaphore::new(TURNS),
            taking: Mutex::default(),
            balance: Mutex::default(),
            starved: AtomicU32::new(0),
            dropping: AtomicU32::new(0),
            copying_rests_until: AtomicU64::new(0),
            leveled_at: AtomicU64::new(0),
            leveled_segments: AtomicU64::new(0),
        }
    }

    /// Reclaims whenever there are too few free segments or the index is full, until background work ends.
    pub(crate) async fn keep_free(&self, residents: &dyn Residents) {
        loop {
            let work = self.upkeep.store.pool().work().listener();
            if self.upkeep.is_ended.load(Ordering::Acquire) {
                return;
            }
            if !self.upkeep.works_in_background() || !self.reclaim_one(residents).await {
                work.await;
            }
        }
    }

    /// Reclaims a segment if one has to go, or writes the copies that prevent it. Returns whether it did either.
    pub(crate) async fn reclaim_one(&self, residents: &dyn Residents) -> bool {
        // Counted before the choice: `quiesce` freezes the choice first, and reads the count afterwards.
        let under_way = Counted::begin(&self.upkeep.reclaiming);
        let is_done = match self.choose() {
            Task::None => false,
            Task::WriteCopies => self.copies.write(residents).await,
            Task::Reclaim(chosen) => {
                self.reclaim(residents, &chosen).await;
                self.copies.end_claim(chosen.claim);
                true
            }
        };
        drop(under_way);
        self.upkeep.progress.notify_all();
        is_done
    }

    /// Takes the segment that has to go, if there is one, and decides which of its items are kept.
    fn choose(&self) -> Task<'_> {
        if self.upkeep.is_frozen.load(Ordering::SeqCst) {
            return Task::None;
        }
        let view = self.view();
        let choices: Choices = policy::choose(self.policy, &view);
        let _in_order = self.taking.lock();
        let copies_wait = self.copies.are_most();
        for (pick, keep) in choices.into_iter().flatten() {
            if copies_wait && keep.may_copy() {
                if pick == Pick::LeastWorn {
                    continue;
                }
                return Task::WriteCopies;
            }
            let Some(record) = self.take(pick) else {
                continue;
            };
            let segment = self.view_segment(&record);
            let keep = policy::keep(keep, view.max_copy_bytes, &segment);
            let claim = self.copies.claim(&record, keep);
            // Recorded before any item leaves the index: from here on a start finds none of its items.
            self.upkeep.declare_segment_dead(&record);
            return Task::Reclaim(Chosen {
                record,
                keep,
                is_leveling: pick == Pick::LeastWorn,
                claim,
            });
        }
        Task::None
    }

    fn view(&self) -> FlashView {
        let opened = self.upkeep.store.counters().segments_opened.get();
        let is_stopping = self.upkeep.is_stopping.load(Ordering::SeqCst);
        // A stopping cache keeps its items for the next start, and drops some only if the items in memory need index
        // space.
        let is_index_short = if is_stopping {
            self.upkeep.index_use.headroom() == 0
        } else {
            self.upkeep.index_use.is_short()
        };
        let counts = self.upkeep.store.pool().counts();
        FlashView {
            free: counts.free,
            free_or_reclaiming: counts.free + counts.reclaiming,
            dropping: self.dropping.load(Ordering::SeqCst),
            low: self.upkeep.free_segments.watermarks().low,
            target: self.upkeep.free_target(),
            reserved: self.upkeep.free_segments.reserved(),
            reclaimers: self.reclaimers,
            is_index_short,
            is_recovering: self.upkeep.recovery.is_running(),
            is_stopping,
            copies_gain: self.copies_gain(),
            copying_rests: opened < self.copying_rests_until.get(),
            max_copy_bytes: self.copies.max_copy_bytes(),
        }
    }

    fn view_segment(&self, record: &SegmentRecord) -> SegmentView {
        let valid_bytes = self.upkeep.store.table().valid_bytes(record.segment);
        let goes_by_average = self.policy.copies_valid_by_age();
        SegmentView {
            valid_bytes,
            average_valid_bytes: goes_by_average
                .then(|| self.upkeep.store.pool().average_valid_bytes()),
            reads: self.upkeep.store.pool().reads_of(record),
        }
    }

    fn take(&self, pick: Pick) -> Option<SegmentRecord> {
        match pick {
            Pick::LeastWorn => self.take_least_worn(),
            // If versions alone decide, an item must outlive the items that it supersedes.
            Pick::Victim(..) if !self.upkeep.dead_copies.are_located() => {
                self.upkeep.store.take_in_order()
            }
            Pick::Victim(victim, max_valid) => {
                let record = self.upkeep.store.pool().take_victim(victim, max_valid);
                if record.is_none() && max_valid < u64::MAX {
                    let pause =
                        u64::from(self.upkeep.store.pool().counts().written / RESTING_SHARE);
                    let until = self.upkeep.store.counters().segments_opened.get() + pause;
                    self.copying_rests_until.store(until, Ordering::Relaxed);
                }
                record
            }
        }
    }

    /// Takes a segment that is erased for wear leveling (section 4.1.5). A round begins at regular counts of erases of
    /// use, and marks the least worn segments. They are taken one by one until the next round, so that for each of
    /// their items a free block that has been erased often is available by then.
    fn take_least_worn(&self) -> Option<SegmentRecord> {
        let multiple = self.wear_leveling?;
        let erases = self.upkeep.store.counters().erases_of_use.get();
        let last = self.leveled_at.get();
        let in_use = self.upkeep.store.pool().segments_in_use();
        let due = u64::from(multiple) * u64::from(in_use);
        // Victims are taken one at a time, so that no other task starts a round in between.
        if erases.saturating_sub(last) >= due {
            self.leveled_at.store(erases, Ordering::Relaxed);
            let (wear, written) = self.upkeep.store.pool().wear_of_use();
            let segments = policy::least_worn(&wear, multiple, written, in_use);
            self.upkeep.store.pool().mark_worn_least(&segments);
            self.upkeep.counters.wear_levelings.add(1);
            let segments = segments.len();
            self.leveled_segments
                .store(segments as u64, Ordering::Relaxed);
            tracing::info!(segments, "wear leveling moves the least worn segments");
        }
        let marked = self.leveled_segments.get();
        let taken = marked.saturating_sub(self.upkeep.store.pool().worn_least() as u64);
        let since = erases.saturating_sub(self.leveled_at.get());
        let is_its_turn = taken * due < marked * since;
        is_its_turn.then(|| self.upkeep.store.pool().take_worn_least())?
    }

    /// Returns whether the last copies have gained space: slots may fill as many short segments as they came from, and
    /// keep writes from filling theirs.
    fn copies_gain(&self) -> bool {
        let sixteenths = self.policy.max_copy_sixteenths();
        let segments = if self.policy.copies_valid_by_age() {
            // In order of age, many segments in a row may hold only items that are seldom overwritten.
            GAIN_LIMIT.max(i64::from(self.upkeep.store.table().segments()) / 16)
        } else {
            GAIN_LIMIT
        };
        let segment_bytes = i64::from(self.upkeep.store.table().segment_bytes());
        let limit = segments * segment_bytes;
        let mut balance = self.balance.lock();
        let reclaimed = self.upkeep.counters.segments_reclaimed.get();
        // Wear leveling gains nothing, and its copies are not counted either.
        let reclaimed = reclaimed as i64 - self.upkeep.counters.segments_leveled.get() as i64;
        let for_copies = self.upkeep.store.counters().bytes_for_copies.get();
        let allowed = (reclaimed - balance.reclaimed) * segment_bytes * i64::from(sixteenths) / 16;
        let cost = (for_copies - balance.for_copies) as i64;
        *balance = CopyBalance {
            gained: (balance.gained + allowed - cost).clamp(-limit, limit),
            reclaimed,
            for_copies,
        };
        balance.gained > -limit
    }

    async fn reclaim(&self, residents: &dyn Residents, chosen: &Chosen<'_>) {
        let (record, keep) = (&chosen.record, chosen.keep);
        let begun = runtime::now();
        let dropping = (keep == Keep::Nothing).then(|| Counted::begin(&self.dropping));
        let unread = self.upkeep.recovery.give_up(record.segment).await;
        if let Keep::Old(sixteenths) = keep
            && unread.is_none()
        {
            let taking = self.take_back(residents, record, sixteenths);
            if let Ok(Err(error)) = runtime::timeout(TAKING, taking).await {
                tracing::warn!(segment = record.segment.0, %error, "items could not be taken back");
            }
        }
        if matches!(keep, Keep::Nothing | Keep::Old(_)) && self.demaps_by_itself {
            self.drop_unseen(residents, record, unread.is_some());
        } else {
            match self.upkeep.store.reader().read_summary(record).await {
                Ok(entries) => {
                    if let Some(dead) = unread {
                        self.count_unread(record, &entries, &dead);
                    }
                    let kept = self.classify(residents, record, keep, &entries).await;
                    self.keep_items(residents, record, keep, &kept).await;
                    if self.demaps_by_itself {
                        self.drop_unseen(residents, record, false);
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        segment = record.segment.0,
                        %error,
                        "a summary could not be read; the segment's items are lost"
                    );
                    let lost = residents.forget_segment(record);
                    self.upkeep.counters.items_lost.add(lost);
                }
            }
        }
        if !self.upkeep.dead_copies.are_located() {
            // Made durable first: older segments must not come back without the items that supersede theirs.
            self.upkeep.sync_deaths().await;
        }
        self.upkeep.store.pool().release(record.segment).await;
        self.upkeep.counters.segments_reclaimed.add(1);
        if chosen.is_leveling {
            self.upkeep.counters.segments_leveled.add(1);
        }
        if dropping.is_some() {
            self.upkeep.counters.segments_dropped.add(1);
            self.upkeep
                .free_segments
                .drop_time
                .add(runtime::now().since(begun));
        }
    }

    /// Drops the remaining items of a segment without looking at them. Counts them by estimate: as many items
    /// as the index may have named, including some that were outdated or expired; each as long as the segment's average
    /// item; none as read or with an expiry.
    fn drop_unseen(&self, residents: &dyn Residents, record: &SegmentRecord, is_unread: bool) {
        let named = residents.forget_segment(record);
        // The index has no items of a segment that recovery has not reached.
        let items = if is_unread {
            u64::from(record.items)
        } else {
            // A flush has made the other items dead.
            named.min(u64::from(
                self.upkeep.store.table().valid_items(record.segment),
            ))
        };
        if items == 0 {
            return;
        }
        self.count_age(record);
        let counters = &self.upkeep.counters;
        counters.items_evicted.add(items);
        counters.evicted_unfetched.add(items);
        let bytes_of_all = u64::from(record.data_bytes);
        let bytes = bytes_of_all * items / u64::from(record.items.max(1));
        counters.bytes_evicted.add(bytes);
    }

    /// Notes how long the items of a segment, dropped unread, have been on flash.
    fn count_age(&self, record: &SegmentRecord) {
        if let Some(sealed_at) = self.upkeep.store.table().sealed_at(record.segment) {
            let age = runtime::unix_seconds().saturating_sub(sealed_at);
            self.upkeep.evicted_age.store(age, Ordering::Relaxed);
        }
    }

    /// Counts the items that were live at the start and are dropped with a segment that recovery had not reached.
    fn count_unread(&self, record: &SegmentRecord, entries: &[SummaryEntry], dead: &DeadSet) {
        let items = dead.of_segment(record);
        let clock = self.upkeep.recovery.clock;
        for (number, entry) in entries.iter().enumerate() {
            if items.classify(entry, &self.upkeep.cutoffs, clock) == ItemState::Live {
                let bytes = entry_bytes(entry, entries.get(number + 1), record.slot_bytes);
                self.count_evicted(record, entry, bytes, false);
            }
        }
    }

    /// Counts a live item that is dropped.
    fn count_evicted(
        &self,
        record: &SegmentRecord,
        entry: &SummaryEntry,
        bytes: u64,
        is_read: bool,
    ) {
        if !is_read {
            self.count_age(record);
        }
        let counters = &self.upkeep.counters;
        counters.items_evicted.add(1);
        counters.bytes_evicted.add(bytes);
        counters.evicted_unfetched.add(u64::from(!is_read));
        counters
            .evicted_nonzero
            .add(u64::from(entry.expiry.get() != 0));
    }

    /// Gives the items of a segment that the index marks as read back to memory, up to a bound, in the order in which they lie. The
    /// others stay in the index.
    async fn take_back(
        &self,
        residents: &dyn Residents,
        record: &SegmentRecord,
        most_sixteenths: u32,
    ) -> Result<(), ReadError> {
        let store = &self.upkeep.store;
        let Some(memory) = self.upkeep.free_segments.memory.get() else {
            return Ok(());
        };
        let Some(pin) = store.table().pin(record.segment, record.sequence) else {
            return Ok(());
        };
        let listed = store.reader().read_summary(record).await?;
        let now = runtime::unix_seconds();
        let mut left = u64::from(record.data_bytes) * u64::from(most_sixteenths) / 16;
        let is_wanted = |item: &Resident, entry: &SummaryEntry| {
            let was_read = matches!(residents.entry(item), Entered::Yes(known) if known.was_read);
            was_read && self.is_live(item, entry, now)
        };
        let each = |entries: &[SummaryEntry], part: &[u8], start: u32| {
            for entry in entries {
                let item = Resident::of(record, entry);
                let offset = item.place.position.offset();
                if !is_wanted(&item, entry) {
                    continue;
                }
                let bytes = SegmentPart { start, bytes: part };
                if let Ok(contents) = ItemRef::decode(bytes.from(offset), record.sequence, offset)
                    && contents.flash_bytes() as u64 <= left
                    && memory.take_back(&item, &contents)
                {
                    left -= contents.flash_bytes() as u64;
                    self.upkeep.counters.items_returned.add(1);
                }
            }
        };
        let reader = store.reader();
        reader
            .go_through(&pin, self.hash_seed, &listed, each)
            .await?;
        let mut own = listed;
        own.retain(|entry| {
            let item = Resident::of(record, entry);
            let bytes = u64::from(item.place.position.read_bytes(0));
            let is_taken = bytes <= left && is_wanted(&item, entry);
            left -= bytes * u64::from(is_taken);
            is_taken
        });
        self.keep_items(residents, record, Keep::Return, &own).await;
        Ok(())
    }

    /// Removes every item that is not kept from the index. Returns the kept items.
    async fn classify(
        &self,
        residents: &dyn Residents,
        record: &SegmentRecord,
        keep: Keep,
        entries: &[SummaryEntry],
    ) -> Vec<SummaryEntry> {
        let now = runtime::unix_seconds();
        let (mut left, all) = match keep {
            Keep::Recent(max_bytes) => (max_bytes, false),
            Keep::Return => (u64::MAX, false),
            Keep::Valid | Keep::ValidForWear => (u64::MAX, true),
            Keep::Nothing | Keep::Old(_) | Keep::ValidIfGain | Keep::ValidUnlessSeldomRead => {
                (0, false)
            }
        };
        let mut kept = Vec::new();
        let _turn = self.turns.acquire().await;
        for (number, entry) in entries.iter().enumerate() {
            if number % ITEMS_A_TURN == ITEMS_A_TURN - 1 {
                // The worker has requests to serve.
                runtime::yield_now().await;
            }
            let item = Resident::of(record, entry);
            let is_live = self.is_live(&item, entry, now);
            let bytes = entry_bytes(entry, entries.get(number + 1), record.slot_bytes);
            let mut is_read = false;
            let named = residents.check(&item, &mut |priority| {
                is_read = priority.is_raised();
                is_live && (all || is_read) && bytes <= left
            });
            match named {
                Named::No => {}
                Named::Kept => {
                    left -= bytes;
                    kept.push(*entry);
                }
                Named::Removed if is_live => self.count_evicted(record, entry, bytes, is_read),
                Named::Removed => self.upkeep.counters.items_expired.add(1),
            }
        }
        kept
    }

    /// Reads the kept items, and copies them to open segments or hands them back to memory.
    async fn keep_items(
        &self,
        residents: &dyn Residents,
        record: &SegmentRecord,
        keep: Keep,
        kept: &[SummaryEntry],
    ) {
        let mut rest = kept;
        while !rest.is_empty() {
            let (run, start, len) = next_run(
                rest,
                record.slot_bytes,
                self.upkeep.store.table().segment_bytes(),
            );
            rest = &rest[run.len()..];
            let read = self
                .upkeep
                .store
                .blocks()
                .read_range(record.segment, start, len as usize);
            let bytes = match read.await {
                Ok(bytes) => bytes,
                Err(error) => {
                    tracing::warn!(segment = record.segment.0, %error, "items could not be copied");
                    self.drop_items(residents, record, run);
                    continue;
                }
            };
            let part = SegmentPart {
                start,
                bytes: &bytes,
            };
            // The whole segment in one turn, since a half copied segment has freed nothing yet.
            let mut turn = Some(self.turns.acquire().await);
            for entries in run.chunks(ITEMS_A_TURN) {
                let items = self.decode_items(residents, record, entries, part);
                match (keep, self.upkeep.free_segments.memory.get()) {
                    (Keep::Return, Some(memory)) => {
                        for (entry, item) in &items {
                            if memory.take_back(&Resident::of(record, entry), item) {
                                self.upkeep.counters.items_returned.add(1);
                            } else {
                                self.drop_items(residents, record, std::slice::from_ref(entry));
                            }
                        }
                    }
                    _ => self.copy(residents, record, keep, &items, &mut turn).await,
                }
                runtime::yield_now().await;
            }
        }
    }

    /// Decodes the items of these entries, which lie in `part`. Drops damaged items.
    fn decode_items<'a>(
        &self,
        residents: &dyn Residents,
        record: &SegmentRecord,
        entries: &[SummaryEntry],
        part: SegmentPart<'a>,
    ) -> Vec<(SummaryEntry, ItemRef<'a>)> {
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            let offset = Position::from_bits(entry.position.get()).offset();
            match ItemRef::decode(part.from(offset), record.sequence, offset) {
                Ok(item) => items.push((*entry, item)),
                Err(error) => {
                    tracing::warn!(segment = record.segment.0, offset, %error, "a damaged item");
                    self.drop_items(residents, record, std::slice::from_ref(entry));
                }
            }
        }
        items
    }

    /// Copies items to open segments. Gives its `turn` up while there is no space.
    async fn copy(
        &self,
        residents: &dyn Residents,
        record: &SegmentRecord,
        keep: Keep,
        items: &[(SummaryEntry, ItemRef<'_>)],
        turn: &mut Option<Permit>,
    ) {
        let mut copies: Vec<AppendItem<'_>> = items
            .iter()
            .map(|(entry, item)| AppendItem {
                hash: Resident::of(record, entry).hash,
                item: *item,
                priority: Priority::LOWEST,
                is_listed: true,
            })
            .collect();
        let resident = |number: usize| Resident::of(record, &items[number].0);
        let source = if keep == Keep::ValidForWear {
            Source::Leveling
        } else {
            Source::Copy
        };
        let mut done = 0;
        while done < items.len() {
            // An item that has died since it was read is not written again: a power cut could lose the record that
            // declares the copy dead, and leave the copy.
            let now = runtime::unix_seconds();
            let is_named = |number: usize, to: &mut Priority| {
                let item = resident(number);
                // An item that has expired by now leaves the index here.
                let is_live = self.is_live(&item, &items[number].0, now);
                let mut keep = |priority| {
                    *to = priority;
                    is_live
                };
                match residents.check(&item, &mut keep) {
                    Named::Kept => true,
                    Named::No => false,
                    Named::Removed => {
                        self.upkeep.counters.items_expired.add(1);
                        false
                    }
                }
            };
            let mut end = done;
            while end < items.len() && is_named(end, &mut copies[end].priority) {
                end += 1;
            }
            if end == done {
                done += 1;
                continue;
            }
            let space = self.upkeep.store.pool().space().listener();
            let first = done;
            done += self.upkeep.store.appender().append(
                &copies[first..end],
                source,
                |number, place| {
                    if residents.moved(&resident(first + number), place) {
                        self.upkeep.counters.items_copied.add(1);
                        let bytes = copies[first + number].item.flash_bytes() as u64;
                        self.upkeep.counters.bytes_copied.add(bytes);
                        if keep == Keep::ValidForWear {
                            self.upkeep.counters.bytes_copied_to_level.add(bytes);
                        }
                    } else {
                        // Overwritten or deleted in between: the copy is dead from the start.
                        self.upkeep.displace(place);
                    }
                },
            );
            if done == end {
                continue;
            }
            let starved = (self.upkeep.store.pool().counts().free == 0)
                .then(|| Counted::begin(&self.starved));
            if starved.is_some()
                && self.starved.load(Ordering::SeqCst)
                    >= self.upkeep.store.pool().counts().reclaiming
            {
                // Every other reclaim waits as well, so that only this one can free a segment.
                let left: Vec<SummaryEntry> =
                    items[done..].iter().map(|(entry, _)| *entry).collect();
                return self.drop_items(residents, record, &left);
            }
            *turn = None;
            if self.upkeep.works_in_background() || starved.is_some() {
                space.await;
            } else if !self.writing.write_one(residents).await
                && !self.upkeep.store.buffers().has_buffer_for_copies()
            {
                // Other tasks are writing all sealed segments.
                space.await;
            }
            drop(starved);
            *turn = Some(self.turns.acquire().await);
        }
    }

    fn drop_items(&self, residents: &dyn Residents, record: &SegmentRecord, run: &[SummaryEntry]) {
        let now = runtime::unix_seconds();
        for entry in run {
            let item = Resident::of(record, entry);
            let mut is_read = false;
            let named = residents.check(&item, &mut |priority| {
                is_read = priority.is_raised();
                false
            });
            if named != Named::Removed {
                continue;
            }
            if self.is_live(&item, entry, now) {
                let bytes = entry_bytes(entry, None, record.slot_bytes);
                self.count_evicted(record, entry, bytes, is_read);
            } else {
                self.upkeep.counters.items_expired.add(1);
            }
        }
    }

    fn is_live(&self, item: &Resident, entry: &SummaryEntry, now: u32) -> bool {
        let (hash, version, expiry) = (item.hash, item.version, entry.expiry.get());
        self.upkeep.cutoffs.is_live(hash, version, expiry, now)
    }
}

/// Returns the bytes from an entry's item to the next item, or the bytes of its slot.
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

/// Returns the entries at the front of `kept` that one read covers, with the read's offset and length in bytes.
pub(crate) fn next_run(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::align;
    use proptest::prelude::*;

    const SEGMENT_BYTES: u32 = 4 << 20;

    /// Creates entries of items that lie one after the other, with their lengths.
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
