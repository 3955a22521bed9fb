//! A flash as a ring of segments in FIFO order, and its compact index in the steady state.
//!
//! A key follows from the number of its object. For each slot, the ring keeps the number of its object, which a cache would
//! read from flash.

use std::ops::ControlFlow;

use systems::flashield::compact::{
    CLOCK_HIGHEST, CompactConfig, CompactEntry, CompactTable, FUNCTIONS, Location, OutOfRange,
    PROBES, Rank, SegmentFilter, SegmentFilters, SegmentId, Taken, candidates, last_collided,
    oldest,
};

use crate::row::Row;

/// Most entries that are moved for one insertion.
const MOVES_HIGHEST: usize = 8;

/// Fate of an existing entry when all slots of a new key are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// A ghost is lost, or else the entry of the last collision, as in the paper.
    LastCollided,
    /// The entry of the oldest segment is lost, a ghost if there is one.
    Oldest,
    /// The entry's object is read to learn its key, and the entry moves to another of the key's slots. After [`MOVES_HIGHEST`]
    /// moves, an entry is lost as by [`Oldest`](Self::Oldest).
    Moved,
}

/// Parameters of a simulation: the ring of segments, its table, and the policy that displaces entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) segments: u32,
    /// Objects in a segment.
    pub(super) keys: u64,
    pub(super) slots_an_object: f64,
    /// Share of the flash that may be hot.
    pub(super) hot: f64,
    pub(super) policy: Policy,
}

impl Shape {
    pub(super) const fn objects(&self) -> u64 {
        self.segments as u64 * self.keys
    }

    pub(super) fn table(&self) -> CompactConfig {
        CompactConfig {
            slots: (self.objects() as f64 * self.slots_an_object) as usize,
            segment_bits: CompactConfig::segment_bits_for(self.segments.into()),
            skip_bits: 0,
        }
    }
}

/// Bytes of memory for each object on flash.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) table: f64,
    pub(super) filters: f64,
}

impl Memory {
    pub(super) fn row(&self, found: f64) -> Row {
        let both = self.table + self.filters;
        Row::new()
            .with("table_bytes_an_object", self.table)
            .with("filter_bytes_an_object", self.filters)
            .with("dram_bytes_an_object", both)
            .with("dram_bytes_a_found", both / found)
    }
}

/// Numbers of objects on flash whose entries were displaced.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    hot: u64,
    ghosts: u64,
}

/// The ring. The `n`th segment written has the objects from `n * keys` on, and the number `n` mod `segments`.
pub(super) struct Ring {
    shape: Shape,
    seed: u64,
    table: CompactTable,
    filters: SegmentFilters,
    /// Number of each slot's object, mod the number of objects on flash.
    owners: Vec<u32>,
    /// Entries of each segment that were displaced.
    lost: Vec<Lost>,
    /// Segments written since the beginning.
    written: u64,
    moves: u64,
    drawn: u64,
}

impl Ring {
    pub(super) fn new(shape: Shape, seed: u64) -> Result<Self, OutOfRange> {
        let table = CompactTable::new(shape.table())?;
        Ok(Self {
            owners: vec![0; table.slots()],
            table,
            filters: SegmentFilters::new(shape.segments as usize),
            lost: vec![Lost::default(); shape.segments as usize],
            shape,
            seed,
            written: 0,
            moves: 0,
            drawn: 0,
        })
    }

    /// Writes a segment, in place of the oldest one if the flash is full. For each object written, reads a random one on flash.
    /// Then moves the hand until no more than the allowed share is hot.
    pub(super) fn write_segment(&mut self) {
        let segments = u64::from(self.shape.segments);
        if let Some(oldest) = self.written.checked_sub(segments) {
            self.reclaim(oldest);
        }
        let objects = self.objects_of(self.written);
        let hashes: Vec<u64> = objects.clone().map(|object| self.hash(object)).collect();
        let filter = SegmentFilter::build(&hashes);
        self.filters.set(self.segment(self.written), Some(filter));
        self.written += 1;
        for object in objects {
            self.insert(object);
            let read = self.draw_object();
            self.read(read);
        }
        self.demote();
    }

    /// Looks up `lookups` random objects on flash, and as many absent keys. Returns the fields of a row. "An object" is an object
    /// on flash. A "found" object has an entry in the table. Entries of displaced objects were hot or ghosts.
    pub(super) fn measure(&mut self, lookups: u64) -> Row {
        let mut hits = Looked::default();
        let mut misses = Looked::default();
        for n in 0..lookups {
            let object = self.draw_object();
            if let Some(looked) = self.look_up(object) {
                hits.add(looked);
            }
            let hash = mixed(!self.seed, n);
            misses.add(Looked {
                times: 1,
                entries: self.table.entries(hash).count() as u64,
                reads: candidates(&self.table, |segment| self.filters.get(segment), hash).count()
                    as u64,
            });
        }
        let objects = self.shape.objects() as f64;
        let lost = |of: fn(&Lost) -> u64| self.lost.iter().map(of).sum::<u64>() as f64 / objects;
        let written = self.written as f64 * self.shape.keys as f64;
        let found = self.table.len() as f64 / objects;
        let memory = Memory {
            table: self.table.memory_bytes() as f64 / objects,
            filters: self.filters.memory_bytes() as f64 / objects,
        };
        Row::new()
            .with("load", self.table.load())
            .with("found_share", found)
            .with("ghost_share", self.table.ghosts() as f64 / objects)
            .with("displaced_hot_share", lost(|lost| lost.hot))
            .with("displaced_ghost_share", lost(|lost| lost.ghosts))
            .and(memory.row(found))
            .with("entries_a_hit", hits.mean(|looked| looked.entries))
            .with("reads_a_hit", hits.mean(|looked| looked.reads))
            .with("entries_a_miss", misses.mean(|looked| looked.entries))
            .with("reads_a_miss", misses.mean(|looked| looked.reads))
            .with("reads_a_write", self.moves as f64 / written)
    }

