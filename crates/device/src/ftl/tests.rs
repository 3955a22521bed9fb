//! The drive against a plain array, with concurrent writers, discards and power cuts; its
//! invariants after each step; what it costs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use runtime::sim::Sim;
use runtime::{now, spawn};

use super::*;
use crate::measure::{Pattern, WriteAmplification};
use crate::nand::{Endurance, NandTiming, Preset};
use crate::{Flash, Geometry};

const SECTOR: usize = PAGE_BYTES;

/// Two channels of two LUNs with two planes; 14 groups of 8 pages of 8 KiB a LUN.
fn tiny_nand(endurance: Endurance) -> NandConfig {
    NandConfig {
        geometry: Geometry {
            channels: 2,
            luns_per_channel: 2,
            blocks_per_lun: 28,
            pages_per_block: 4,
            page_bytes: 2 * SECTOR as u32,
        },
        planes: 2,
        timing: NandTiming {
            read_ns: vec![50],
            program_ns: vec![300, 900],
            erase_ns: 2000,
            transfer_ns: 20,
        },
        endurance,
        seed: 3,
    }
}

fn tiny(over_provisioning: f64, striping: Striping) -> FtlConfig {
    FtlConfig {
        chunk_bytes: 4 * SECTOR as u32,
        over_provisioning,
        striping,
        queue_depth: 4,
        wear_spread: 8,
        ..FtlConfig::default()
    }
}

fn drive(over_provisioning: f64, striping: Striping) -> Ftl {
    let nand = Nand::new(tiny_nand(Endurance::unlimited())).unwrap();
    Ftl::open(Arc::new(nand), tiny(over_provisioning, striping)).unwrap()
}

fn filled(byte: u8, sectors: usize) -> SharedBuf {
    let mut buf = AlignedBuf::new(sectors * SECTOR);
    buf.fill(byte);
    buf.into()
}

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
                        for sector in &mut model[first..first + count] {
                            if let Sector::OneOf(bytes) = sector {
                                bytes.push(byte);
                            }
                        }
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
fn what_was_never_written_reads_as_zeros_and_takes_no_time() {
    Sim::new(1).block_on(async {
        let ftl = drive(0.5, Striping::WriteOrder);
        let begin = now();
        let buf = ftl.read(0, AlignedBuf::new(8 * SECTOR)).await.unwrap();
        assert!(buf.iter().all(|&byte| byte == 0));
        assert_eq!(now(), begin);
    });
}

#[test]
fn chunks_go_to_the_channels_in_the_order_written_or_by_address() {
    Sim::new(1).block_on(async {
        let chunk = 4 * SECTOR as u64;
        for striping in [Striping::WriteOrder, Striping::Address] {
            let ftl = drive(0.5, striping);
            let mut channels = Vec::new();
            for number in [6u64, 0, 3, 4] {
                ftl.write(number * chunk, filled(1, 4)).await.unwrap();
                channels.push(ftl.channel_of(number * chunk).unwrap());
            }
            let expected = match striping {
                Striping::WriteOrder => [0, 1, 0, 1],
                Striping::Address => [0, 0, 1, 0],
            };
            assert_eq!(channels, expected, "{striping:?}");
            assert_eq!(ftl.channel_of(50 * chunk), None);
        }
    });
}

#[test]
fn a_part_of_a_page_is_written_by_reading_the_rest() {
    Sim::new(1).block_on(async {
        let ftl = drive(0.5, Striping::WriteOrder);
        ftl.write(0, filled(1, 2)).await.unwrap();
        ftl.write(SECTOR as u64, filled(2, 1)).await.unwrap();
        let buf = ftl.read(0, AlignedBuf::new(2 * SECTOR)).await.unwrap();
        assert_eq!((buf[0], buf[SECTOR]), (1, 2));
        let counts = ftl.counts();
        assert_eq!(counts.host_bytes_written, 3 * SECTOR as u64);
        assert_eq!(counts.nand_bytes_programmed, 4 * SECTOR as u64);
        assert_eq!(ftl.nand().counts().programs, 2);
    });
}

