//! One sub-table: an array of cache-line buckets, kept in hash order.
//!
//! The array is cut into chunks of a page. Sub-tables have hundreds of different sizes, and each is freed and allocated
//! again when it grows. That would leave holes that no later size fits (17 % more resident than asked for, measured with
//! glibc); chunks of one size leave none. They come from a pool, so that any thread may rebuild a sub-table. Less than a
//! chunk at the end comes from the allocator.
//!
//! An entry lies in its home bucket or one of the 7 that follow (circularly); its *displacement* tells which. The array
//! as a whole is linear probing with buckets, kept sorted: going around the circle, homes never decrease. So a search
//! stops at the first bucket that has a free slot or holds an entry of a later home. An insertion shifts the entries
//! behind it by one slot up to the next free one, and a removal shifts them back. There are no tombstones.
//!
//! Invariants, checked by `check` in tests:
//! 1. In a bucket, entries come first and free slots (0) last.
//! 2. Every bucket from an entry's home up to the one before its own is full.
//! 3. In circular order, homes never decrease; in a bucket, displacements never increase.
//! 4. No two entries have the same home and tag.
//! 5. At least one slot is free, so that every walk ends.
//!
//! Failure: [`SubTable::place`] and [`SubTable::rebuilt`] report an impossible arrangement before they change anything.

use std::sync::Arc;

use runtime::pages::{PagePool, Pages};

use crate::layout::{Layout, Positions, Probe, WINDOW};
use crate::sweep::Sweep;

/// Slots of a bucket.
pub(crate) const SLOTS: usize = 8;
/// Bytes of a bucket.
const BUCKET_BYTES: usize = size_of::<Bucket>();

/// One cache line of entries.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u64; SLOTS]);

const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);

const LAST: usize = SLOTS - 1;

/// Buckets of a chunk.
const CHUNK_BUCKETS: usize = 64;
const CHUNK_BYTES: usize = CHUNK_BUCKETS * BUCKET_BYTES;

/// One cell of the table's directory.
#[derive(Debug)]
pub(crate) struct SubTable {
    chunks: Box<[Pages]>,
    /// The buckets behind the last chunk.
    rest: Box<[Bucket]>,
    /// Buckets in the chunks and behind them.
    buckets: u32,
    len: u32,
    /// Shrinking is tried again below this number of entries. It is lowered when an attempt fails, so that failing
    /// attempts stay rare.
    shrink_below: u32,
}

const _: () = assert!(size_of::<SubTable>() == 48);

/// Position of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    bucket: usize,
    slot: usize,
}

/// Position for a new entry: its bucket, and the distance from home. A displacement of [`WINDOW`] means that there is
/// none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacancy {
    bucket: usize,
    displacement: u32,
}

impl SubTable {
    pub(crate) fn new(buckets: usize, pool: &Arc<PagePool>) -> Self {
        debug_assert!(buckets >= WINDOW as usize);
        let chunk = |_| {
            let mut chunk = pool.take(CHUNK_BYTES);
            chunk.fill(0);
            chunk
        };
        SubTable {
            chunks: (0..buckets / CHUNK_BUCKETS).map(chunk).collect(),
            rest: vec![Bucket([0; SLOTS]); buckets % CHUNK_BUCKETS].into_boxed_slice(),
            buckets: u32::try_from(buckets).expect("invariant: a sub-table is far below 2^32"),
            len: 0,
            shrink_below: u32::MAX,
        }
    }

