//! The write cache: its answers, its savings, and its loss in a power cut.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Time of 4 KiB on the drives' link.
const LINK: u64 = 100;

/// Program times of a row of the tiny drive, of fast and of slow pages, with transfers.
const ROWS: [u64; 2] = [300 + 2 * 20, 900 + 2 * 20];

fn cached(pages: usize) -> FtlConfig {
    FtlConfig {
        cache_bytes: (pages * 2 * SECTOR) as u64,
        link: LinkTiming {
            page_ns: LINK,
            ..LinkTiming::default()
        },
        ..tiny(0.45, Striping::WriteOrder)
    }
}

async fn first_byte(ftl: &Ftl, sector: usize) -> u8 {
    let buf = AlignedBuf::new(SECTOR);
    ftl.read((sector * SECTOR) as u64, buf).await.unwrap()[0]
}

fn verify(ftl: &Ftl) {
    let state = ftl.drive.state.lock();
    state.map.verify();
    state.cache.verify();
}

async fn time_of<F: Future>(work: F) -> u64 {
    let begin = now();
    work.await;
    now().since(begin).as_nanos() as u64
}

#[test]
fn a_write_is_answered_when_it_has_crossed_the_link_and_read_from_the_cache() {
    Sim::new(1).block_on(async {
        let ftl = open(cached(16));
        let write = time_of(async { ftl.write(0, filled(7, 8)).await.unwrap() }).await;
        assert_eq!(write, 8 * LINK);
        let read = time_of(async { assert_eq!(first_byte(&ftl, 3).await, 7) }).await;
        assert_eq!(read, LINK);
        assert_eq!(ftl.nand().counts().programs, 0, "none has ended");
        let sync = time_of(async { ftl.sync().await.unwrap() }).await;
        assert_eq!(sync, ROWS[0] - LINK);
        assert_eq!(ftl.nand().counts().programs, 4);
        let read = time_of(async { assert_eq!(first_byte(&ftl, 3).await, 7) }).await;
        assert_eq!(read, LINK + 50 + 20);
        assert_eq!(time_of(ftl.sync()).await, 0);
        verify(&ftl);
    });
}

#[test]
fn a_write_waits_while_the_cache_is_full_and_all_luns_program_meanwhile() {
    Sim::new(1).block_on(async {
        let ftl = open(FtlConfig {
            link: LinkTiming::default(),
            ..cached(32)
        });
        // Each of the four LUNs has 16 rows to program. Up to 32 of the 128 pages are still in the cache when the write is
        // answered.
        let took = time_of(async { ftl.write(0, filled(1, 256)).await.unwrap() }).await;
        let rows = (ROWS[0] + ROWS[1]) * 8;
        let most = rows * 11 / 10;
        assert!((rows * 5 / 8..=most).contains(&took), "{took} of {rows}");
        let all = took + time_of(async { ftl.sync().await.unwrap() }).await;
        assert!((rows..=most).contains(&all), "{all} of {rows}");
        assert_eq!(ftl.nand().counts().programs, 128);
    });
}

#[test]
fn the_flash_gets_two_rows_of_each_lun_at_once_and_the_rest_waits() {
    Sim::new(1).block_on(async {
        let ftl = open(FtlConfig {
            link: LinkTiming::default(),
            ..cached(64)
        });
        let busy = || {
            let cache = &ftl.drive.state.lock().cache;
            (cache.lanes, cache.in_flight)
        };
        // The four LUNs have two planes, and a lane takes a row of each LUN. One slice of the link suffices for it.
        for part in 0..3 {
            let offset = part * 32 * SECTOR as u64;
            ftl.write(offset, filled(1, 32)).await.unwrap();
            runtime::sleep(Duration::from_nanos(1)).await;
            assert_eq!(busy(), (2, 2 * 4 * 2));
        }
        ftl.sync().await.unwrap();
        runtime::yield_now().await;
        assert_eq!(busy(), (0, 0));
    });
}

