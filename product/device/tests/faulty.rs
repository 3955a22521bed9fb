//! [`FaultyDisk`] on the simulated runtime: effects of its faults, and of power cuts.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flowstone_device::{
    AlignedBuf, DeviceError, Disk, Fault, FaultyDisk, Image, Latency, MemoryDisk, Operation,
    PAGE_BYTES, SharedBuf, Tear, When,
};
use proptest::prelude::*;
use runtime::sim::Sim;

const PAGE: u64 = PAGE_BYTES as u64;
const PAGES: u64 = 8;

fn filled(byte: u8, pages: u64) -> SharedBuf {
    let mut buf = AlignedBuf::new((pages * PAGE) as usize);
    buf.fill(byte);
    buf.into()
}

async fn read(disk: &dyn Disk, page: u64) -> Vec<u8> {
    let buf = AlignedBuf::new(PAGE_BYTES);
    disk.read(page * PAGE, buf).await.unwrap().to_vec()
}

/// Returns the first byte of every page.
async fn tags(disk: &dyn Disk) -> Vec<u8> {
    let mut tags = Vec::new();
    for page in 0..PAGES {
        tags.push(read(disk, page).await[0]);
    }
    tags
}

fn disk() -> FaultyDisk {
    FaultyDisk::in_memory(PAGES * PAGE, 1)
}

#[test]
fn without_faults_it_is_the_disk_it_wraps() {
    Sim::new(1).block_on(async {
        let medium = Arc::new(MemoryDisk::new(PAGES * PAGE));
        let disk = FaultyDisk::new(Arc::clone(&medium) as Arc<dyn Disk>, 1);
        disk.write(PAGE, filled(7, 2)).await.unwrap();
        disk.discard(2 * PAGE, PAGE).await.unwrap();
        disk.sync().await.unwrap();
        assert_eq!(tags(&disk).await, [0, 7, 0, 0, 0, 0, 0, 0]);
        assert_eq!(disk.crash(3, Tear::Sectors), medium.snapshot());
        let counts = disk.counts();
        assert_eq!((counts.writes, counts.written_bytes), (1, 2 * PAGE));
        assert_eq!((counts.reads, counts.discards, counts.syncs), (PAGES, 1, 1));
        let outside = disk.write(PAGES * PAGE, filled(1, 1)).await;
        assert!(matches!(outside, Err(DeviceError::Address { .. })));
    });
}

#[test]
fn a_script_meets_the_access_it_names() {
    Sim::new(1).block_on(async {
        let disk = disk();
        let third = When::next(Operation::Write).within(PAGE..2 * PAGE).after(1);
        disk.script(third, Fault::Full);
        disk.write(0, filled(1, 1)).await.unwrap();
        disk.write(PAGE, filled(2, 1)).await.unwrap();
        disk.write(0, filled(3, 1)).await.unwrap();
        let full = disk.write(0, filled(4, 2)).await.unwrap_err();
        assert!(full.is_full());
        disk.write(0, filled(5, 2)).await.unwrap();
        assert_eq!(tags(&disk).await[..3], [5, 5, 0]);
        assert_eq!(disk.counts().met(&Fault::Full), 1);

        disk.script(When::every(Operation::Read), Fault::Error);
        for _ in 0..3 {
            let failed = disk.read(0, AlignedBuf::new(1)).await.unwrap_err();
            let operation = Operation::Read;
            assert!(matches!(failed, DeviceError::Io { operation: met, .. } if met == operation));
        }
        disk.heal();
        disk.read(0, AlignedBuf::new(1)).await.unwrap();
    });
}

#[test]
#[should_panic(expected = "cannot happen to a read")]
fn a_script_that_can_never_happen_is_refused() {
    disk().script(When::next(Operation::Read), Fault::Torn);
}

/// Returns the image of a disk of `1`s after one write of four `2`s that met `fault`.
async fn write_with(fault: Fault, seed: u64) -> (Vec<u8>, Result<(), DeviceError>) {
    let disk = FaultyDisk::in_memory(PAGES * PAGE, seed);
    disk.write(0, filled(1, PAGES)).await.unwrap();
    disk.script(When::next(Operation::Write), fault);
    let result = disk.write(PAGE, filled(2, 4)).await;
    disk.sync().await.unwrap();
    let image = disk.crash(0, Tear::Pages);
    let mut bytes = vec![0; (PAGES * PAGE) as usize];
    image.read(0, &mut bytes);
    let mut through = Vec::new();
    for page in 0..PAGES {
        through.extend(read(&disk, page).await);
    }
    assert_eq!(through, bytes, "the medium and the shadow agree");
    (bytes, result)
}