    #[inline]
    pub(crate) fn buckets(&self) -> usize {
        self.buckets as usize
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Finds the entry of a probe, or the position for it.
    #[inline]
    pub(crate) fn search(&self, layout: &Layout, probe: Probe) -> Result<Slot, Vacancy> {
        self.search_from(layout, probe.home(self.buckets()), probe.key)
    }

    #[inline]
    fn search_from(&self, layout: &Layout, home: usize, mut key: u64) -> Result<Slot, Vacancy> {
        let mut bucket = home;
        for displacement in 0..WINDOW {
            let slots = self.slots(bucket);
            if let Some(slot) = matching(slots, key, layout.key_mask) {
                // A free slot equals the key "tag 0 at home"; entries come before free slots.
                if slots[slot] != 0 {
                    return Ok(Slot { bucket, slot });
                }
            }
            let last = slots[LAST];
            if last == 0 || layout.displacement(last) < displacement {
                return Err(Vacancy {
                    bucket,
                    displacement,
                });
            }
            bucket = self.after(bucket);
            key += layout.one_displacement();
        }
        Err(Vacancy {
            bucket,
            displacement: WINDOW,
        })
    }

    /// Returns the first slot of a probe's home.
    #[inline]
    pub(crate) fn first_at_home(&self, probe: Probe) -> u64 {
        self.slots(probe.home(self.buckets()))[0]
    }

    #[inline]
    pub(crate) fn get(&self, at: Slot) -> u64 {
        self.slots(at.bucket)[at.slot]
    }

    /// Sets the value of an entry, and its rank to 0.
    #[inline]
    pub(crate) fn set_value(&mut self, layout: &Layout, at: Slot, value: u64) {
        let entry = &mut self.slots_mut(at.bucket)[at.slot];
        *entry = (*entry & layout.key_mask) | (value + 1);
    }

    #[inline]
    pub(crate) fn set_rank(&mut self, layout: &Layout, at: Slot, rank: u8) {
        let entry = &mut self.slots_mut(at.bucket)[at.slot];
        *entry = layout.with_rank(*entry, rank);
    }

    /// Whether an entry can be placed at a vacancy without pushing any entry out of its window.
    fn has_room(&self, layout: &Layout, at: Vacancy) -> bool {
        if at.displacement == WINDOW {
            return false;
        }
        let mut bucket = at.bucket;
        for _ in 0..self.buckets() {
            let last = self.slots(bucket)[LAST];
            if last == 0 {
                return true;
            }
            if layout.displacement(last) == WINDOW - 1 {
                return false;
            }
            bucket = self.after(bucket);
        }
        false
    }

    /// Places an entry (packed with displacement 0) at a vacancy. Returns false, with nothing changed, if that would push
    /// an entry out of its window.
    pub(crate) fn place(&mut self, layout: &Layout, at: Vacancy, entry: u64) -> bool {
        if !self.has_room(layout, at) {
            return false;
        }
        let mut bucket = at.bucket;
        let mut carried = entry + u64::from(at.displacement) * layout.one_displacement();
        let mut slot = self
            .slots(bucket)
            .iter()
            .take_while(|&&e| e != 0 && layout.displacement(e) >= at.displacement)
            .count();
        loop {
            let slots = self.slots_mut(bucket);
            let pushed_out = slots[LAST];
            slots.copy_within(slot..LAST, slot + 1);
            slots[slot] = carried;
            if pushed_out == 0 {
                break;
            }
            carried = pushed_out + layout.one_displacement();
            // No entry of the next bucket has an earlier home.
            slot = 0;
            bucket = self.after(bucket);
        }
        self.len += 1;
        true
    }

    /// Removes an entry and pulls the displaced ones behind it back by one slot.
    pub(crate) fn remove(&mut self, layout: &Layout, at: Slot) {
        let mut bucket = at.bucket;
        let mut was_full = shift_out(self.slots_mut(bucket), at.slot);
        while was_full {
            let next = self.after(bucket);
            let first = self.slots(next)[0];
            if first == 0 || layout.displacement(first) == 0 {
                break;
            }
            self.slots_mut(bucket)[LAST] = first - layout.one_displacement();
            was_full = shift_out(self.slots_mut(next), 0);
            bucket = next;
        }
        self.len -= 1;
    }

    /// Visits the entries of one home, the oldest first, and applies the result of `each`. Moves cleared entries behind
    /// the others, as the hand of a clock has passed them.
    pub(crate) fn sweep(&mut self, layout: &Layout, home: usize, each: impl FnMut(u64) -> Sweep) {
        let mut run = [Slot::default(); WINDOW as usize * SLOTS];
        let (len, cleared) = self.visit(layout, home, &mut run, each);
        if cleared == 0 || cleared.count_ones() as usize == len {
            return;
        }
        let run = &run[..len];
        let mut entries = [0; WINDOW as usize * SLOTS];
        let is_cleared = |number: &usize| cleared >> number & 1 == 1;
        let order = (0..len).filter(|number| !is_cleared(number));
        let order = order.chain((0..len).filter(is_cleared));
        for (to, from) in entries.iter_mut().zip(order) {
            *to = layout.without_displacement(self.get(run[from]));
        }
        for (&slot, entry) in run.iter().zip(entries) {
            let before = if slot.bucket < home {
                self.buckets()
            } else {
                0
            };
            let displacement = (slot.bucket + before - home) as u64;
            self.slots_mut(slot.bucket)[slot.slot] =
                entry + displacement * layout.one_displacement();
        }
    }

    /// Visits the entries as [`sweep`](Self::sweep) does, without moving cleared ones. Returns the number of entries
    /// left, whose slots it writes to `run`, and a bit for each that was cleared.
    fn visit(
        &mut self,
        layout: &Layout,
        home: usize,
        run: &mut [Slot; WINDOW as usize * SLOTS],
        mut each: impl FnMut(u64) -> Sweep,
    ) -> (usize, u64) {
        let (mut len, mut cleared) = (0, 0);
        let mut bucket = home;
        for displacement in 0..WINDOW {
            let mut slot = 0;
            while slot < SLOTS {
                let entry = self.slots(bucket)[slot];
                if entry == 0 || layout.displacement(entry) < displacement {
                    return (len, cleared);
                }
                // Entries of earlier homes come first in a bucket.
                if layout.displacement(entry) > displacement {
                    slot += 1;
                    continue;
                }
                let at = Slot { bucket, slot };
                match each(entry) {
                    Sweep::Keep => {}
                    Sweep::Clear => {
                        self.slots_mut(bucket)[slot] = entry & !layout.rank_mask();
                        cleared |= 1 << len;
                    }
                    // Pulls the next entry, which may be of this home, into the slot.
                    Sweep::Take => {
                        self.remove(layout, at);
                        continue;
                    }
                }
                run[len] = at;
                len += 1;
                slot += 1;
            }
            bucket = self.after(bucket);
        }
        (len, cleared)
    }

    /// Whether a shrink is worth trying, given that the load asks for it.
    pub(crate) fn may_shrink(&self) -> bool {
        self.len < self.shrink_below
    }

    /// Notes a failed attempt: the next one waits until a sixteenth of the entries is gone.
    pub(crate) fn shrink_failed(&mut self) {
        self.shrink_below = self.len - self.len / 16;
    }

    /// Returns a table of `buckets` buckets with the same entries, or `None` if they do not fit their windows. One pass:
    /// entries are read and written in hash order.
    pub(crate) fn rebuilt(
        &self,
        layout: &Layout,
        buckets: usize,
        pool: &Arc<PagePool>,
    ) -> Option<SubTable> {
        let mut builder = Builder {
            layout,
            table: SubTable::new(buckets, pool),
            cursor: 0,
        };
        let positions = Positions::new(layout, self.buckets());
        // Entries of one old home, sorted by new home before they are appended.
        let mut group = [(0usize, 0u64); WINDOW as usize * SLOTS];
        let mut group_len = 0;
        let mut group_home = usize::MAX;
        let mut first_position = 0;
        let mut fits = true;
        self.for_each_in_order(layout, |(home, entry)| {
            if home != group_home {
                fits &= builder.append_all(&group[..group_len]);
                group_len = 0;
                group_home = home;
                first_position = positions.first(home);
            }
            let position = positions.position(first_position, entry);
            let new_home = layout.probe(position).home(buckets);
            let mut slot = group_len;
            while slot > 0 && group[slot - 1].0 > new_home {
                group[slot] = group[slot - 1];
                slot -= 1;
            }
            group[slot] = (new_home, layout.without_displacement(entry));
            group_len += 1;
        });
        fits &= builder.append_all(&group[..group_len]);
        fits.then_some(builder.table)
    }

    /// Returns the entries of one bucket with their homes.
    #[inline]
    fn entries(&self, layout: &Layout, bucket: usize) -> impl Iterator<Item = (usize, u64)> {
        let entries = self.slots(bucket).iter().take_while(|&&entry| entry != 0);
        entries.map(move |&entry| {
            let displacement = layout.displacement(entry) as usize;
            let around = if displacement > bucket {
                self.buckets()
            } else {
                0
            };
            (bucket + around - displacement, entry)
        })
    }

    /// Visits every entry in the order of memory.
    pub(crate) fn for_each_stored(&self, mut visit: impl FnMut(u64)) {
        for bucket in 0..self.buckets() {
            let stored = self.slots(bucket).iter().take_while(|&&entry| entry != 0);
            stored.for_each(|&entry| visit(entry));
        }
    }

    /// Visits every entry with its home, in order of homes.
    fn for_each_in_order(&self, layout: &Layout, mut visit: impl FnMut((usize, u64))) {
        for bucket in 0..self.buckets() {
            let entries = self.entries(layout, bucket);
            entries
                .filter(|&(home, _)| home <= bucket)
                .for_each(&mut visit);
        }
        // Entries that wrapped around lie in the first buckets and belong to the last homes.
        for bucket in 0..WINDOW as usize - 1 {
            let entries = self.entries(layout, bucket);
            entries
                .filter(|&(home, _)| home > bucket)
                .for_each(&mut visit);
        }
    }

    /// Visits every entry with its home. Jumps about the array by the golden section, so that any beginning of the
    /// sequence is spread evenly over the hashes.
    pub(crate) fn for_each_scattered(&self, layout: &Layout, mut visit: impl FnMut((usize, u64))) {
        let buckets = self.buckets();
        let stride = (buckets * 618 / 1000..=buckets)
            .find(|&stride| greatest_common_divisor(stride, buckets) == 1)
            .expect("invariant: buckets - 1 has no divisor in common with buckets");
        let mut bucket = 0;
        for _ in 0..buckets {
            self.entries(layout, bucket).for_each(&mut visit);
            bucket = (bucket + stride) % buckets;
        }
    }

    #[inline]
    fn slots(&self, bucket: usize) -> &[u64; SLOTS] {
        match self.chunks.get(bucket / CHUNK_BUCKETS) {
            Some(chunk) => &chunk.words().as_chunks().0[bucket % CHUNK_BUCKETS],
            None => &self.rest[bucket % CHUNK_BUCKETS].0,
        }
    }

    #[inline]
    fn slots_mut(&mut self, bucket: usize) -> &mut [u64; SLOTS] {
        match self.chunks.get_mut(bucket / CHUNK_BUCKETS) {
            Some(chunk) => &mut chunk.words_mut().as_chunks_mut().0[bucket % CHUNK_BUCKETS],
            None => &mut self.rest[bucket % CHUNK_BUCKETS].0,
        }
    }

    #[inline]
    fn after(&self, bucket: usize) -> usize {
        let next = bucket + 1;
        if next == self.buckets() { 0 } else { next }
    }
}

/// Fills an empty sub-table in order of homes.
struct Builder<'a> {
    layout: &'a Layout,
    table: SubTable,
    /// Next free slot, counted over all buckets.
    cursor: usize,
}

