//! Times that can be computed in advance.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, BlockId, Flash, Geometry};
use flowstone_emulated::{Endurance, Libssd, Nand, NandTiming, SegmentShape};
use runtime::sim::Sim;
use runtime::{JoinHandle, now, spawn};

use super::{PAGE, pages, small};

const READ: u64 = 50_000;
const PROGRAM: u64 = 600_000;
const ERASE: u64 = 3_000_000;
const TRANSFER: u64 = 20_000;

/// First blocks of LUN 0 and 1 of channel 0, and of LUN 0 of channel 1.
const LUN_0: BlockId = BlockId(0);
const LUN_1: BlockId = BlockId(8);
const CHANNEL_1: BlockId = BlockId(16);

/// Time to suspend an erase, and minimum run of an erase before it is suspended.
const SUSPEND: u64 = 30_000;
const STRETCH: u64 = ERASE / 16;

fn timed() -> Arc<Nand> {
    with_blocks_of(4)
}

fn with_blocks_of(pages: u32) -> Arc<Nand> {
    with_shape(|shape| shape.pages_per_block = pages)
}

fn with_shape(change: impl FnOnce(&mut Geometry)) -> Arc<Nand> {
    let timing = NandTiming {
        read_ns: vec![READ],
        program_ns: vec![PROGRAM],
        erase_ns: ERASE,
        transfer_ns: TRANSFER,
    };
    let mut config = small(timing, Endurance::unlimited());
    change(&mut config.geometry);
    Arc::new(Nand::new(config).unwrap())
}

/// Starts a read of `pages` pages of LUN 0, in a task that returns its end.
async fn begin_read(nand: &Arc<Nand>, pages: usize) -> JoinHandle<u64> {
    let nand = Arc::clone(nand);
    let reader = spawn(async move {
        let read = nand.read(LUN_0, 0, AlignedBuf::new(pages * PAGE));
        read.await.unwrap();
        now().as_nanos()
    });
    runtime::yield_now().await;
    reader
}

/// Starts a stream of reads of LUN 0 in two tasks, so that one read always waits, until the flag is cleared.
fn stream_of_reads(nand: &Arc<Nand>) -> (Rc<Cell<bool>>, Vec<JoinHandle<()>>) {
    let goes_on = Rc::new(Cell::new(true));
    let reader = |_| {
        let (nand, goes_on) = (Arc::clone(nand), Rc::clone(&goes_on));
        spawn(async move {
            while goes_on.get() {
                nand.read(LUN_0, 0, AlignedBuf::new(PAGE)).await.unwrap();
            }
        })
    };
    let readers = (0..2).map(reader).collect();
    (goes_on, readers)
}

/// Returns the end of each of several one-page reads that begin at once.
async fn reads(nand: &Arc<Nand>, blocks: &[BlockId]) -> Vec<u64> {
    let begin = now();
    let mut tasks = Vec::new();
    for &block in blocks {
        let nand = Arc::clone(nand);
        tasks.push(spawn(async move {
            nand.read(block, 0, AlignedBuf::new(PAGE)).await.unwrap();
            now().since(begin).as_nanos() as u64
        }));
        // Begun in this order.
        runtime::yield_now().await;
    }
    let mut ends = ended(tasks).await;
    ends.sort_unstable();
    ends
}

/// Waits for tasks, and returns their results.
async fn ended<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let mut ends = Vec::new();
    for task in tasks {
        ends.push(task.await.unwrap());
    }
    ends
}

/// Returns the time that `work` takes; a second is long enough for every test here.
async fn time_of<F: Future>(work: F) -> u64 {
    let begin = now();
    let ended = runtime::timeout(Duration::from_secs(1), work).await;
    assert!(ended.is_ok(), "it does not end");
    now().since(begin).as_nanos() as u64
}