fn page_tags(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().step_by(PAGE_BYTES).copied().collect()
}

#[test]
fn faulty_writes_store_what_they_say() {
    Sim::new(1).block_on(async {
        let mut torn = BTreeSet::new();
        let mut failed = BTreeSet::new();
        let mut misdirected = BTreeSet::new();
        for seed in 0..60 {
            let (bytes, result) = write_with(Fault::Torn, seed).await;
            result.unwrap();
            let stored = page_tags(&bytes).iter().filter(|&&tag| tag == 2).count();
            assert!(page_tags(&bytes)[1..1 + stored].iter().all(|&tag| tag == 2));
            torn.insert(stored);

            let (bytes, result) = write_with(Fault::Error, seed).await;
            assert!(result.is_err());
            failed.insert(page_tags(&bytes).iter().filter(|&&tag| tag == 2).count());

            let (bytes, result) = write_with(Fault::Misdirected, seed).await;
            result.unwrap();
            let first = page_tags(&bytes).iter().position(|&tag| tag == 2).unwrap();
            assert_eq!(page_tags(&bytes)[first..first + 4], [2; 4]);
            misdirected.insert(first);

            let (bytes, result) = write_with(Fault::FlippedBit, seed).await;
            result.unwrap();
            let wrong = bytes[PAGE_BYTES..5 * PAGE_BYTES].iter();
            assert_eq!(wrong.map(|byte| (byte ^ 2).count_ones()).sum::<u32>(), 1);
        }
        assert_eq!(torn, BTreeSet::from([0, 1, 2, 3]));
        assert_eq!(failed, BTreeSet::from([0, 1, 2, 3, 4]));
        assert_eq!(misdirected, BTreeSet::from([0, 1, 2, 3, 4]));

        let (bytes, result) = write_with(Fault::Zeroed, 1).await;
        result.unwrap();
        assert_eq!(page_tags(&bytes), [1, 0, 0, 0, 0, 1, 1, 1]);
        let (bytes, result) = write_with(Fault::Lost, 1).await;
        result.unwrap();
        assert_eq!(page_tags(&bytes), [1; PAGES as usize]);
    });
}

#[test]
fn a_flipped_bit_in_a_read_is_gone_with_the_next_and_a_decayed_one_stays() {
    Sim::new(1).block_on(async {
        let disk = disk();
        disk.script(When::next(Operation::Read), Fault::FlippedBit);
        let ones = |bytes: Vec<u8>| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
        assert_eq!(ones(read(&disk, 0).await), 1);
        assert_eq!(ones(read(&disk, 0).await), 0);
        disk.decay(PAGE + 5, 3).await.unwrap();
        assert_eq!(read(&disk, 1).await[5], 8);
        let mut byte = [0];
        disk.crash(0, Tear::Pages).read(PAGE + 5, &mut byte);
        assert_eq!(byte, [8]);
    });
}

#[test]
fn slow_accesses_take_virtual_time() {
    Sim::new(1).block_on(async {
        let disk = disk();
        let by = Duration::from_millis(30);
        disk.script(When::next(Operation::Sync), Fault::Slow(by));
        let begun = runtime::now();
        disk.sync().await.unwrap();
        assert_eq!(runtime::now().since(begun), by);
        disk.sync().await.unwrap();
        assert_eq!(runtime::now().since(begun), by);
    });
}

#[test]
fn a_failed_sync_may_lose_what_a_later_one_seems_to_save() {
    Sim::new(1).block_on(async {
        let mut losses = 0;
        for seed in 0..20 {
            let disk = FaultyDisk::in_memory(PAGES * PAGE, seed);
            disk.write(0, filled(1, 1)).await.unwrap();
            disk.script(When::next(Operation::Sync), Fault::Error);
            disk.sync().await.unwrap_err();
            disk.sync().await.unwrap();
            assert_eq!(disk.pending(), 0);
            let mut byte = [0];
            disk.crash(0, Tear::Pages).read(0, &mut byte);
            losses += u32::from(byte == [0]);
        }
        assert!((1..20).contains(&losses), "{losses} of 20 lost");
    });
}