impl Builder<'_> {
    /// Appends entries sorted by home. Returns false if one does not fit its window.
    fn append_all(&mut self, sorted: &[(usize, u64)]) -> bool {
        sorted.iter().all(|&(home, entry)| self.append(home, entry))
    }

    fn append(&mut self, home: usize, entry: u64) -> bool {
        self.cursor = self.cursor.max(home * SLOTS);
        let bucket = self.cursor / SLOTS;
        let displacement = bucket - home;
        if displacement >= WINDOW as usize {
            return false;
        }
        let displaced = entry + displacement as u64 * self.layout.one_displacement();
        if bucket < self.table.buckets() {
            self.table.slots_mut(bucket)[self.cursor % SLOTS] = displaced;
            self.table.len += 1;
            self.cursor += 1;
            return true;
        }
        // Past the end: goes around, in front of the entries of the first buckets.
        let key = entry & self.layout.key_mask;
        let found = self.table.search_from(self.layout, home, key);
        found.is_err_and(|vacancy| self.table.place(self.layout, vacancy, entry))
    }
}

/// Returns the bytes asked of pool and allocator for a sub-table of this many buckets, its cell aside.
pub(crate) fn heap_bytes(buckets: usize) -> u64 {
    let chunks = buckets / CHUNK_BUCKETS * size_of::<Pages>();
    (buckets * BUCKET_BYTES + chunks) as u64
}

fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Finds the first slot whose masked bits equal the key. No branches on the entries: the compiler makes conditional moves
/// of it.
#[inline]
fn matching(slots: &[u64; SLOTS], key: u64, mask: u64) -> Option<usize> {
    let mut first = SLOTS;
    for slot in (0..SLOTS).rev() {
        if (slots[slot] ^ key) & mask == 0 {
            first = slot;
        }
    }
    (first < SLOTS).then_some(first)
}

/// Removes one slot of a bucket and closes the gap. Returns whether the bucket was full.
#[inline]
fn shift_out(slots: &mut [u64; SLOTS], slot: usize) -> bool {
    let was_full = slots[LAST] != 0;
    slots.copy_within(slot + 1.., slot);
    slots[LAST] = 0;
    was_full
}

#[cfg(test)]
impl SubTable {
    /// Panics unless every invariant of the module head holds.
    pub(crate) fn check(&self, layout: &Layout) {
        let buckets = self.buckets();
        let mut seen = std::collections::HashSet::new();
        let mut homes = Vec::new();
        for bucket in 0..buckets {
            let slots = self.slots(bucket);
            let taken = slots.iter().take_while(|&&entry| entry != 0).count();
            assert!(
                slots[taken..].iter().all(|&entry| entry == 0),
                "gap in bucket {bucket}"
            );
            for &entry in &slots[..taken] {
                let displacement = layout.displacement(entry) as usize;
                let home = (bucket + buckets - displacement) % buckets;
                for back in 1..=displacement {
                    let passed = (bucket + buckets - back) % buckets;
                    assert_ne!(self.slots(passed)[LAST], 0, "passed over a free slot");
                }
                let tag = layout.without_displacement(entry) & layout.key_mask;
                assert!(seen.insert((home, tag)), "fingerprint twice");
                // Unrolled around the circle, so that wrapped homes compare as negative.
                homes.push(bucket as i64 - displacement as i64);
            }
        }
        assert!(homes.is_sorted(), "homes out of order");
        if let (Some(first), Some(last)) = (homes.first(), homes.last()) {
            assert!(
                *last <= first + buckets as i64,
                "homes out of order around the end"
            );
        }
        assert_eq!(homes.len(), self.len as usize);
        assert!(homes.len() < buckets * SLOTS);
    }

    pub(crate) fn counted_buckets(&self) -> usize {
        self.chunks.len() * CHUNK_BUCKETS + self.rest.len()
    }

    pub(crate) fn counted_bytes(&self) -> usize {
        let buckets: usize = self.chunks.iter().map(|chunk| size_of_val(&**chunk)).sum();
        size_of_val(&*self.chunks) + buckets + size_of_val(&*self.rest)
    }

    /// Returns the displacement of every entry, and whether it wrapped around.
    pub(crate) fn displacements(&self, layout: &Layout) -> impl Iterator<Item = (u32, bool)> {
        (0..self.buckets()).flat_map(move |bucket| {
            let entries = self.entries(layout, bucket);
            entries.map(move |(home, entry)| (layout.displacement(entry), home > bucket))
        })
    }
}
