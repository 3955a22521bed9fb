//! A structure whose superblock, log, pages and vectors have been changed in any way, with checksums that
//! match. It is opened or refused. In an open structure every look-up, change and flush ends with an answer
//! or an error.
//!
//! Input: the kind of structure, then changes of eight bytes each.
#![no_main]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flowstone_device::{Disk, Image, Journal, Latency, MemoryDisk, MemoryJournal};
use flowstone_runtime::{self as runtime, sim::Sim};
use flowstone_slices::encoding::log::{Pointer, PointerOwner};
use flowstone_slices::encoding::lsh::{VECTOR_HEAD_BYTES, seal_vector};
use flowstone_slices::encoding::table::{PageIdentity, SliceSuperblock};
use flowstone_slices::{
    BitPlacement, BloomSettings, Channels, Family, HashSettings, LshSettings, SliceBloom,
    SliceHash, SliceLsh, VectorId,
};
use libfuzzer_sys::fuzz_target;
use zerocopy::FromBytes;

const DRIVE_BYTES: u64 = 1 << 20;
const SUPERBLOCK_BYTES: usize = 116;
const DIMENSIONS: usize = 24;
const PATIENCE: Duration = Duration::from_secs(1_000);
const CHANNELS: Channels = Channels {
    count: 2,
    chunk_bytes: 4096,
};

fn hash_settings() -> HashSettings {
    HashSettings {
        partitions: Some(2),
        table_bytes: 4 << 10,
        incarnations: 3,
        bucket_entries: Some(3),
        channels: CHANNELS,
        piece_bytes: 8192,
        ..HashSettings::default()
    }
}

fn bloom_settings() -> BloomSettings {
    BloomSettings {
        partitions: Some(2),
        filter_bytes: 1 << 10,
        bits_per_key: 80,
        incarnations: 8,
        placement: BitPlacement::OnePage,
        channels: CHANNELS,
        piece_bytes: 8192,
        ..BloomSettings::default()
    }
}

fn lsh_settings() -> LshSettings {
    LshSettings {
        tables: 3,
        functions: 4,
        partitions: Some(2),
        table_bytes: 3_000,
        incarnations: 3,
        channels: CHANNELS,
        piece_bytes: 8192,
        segment_bytes: 8192,
        fill: 0.3,
        ..LshSettings::new(DIMENSIONS as u32, Family::Euclidean { width: 20.0 })
    }
}

fn vector(number: u64) -> Vec<f32> {
    (0..DIMENSIONS as u64)
        .map(|at| ((number + 1) * (at + 3) * 7_919 % 101) as f32)
        .collect()
}

/// A structure with entries in memory, in the state that a dead process left.
struct Base {
    image: Image,
    words: Vec<u64>,
}

fn base(kind: u8) -> &'static Base {
    static BASES: [OnceLock<Base>; 3] = [const { OnceLock::new() }; 3];
    BASES[usize::from(kind)].get_or_init(|| {
        let disk = Arc::new(MemoryDisk::new(DRIVE_BYTES));
        let sizes = [DRIVE_BYTES];
        let words = match kind {
            0 => SliceHash::log_words(&hash_settings(), &sizes),
            1 => SliceBloom::log_words(&bloom_settings(), &sizes),
            _ => SliceLsh::log_words(&lsh_settings(), &sizes),
        };
        let log = Arc::new(MemoryJournal::new(words.expect("they can be")));
        let disks: Vec<Arc<dyn Disk>> = vec![disk.clone()];
        Sim::new(1).block_on(async {
            match kind {
                0 => {
                    let made = SliceHash::create(disks, log.clone(), &hash_settings()).await;
                    let table = made.expect("drives work");
                    fill_hash(&table).await;
                }
                1 => {
                    let made = SliceBloom::create(disks, log.clone(), &bloom_settings()).await;
                    let filter = made.expect("drives work");
                    fill_bloom(&filter).await;
                }
                _ => {
                    let made = SliceLsh::create(disks, log.clone(), &lsh_settings()).await;
                    let index = made.expect("drives work");
                    fill_lsh(&index).await;
                }
            }
        });
        Base {
            image: disk.snapshot(),
            words: log.crash(),
        }
    })
}

