//! The drive against a plain array: concurrent writers, discards, power cuts, abandoned writes, threads. The invariants are
//! checked after each step.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Bytes that a sector may hold.
#[derive(Clone, Debug)]
enum Sector {
    /// One of these bytes.
    OneOf(Vec<u8>),
    /// Any byte: the sector has been discarded.
    Any,
}

async fn check(ftl: &Ftl, model: &[Sector]) {
    ftl.drive.state.lock().map.verify();
    let buf = ftl
        .read(0, AlignedBuf::new(model.len() * SECTOR))
        .await
        .unwrap();
    for (number, sector) in buf.chunks_exact(SECTOR).enumerate() {
        assert!(
            sector.iter().all(|&byte| byte == sector[0]),
            "sector {number} is whole"
        );
        if let Sector::OneOf(bytes) = &model[number] {
            assert!(
                bytes.contains(&sector[0]),
                "sector {number}: {} of {bytes:?}",
                sector[0]
            );
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Writes that begin together, each with its first sector and number of sectors. Overlapping writes are left out.
    Write(Vec<(usize, usize)>),
    Discard(usize, usize),
    /// The same, with a power cut this many nanoseconds after the writes began.
    Cut(Vec<(usize, usize)>, u64),
    Read(usize, usize),
}

/// Number of sectors used by these tests.
const SECTORS: usize = 400;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..SECTORS, 1..48usize);
    let ranges = proptest::collection::vec(range.clone(), 1..5);
    let step = prop_oneof![
        10 => ranges.clone().prop_map(Step::Write),
        1 => range.clone().prop_map(|(first, count)| Step::Discard(first, count)),
        3 => (ranges, 0..20_000u64).prop_map(|(ranges, after)| Step::Cut(ranges, after)),
        2 => range.prop_map(|(first, count)| Step::Read(first, count)),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Returns ranges that do not overlap, cut off at the end of the drive.
fn disjoint(ranges: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut kept: Vec<(usize, usize)> = Vec::new();
    for &(first, count) in ranges {
        let count = count.min(SECTORS - first);
        let overlaps =
            |&(other, len): &(usize, usize)| first < other + len && other < first + count;
        if !kept.iter().any(overlaps) {
            kept.push((first, count));
        }
    }
    kept
}

fn run(steps: &[Step], striping: Striping) {
    let sim = Sim::new(1);
    let nand = Arc::new(Nand::new(tiny_nand(Endurance::unlimited())).unwrap());
    let config = tiny(0.45, striping);
    let mut ftl = Arc::new(Ftl::open(Arc::clone(&nand), config.clone()).unwrap());
    assert!(ftl.len_bytes() as usize >= SECTORS * SECTOR);
    let mut model = vec![Sector::OneOf(vec![0]); SECTORS];
    let mut byte = 0u8;
    for step in steps {
        match step {
            Step::Write(ranges) => sim.block_on(async {
                let mut writers = Vec::new();
                for (first, count) in disjoint(ranges) {
                    byte = byte.wrapping_add(1);
                    let ftl = Arc::clone(&ftl);
                    let data = filled(byte, count);
                    writers.push(spawn(async move {
                        ftl.write((first * SECTOR) as u64, data).await.unwrap();
                    }));
                    model[first..first + count].fill(Sector::OneOf(vec![byte]));
                }
                for writer in writers {
                    writer.await.unwrap();
                }
            }),
            Step::Discard(first, count) => sim.block_on(async {
                let count = (*count).min(SECTORS - first);
                ftl.discard((first * SECTOR) as u64, (count * SECTOR) as u64)
                    .await
                    .unwrap();
                model[*first..first + count].fill(Sector::Any);
            }),
            Step::Cut(ranges, after) => {
                let ended = Rc::new(RefCell::new(Vec::new()));
                sim.block_on(async {
                    for (first, count) in disjoint(ranges) {
                        byte = byte.wrapping_add(1);
                        may_hold(&mut model[first..first + count], byte);
                        let (ftl, ended) = (Arc::clone(&ftl), Rc::clone(&ended));
                        let (data, byte) = (filled(byte, count), byte);
                        runtime::spawn_detached(async move {
                            ftl.write((first * SECTOR) as u64, data).await.unwrap();
                            ended.borrow_mut().push((first, count, byte));
                        });
                    }
                    runtime::sleep(Duration::from_nanos(*after)).await;
                    nand.power_cut().unwrap();
                });
                sim.crash();
                for (first, count, byte) in ended.take() {
                    model[first..first + count].fill(Sector::OneOf(vec![byte]));
                }
                ftl = Arc::new(Ftl::open(Arc::clone(&nand), config.clone()).unwrap());
            }
            Step::Read(first, count) => sim.block_on(async {
                let count = (*count).min(SECTORS - first);
                let buf = AlignedBuf::new(count * SECTOR);
                let buf = ftl.read((first * SECTOR) as u64, buf).await.unwrap();
                for (sector, expected) in buf.chunks_exact(SECTOR).zip(&model[*first..]) {
                    if let Sector::OneOf(bytes) = expected {
                        assert!(bytes.contains(&sector[0]));
                    }
                }
            }),
        }
        sim.block_on(check(&ftl, &model));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_drive_by_write_order_reads_like_a_plain_array(steps in steps()) {
        run(&steps, Striping::WriteOrder);
    }

    #[test]
    fn a_drive_by_address_reads_like_a_plain_array(steps in steps()) {
        run(&steps, Striping::Address);
    }
}

/// The power fails again and again while GC moves pages.
#[test]
fn power_cuts_during_gc_leave_it_the_groups_that_it_needs() {
    use Step::{Cut, Discard, Write};
    let ranges = |ranges: &[(usize, usize)]| ranges.to_vec();
    let steps = [
        Write(ranges(&[(161, 28), (105, 2), (241, 46), (15, 22)])),
        Write(ranges(&[(161, 39), (104, 23), (202, 30)])),
        Cut(ranges(&[(343, 32), (239, 1), (196, 20), (178, 42)]), 11184),
        Cut(ranges(&[(11, 15)]), 17147),
        Write(ranges(&[(256, 15), (63, 22), (241, 40), (181, 13)])),
        Write(ranges(&[(3, 45), (27, 25), (290, 10)])),
        Write(ranges(&[(244, 17), (103, 41), (368, 26), (174, 15)])),
        Cut(ranges(&[(342, 6), (358, 47)]), 139),
        Write(ranges(&[(289, 2), (175, 20), (156, 29), (82, 16)])),
        Write(ranges(&[(186, 42)])),
        Write(ranges(&[(329, 18), (352, 14)])),
        Cut(ranges(&[(209, 19), (262, 44), (8, 39), (286, 44)]), 19054),
        Write(ranges(&[(15, 17)])),
        Write(ranges(&[(227, 5), (216, 40), (3, 11), (145, 8)])),
        Write(ranges(&[(350, 28), (280, 40), (351, 44)])),
        Write(ranges(&[(255, 37)])),
        Write(ranges(&[(384, 8)])),
        Write(ranges(&[(237, 47), (131, 27), (41, 12), (258, 12)])),
        Write(ranges(&[(107, 16), (283, 17), (389, 9)])),
        Write(ranges(&[(393, 13), (141, 21)])),
        Write(ranges(&[(195, 34), (72, 32)])),
        Discard(130, 46),
        Write(ranges(&[(197, 41), (376, 26), (19, 42)])),
        Write(ranges(&[(187, 13), (393, 19)])),
        Write(ranges(&[(181, 17), (169, 28), (382, 13), (366, 35)])),
        Write(ranges(&[(336, 41), (64, 4)])),
        Write(ranges(&[(80, 35), (43, 28)])),
        Write(ranges(&[(49, 10)])),
        Cut(ranges(&[(258, 32), (386, 45), (246, 12)]), 8025),
        Write(ranges(&[(267, 41), (273, 47)])),
        Write(ranges(&[(103, 6), (97, 29), (382, 12)])),
        Write(ranges(&[(332, 4), (87, 11)])),
        Cut(ranges(&[(256, 34), (258, 1), (361, 2), (311, 40)]), 7552),
        Write(ranges(&[(72, 46)])),
        Write(ranges(&[(380, 14), (396, 16)])),
        Write(ranges(&[(259, 7), (155, 16)])),
        Write(ranges(&[(182, 45), (147, 27), (388, 46), (72, 8)])),
        Write(ranges(&[(64, 2), (208, 38)])),
        Cut(ranges(&[(318, 29), (207, 15), (161, 25), (237, 15)]), 1361),
        Write(ranges(&[(371, 21), (169, 5), (67, 35)])),
        Write(ranges(&[(206, 21), (377, 28)])),
        Discard(64, 13),
        Cut(ranges(&[(119, 6), (183, 2), (243, 20)]), 4141),
        Write(ranges(&[(137, 10), (158, 36), (389, 19)])),
        Write(ranges(&[(259, 23)])),
        Cut(ranges(&[(143, 5), (183, 14)]), 13237),
        Write(ranges(&[(23, 23), (242, 4), (286, 3), (245, 36)])),
        Write(ranges(&[(266, 22), (381, 39)])),
        Write(ranges(&[(340, 15), (193, 43), (35, 20), (7, 9)])),
        Write(ranges(&[(387, 39)])),
        Write(ranges(&[(390, 13)])),
        Write(ranges(&[(103, 20), (388, 16)])),
        Cut(ranges(&[(239, 33)]), 6084),
        Cut(ranges(&[(342, 28), (97, 7), (394, 19), (9, 19)]), 11984),
        Write(ranges(&[(225, 34), (109, 21), (16, 7), (5, 8)])),
    ];
    run(&steps, Striping::Address);
}

#[test]
fn writes_given_up_leave_the_drive_whole() {
    Sim::new(1).block_on(async {
        let ftl = drive(0.45, Striping::WriteOrder);
        let mut model = vec![Sector::OneOf(vec![0]); SECTORS];
        for round in 0..400u64 {
            let byte = round as u8;
            let first = runtime::random_u64() as usize % (SECTORS - 24);
            let write = ftl.write((first * SECTOR) as u64, filled(byte, 24));
            let limit = Duration::from_nanos(runtime::random_u64() % 6000);
            let ended = runtime::timeout(limit, write).await.is_ok();
            for sector in &mut model[first..first + 24] {
                let Sector::OneOf(bytes) = sector else {
                    continue;
                };
                if ended {
                    bytes.clear();
                }
                bytes.push(byte);
            }
            ftl.drive.state.lock().map.verify();
        }
        check(&ftl, &model).await;
        assert!(ftl.drive.state.lock().claimed.iter().all(|&word| word == 0));
    });
}

#[test]
fn threads_may_use_a_drive_at_once() {
    let nand = NandConfig {
        timing: NandTiming::instant(),
        ..tiny_nand(Endurance::unlimited())
    };
    let nand = Arc::new(Nand::new(nand).unwrap());
    let ftl = Ftl::open(nand, tiny(0.45, Striping::WriteOrder)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let ftl = &ftl;
            scope.spawn(move || {
                runtime::live::block_on(async {
                    // Odd numbers of sectors: neighbours write parts of the same pages.
                    let (first, count) = (thread * 99, 99);
                    for round in 0..200u8 {
                        let offset = (first * SECTOR) as u64;
                        ftl.write(offset, filled(round, count)).await.unwrap();
                        let buf = AlignedBuf::new(count * SECTOR);
                        let buf = ftl.read(offset, buf).await.unwrap();
                        assert!(buf.iter().all(|&byte| byte == round), "thread {thread}");
                    }
                });
            });
        }
    });
    ftl.drive.state.lock().map.verify();
}

/// Adds `byte` to the possible bytes of the sectors: a write may have been done in whole, in part or not at all.
fn may_hold(sectors: &mut [Sector], byte: u8) {
    for sector in sectors {
        if let Sector::OneOf(bytes) = sector {
            bytes.push(byte);
        }
    }
}

#[test]
fn a_drive_that_wears_out_under_power_cuts_keeps_what_it_has() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        let endurance = Endurance {
            cycles: 25,
            factory_bad: 0.02,
            grown_bad: 0.2,
        };
        let nand = NandConfig {
            seed,
            ..tiny_nand(endurance)
        };
        let nand = Arc::new(Nand::new(nand).unwrap());
        let open = || {
            let config = tiny(0.5, Striping::WriteOrder);
            Arc::new(Ftl::open(Arc::clone(&nand), config).unwrap())
        };
        let mut model = vec![Sector::OneOf(vec![0]); 120];
        let mut cuts = 0;
        loop {
            let ftl = open();
            let is_worn_out = sim.block_on(async {
                check(&ftl, &model).await;
                for _ in 0..runtime::random_u64() % 200 {
                    let first = runtime::random_u64() as usize % 112;
                    let byte = runtime::random_u64() as u8;
                    match ftl.write((first * SECTOR) as u64, filled(byte, 8)).await {
                        Ok(()) => model[first..first + 8].fill(Sector::OneOf(vec![byte])),
                        Err(error) => {
                            assert!(error.is_full(), "{error}");
                            may_hold(&mut model[first..first + 8], byte);
                            return true;
                        }
                    }
                }
                let first = runtime::random_u64() as usize % 112;
                may_hold(&mut model[first..first + 8], 99);
                let writer = Arc::clone(&ftl);
                runtime::spawn_detached(async move {
                    // The sectors may have been written even if the power fails or the drive is worn out.
                    let _ = writer.write((first * SECTOR) as u64, filled(99, 8)).await;
                });
                runtime::sleep(Duration::from_nanos(runtime::random_u64() % 5000)).await;
                nand.power_cut().unwrap();
                false
            });
            if is_worn_out {
                break;
            }
            sim.crash();
            cuts += 1;
            assert!(cuts < 10_000, "it wears out");
        }
        sim.block_on(check(&open(), &model));
        assert!(cuts > 4, "seed {seed}: {cuts} power cuts");
    }
}