#[test]
fn what_is_overwritten_or_discarded_while_it_waits_is_not_programmed() {
    Sim::new(1).block_on(async {
        let ftl = open(FtlConfig {
            link: LinkTiming::default(),
            ..cached(16)
        });
        let page = 2 * SECTOR as u64;
        put(&ftl, 0, 0).await;
        runtime::sleep(Duration::from_nanos(1)).await;
        // The first version is being programmed; the other versions wait for its end.
        for byte in 1..4 {
            put(&ftl, 0, byte).await;
        }
        assert_eq!(ftl.counts().nand_bytes_programmed, 0);
        ftl.sync().await.unwrap();
        let counts = ftl.counts();
        assert_eq!(counts.host_bytes_written, 4 * page);
        assert_eq!(counts.nand_bytes_programmed, 2 * page);
        assert_eq!(counts.absorbed_writes, 2);
        assert_eq!(first_byte(&ftl, 0).await, 3);
        // Discarded: the version being programmed is not kept, and the waiting version is not programmed.
        put(&ftl, 0, 8).await;
        runtime::sleep(Duration::from_nanos(1)).await;
        put(&ftl, 0, 9).await;
        ftl.discard(0, page).await.unwrap();
        assert_eq!(first_byte(&ftl, 0).await, 0);
        put(&ftl, 1, 1).await;
        ftl.sync().await.unwrap();
        assert_eq!(ftl.counts().nand_bytes_programmed, 4 * page);
        runtime::sleep(Duration::from_nanos(ROWS[1])).await;
        assert_eq!(ftl.counts().nand_bytes_programmed, 4 * page);
        assert_eq!(ftl.counts().absorbed_writes, 3);
        assert_eq!((first_byte(&ftl, 0).await, ftl.channel_of(0)), (0, None));
        verify(&ftl);
        let state = ftl.drive.state.lock();
        assert!(!state.cache.has_waiting() && state.cache.in_flight == 0);
    });
}

#[test]
fn a_part_of_a_page_waits_without_the_rest_and_is_put_together_in_its_turn() {
    Sim::new(1).block_on(async {
        let ftl = open(cached(16));
        put(&ftl, 0, 1).await;
        ftl.sync().await.unwrap();
        let write = ftl.write(SECTOR as u64, filled(2, 1));
        assert_eq!(time_of(async { write.await.unwrap() }).await, LINK);
        let both = ftl.read(0, AlignedBuf::new(2 * SECTOR)).await.unwrap();
        assert_eq!((both[0], both[SECTOR]), (1, 2));
        ftl.sync().await.unwrap();
        assert_eq!(
            (first_byte(&ftl, 0).await, first_byte(&ftl, 1).await),
            (1, 2)
        );
        assert_eq!(ftl.nand().counts().programs, 2);
        // Both parts of a page that was never written.
        for sector in [4, 5] {
            ftl.write(sector * SECTOR as u64, filled(sector as u8, 1))
                .await
                .unwrap();
        }
        ftl.sync().await.unwrap();
        assert_eq!(
            (first_byte(&ftl, 4).await, first_byte(&ftl, 5).await),
            (4, 5)
        );
        verify(&ftl);
    });
}

#[test]
fn a_power_cut_loses_what_was_not_synced_and_nothing_else() {
    let sim = Sim::new(1);
    let nand = Arc::new(Nand::new(tiny_nand(Endurance::unlimited())).unwrap());
    let config = FtlConfig {
        link: LinkTiming::default(),
        ..cached(64)
    };
    let start = || Arc::new(Ftl::open(Arc::clone(&nand), config.clone()).unwrap());
    let ftl = start();
    sim.block_on(async {
        for page in 0..48 {
            put(&ftl, page, 1).await;
        }
        ftl.sync().await.unwrap();
        nand.power_cut().unwrap();
    });
    sim.crash();
    let ftl = start();
    sim.block_on(async {
        verify(&ftl);
        for page in 0..48 {
            assert_eq!(first_byte(&ftl, 2 * page).await, 1, "page {page}");
        }
        for page in [0, 1, 60] {
            put(&ftl, page, 2).await;
            let sector = 2 * page as usize;
            assert_eq!(first_byte(&ftl, sector).await, 2, "acknowledged");
        }
        nand.power_cut().unwrap();
    });
    sim.crash();
    let ftl = start();
    sim.block_on(async {
        verify(&ftl);
        for page in 0..48 {
            assert_eq!(first_byte(&ftl, 2 * page).await, 1, "page {page}");
        }
        assert_eq!(first_byte(&ftl, 120).await, 0);
        // A page programmed in the background survives without a sync.
        put(&ftl, 3, 4).await;
        runtime::sleep(Duration::from_nanos(2 * ROWS[1])).await;
        nand.power_cut().unwrap();
    });
    sim.crash();
    sim.block_on(async { assert_eq!(first_byte(&start(), 6).await, 4) });
}