async fn fill_hash(table: &SliceHash) {
    for key in 0..500 {
        table.insert(key, key).await.expect("drives work");
    }
    table.flush().await.expect("drives work");
    for key in 0..50 {
        table.insert(key, key).await.expect("drives work");
    }
    table.sync().await.expect("drives work");
}

async fn fill_bloom(filter: &SliceBloom) {
    for key in 0..500_u32 {
        let inserted = filter.insert(&key.to_le_bytes()).await;
        inserted.expect("drives work");
    }
    filter.flush().await.expect("drives work");
    for key in 500..550_u32 {
        let inserted = filter.insert(&key.to_le_bytes()).await;
        inserted.expect("drives work");
    }
    filter.sync().await.expect("drives work");
}

async fn fill_lsh(index: &SliceLsh) {
    for number in 0..200 {
        index.insert(&vector(number)).await.expect("drives work");
    }
    index.flush().await.expect("drives work");
    for number in 0..20 {
        let id = index.insert(&vector(number)).await.expect("drives work");
        if number % 3 == 0 {
            index.delete(id);
        }
    }
    index.sync().await.expect("drives work");
}

/// The structure after the input's changes.
struct Changed {
    image: Image,
    words: Vec<u64>,
    found: SliceSuperblock,
}

impl Changed {
    fn of(base: &Base) -> Self {
        let mut page = vec![0; 4096];
        base.image.read(0, &mut page);
        Self {
            image: base.image.clone(),
            words: base.words.clone(),
            found: SliceSuperblock::decode(&page).expect("it is one"),
        }
    }

    fn owner(&self, partition: u32) -> PointerOwner {
        PointerOwner {
            instance: self.found.instance.get(),
            partition,
            drive: 0,
        }
    }

    /// Bytes before the ring or the regions.
    const HEAD_BYTES: u64 = 8192;

    fn change(&mut self, change: [u8; 8]) {
        let [what, a, b, c, value @ ..] = change;
        let at = usize::from(u16::from_le_bytes([b, c]));
        let value = u32::from_le_bytes(value);
        match what % 9 {
            // A number of the superblock: any value, or a small one.
            0 => self.superblock(at, value),
            1 => self.superblock(at, value % 300),
            // A word of the log, or a bit of one.
            2 => {
                let len = self.words.len();
                self.words[at % len] = u64::from(value) << 32 | u64::from(a);
            }
            3 => {
                let len = self.words.len();
                self.words[(at + value as usize) % len] ^= 1 << (a % 64);
            }
            4 => {
                let partition = u32::from(a % 2);
                let pointer = Pointer {
                    generation: value,
                    region: at as u32 % 64,
                };
                let word = pointer.encode(self.owner(partition));
                self.words[8 + partition as usize] = word;
            }
            5 => self.page(a, at, value),
            6 => {
                let at = (u64::from(value) << 4 | u64::from(a)) % (DRIVE_BYTES - 64);
                let bytes = [a ^ b, b, c, a];
                self.image.write(at, &bytes);
            }
            7 => self.vector(at, a, value),
            _ => self.image.write(at as u64 % 4096, &value.to_le_bytes()),
        }
    }

