//! BufferHash, the baseline of sections 2.1 and 7.2: each full table in memory is written unchanged to an incarnation of its
//! own, and each incarnation has a Bloom filter in memory.
//!
//! A key lies in one page of an incarnation, since tables are half full: 4096 entries of 16 bytes in 128 KiB. A look-up reads a
//! page of each incarnation whose filter may have the key, the youngest first. Without filters it reads a page of each
//! incarnation.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use device::{AlignedBuf, DeviceError, Disk, PAGE_BYTES, SharedBuf};
use runtime::sync::Semaphore;

/// Bytes of an incarnation, and most keys in it.
const TABLE_BYTES: usize = 128 << 10;
const MOST_KEYS: usize = 4096;
/// Bits of a filter for each key, and bits that a key sets: a sixteenth of the paper's 8 GiB a drive.
const FILTER_BITS: usize = 16;
const FILTER_PROBES: u64 = 8;
/// Number of threads that read and write.
const THREADS: usize = 32;
const PAGES: usize = TABLE_BYTES / PAGE_BYTES;
const PAGE_ENTRIES: usize = PAGE_BYTES / 16;

/// The index. Used by the tasks of one thread.
pub(super) struct BufferHash {
    disk: Arc<dyn Disk>,
    has_filters: bool,
    threads: Semaphore,
    partitions: Vec<RefCell<Partition>>,
    page_reads: RefCell<u64>,
}

struct Partition {
    table: HashMap<u64, u64>,
    /// Tables being written: their incarnations and entries.
    writing: Vec<(u64, Rc<HashMap<u64, u64>>)>,
    /// Number of incarnations written so far or being written.
    written: u64,
    filters: Vec<Filter>,
}

#[derive(Clone, Default)]
struct Filter(Vec<u64>);

fn mixed(key: u64, salt: u64) -> u64 {
    let mut hash = (key ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 32)
}

/// Maps `hash` to `0..range`.
fn spread(hash: u64, range: usize) -> usize {
    ((u128::from(hash) * range as u128) >> 64) as usize
}

impl Filter {
    fn of(table: &HashMap<u64, u64>) -> Self {
        let mut filter = Self(vec![0; MOST_KEYS * FILTER_BITS / 64]);
        for &key in table.keys() {
            for bit in Self::bits(key) {
                filter.0[bit / 64] |= 1 << (bit % 64);
            }
        }
        filter
    }

    fn bits(key: u64) -> impl Iterator<Item = usize> {
        (0..FILTER_PROBES).map(move |probe| spread(mixed(key, probe + 10), MOST_KEYS * FILTER_BITS))
    }

    fn may_have(&self, key: u64) -> bool {
        Self::bits(key).all(|bit| self.0[bit / 64] >> (bit % 64) & 1 == 1)
    }
}

fn page_of(key: u64) -> usize {
    spread(mixed(key, 2), PAGES)
}

impl BufferHash {
    /// Number of incarnations of a partition.
    pub(super) const INCARNATIONS: usize = 16;

    pub(super) fn new(disk: Arc<dyn Disk>, partitions: usize, has_filters: bool) -> Self {
        let partition = || {
            RefCell::new(Partition {
                table: HashMap::new(),
                writing: Vec::new(),
                written: 0,
                filters: vec![Filter::default(); BufferHash::INCARNATIONS],
            })
        };
        Self {
            disk,
            has_filters,
            threads: Semaphore::new(THREADS),
            partitions: (0..partitions).map(|_| partition()).collect(),
            page_reads: RefCell::new(0),
        }
    }

    /// Returns the number of youngest keys that are certainly present once as many have been inserted.
    pub(super) fn certain_keys(partitions: usize) -> u64 {
        (partitions * (BufferHash::INCARNATIONS - 1) * MOST_KEYS) as u64 * 95 / 100
    }