#[test]
fn a_cache_that_cannot_be_written_back_says_so() {
    let sim = Sim::new(1);
    // The power fails under a drive that goes on: no later write or sync succeeds.
    sim.block_on(async {
        let ftl = open(cached(16));
        put(&ftl, 0, 1).await;
        runtime::sleep(Duration::from_nanos(10)).await;
        ftl.nand().power_cut().unwrap();
        ftl.sync().await.unwrap_err();
        ftl.write(0, filled(2, 2)).await.unwrap_err();
        verify(&ftl);
    });
    // A drive that wears out keeps its synced pages.
    sim.block_on(async {
        let endurance = Endurance {
            cycles: 12,
            ..Endurance::unlimited()
        };
        let nand = Arc::new(Nand::new(tiny_nand(endurance)).unwrap());
        let ftl = Ftl::open(nand, cached(16)).unwrap();
        let mut model = [[0u8; 2]; 60];
        let error = 'worn_out: loop {
            for _ in 0..10 {
                let page = runtime::random_u64() % 60;
                let byte = runtime::random_u64() as u8;
                if let Err(error) = ftl.write(page * 2 * SECTOR as u64, filled(byte, 2)).await {
                    break 'worn_out error;
                }
                model[page as usize][1] = byte;
            }
            if let Err(error) = ftl.sync().await {
                break error;
            }
            model.iter_mut().for_each(|page| page[0] = page[1]);
        };
        assert!(error.is_full(), "{error}");
        assert!(ftl.sync().await.unwrap_err().is_full());
        for (page, bytes) in model.iter().enumerate() {
            assert_eq!(first_byte(&ftl, 2 * page).await, bytes[1], "page {page}");
        }
        verify(&ftl);
    });
}

#[test]
fn a_cache_that_holds_no_page_is_refused() {
    let mut config = cached(1);
    let open = |config: FtlConfig| {
        let nand = Arc::new(Nand::new(tiny_nand(Endurance::unlimited())).unwrap());
        Ftl::open(nand, config)
    };
    open(config.clone()).unwrap();
    config.cache_bytes -= 1;
    let refused = open(config).unwrap_err();
    assert!(
        matches!(refused, ConfigError::SmallCache { .. }),
        "{refused}"
    );
}

#[test]
fn threads_may_share_a_cache() {
    let nand = NandConfig {
        timing: NandTiming::instant(),
        ..tiny_nand(Endurance::unlimited())
    };
    let nand = Arc::new(Nand::new(nand).unwrap());
    let config = FtlConfig {
        link: LinkTiming::default(),
        ..cached(8)
    };
    let ftl = Ftl::open(nand, config).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let ftl = &ftl;
            scope.spawn(move || {
                // The lanes of each runtime end with it.
                for round in 0..20u8 {
                    runtime::live::block_on(async {
                        // Odd numbers of sectors: neighbours write parts of the same pages.
                        let (first, count) = (thread * 99, 99);
                        let offset = (first * SECTOR) as u64;
                        ftl.write(offset, filled(round, count)).await.unwrap();
                        let buf = AlignedBuf::new(count * SECTOR);
                        let buf = ftl.read(offset, buf).await.unwrap();
                        assert!(buf.iter().all(|&byte| byte == round), "thread {thread}");
                        if round % 4 == 3 {
                            ftl.sync().await.unwrap();
                        }
                    });
                }
            });
        }
    });
    verify(&ftl);
}

/// Possible bytes of a sector; `None` for any byte.
type Sector = Option<Vec<u8>>;

/// A sector's possible bytes now, and after a power cut.
#[derive(Clone, Debug)]
struct Expected {
    now: Sector,
    after_cut: Sector,
}

impl Expected {
    fn write(&mut self, byte: u8) {
        self.now = Some(vec![byte]);
        self.may_be_written(byte);
    }