    fn superblock(&mut self, at: usize, value: u32) {
        let mut page = vec![0; 4096];
        self.image.read(0, &mut page);
        // Whole numbers behind the magic number, format and checksum.
        let at = 16 + at % ((SUPERBLOCK_BYTES - 16) / 4) * 4;
        page[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let Ok((block, _)) = SliceSuperblock::read_from_prefix(&page) else {
            return;
        };
        block.encode(&mut page);
        self.image.write(0, &page);
    }

    /// Changes bytes of a slicetable's page and seals the page again.
    fn page(&mut self, a: u8, at: usize, value: u32) {
        let partition = u32::from(a % 2);
        let word = self.words[8 + partition as usize];
        let Ok(pointer) = Pointer::decode(word, self.owner(partition)) else {
            return;
        };
        let pages = self.found.pages.get();
        let number = u32::from(a / 2) % pages;
        let start = match self.found.kind.get() {
            3 => ring_end(),
            _ => Self::HEAD_BYTES,
        };
        let at_page = start + u64::from(pointer.region * pages + number) * 4096;
        if at_page + 4096 > DRIVE_BYTES {
            return;
        }
        let mut page = vec![0; 4096];
        self.image.read(at_page, &mut page);
        let at = 24 + at % 4068;
        page[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let identity = PageIdentity {
            instance: self.found.instance.get(),
            partition,
            page: number,
            generation: pointer.generation,
        };
        identity.seal(u32::from(a) % 5, &mut page);
        self.image.write(at_page, &page);
    }

    /// Writes a vector with any id and components into the ring.
    fn vector(&mut self, at: usize, id: u8, value: u32) {
        let mut record = [0; VECTOR_HEAD_BYTES + 4 * DIMENSIONS];
        for (nth, component) in record[VECTOR_HEAD_BYTES..].chunks_exact_mut(4).enumerate() {
            component.copy_from_slice(&value.rotate_left(nth as u32).to_le_bytes());
        }
        seal_vector(self.found.instance.get(), id.into(), &mut record);
        let per_page = 4096 / record.len();
        let (page, nth) = (at / per_page, at % per_page);
        let offset = Self::HEAD_BYTES + (page as u64 * 4096) % (DRIVE_BYTES / 2);
        self.image
            .write(offset + (nth * record.len()) as u64, &record);
    }
}

fn ring_end() -> u64 {
    static END: OnceLock<u64> = OnceLock::new();
    *END.get_or_init(|| {
        let shape = lsh_settings().shape(&[DRIVE_BYTES]).expect("it fits");
        Changed::HEAD_BYTES + shape.ring.drive_bytes()
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, changes)) = input.split_first() else {
        return;
    };
    let kind = kind % 3;
    let mut changed = Changed::of(base(kind));
    for change in changes.chunks_exact(8).take(64) {
        changed.change(change.try_into().expect("eight bytes"));
    }
    let disk = Arc::new(MemoryDisk::from_image(changed.image, Latency::default()));
    let log = Arc::new(MemoryJournal::from_words(changed.words));
    let disks: Vec<Arc<dyn Disk>> = vec![disk];
    Sim::new(1).block_on(async {
        let used = runtime::timeout(PATIENCE, async {
            match kind {
                0 => hash(disks, log).await,
                1 => bloom(disks, log).await,
                _ => lsh(disks, log).await,
            }
        });
        used.await.expect("everything ends");
    });
});

async fn hash(disks: Vec<Arc<dyn Disk>>, log: Arc<dyn Journal>) {
    let Ok(table) = SliceHash::open(disks, log, &hash_settings()).await else {
        return;
    };
    for key in 0..200 {
        let _ = table.get(key * 3).await;
        let _ = table.insert(key * 5, key).await;
        let _ = table.delete(key * 7).await;
    }
    let _ = table.flush().await;
    for key in 0..50 {
        let _ = table.get(key * 11).await;
    }
    let _ = table.close().await;
}

async fn bloom(disks: Vec<Arc<dyn Disk>>, log: Arc<dyn Journal>) {
    let Ok(filter) = SliceBloom::open(disks, log, &bloom_settings()).await else {
        return;
    };
    for key in 0..200_u32 {
        let _ = filter.may_contain(&(key * 3).to_le_bytes()).await;
        let _ = filter.insert(&(key * 5).to_le_bytes()).await;
    }
    let _ = filter.flush().await;
    for key in 0..50_u32 {
        let _ = filter.may_contain(&key.to_le_bytes()).await;
    }
    let _ = filter.close().await;
}

async fn lsh(disks: Vec<Arc<dyn Disk>>, log: Arc<dyn Journal>) {
    let Ok(index) = SliceLsh::open(disks, log, &lsh_settings()).await else {
        return;
    };
    for number in 0..60 {
        if let Ok(answer) = index.query(&vector(number), 5).await {
            assert!(answer.len() <= 5);
            assert!(answer.is_sorted_by(|one, other| one.distance <= other.distance));
        }
        let _ = index.get(VectorId(number * 7)).await;
        let _ = index.delete(VectorId(number * 11));
        let _ = index.insert(&vector(number)).await;
    }
    let _ = index.flush().await;
    for number in 0..20 {
        let _ = index.query(&vector(number), 5).await;
    }
    let _ = index.sync().await;
}