    /// Looks up an object on flash. Returns the entries and the flash reads up to its own, or `None` if it has no entry.
    fn look_up(&self, object: u64) -> Option<Looked> {
        let hash = self.hash(object);
        let is_own = |slot: usize| self.owners[slot] == self.ring_number(object);
        let at = self
            .table
            .entries(hash)
            .position(|(slot, _)| is_own(slot.0))?;
        let mut candidates = candidates(&self.table, |segment| self.filters.get(segment), hash);
        let read = candidates.position(|(slot, _)| is_own(slot.0))?;
        Some(Looked {
            times: 1,
            entries: at as u64 + 1,
            reads: read as u64 + 1,
        })
    }

    /// Removes the entries of a segment, which it finds by their keys.
    fn reclaim(&mut self, written: u64) {
        let segment = self.segment(written);
        for object in self.objects_of(written) {
            for (slot, entry) in self.table.entries(self.hash(object)) {
                if entry.location.segment == segment {
                    self.table.remove_if_at(slot, entry.location);
                }
            }
        }
        self.lost[segment.0 as usize] = Lost::default();
    }

    fn insert(&mut self, object: u64) {
        let drawn = self.draw();
        let entry = CompactEntry {
            location: Location {
                segment: self.segment(object / self.shape.keys),
                function: (drawn % u64::from(FUNCTIONS)) as u8,
            },
            rank: Rank::Hot {
                clock: (drawn >> 32) as u8 % (CLOCK_HIGHEST + 1),
            },
        };
        let (mut object, mut entry) = (object, entry);
        let moves = match self.shape.policy {
            Policy::Moved => MOVES_HIGHEST,
            Policy::LastCollided | Policy::Oldest => 0,
        };
        for moved in 0..=moves {
            let drawn = self.draw();
            let hash = self.hash(object);
            let newest = self.segment(self.written - 1).0;
            let segments = self.shape.segments;
            let age = |segment: SegmentId| u64::from((newest + segments - segment.0) % segments);
            let victim = |taken: &Taken| match self.shape.policy {
                Policy::LastCollided => last_collided(taken),
                Policy::Moved if moved < moves => drawn as usize % PROBES,
                Policy::Oldest | Policy::Moved => oldest(taken, age),
            };
            let inserted = self.table.insert(hash, entry, victim);
            let number = self.ring_number(object);
            let owner = std::mem::replace(&mut self.owners[inserted.slot.0], number);
            let Some(displaced) = inserted.displaced else {
                return;
            };
            if moved == moves {
                let lost = &mut self.lost[displaced.location.segment.0 as usize];
                if displaced.is_ghost() {
                    lost.ghosts += 1;
                } else {
                    lost.hot += 1;
                }
                return;
            }
            self.moves += 1;
            (object, entry) = (self.object_of(owner), displaced);
        }
    }

    fn read(&mut self, object: u64) {
        let number = self.ring_number(object);
        let mut entries = self.table.entries(self.hash(object));
        if let Some((slot, entry)) = entries.find(|(slot, _)| self.owners[slot.0] == number) {
            self.table.touch_if_at(slot, entry.location);
        }
    }

    fn demote(&mut self) {
        let highest = (self.shape.objects() as f64 * self.shape.hot) as usize;
        let hot = self.table.len() - self.table.ghosts();
        let Some(mut left) = hot.checked_sub(highest).filter(|&left| left > 0) else {
            return;
        };
        // Every round lowers each CLOCK value by one.
        let rounds = usize::from(CLOCK_HIGHEST) + 1;
        self.table
            .advance_hand(rounds * self.table.slots(), |_, _| {
                left -= 1;
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
    }

    fn segment(&self, written: u64) -> SegmentId {
        SegmentId((written % u64::from(self.shape.segments)) as u32)
    }

    fn objects_of(&self, written: u64) -> std::ops::Range<u64> {
        written * self.shape.keys..(written + 1) * self.shape.keys
    }

    fn ring_number(&self, object: u64) -> u32 {
        (object % self.shape.objects()) as u32
    }

    /// Returns the newest object with this number.
    fn object_of(&self, ring_number: u32) -> u64 {
        let objects = self.shape.objects();
        let newest = self.written * self.shape.keys - 1;
        newest - (newest - u64::from(ring_number)) % objects
    }

    /// Returns a random object on flash.
    fn draw_object(&mut self) -> u64 {
        let newest = self.written * self.shape.keys;
        let objects = newest.min(self.shape.objects());
        newest - 1 - ((u128::from(self.draw()) * u128::from(objects)) >> u64::BITS) as u64
    }

    fn hash(&self, object: u64) -> u64 {
        mixed(self.seed, object)
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mixed(self.seed.rotate_left(32), self.drawn)
    }
}

/// Costs of look-ups, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    times: u64,
    entries: u64,
    reads: u64,
}

impl Looked {
    fn add(&mut self, other: Self) {
        self.times += other.times;
        self.entries += other.entries;
        self.reads += other.reads;
    }

    fn mean(&self, of: fn(&Self) -> u64) -> f64 {
        of(self) as f64 / self.times as f64
    }
}

/// Returns a pseudo-random number that follows from the arguments.
fn mixed(seed: u64, n: u64) -> u64 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let seed = mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    mix(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}