    fn may_be_written(&mut self, byte: u8) {
        if let Some(bytes) = &mut self.after_cut {
            bytes.push(byte);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Discard(usize, usize),
    Read(usize, usize),
    Sync,
    Pause(u64),
    /// Cuts the power this many nanoseconds after a write began.
    Cut(usize, usize, u64),
}

const SECTORS: usize = 400;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let first = prop_oneof![0..SECTORS - 48, 0..40usize];
    let range = (first, prop_oneof![1..5usize, 1..48usize]);
    let step = prop_oneof![
        12 => range.clone().prop_map(|(first, count)| Step::Write(first, count)),
        1 => range.clone().prop_map(|(first, count)| Step::Discard(first, count)),
        4 => range.clone().prop_map(|(first, count)| Step::Read(first, count)),
        2 => Just(Step::Sync),
        2 => (0..4000u64).prop_map(Step::Pause),
        2 => (range, 0..6000u64).prop_map(|((first, count), after)| Step::Cut(first, count, after)),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Reads sectors and narrows the model to the bytes found.
async fn check(ftl: &Ftl, model: &mut [Expected], first: usize, count: usize) {
    verify(ftl);
    let buf = AlignedBuf::new(count * SECTOR);
    let buf = ftl.read((first * SECTOR) as u64, buf).await.unwrap();
    for (at, sector) in buf.chunks_exact(SECTOR).enumerate() {
        let byte = sector[0];
        let expected = &mut model[first + at];
        assert!(
            sector.iter().all(|&other| other == byte),
            "sector {} is whole",
            first + at
        );
        if let Some(bytes) = &expected.now {
            assert!(
                bytes.contains(&byte),
                "sector {}: {byte} of {expected:?}",
                first + at
            );
            expected.now = Some(vec![byte]);
        }
    }
}

fn run(steps: &[Step], cache_pages: usize) {
    let sim = Sim::new(1);
    let nand = Arc::new(Nand::new(tiny_nand(Endurance::unlimited())).unwrap());
    let start = || Arc::new(Ftl::open(Arc::clone(&nand), cached(cache_pages)).unwrap());
    let mut ftl = start();
    let zeros = Expected {
        now: Some(vec![0]),
        after_cut: Some(vec![0]),
    };
    let mut model = vec![zeros; SECTORS];
    let mut byte = 0u8;
    for step in steps {
        match *step {
            Step::Write(first, count) => sim.block_on(async {
                byte = byte.wrapping_add(1);
                let data = filled(byte, count);
                ftl.write((first * SECTOR) as u64, data).await.unwrap();
                model[first..first + count]
                    .iter_mut()
                    .for_each(|sector| sector.write(byte));
            }),
            Step::Discard(first, count) => sim.block_on(async {
                let (offset, len) = ((first * SECTOR) as u64, (count * SECTOR) as u64);
                ftl.discard(offset, len).await.unwrap();
                for sector in &mut model[first..first + count] {
                    (sector.now, sector.after_cut) = (None, None);
                }
            }),
            Step::Read(first, count) => sim.block_on(check(&ftl, &mut model, first, count)),
            Step::Sync => sim.block_on(async {
                ftl.sync().await.unwrap();
                for sector in model.iter_mut().filter(|sector| sector.now.is_some()) {
                    sector.after_cut.clone_from(&sector.now);
                }
            }),
            Step::Pause(nanos) => sim.block_on(runtime::sleep(Duration::from_nanos(nanos))),
            Step::Cut(first, count, after) => {
                sim.block_on(async {
                    byte = byte.wrapping_add(1);
                    let (ftl, data) = (Arc::clone(&ftl), filled(byte, count));
                    runtime::spawn_detached(async move {
                        ftl.write((first * SECTOR) as u64, data).await.unwrap();
                    });
                    runtime::sleep(Duration::from_nanos(after)).await;
                    nand.power_cut().unwrap();
                });
                for sector in &mut model[first..first + count] {
                    sector.may_be_written(byte);
                }
                sim.crash();
                ftl = start();
                for sector in &mut model {
                    sector.now.clone_from(&sector.after_cut);
                }
                // The present contents are in flash: another power cut keeps them.
                sim.block_on(check(&ftl, &mut model, 0, SECTORS));
                for sector in &mut model {
                    sector.after_cut.clone_from(&sector.now);
                }
            }
        }
        verify(&ftl);
    }
    sim.block_on(async {
        check(&ftl, &mut model, 0, SECTORS).await;
        ftl.sync().await.unwrap();
        check(&ftl, &mut model, 0, SECTORS).await;
        let state = ftl.drive.state.lock();
        assert!(!state.cache.has_waiting() && state.cache.in_flight == 0);
        assert!(state.claimed.iter().all(|&word| word == 0));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_drive_with_a_small_cache_reads_like_a_plain_array(steps in steps()) {
        run(&steps, 3);
    }

    #[test]
    fn a_drive_with_a_large_cache_reads_like_a_plain_array(steps in steps()) {
        run(&steps, 64);
    }
}

/// With GC and many clients.
#[test]
fn a_seed_gives_the_same_times_to_the_nanosecond() {
    let trace = |seed| {
        Sim::new(seed).block_on(async {
            let ftl = Arc::new(open(cached(24)));
            let mut clients = Vec::new();
            for client in 0..6usize {
                let ftl = Arc::clone(&ftl);
                clients.push(spawn(async move {
                    let mut ends = Vec::new();
                    for _ in 0..200 {
                        let sector = client * 60 + runtime::random_u64() as usize % 40;
                        let offset = (sector * SECTOR) as u64;
                        if runtime::random_u64().is_multiple_of(2) {
                            ftl.write(offset, filled(1, 16)).await.unwrap();
                        } else {
                            first_byte(&ftl, sector).await;
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
            verify(&ftl);
            (ends, ftl.counts())
        })
    };
    let first = trace(1);
    assert!(
        first.1.collections > 0 && first.1.absorbed_writes > 0,
        "{:?}",
        first.1
    );
    assert_eq!(first, trace(1));
    assert_ne!(first, trace(2));
}