#[test]
fn one_page_takes_its_cell_time_and_its_transfer() {
    Sim::new(1).block_on(async {
        let nand = timed();
        let erase = time_of(nand.erase(LUN_0)).await;
        let program = time_of(nand.program(LUN_0, 0, pages(1, 1))).await;
        let read = time_of(nand.read(LUN_0, 0, AlignedBuf::new(PAGE))).await;
        assert_eq!(
            (erase, program, read),
            (ERASE, TRANSFER + PROGRAM, READ + TRANSFER)
        );
        let two = time_of(nand.program(LUN_0, 1, pages(1, 2))).await;
        assert_eq!(two, 2 * (TRANSFER + PROGRAM));
    });
}

#[test]
fn two_luns_of_a_channel_overlap_their_cells_and_take_turns_on_the_bus() {
    Sim::new(1).block_on(async {
        let ends = reads(&timed(), &[LUN_0, LUN_1]).await;
        assert_eq!(ends, [READ + TRANSFER, READ + 2 * TRANSFER]);
    });
}

#[test]
fn one_lun_does_one_thing_at_a_time() {
    Sim::new(1).block_on(async {
        let ends = reads(&timed(), &[LUN_0, BlockId(1), LUN_0]).await;
        let one = READ + TRANSFER;
        assert_eq!(ends, [one, 2 * one, 3 * one]);
    });
}

#[test]
fn channels_do_not_know_each_other() {
    Sim::new(1).block_on(async {
        let ends = reads(&timed(), &[LUN_0, CHANNEL_1]).await;
        assert_eq!(ends, [READ + TRANSFER; 2]);
    });
}

#[test]
fn many_channels_read_as_many_times_as_fast() {
    let rate = |channels: u32| {
        let nand = with_shape(|shape| shape.channels = channels);
        Sim::new(1).block_on(async {
            let blocks: Vec<BlockId> = (0..channels * 4)
                .map(|n| BlockId(n % channels * 16))
                .collect();
            *reads(&nand, &blocks).await.last().unwrap()
        })
    };
    assert_eq!(rate(1), 4 * (READ + TRANSFER));
    assert_eq!(rate(8), rate(1));
    assert_eq!(rate(32), rate(1));
}

#[test]
fn planes_share_the_cell_time_and_take_turns_on_the_bus() {
    Sim::new(1).block_on(async {
        let planes = Libssd::new(timed(), SegmentShape::Planes).unwrap();
        let block = Libssd::new(timed(), SegmentShape::Block).unwrap();
        let both = time_of(planes.program(BlockId(0), 0, pages(1, 4))).await;
        let single = time_of(block.program(BlockId(0), 0, pages(1, 4))).await;
        assert_eq!(both, 2 * (2 * TRANSFER + PROGRAM));
        assert_eq!(single, 4 * (TRANSFER + PROGRAM));
        let read = time_of(planes.read(BlockId(0), 0, AlignedBuf::new(2 * PAGE))).await;
        assert_eq!(read, READ + 2 * TRANSFER);
        assert_eq!(time_of(planes.erase(BlockId(0))).await, ERASE);
    });
}

#[test]
fn a_segment_over_all_channels_is_written_that_many_times_as_fast() {
    Sim::new(1).block_on(async {
        let flash = Libssd::new(timed(), SegmentShape::Channels).unwrap();
        let took = time_of(flash.program(BlockId(0), 0, pages(1, 4))).await;
        assert_eq!(took, 2 * (TRANSFER + PROGRAM));
    });
}

#[test]
fn a_read_passes_between_the_pages_of_a_long_program() {
    Sim::new(1).block_on(async {
        let nand = timed();
        let begin = now();
        let writer = Arc::clone(&nand);
        let program = spawn(async move {
            writer.program(LUN_0, 0, pages(1, 4)).await.unwrap();
            now()
        });
        runtime::sleep(Duration::from_nanos(100_000)).await;
        let read = nand.read(BlockId(1), 0, AlignedBuf::new(PAGE));
        read.await.unwrap();
        let page = TRANSFER + PROGRAM;
        let read = READ + TRANSFER;
        assert_eq!(now().since(begin).as_nanos() as u64, page + read);
        let end = program.await.unwrap();
        assert_eq!(end.since(begin).as_nanos() as u64, 4 * page + read);
    });
}