#[test]
fn the_queue_takes_no_more_than_its_depth() {
    Sim::new(1).block_on(async {
        let nand = Nand::new(tiny_nand(Endurance::unlimited())).unwrap();
        let config = FtlConfig {
            queue_depth: 1,
            ..tiny(0.5, Striping::WriteOrder)
        };
        let ftl = Arc::new(Ftl::open(Arc::new(nand), config).unwrap());
        for page in 0..8 {
            ftl.write(page * 4 * SECTOR as u64, filled(1, 4))
                .await
                .unwrap();
        }
        let begin = now();
        let mut readers = Vec::new();
        for page in 0..8 {
            let ftl = Arc::clone(&ftl);
            readers.push(spawn(async move {
                let buf = AlignedBuf::new(2 * SECTOR);
                ftl.read(page * 4 * SECTOR as u64, buf).await.unwrap();
            }));
        }
        for reader in readers {
            reader.await.unwrap();
        }
        assert_eq!(now().since(begin).as_nanos(), 8 * (50 + 20));
    });
}

/// Overwrites pages at random until `times` the drive has been written.
async fn overwrite(ftl: &Ftl, times: u64) -> Result<(), DeviceError> {
    let pages = ftl.len_bytes() / ftl.page_bytes as u64;
    for _ in 0..pages * times {
        let page = runtime::random_u64() % pages;
        ftl.write(page * ftl.page_bytes as u64, filled(page as u8, 2))
            .await?;
    }
    Ok(())
}

#[test]
fn what_the_drive_says_it_programmed_is_what_its_flash_says() {
    Sim::new(1).block_on(async {
        let ftl = drive(0.4, Striping::WriteOrder);
        overwrite(&ftl, 6).await.unwrap();
        let counts = ftl.counts();
        let page_bytes = ftl.page_bytes as u64;
        assert_eq!(
            counts.nand_bytes_programmed,
            ftl.nand().counts().programs * page_bytes
        );
        assert_eq!(
            counts.nand_bytes_programmed,
            counts.host_bytes_written + counts.moved_bytes
        );
        assert!((1.05..3.0).contains(&counts.dlwa()), "{}", counts.dlwa());
    });
}

#[test]
fn discarded_pages_are_not_moved() {
    Sim::new(1).block_on(async {
        let dlwa = |discards: bool| async move {
            let ftl = drive(0.3, Striping::WriteOrder);
            let all = ftl.len_bytes() / (4 * SECTOR as u64) * 4 * SECTOR as u64;
            ftl.write(0, filled(1, all as usize / SECTOR))
                .await
                .unwrap();
            if discards {
                ftl.discard(0, all / 2).await.unwrap();
            }
            let pages = all / 2 / ftl.page_bytes as u64;
            for _ in 0..pages * 8 {
                let page = pages + runtime::random_u64() % pages;
                ftl.write(page * ftl.page_bytes as u64, filled(2, 2))
                    .await
                    .unwrap();
            }
            ftl.state.lock().map.verify();
            ftl.counts().dlwa()
        };
        let (with, without) = (dlwa(true).await, dlwa(false).await);
        assert!(
            with < without - 0.3,
            "{with} with discards, {without} without"
        );
    });
}

#[test]
fn wear_is_leveled_between_pages_that_change_and_pages_that_do_not() {
    Sim::new(1).block_on(async {
        let spread = |wear_spread| async move {
            let nand = Nand::new(tiny_nand(Endurance::unlimited())).unwrap();
            let config = FtlConfig {
                wear_spread,
                ..tiny(0.45, Striping::WriteOrder)
            };
            let ftl = Ftl::open(Arc::new(nand), config).unwrap();
            let pages = ftl.len_bytes() / ftl.page_bytes as u64;
            for page in 0..pages {
                ftl.write(page * ftl.page_bytes as u64, filled(1, 2))
                    .await
                    .unwrap();
            }
            for write in 0..pages * 60 {
                let page = write % (pages / 8);
                ftl.write(page * ftl.page_bytes as u64, filled(2, 2))
                    .await
                    .unwrap();
            }
            ftl.state.lock().map.verify();
            let (least, most) = ftl.erase_spread();
            most - least
        };
        let (leveled, not) = (spread(8).await, spread(u32::MAX).await);
        assert!(leveled <= 20 && not > 60, "{leveled} leveled, {not} not");
    });
}

