//! The log: fixed chunks, appended at the head, evicted at the tail.

use std::collections::VecDeque;
use std::sync::Arc;

use runtime::pages::{PagePool, Pages};
use zerocopy::{FromBytes, IntoBytes};

use super::large::{LargeValues, Ticket};
use super::long::LongValue;
use crate::format::item::{BESIDE, CAS_BYTES, HEADER_BYTES, ItemHeader, ItemRef, state};

/// Entries start at multiples of this many bytes.
const UNIT: usize = 8;
/// Bytes behind the key of a stub: the number of its value.
const STUB_BYTES: usize = 4;

/// A body longer than a chunk divided by this has its value beside the log.
pub(super) const LARGEST_INLINE: usize = 4;

/// Position of an entry: chunk slot and unit within the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(u32);

#[derive(Default)]
pub(super) struct Log {
    chunk_bytes: usize,
    unit_bits: u32,
    /// Chunks by slot; a slot keeps its number while its chunk moves from head to tail.
    slots: Vec<Option<Pages>>,
    /// Slots without a chunk.
    vacant: Vec<u32>,
    /// Slots in the order they were opened.
    order: VecDeque<u32>,
    /// Number of the chunk in each slot, in the order in which chunks were opened.
    opened: Vec<u64>,
    /// Chunks opened so far.
    chunks_opened: u64,
    /// For each slot, a lower bound on the versions of the dirty entries of its chunk.
    dirty_from: Vec<u64>,
    /// Bytes used in the head chunk.
    head_bytes: usize,
    /// A spare chunk, for the entries that the next eviction appends again.
    spare: Option<Pages>,
    /// The pool that chunks are taken from.
    pool: Arc<PagePool>,
    /// Values beside the log.
    beside: Vec<Option<Beside>>,
    vacant_beside: Vec<u32>,
    /// Bytes of values beside the log, without large ones.
    pub(super) beside_bytes: usize,
    /// Bytes of values beside the log whose stubs went to the head chunk, without large ones.
    pub(super) head_beside_bytes: usize,
    /// Bytes of large values.
    pub(super) large_bytes: usize,
    /// The large values of all partitions.
    large: Arc<LargeValues>,
}

/// A value beside the log.
struct Beside {
    value: LongValue,
    /// Place among the large values; `None` if the value counts towards the memory of the partition.
    ticket: Option<Ticket>,
}

/// A position in the log that stays valid while chunks come and go: the number of a chunk, in the order in which chunks
/// were opened, and a byte in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogPosition {
    chunk: u64,
    byte: usize,
}

/// Offsets of an entry's parts in its chunk.
#[derive(Clone, Copy)]
struct Extent {
    key: usize,
    value: usize,
    end: usize,
}

impl Log {
    /// Creates an empty log whose chunks of `chunk_bytes`, a power of two, come from a pool. Its large values are among
    /// `large`.
    pub(super) fn new(chunk_bytes: usize, pool: Arc<PagePool>, large: Arc<LargeValues>) -> Self {
        assert!(
            chunk_bytes.is_power_of_two() && chunk_bytes >= 4096,
            "a power of two"
        );
        Self {
            chunk_bytes,
            unit_bits: (chunk_bytes / UNIT).trailing_zeros(),
            head_bytes: chunk_bytes,
            pool,
            large,
            ..Self::default()
        }
    }

    /// Returns the bytes of a chunk.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Returns the number of chunks in the log.
    pub(super) fn open_chunks(&self) -> usize {
        self.order.len()
    }

    /// Returns the bytes of chunks and of values beside them, without large values.
    pub(super) fn memory_bytes(&self) -> usize {
        let chunks = self.order.len() + usize::from(self.spare.is_some());
        chunks * self.chunk_bytes + self.beside_bytes
    }