#[test]
fn a_read_of_a_page_waits_for_one_row_of_a_long_read() {
    Sim::new(1).block_on(async {
        let nand = with_blocks_of(16);
        let row = READ + TRANSFER;
        let long = begin_read(&nand, 16).await;
        runtime::sleep(Duration::from_nanos(row + 1)).await;
        let short = [begin_read(&nand, 1).await, begin_read(&nand, 1).await];
        let ends = ended(short).await;
        assert_eq!(ends, [3 * row, 4 * row]);
        assert_eq!(long.await.unwrap(), 18 * row);
        let counts = nand.counts();
        assert_eq!((counts.reads, counts.busy_ns), (18, 18 * row));
    });
}

#[test]
fn long_reads_go_in_turn() {
    Sim::new(1).block_on(async {
        let nand = with_blocks_of(16);
        let row = READ + TRANSFER;
        let first = begin_read(&nand, 16).await;
        let second = begin_read(&nand, 2).await;
        assert_eq!(second.await.unwrap(), 4 * row);
        assert_eq!(first.await.unwrap(), 18 * row);
    });
}

#[test]
fn a_stream_of_reads_passes_programs_and_long_reads_eight_at_a_time() {
    Sim::new(1).block_on(async {
        let nand = with_blocks_of(16);
        let (goes_on, readers) = stream_of_reads(&nand);
        runtime::sleep(Duration::from_nanos(READ)).await;
        let eight = 8 * (READ + TRANSFER);
        let row = READ + TRANSFER;
        let long = time_of(nand.read(BlockId(1), 0, AlignedBuf::new(16 * PAGE))).await;
        assert!(
            (15 * eight..=16 * (eight + row) + row).contains(&long),
            "{long}"
        );
        let program = time_of(nand.program(BlockId(1), 0, pages(1, 4))).await;
        let page = TRANSFER + PROGRAM;
        assert!(
            (3 * eight..=4 * (eight + page) + row).contains(&program),
            "{program}"
        );
        goes_on.set(false);
        ended(readers).await;
    });
}

#[test]
fn a_waiting_erase_is_passed_by_eight_reads_at_most() {
    Sim::new(1).block_on(async {
        let nand = timed();
        let mut readers = Vec::new();
        for _ in 0..20 {
            readers.push(begin_read(&nand, 1).await);
        }
        let took = time_of(nand.erase(BlockId(1))).await;
        let ends = ended(readers).await;
        let read = READ + TRANSFER;
        // The first read was in progress already. Eight more follow, and the others in two suspensions of the erase.
        let first_break = 9 * read + STRETCH + SUSPEND;
        assert_eq!(ends[8..10], [9 * read, first_break + read]);
        assert_eq!(ends[17] - ends[16], STRETCH + SUSPEND + read);
        assert_eq!(took, 20 * read + ERASE + 2 * SUSPEND);
    });
}

#[test]
fn a_read_suspends_an_erase_which_then_goes_on_where_it_was() {
    Sim::new(1).block_on(async {
        let nand = timed();
        let eraser = Arc::clone(&nand);
        let erase = spawn(async move {
            eraser.erase(BlockId(1)).await.unwrap();
            now().as_nanos()
        });
        let read = READ + TRANSFER;
        runtime::sleep(Duration::from_nanos(ERASE / 2)).await;
        let first = begin_read(&nand, 1).await;
        assert_eq!(first.await.unwrap(), ERASE / 2 + SUSPEND + read);
        // The erase has resumed at once, and runs for a while.
        let second = begin_read(&nand, 1).await;
        let end = ERASE / 2 + STRETCH + 2 * (SUSPEND + read);
        assert_eq!(second.await.unwrap(), end);
        let all = ERASE + 2 * (SUSPEND + read);
        // The erase is not suspended near its end.
        runtime::sleep(Duration::from_nanos(all - SUSPEND - now().as_nanos())).await;
        let last = begin_read(&nand, 1).await;
        assert_eq!(last.await.unwrap(), all + read);
        assert_eq!(erase.await.unwrap(), all);
        let counts = nand.counts();
        assert_eq!((counts.reads, counts.erases), (3, 1));
        assert_eq!(counts.busy_ns, all + read);
    });
}