/// Returns the bytes of page 1 that power cuts now may leave; page 0 keeps its synced bytes.
fn second_page(disk: &FaultyDisk) -> BTreeSet<u8> {
    let found = (0..40).map(|seed| {
        let mut bytes = vec![0; 2 * PAGE_BYTES];
        disk.crash(seed, Tear::Pages).read(0, &mut bytes);
        assert_eq!(bytes[0], 1);
        bytes[PAGE_BYTES]
    });
    found.collect()
}

#[test]
fn a_sync_covers_only_what_had_completed_when_it_began() {
    Sim::new(1).block_on(async {
        let slow = Latency {
            write: Duration::from_millis(5),
            sync: Duration::from_millis(20),
            ..Latency::default()
        };
        // Issued before the sync and completed during it; then issued and completed during it.
        for delay in [0, 1] {
            let disk = FaultyDisk::from_image(Image::new(PAGES * PAGE), slow, 1);
            let disk = Arc::new(disk);
            disk.write(0, filled(1, 1)).await.unwrap();
            let writing = Arc::clone(&disk);
            let write = runtime::spawn(async move {
                runtime::sleep(Duration::from_millis(2 * delay)).await;
                writing.write(PAGE, filled(2, 1)).await.unwrap();
            });
            runtime::sleep(Duration::from_millis(1)).await;
            disk.sync().await.unwrap();
            write.await.unwrap();
            assert_eq!(disk.pending(), 1);
            assert_eq!(second_page(&disk), BTreeSet::from([0, 2]));
            disk.sync().await.unwrap();
            assert_eq!(second_page(&disk), BTreeSet::from([2]));
        }
    });
}

const ON_WRITES: [Fault; 6] = [
    Fault::Error,
    Fault::FlippedBit,
    Fault::Torn,
    Fault::Zeroed,
    Fault::Lost,
    Fault::Misdirected,
];

#[test]
fn seeded_faults_repeat_under_simulation() {
    let run = |seed| {
        Sim::new(7).block_on(async {
            let disk = FaultyDisk::in_memory(PAGES * PAGE, seed);
            let slow = Fault::Slow(Duration::from_micros(10));
            let mut rates = Operation::ALL
                .map(|each| (each, slow.clone(), 0.2))
                .to_vec();
            rates.extend([
                (Operation::Read, Fault::Error, 0.1),
                (Operation::Read, Fault::FlippedBit, 0.1),
                (Operation::Erase, Fault::Error, 0.1),
                (Operation::Sync, Fault::Error, 0.2),
            ]);
            rates.extend(ON_WRITES.map(|fault| (Operation::Write, fault, 0.1)));
            disk.set_rates(rates);
            for round in 0..100u64 {
                let _ = disk.write(round % 6 * PAGE, filled(round as u8, 2)).await;
                let _ = disk.read(round % 8 * PAGE, AlignedBuf::new(1)).await;
                if round % 7 == 0 {
                    let _ = disk.sync().await;
                }
            }
            (disk.counts(), disk.crash(1, Tear::Sectors))
        })
    };
    let (counts, image) = run(1);
    for fault in ON_WRITES.iter().chain([&Fault::Slow(Duration::ZERO)]) {
        assert!(counts.met(fault) > 0, "{fault:?}");
    }
    assert_eq!((counts, image), run(1));
    assert_ne!(run(1), run(2));
}

#[derive(Clone, Debug)]
enum Step {
    Write { page: u64, pages: u64 },
    Discard { page: u64 },
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..PAGES, 1..4u64).prop_map(|(page, pages)| Step::Write {
            page,
            pages: pages.min(PAGES - page),
        }),
        1 => (0..PAGES).prop_map(|page| Step::Discard { page }),
        2 => Just(Step::Sync),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Possible bytes of each sector after a power cut, and its present byte.
#[derive(Clone)]
struct Model {
    may: Vec<BTreeSet<u8>>,
    is: Vec<u8>,
}

impl Model {
    fn change(&mut self, pages: std::ops::Range<u64>, to: u8) {
        for page in pages {
            self.may[page as usize].insert(to);
            self.is[page as usize] = to;
        }
    }

    fn sync(&mut self) {
        self.may = self.is.iter().map(|&tag| BTreeSet::from([tag])).collect();
    }
}