    /// Returns whether an entry of `bytes` bytes can be appended to the head chunk.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.head_bytes + bytes.next_multiple_of(UNIT) <= self.chunk_bytes
    }

    /// Returns the bytes of memory that opening a head takes.
    pub(super) fn next_head_bytes(&self) -> usize {
        if self.spare.is_some() {
            0
        } else {
            self.chunk_bytes
        }
    }

    /// Opens a new head chunk: the spare, or a chunk from the pool.
    pub(super) fn open_head(&mut self) {
        let chunk = self
            .spare
            .take()
            .unwrap_or_else(|| self.pool.take(self.chunk_bytes));
        let slot = put_vacant(&mut self.slots, &mut self.vacant, chunk);
        // Marks the end of the old head's entries for walks over that chunk.
        if let Some(&old) = self.order.back() {
            let at = self.head_bytes;
            let old = self.chunk_mut(old as usize);
            if at + HEADER_BYTES <= old.len() {
                old[at..at + HEADER_BYTES].fill(0);
            }
        }
        self.chunks_opened += 1;
        self.opened.resize(self.slots.len(), 0);
        self.opened[slot as usize] = self.chunks_opened;
        self.dirty_from.resize(self.slots.len(), u64::MAX);
        self.dirty_from[slot as usize] = u64::MAX;
        self.order.push_back(slot);
        self.head_bytes = 0;
        self.head_beside_bytes = 0;
    }

    /// Returns the slot of the oldest chunk.
    pub(super) fn tail(&self) -> Option<u32> {
        self.order.front().copied()
    }

    /// Returns a lower bound on the versions of the dirty entries of the chunk in `slot`.
    pub(super) fn dirty_from(&self, slot: u32) -> u64 {
        self.dirty_from[slot as usize]
    }

    pub(super) fn set_dirty_from(&mut self, slot: u32, version: u64) {
        self.dirty_from[slot as usize] = version;
    }

    /// Lowers the bound of the chunk if the entry's new header is dirty.
    pub(super) fn note_dirty(&mut self, handle: Handle, header: &ItemHeader) {
        if header.has(state::DIRTY) {
            let from = &mut self.dirty_from[(handle.0 >> self.unit_bits) as usize];
            *from = (*from).min(header.version.get());
        }
    }

    /// Returns the slot of the first chunk with number `opened` or higher, and the chunk's number.
    pub(super) fn chunk_from(&self, opened: u64) -> Option<(u32, u64)> {
        let number = |slot: u32| self.opened[slot as usize];
        let place = self.order.partition_point(|&slot| number(slot) < opened);
        let &slot = self.order.get(place)?;
        Some((slot, number(slot)))
    }

    /// Returns the number of the head chunk, 0 if there is none.
    pub(super) fn head_opened(&self) -> u64 {
        let head = self.order.back();
        head.map_or(0, |&slot| self.opened[slot as usize])
    }

    /// Returns the position behind the last entry.
    pub(super) fn end(&self) -> LogPosition {
        LogPosition {
            chunk: self.chunks_opened + 1,
            byte: 0,
        }
    }

    /// Returns the entries from a position on, oldest first, dead ones included, each with the position behind it.
    pub(super) fn entries_behind(
        &self,
        from: LogPosition,
    ) -> impl Iterator<Item = (LogPosition, Handle)> + '_ {
        let number = |slot: u32| self.opened[slot as usize];
        let skipped = self
            .order
            .partition_point(|&slot| number(slot) < from.chunk);
        self.order.iter().skip(skipped).flat_map(move |&slot| {
            let chunk = number(slot);
            let first = if chunk == from.chunk { from.byte } else { 0 };
            let entries = self.entries_from(slot, first);
            entries.map(move |(handle, byte)| (LogPosition { chunk, byte }, handle))
        })
    }

    /// Removes the oldest chunk, as [`close`](Log::close) does.
    pub(super) fn close_tail(&mut self, keep: bool) {
        if let Some(slot) = self.tail() {
            self.close(slot, keep);
        }
    }

    /// Removes a chunk whose entries are all dead. It becomes the spare if there is none and `keep` is set.
    pub(super) fn close(&mut self, slot: u32, keep: bool) {
        let opened = self.opened[slot as usize];
        let number = |slot: u32| self.opened[slot as usize];
        let place = self.order.partition_point(|&slot| number(slot) < opened);
        self.order.remove(place);
        let chunk = self.slots[slot as usize].take();
        self.vacant.push(slot);
        if keep && self.spare.is_none() {
            self.spare = chunk;
        }
        if self.order.is_empty() {
            self.head_bytes = self.chunk_bytes;
        }
    }

    /// Returns the bytes that an item takes in the log and beside it. Its value lies in one of the two.
    pub(super) fn entry_bytes(&self, header: &ItemHeader) -> (usize, usize) {
        let (body, value) = (header.body_bytes(), header.value_bytes.get() as usize);
        if body <= self.chunk_bytes / LARGEST_INLINE {
            (body, 0)
        } else {
            (body - value + STUB_BYTES, LongValue::bytes_for(value))
        }
    }

    /// Appends an item, which fits the head chunk. `shared` is its value, if the caller has it in a form that can lie
    /// beside the log without a copy. A large value has a `ticket`.
    pub(super) fn append(
        &mut self,
        header: &ItemHeader,
        cas_unique: u64,
        key: &[u8],
        value: &[u8],
        shared: Option<LongValue>,
        ticket: Option<Ticket>,
    ) -> Handle {
        let (bytes, value_bytes) = self.entry_bytes(header);
        debug_assert!(self.fits(bytes), "the caller opened a chunk");
        let stub = (value_bytes > 0).then(|| {
            let value = shared.unwrap_or_else(|| LongValue::copy(value, &self.pool));
            self.keep_beside(Beside { value, ticket })
        });
        let slot = *self.order.back().expect("a head chunk is open");
        let start = self.head_bytes;
        let chunk = self.chunk_mut(slot as usize);
        let mut at = start;
        let mut put = |bytes: &[u8]| {
            chunk[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        let mut header = *header;
        header.updates = header.updates & !BESIDE | (u8::from(stub.is_some()) * BESIDE);
        put(header.as_bytes());
        if header.has(state::HAS_CAS) {
            put(&cas_unique.to_le_bytes());
        }
        put(key);
        match stub {
            Some(number) => put(&number.to_le_bytes()),
            None => put(value),
        }
        self.head_bytes = start + bytes.next_multiple_of(UNIT);
        let handle = Handle(slot << self.unit_bits | (start / UNIT) as u32);
        self.note_dirty(handle, &header);
        handle
    }

    fn keep_beside(&mut self, beside: Beside) -> u32 {
        let bytes = LongValue::bytes_for(beside.value.len());
        if beside.ticket.is_some() {
            self.large_bytes += bytes;
        } else {
            self.beside_bytes += bytes;
            self.head_beside_bytes += bytes;
        }
        put_vacant(&mut self.beside, &mut self.vacant_beside, beside)
    }

    fn place(&self, handle: Handle) -> (usize, usize) {
        let slot = (handle.0 >> self.unit_bits) as usize;
        let start = (handle.0 & ((1 << self.unit_bits) - 1)) as usize * UNIT;
        (slot, start)
    }

    fn chunk(&self, slot: usize) -> &[u8] {
        self.slots[slot]
            .as_deref()
            .expect("handles name open chunks")
    }

    fn chunk_mut(&mut self, slot: usize) -> &mut [u8] {
        self.slots[slot]
            .as_deref_mut()
            .expect("handles name open chunks")
    }

    fn header_at(chunk: &[u8], start: usize) -> &ItemHeader {
        ItemHeader::ref_from_prefix(&chunk[start..])
            .expect("entries lie within their chunk")
            .0
    }

    fn extent(header: &ItemHeader, start: usize) -> Extent {
        let key = start + HEADER_BYTES + header.cas_bytes();
        let value = key + usize::from(header.key_bytes);
        let value_bytes = if header.is_beside() {
            STUB_BYTES
        } else {
            header.value_bytes.get() as usize
        };
        Extent {
            key,
            value,
            end: value + value_bytes,
        }
    }

    /// Returns an entry's chunk, its header, and the offsets of its other parts.
    fn entry(&self, handle: Handle) -> (&[u8], &ItemHeader, Extent) {
        let (slot, start) = self.place(handle);
        let chunk = self.chunk(slot);
        let header = Self::header_at(chunk, start);
        (chunk, header, Self::extent(header, start))
    }

    /// Returns the header of an entry.
    pub(super) fn header(&self, handle: Handle) -> &ItemHeader {
        let (slot, start) = self.place(handle);
        Self::header_at(self.chunk(slot), start)
    }

    /// Returns the header of an entry, to change any field except its lengths.
    pub(super) fn header_mut(&mut self, handle: Handle) -> &mut ItemHeader {
        let (slot, start) = self.place(handle);
        ItemHeader::mut_from_prefix(&mut self.chunk_mut(slot)[start..])
            .expect("entries lie within their chunk")
            .0
    }

    /// Returns the value of an entry, to be overwritten; `None` if the value lies beside the log.
    pub(super) fn value_mut(&mut self, handle: Handle) -> Option<&mut [u8]> {
        let (slot, _) = self.place(handle);
        let (_, header, extent) = self.entry(handle);
        let beside = header.is_beside();
        (!beside).then(|| &mut self.chunk_mut(slot)[extent.value..extent.end])
    }

    pub(super) fn key(&self, handle: Handle) -> &[u8] {
        let (chunk, _, extent) = self.entry(handle);
        &chunk[extent.key..extent.value]
    }

    /// Returns an entry's item, and the owner of its value if that lies beside the log.
    pub(super) fn item(&self, handle: Handle) -> (ItemRef<'_>, Option<&LongValue>) {
        let (chunk, header, extent) = self.entry(handle);
        let cas_unique = if header.has(state::HAS_CAS) {
            let at = extent.key - CAS_BYTES;
            u64::from_le_bytes(chunk[at..extent.key].try_into().expect("eight bytes"))
        } else {
            header.version.get()
        };
        let key = &chunk[extent.key..extent.value];
        let tail = &chunk[extent.value..extent.end];
        let owner = (header.is_beside()).then(|| {
            let beside = self.beside[stub_number(tail)].as_ref();
            &beside.expect("a live stub names a value").value
        });
        let item = ItemRef {
            header,
            cas_unique,
            key,
            value: owner.map_or(tail, |owner| owner),
        };
        (item, owner)
    }

    /// Marks an entry dead, and frees its value if that lies beside the log.
    pub(super) fn kill(&mut self, handle: Handle) {
        let (chunk, header, extent) = self.entry(handle);
        if header.is_beside() && !header.has(state::DEAD) {
            let number = stub_number(&chunk[extent.value..extent.end]);
            if let Some(Beside { value, ticket }) = self.beside[number].take() {
                let bytes = LongValue::bytes_for(value.len());
                match ticket {
                    Some(ticket) => {
                        self.large_bytes -= bytes;
                        self.large.leave(ticket, bytes);
                    }
                    None => self.beside_bytes -= bytes,
                }
            }
            self.vacant_beside.push(number as u32);
        }
        self.header_mut(handle).state |= state::DEAD;
    }

    /// Returns the number of the value of an entry that is not dead, if it lies beside the log.
    fn beside_number(&self, handle: Handle) -> Option<usize> {
        let (chunk, header, extent) = self.entry(handle);
        let is_beside = header.is_beside();
        is_beside.then(|| stub_number(&chunk[extent.value..extent.end]))
    }

    /// Returns the place and the bytes of a large value of an entry that is not dead; `None` for any other entry.
    pub(super) fn large_of(&self, handle: Handle) -> Option<(Ticket, usize)> {
        let beside = self.beside[self.beside_number(handle)?].as_ref()?;
        Some((beside.ticket?, LongValue::bytes_for(beside.value.len())))
    }

    /// Puts a large value at the back of the queue of large values.
    pub(super) fn requeue(&mut self, handle: Handle) {
        let number = self.beside_number(handle);
        if let Some(beside) = number.and_then(|number| self.beside[number].as_mut()) {
            beside.ticket = beside.ticket.map(|ticket| self.large.requeue(ticket));
        }
    }

    /// Takes the place among the large values from an entry that is about to be appended again.
    pub(super) fn take_ticket(&mut self, handle: Handle) -> Option<Ticket> {
        let (ticket, bytes) = self.large_of(handle)?;
        let number = self.beside_number(handle)?;
        self.beside[number].as_mut()?.ticket = None;
        self.large_bytes -= bytes;
        self.beside_bytes += bytes;
        Some(ticket)
    }

    /// Returns the entries of the chunk in `slot`, in order, dead ones included.
    pub(super) fn entries(&self, slot: u32) -> impl Iterator<Item = Handle> + '_ {
        let entries = self.entries_from(slot, 0);
        entries.map(|(handle, _)| handle)
    }

    /// Returns the entries of the chunk in `slot` from byte `at` on, each with the byte at which it ends.
    pub(super) fn entries_from(
        &self,
        slot: u32,
        mut at: usize,
    ) -> impl Iterator<Item = (Handle, usize)> + '_ {
        let chunk = self.chunk(slot as usize);
        let is_head = self.order.back() == Some(&slot);
        let end = if is_head {
            self.head_bytes
        } else {
            self.chunk_bytes
        };
        std::iter::from_fn(move || {
            if at + HEADER_BYTES > end {
                return None;
            }
            let header = Self::header_at(chunk, at);
            if header.key_bytes == 0 {
                return None;
            }
            let handle = Handle(slot << self.unit_bits | (at / UNIT) as u32);
            at = Self::extent(header, at).end.next_multiple_of(UNIT);
            Some((handle, at))
        })
    }
}

/// Puts a value into a vacant place of a table, or a new one. Returns the number of the place.
fn put_vacant<T>(table: &mut Vec<Option<T>>, vacant: &mut Vec<u32>, value: T) -> u32 {
    let number = vacant.pop().unwrap_or_else(|| {
        table.push(None);
        table.len() as u32 - 1
    });
    table[number as usize] = Some(value);
    number
}

fn stub_number(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes.try_into().expect("a stub's number")) as usize
}