#[test]
fn a_stream_of_reads_suspends_an_erase_fifteen_times_at_most() {
    Sim::new(1).block_on(async {
        let nand = timed();
        let (goes_on, readers) = stream_of_reads(&nand);
        let took = time_of(nand.erase(BlockId(1))).await;
        goes_on.set(false);
        let most = ERASE + 15 * SUSPEND + 16 * 8 * (READ + TRANSFER);
        assert!((ERASE + 14 * SUSPEND..=most).contains(&took), "{took}");
        ended(readers).await;
    });
}

#[test]
fn slow_and_fast_pages_alternate() {
    Sim::new(1).block_on(async {
        let timing = NandTiming {
            read_ns: vec![48, 64],
            program_ns: vec![850, 2300],
            erase_ns: 1,
            transfer_ns: 0,
        };
        let nand = Nand::new(small(timing, Endurance::unlimited())).unwrap();
        assert_eq!(time_of(nand.program(LUN_0, 0, pages(1, 1))).await, 850);
        let three = time_of(nand.program(LUN_0, 1, pages(1, 3))).await;
        assert_eq!(three, 2300 + 850 + 2300);
        let read = nand.read(LUN_0, PAGE as u32, AlignedBuf::new(2 * PAGE));
        assert_eq!(time_of(read).await, 64 + 48);
    });
}

/// Returns every end with its time, under a mixed load.
fn trace(seed: u64) -> Vec<(u32, u64)> {
    Sim::new(seed).block_on(async {
        let nand = timed();
        let mut tasks = Vec::new();
        for task in 0..16u32 {
            let nand = Arc::clone(&nand);
            tasks.push(spawn(async move {
                let mut ends = Vec::new();
                let block = BlockId(task * 2);
                for round in 0..3 {
                    nand.erase(block).await.unwrap();
                    nand.program(block, 0, pages(round, 3)).await.unwrap();
                    for _ in 0..runtime::random_u64() % 4 {
                        let read = nand.read(block, 0, AlignedBuf::new(2 * PAGE));
                        read.await.unwrap();
                    }
                    ends.push((task, now().as_nanos()));
                }
                ends
            }));
        }
        ended(tasks).await.concat()
    })
}

#[test]
fn a_seed_gives_the_same_times_to_the_nanosecond() {
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

#[test]
fn a_read_given_up_leaves_the_device_as_it_would_have_been() {
    Sim::new(1).block_on(async {
        let nand = timed();
        let read = nand.read(LUN_0, 0, AlignedBuf::new(PAGE));
        let given_up = runtime::timeout(Duration::from_nanos(10_000), read).await;
        assert!(given_up.is_err());
        let next = time_of(nand.read(LUN_0, 0, AlignedBuf::new(PAGE))).await;
        assert_eq!(next, 2 * (READ + TRANSFER) - 10_000);
        assert_eq!(nand.counts().reads, 2);
    });
}

#[test]
fn the_device_works_in_real_time() {
    runtime::live::block_on(async {
        let nand = timed();
        let begin = now();
        nand.erase(LUN_0).await.unwrap();
        nand.program(LUN_0, 0, pages(1, 2)).await.unwrap();
        let took = now().since(begin).as_nanos() as u64;
        assert!(took >= ERASE + 2 * (TRANSFER + PROGRAM), "{took}");
        nand.read(LUN_0, 0, AlignedBuf::new(PAGE)).await.unwrap();
    });
}