#[test]
fn a_drive_that_wears_out_keeps_what_it_has_and_then_refuses() {
    Sim::new(1).block_on(async {
        let endurance = Endurance {
            cycles: 30,
            factory_bad: 0.02,
            grown_bad: 0.2,
        };
        let nand = Arc::new(Nand::new(tiny_nand(endurance)).unwrap());
        let ftl = Ftl::open(Arc::clone(&nand), tiny(0.5, Striping::WriteOrder)).unwrap();
        let pages = 60u64;
        let mut model = vec![0u8; pages as usize];
        let mut writes = 0u64;
        let error = loop {
            let page = runtime::random_u64() % pages;
            let byte = (writes % 251) as u8;
            match ftl
                .write(page * ftl.page_bytes as u64, filled(byte, 2))
                .await
            {
                Ok(()) => model[page as usize] = byte,
                Err(error) => break error,
            }
            writes += 1;
            assert!(writes < 1_000_000, "it wears out");
        };
        assert!(error.is_full(), "{error}");
        assert!(ftl.counts().rewritten_pages > 0 && !nand.bad_blocks().is_empty());
        for (page, &byte) in model.iter().enumerate() {
            let offset = page as u64 * ftl.page_bytes as u64;
            let buf = ftl.read(offset, AlignedBuf::new(2 * SECTOR)).await.unwrap();
            assert_eq!(buf[0], byte, "page {page}");
        }
        let rated = u64::from(nand.geometry().blocks()) * 4 * 30;
        assert!(
            writes > rated / 4,
            "{writes} pages written of {rated} rated"
        );
    });
}