/// Checks that every sector of the image has a byte that `allowed` has for its page, and that pages are whole if `tear` keeps
/// them whole.
fn check(image: &Image, allowed: &[BTreeSet<u8>], tear: Tear) -> Result<(), TestCaseError> {
    for (page, allowed) in allowed.iter().enumerate() {
        let mut bytes = vec![0; PAGE_BYTES];
        image.read(page as u64 * PAGE, &mut bytes);
        let unit = if tear == Tear::Sectors {
            512
        } else {
            PAGE_BYTES
        };
        for part in bytes.chunks(unit) {
            prop_assert!(
                part.iter().all(|&byte| byte == part[0]),
                "torn within a unit"
            );
            prop_assert!(
                allowed.contains(&part[0]),
                "page {page} holds {}, of {allowed:?}",
                part[0]
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_invents_nothing(
        steps in steps(),
        seed in any::<u64>(),
        tear in prop_oneof![Just(Tear::Writes), Just(Tear::Pages), Just(Tear::Sectors)],
    ) {
        Sim::new(seed).block_on(async {
            let disk = FaultyDisk::in_memory(PAGES * PAGE, seed);
            disk.keep_history();
            let mut model = Model {
                may: vec![BTreeSet::from([0]); PAGES as usize],
                is: vec![0; PAGES as usize],
            };
            let mut reached = vec![model.clone()];
            for (number, step) in steps.iter().enumerate() {
                let before = model.clone();
                match *step {
                    Step::Write { page, pages } => {
                        let tag = number as u8 + 1;
                        disk.write(page * PAGE, filled(tag, pages)).await.unwrap();
                        model.change(page..page + pages, tag);
                    }
                    Step::Discard { page } => {
                        disk.discard(page * PAGE, PAGE).await.unwrap();
                        model.change(page..page + 1, 0);
                    }
                    Step::Sync => {
                        disk.sync().await.unwrap();
                        model.sync();
                    }
                }
                prop_assert_eq!(&tags(&disk).await, &model.is);
                for cut in 0..4 {
                    check(&disk.crash(seed.wrapping_add(cut), tear), &model.may, tear)?;
                }
                // Between the events of one step, either state is allowed.
                let events = disk.history().unwrap().len();
                let mut either = before;
                for (before, after) in either.may.iter_mut().zip(&model.may) {
                    before.extend(after);
                }
                reached.resize(events, either);
                reached.push(model.clone());
            }
            let history = disk.history().unwrap();
            let mut points = 0;
            for (point, image) in history.crashes(seed, tear) {
                check(&image, &reached[point].may, tear)?;
                points += 1;
            }
            prop_assert_eq!(points, history.len() + 1);
            Ok(())
        })?;
    }
}

#[test]
fn unsynced_writes_are_kept_dropped_reordered_and_torn() {
    Sim::new(1).block_on(async {
        let disk = disk();
        disk.write(0, filled(1, 2)).await.unwrap();
        disk.write(0, filled(2, 1)).await.unwrap();
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let mut bytes = vec![0; 2 * PAGE_BYTES];
            disk.crash(seed, Tear::Pages).read(0, &mut bytes);
            seen.insert(page_tags(&bytes));
        }
        let expected = [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]];
        assert_eq!(seen, expected.iter().map(|tags| tags.to_vec()).collect());
        let mut torn = false;
        for seed in 0..50 {
            let mut bytes = vec![0; PAGE_BYTES];
            disk.crash(seed, Tear::Sectors).read(0, &mut bytes);
            let sectors: BTreeSet<u8> = bytes.iter().step_by(512).copied().collect();
            torn |= sectors.len() > 1;
        }
        assert!(torn, "pages are torn at sectors");
    });
}

#[test]
fn a_machine_that_restarts_finds_the_image() {
    let image = Sim::new(1).block_on(async {
        let disk = disk();
        disk.write(0, filled(3, 1)).await.unwrap();
        disk.sync().await.unwrap();
        disk.crash(1, Tear::Pages)
    });
    Sim::new(2).block_on(async {
        let again = FaultyDisk::from_image(image.clone(), Latency::default(), 5);
        assert_eq!(tags(&again).await[..2], [3, 0]);
        assert_eq!(again.crash(0, Tear::Pages), image);
    });
}
