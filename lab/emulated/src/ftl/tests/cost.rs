//! Bytes that the drive programs, its wear and its times, and the papers' figures on a small scale.

use device::BlockId;

use super::*;
use crate::measure::{
    ChannelPlacement, Pattern, Placement, WriteAmplification, crucial_m4, read_rate,
};

/// Overwrites pages at random until `times` the capacity of the drive has been written.
async fn overwrite(ftl: &Ftl, times: u64) {
    let pages = ftl.len_bytes() / ftl.drive.flash.page_bytes as u64;
    for _ in 0..pages * times {
        let page = runtime::random_u64() % pages;
        put(ftl, page, page as u8).await;
    }
}

#[test]
fn what_the_drive_says_it_programmed_is_what_its_flash_says() {
    Sim::new(1).block_on(async {
        let ftl = drive(0.4, Striping::WriteOrder);
        overwrite(&ftl, 6).await;
        let counts = ftl.counts();
        let page_bytes = ftl.drive.flash.page_bytes as u64;
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
            let pages = all / 2 / ftl.drive.flash.page_bytes as u64;
            for _ in 0..pages * 8 {
                put(&ftl, pages + runtime::random_u64() % pages, 2).await;
            }
            ftl.drive.state.lock().map.verify();
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
            let ftl = open(FtlConfig {
                wear_spread,
                ..tiny(0.45, Striping::WriteOrder)
            });
            let pages = ftl.len_bytes() / ftl.drive.flash.page_bytes as u64;
            for page in 0..pages {
                put(&ftl, page, 1).await;
            }
            for write in 0..pages * 60 {
                put(&ftl, write % (pages / 8), 2).await;
            }
            ftl.drive.state.lock().map.verify();
            let blocks = (0..ftl.drive.flash.nand.geometry().blocks()).map(BlockId);
            let erases: Vec<u32> = blocks
                .map(|block| ftl.drive.flash.nand.erases(block))
                .collect();
            erases.iter().max().unwrap() - erases.iter().min().unwrap()
        };
        let (leveled, not) = (spread(8).await, spread(u32::MAX).await);
        assert!(leveled <= 20 && not > 60, "{leveled} leveled, {not} not");
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
        let ftl = open(config);
        for &first in &regions {
            let offset = u64::from(first) * ftl.drive.flash.page_bytes as u64;
            ftl.write(offset, filled(first as u8, 8)).await.unwrap();
        }
        ftl.counts().nand_bytes_programmed / ftl.drive.flash.page_bytes as u64
    });
    // Not exactly equal: the drive maps the pages of a command once all are programmed.
    let ratio = untimed.programmed() as f64 / timed as f64;
    assert!(
        (0.99..1.01).contains(&ratio),
        "{} and {timed}",
        untimed.programmed()
    );
}

/// Figure 1 of Flashield: the cost of random and sequential writes, on a drive whose stripe has 32 MiB.
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