#[test]
fn counting_without_time_gives_nearly_what_the_drive_programs() {
    let nand = tiny_nand(Endurance::unlimited());
    let config = tiny(0.4, Striping::WriteOrder);
    let pages = shape_of(&nand, &config).unwrap().logical_pages / 4 * 4;
    let regions: Vec<u32> = {
        let mut at = 7u32;
        (0..3000)
            .map(|_| {
                at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (at >> 8) % (pages / 4) * 4
            })
            .collect()
    };
    let mut untimed = UntimedFtl::new(&nand, &config).unwrap();
    for &first in &regions {
        untimed.write(first, 4);
    }
    let timed = Sim::new(1).block_on(async {
        let ftl = Ftl::open(Arc::new(Nand::new(nand).unwrap()), config).unwrap();
        for &first in &regions {
            let offset = u64::from(first) * ftl.page_bytes as u64;
            ftl.write(offset, filled(first as u8, 8)).await.unwrap();
        }
        ftl.counts().nand_bytes_programmed / ftl.page_bytes as u64
    });
    // Not exactly: the drive maps the pages of a command when all of them are programmed.
    let ratio = untimed.programmed() as f64 / timed as f64;
    assert!(
        (0.99..1.01).contains(&ratio),
        "{} and {timed}",
        untimed.programmed()
    );
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

#[test]
fn a_seed_gives_the_same_times_to_the_nanosecond() {
    let trace = |seed| {
        Sim::new(seed).block_on(async {
            let ftl = Arc::new(drive(0.45, Striping::WriteOrder));
            let mut clients = Vec::new();
            for client in 0..6u64 {
                let ftl = Arc::clone(&ftl);
                clients.push(spawn(async move {
                    let mut ends = Vec::new();
                    for _ in 0..60 {
                        let sector = client * 60 + runtime::random_u64() % 40;
                        let offset = sector * SECTOR as u64;
                        if runtime::random_u64().is_multiple_of(2) {
                            ftl.write(offset, filled(1, 16)).await.unwrap();
                        } else {
                            ftl.read(offset, AlignedBuf::new(SECTOR)).await.unwrap();
                        }
                        ends.push(now().as_nanos());
                    }
                    ends
                }));
            }
            let mut ends = Vec::new();
            for client in clients {
                ends.extend(client.await.unwrap());
            }
            (ends, ftl.counts())
        })
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

/// Figure 1 of Flashield: what random and sequential writes cost, on a drive whose stripe has 32 MiB.
#[test]
fn small_random_writes_cost_several_times_large_and_sequential_ones_once() {
    let drive = WriteAmplification::with_luns(4, 2, 0.07);
    let dlwa = |pattern, write_bytes, utilization| {
        drive.measure(pattern, write_bytes, utilization).unwrap()
    };
    let (kib, mib) = (1u64 << 10, 1u64 << 20);
    let small = dlwa(Pattern::Random, 64 * kib, 1.0);
    assert!((6.0..12.0).contains(&small), "{small}");
    let mut last = small + 0.3;
    for write_bytes in [mib, 4 * mib, 8 * mib, 16 * mib] {
        let larger = dlwa(Pattern::Random, write_bytes, 1.0);
        assert!(
            larger < last,
            "{larger} for {write_bytes} bytes, {last} for fewer"
        );
        last = larger;
    }
    assert!(dlwa(Pattern::Random, 32 * mib, 1.0) < 1.02);
    for utilization in [0.5, 0.7, 0.9, 1.0] {
        let sequential = dlwa(Pattern::Sequential, 512 * kib, utilization);
        assert!((1.0..1.02).contains(&sequential), "{sequential}");
    }
    let half_full = dlwa(Pattern::Random, 64 * kib, 0.5);
    assert!(half_full < 1.4, "{half_full}");
    assert!(drive.measure(Pattern::Random, 1000, 1.0).is_err());
    assert!(drive.measure(Pattern::Random, 1 << 40, 1.0).is_err());
}

/// Figure 2a of "slice indexes".
#[test]
fn reads_on_their_own_channels_are_faster_by_as_much_as_the_paper_says() {
    use crate::measure::{ChannelPlacement, Placement, crucial_m4, read_rate};
    let setup = ChannelPlacement {
        operations: 200,
        filled_bytes: 64 << 20,
        ..crucial_m4()
    };
    let rate = |placement| read_rate(&setup, placement, 32, SECTOR).unwrap();
    let [best, random, worst] = Placement::ALL.map(rate);
    assert!((5.1..5.3).contains(&(best / worst)), "{best} and {worst}");
    assert!((1.4..1.6).contains(&(best / random)), "{best} and {random}");
}

#[test]
fn drives_that_cannot_be_are_refused() {
    let nand = || Arc::new(Nand::new(tiny_nand(Endurance::unlimited())).unwrap());
    let refused = |change: &dyn Fn(&mut FtlConfig)| {
        let mut config = tiny(0.5, Striping::WriteOrder);
        change(&mut config);
        Ftl::open(nand(), config).unwrap_err()
    };
    assert!(matches!(
        refused(&|config| config.over_provisioning = 0.1),
        ConfigError::NoSpare { has: 14, .. }
    ));
    assert!(matches!(
        refused(&|config| config.chunk_bytes = 4096),
        ConfigError::NotWhole { .. }
    ));
    assert!(matches!(
        refused(&|config| config.queue_depth = 0),
        ConfigError::Zero { .. }
    ));
    assert!(matches!(
        refused(&|config| config.over_provisioning = 1.0),
        ConfigError::Share { .. }
    ));
    for preset in Preset::ALL {
        let config = FtlConfig::of(preset);
        shape_of(&config.nand(preset, 1 << 30, 1), &config).unwrap();
        shape_of(&preset.full(1), &config).unwrap();
    }
}
