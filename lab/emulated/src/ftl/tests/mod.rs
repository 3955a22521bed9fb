//! Behaviour of the drive, command by command. `array.rs` compares it with a plain array, `cost.rs` counts the bytes that it
//! programs.

mod array;
mod cache;
mod cost;

use runtime::sim::Sim;
use runtime::{now, spawn};

use super::*;
use crate::nand::{Endurance, NandTiming, Preset};
use device::{Flash, Geometry};

const SECTOR: usize = PAGE_BYTES;

/// Returns two channels of two LUNs with two planes, with 14 groups of 8 pages of 8 KiB in each LUN.
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
    open(tiny(over_provisioning, striping))
}

fn open(config: FtlConfig) -> Ftl {
    let nand = Nand::new(tiny_nand(Endurance::unlimited())).unwrap();
    Ftl::open(Arc::new(nand), config).unwrap()
}

/// Writes a whole page.
async fn put(ftl: &Ftl, page: u64, byte: u8) {
    let offset = page * ftl.drive.flash.page_bytes as u64;
    ftl.write(offset, filled(byte, 2)).await.unwrap();
}

fn filled(byte: u8, sectors: usize) -> SharedBuf {
    let mut buf = AlignedBuf::new(sectors * SECTOR);
    buf.fill(byte);
    buf.into()
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
        let ftl = Arc::new(open(FtlConfig {
            queue_depth: 1,
            ..tiny(0.5, Striping::WriteOrder)
        }));
        for page in 0..8 {
            let write = ftl.write(page * 4 * SECTOR as u64, filled(1, 4));
            write.await.unwrap();
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
            let offset = page * ftl.drive.flash.page_bytes as u64;
            match ftl.write(offset, filled(byte, 2)).await {
                Ok(()) => model[page as usize] = byte,
                Err(error) => break error,
            }
            writes += 1;
            assert!(writes < 1_000_000, "it wears out");
        };
        assert!(error.is_full(), "{error}");
        assert!(ftl.counts().rewritten_pages > 0 && !nand.bad_blocks().is_empty());
        for (page, &byte) in model.iter().enumerate() {
            let offset = page as u64 * ftl.drive.flash.page_bytes as u64;
            let buf = ftl.read(offset, AlignedBuf::new(2 * SECTOR)).await.unwrap();
            assert_eq!(buf[0], byte, "page {page}");
        }
        let rated = u64::from(nand.geometry().blocks()) * 4 * 30;
        assert!(writes > rated / 4, "{writes} pages of {rated} rated");
    });
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
        shape_of(&config.nand(preset.full(1), 1 << 30), &config).unwrap();
        shape_of(&preset.full(1), &config).unwrap();
    }
}
