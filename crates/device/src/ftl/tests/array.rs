//! The drive against a plain array: concurrent writers, discards, power cuts, writes given up, threads.
//! Its invariants are checked after each step.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// What each sector may hold.
#[derive(Clone, Debug)]
enum Sector {
    /// One of these bytes.
    OneOf(Vec<u8>),
    /// Anything: it has been discarded.
    Any,
}

async fn check(ftl: &Ftl, model: &[Sector]) {
    ftl.state.lock().map.verify();
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
    /// Writes, all begun at once: first sector, sectors. Those that overlap are left out.
    Write(Vec<(usize, usize)>),
    Discard(usize, usize),
    /// The same, and the power fails so many nanoseconds after they began.
    Cut(Vec<(usize, usize)>, u64),
    Read(usize, usize),
}

/// Sectors that the drives of these tests offer and use.
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

/// Those of the ranges that do not overlap, cut off at the end.
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
            ftl.state.lock().map.verify();
        }
        check(&ftl, &model).await;
        assert!(ftl.state.lock().claimed.iter().all(|&word| word == 0));
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
    ftl.state.lock().map.verify();
}

/// A write of these sectors may have been done, in whole, in part or not at all.
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
                    // Whether the power fails or the drive is worn out, it may have been written.
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