    /// Returns the bytes of memory as the paper counts them: tables and filters.
    pub(super) fn memory_bytes(&self) -> u64 {
        let filter = if self.has_filters {
            MOST_KEYS * FILTER_BITS / 8
        } else {
            0
        };
        (self.partitions.len() * (TABLE_BYTES + BufferHash::INCARNATIONS * filter)) as u64
    }

    pub(super) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Returns the number of entries in the full index.
    pub(super) fn entries(&self) -> u64 {
        (self.partitions.len() * (1 + BufferHash::INCARNATIONS) * MOST_KEYS) as u64
    }

    pub(super) fn page_reads(&self) -> u64 {
        *self.page_reads.borrow()
    }

    fn partition(&self, key: u64) -> usize {
        spread(mixed(key, 1), self.partitions.len())
    }

    fn offset(&self, partition: usize, incarnation: u64) -> u64 {
        let nth =
            partition * BufferHash::INCARNATIONS + incarnation as usize % BufferHash::INCARNATIONS;
        (nth * TABLE_BYTES) as u64
    }

    pub(super) async fn get(&self, key: u64) -> Result<Option<u64>, DeviceError> {
        let number = self.partition(key);
        let incarnations: Vec<u64> = {
            let partition = self.partitions[number].borrow();
            let of_writing = || {
                partition
                    .writing
                    .iter()
                    .rev()
                    .find_map(|(_, table)| table.get(&key))
            };
            if let Some(&value) = partition.table.get(&key).or_else(of_writing) {
                return Ok(Some(value));
            }
            let oldest = partition
                .written
                .saturating_sub(BufferHash::INCARNATIONS as u64);
            let is_written =
                |&nth: &u64| partition.writing.iter().all(|&(writing, _)| writing != nth);
            let may_have = |&nth: &u64| {
                !self.has_filters
                    || partition.filters[nth as usize % BufferHash::INCARNATIONS].may_have(key)
            };
            (oldest..partition.written)
                .rev()
                .filter(is_written)
                .filter(may_have)
                .collect()
        };
        for incarnation in incarnations {
            let _thread = self.threads.acquire().await;
            let at = self.offset(number, incarnation) + (page_of(key) * PAGE_BYTES) as u64;
            let page = self.disk.read(at, AlignedBuf::new(PAGE_BYTES)).await?;
            *self.page_reads.borrow_mut() += 1;
            let entry = page
                .chunks_exact(16)
                .find(|entry| entry[..8] == key.to_le_bytes());
            if let Some(entry) = entry {
                let mut value = [0; 8];
                value.copy_from_slice(&entry[8..]);
                return Ok(Some(u64::from_le_bytes(value)));
            }
        }
        Ok(None)
    }

    pub(super) async fn insert(&self, key: u64, value: u64) -> Result<(), DeviceError> {
        let number = self.partition(key);
        let (incarnation, table) = {
            let mut partition = self.partitions[number].borrow_mut();
            partition.table.insert(key, value);
            if partition.table.len() < MOST_KEYS {
                return Ok(());
            }
            let incarnation = partition.written;
            partition.written += 1;
            let table = Rc::new(std::mem::take(&mut partition.table));
            partition.filters[incarnation as usize % BufferHash::INCARNATIONS] = Filter::of(&table);
            partition.writing.push((incarnation, Rc::clone(&table)));
            (incarnation, table)
        };
        let mut image = AlignedBuf::new(TABLE_BYTES);
        let mut used = [0; PAGES];
        for (&key, &value) in &*table {
            let page = page_of(key);
            // A page has 256 places for 128 keys on average: eleven deviations more.
            if used[page] < PAGE_ENTRIES {
                let at = page * PAGE_BYTES + used[page] * 16;
                image[at..at + 8].copy_from_slice(&key.to_le_bytes());
                image[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
                used[page] += 1;
            }
        }
        let _thread = self.threads.acquire().await;
        let at = self.offset(number, incarnation);
        self.disk.write(at, SharedBuf::from(image)).await?;
        let writing = &mut self.partitions[number].borrow_mut().writing;
        writing.retain(|&(nth, _)| nth != incarnation);
        Ok(())
    }
}
