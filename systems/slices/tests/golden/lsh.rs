//! A similarity index, with vectors on its drive and in its log.

use flowstone_slices::{Components, Family, LshSettings, SliceLsh, VectorId};

use crate::bytes::{Bytes, CHANNELS, DRIVE_BYTES, Left, STRIPE, Superblock};

const CHECKSUM: u64 = 0xcc3c_a4a5_9295_62ca;
const DIMENSIONS: usize = 24;
const PARTITIONS: u32 = 2;
const INCARNATIONS: usize = 3;
const TABLES: u32 = 3;
const FUNCTIONS: u32 = 4;
const VECTORS: u64 = 40;

fn settings() -> LshSettings {
    LshSettings {
        components: Components::Bytes,
        tables: TABLES,
        functions: FUNCTIONS,
        partitions: Some(PARTITIONS),
        table_bytes: 3_000,
        incarnations: INCARNATIONS as u32,
        channels: CHANNELS,
        piece_bytes: STRIPE as u32,
        segment_bytes: STRIPE as u32,
        fill: 0.3,
        ..LshSettings::new(DIMENSIONS as u32, Family::Euclidean { width: 20.0 })
    }
}

fn vector(number: u64) -> Vec<u8> {
    (0..DIMENSIONS as u64)
        .map(|at| ((number + 1) * (at + 3) * 7_919 % 101) as u8)
        .collect()
}

/// A generation of [`VECTORS`] vectors on the drive, and a generation of two vectors in memory. The second vector of each is
/// deleted.
fn small() -> Left {
    let words = SliceLsh::log_words(&settings(), &[DRIVE_BYTES]).expect("they can be");
    Left::by(words, async |disks, log| {
        let index = SliceLsh::create(disks, log, &settings()).await;
        let index = index.expect("drives work");
        let mut ids = Vec::new();
        for number in 0..VECTORS + 2 {
            let components: Vec<f32> = vector(number).into_iter().map(f32::from).collect();
            ids.push(index.insert(&components).await.expect("drives work"));
            if number + 1 == VECTORS {
                index.flush().await.expect("drives work");
            }
        }
        for id in [ids[1], ids[VECTORS as usize + 1]] {
            assert!(index.delete(id));
        }
        assert_eq!(ids[0], VectorId(index.shape().batch.into()));
        index.sync().await.expect("drives work");
    })
}

#[test]
fn an_index_is_the_one_of_this_format() {
    let checksum = small().checksum();
    assert_eq!(checksum, CHECKSUM, "{checksum:#018x}");
}

#[test]
fn an_index_lies_as_documented() {
    let left = small();
    let drive = Bytes(&left.drive);
    let superblock = Superblock::of(drive, 3);
    superblock.check_log(&left.log);
    let own = drive.from(84);
    assert_eq!(own.u32(0), DIMENSIONS as u32);
    assert_eq!((own.u16(4), own.u16(6)), (TABLES as u16, FUNCTIONS as u16));
    assert_eq!(own.at(8..10), [2, 1], "Euclidean, bytes");
    let width = own.u32(12);
    assert_eq!(width, 20_f32.to_bits());
    let (batch, segment) = (own.u32(16), own.u32(24) as usize);
    assert_eq!((segment, own.u32(28)), (STRIPE, 0));

    // Vectors of generation 1 at its place, from its first block on.
    let record = 12 + DIMENSIONS;
    let per_page = 4096 / record;
    let blocks = segment / 4096;
    let of_segment = blocks * per_page;
    let segments = (batch as usize).div_ceil(of_segment);
    let first = ((0x9e37_79b9 * blocks as u64) >> 32) as usize;
    for nth in 0..VECTORS as usize {
        let place = (segments + nth / of_segment) * segment;
        let block = (nth % of_segment / per_page + first) % blocks;
        let at = STRIPE + place + 4096 * block + nth % per_page * record;
        let found = drive.from(at);
        let mut sealed = crc32c::crc32c(&superblock.instance.to_le_bytes());
        sealed = crc32c::crc32c_append(sealed, found.at(4..record));
        assert_eq!(found.u32(0), sealed, "vector {nth}");
        assert_eq!(found.u64(4), u64::from(batch) + nth as u64);
        assert_eq!(found.at(12..record), vector(nth as u64));
    }

    // Each vector has an entry in each table, in the incarnation of its generation.
    let regions = STRIPE + (INCARNATIONS + 2) * segments * segment;
    let mut listed = [0; VECTORS as usize];
    for partition in 0..PARTITIONS {
        assert_eq!(superblock.pointer(&left.log, partition).0, 1);
        for number in 0..superblock.pages {
            let page = superblock.page(&left, regions, partition, number);
            let counts = page.at(24..24 + INCARNATIONS);
            assert_eq!(counts[1..], [0; INCARNATIONS - 1]);
            for entry in 0..usize::from(counts[0]) {
                listed[page.u32(24 + INCARNATIONS + 8 * entry + 4) as usize] += 1;
            }
        }
    }
    assert_eq!(listed, [TABLES; VECTORS as usize]);

    // The log has the number of vectors on the drive for each place, the deletes, and the segment that is not on the drive.
    let log = &left.log;
    let places = INCARNATIONS + 2;
    let stored = 8 + PARTITIONS as usize;
    assert_eq!(log[stored + 1], 1 << 32 | VECTORS);
    let deletes = stored + places;
    let of_place = (batch as usize).div_ceil(64);
    assert_eq!(
        (log[deletes + of_place], log[deletes + 2 * of_place]),
        (2, 2)
    );
    let halves = (deletes + places * of_place).next_multiple_of(8);
    let vector_words = DIMENSIONS.div_ceil(8);
    let half = (4 + of_segment * vector_words).next_multiple_of(8);
    let open = &log[halves..halves + half];
    assert_eq!(open[0] >> 32, 2, "two vectors of generation 2");
    for nth in 0..2 {
        let words = &open[4 + nth * vector_words..][..vector_words];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[..DIMENSIONS], vector(VECTORS + nth as u64));
    }
}
