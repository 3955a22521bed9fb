//! Segments of a NAND device: their location and their bad blocks.

use std::collections::HashSet;
use std::sync::Arc;

use device::{AlignedBuf, BlockHealth, BlockId, Flash};
use flowstone_emulated::{Endurance, Libssd, Nand, NandTiming, SegmentShape};
use proptest::prelude::*;
use runtime::sim::Sim;

use super::{PAGE, pages, small};

const SHAPES: [SegmentShape; 3] = [
    SegmentShape::Block,
    SegmentShape::Planes,
    SegmentShape::Channels,
];

fn libssd(shape: SegmentShape, endurance: Endurance) -> Libssd {
    let nand = Nand::new(small(NandTiming::instant(), endurance)).unwrap();
    Libssd::new(Arc::new(nand), shape).unwrap()
}

#[test]
fn every_block_belongs_to_one_segment() {
    for shape in SHAPES {
        let flash = libssd(shape, Endurance::unlimited());
        let geometry = flash.geometry();
        let segments = (0..geometry.blocks()).map(BlockId);
        let blocks: Vec<BlockId> = segments.flat_map(|s| flash.blocks_of(s)).collect();
        assert_eq!(blocks.len(), 32, "{shape:?}");
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), 32, "{shape:?}");
        let raw = flash.nand().config().raw_bytes();
        assert_eq!(u64::from(geometry.blocks()) * geometry.block_bytes(), raw);
    }
}

#[test]
fn the_blocks_of_a_segment_lie_where_its_shape_says() {
    let raw = libssd(SegmentShape::Block, Endurance::unlimited()).geometry();
    let planes = libssd(SegmentShape::Planes, Endurance::unlimited());
    for segment in (0..planes.geometry().blocks()).map(BlockId) {
        let blocks = planes.blocks_of(segment);
        let luns: HashSet<u32> = blocks.iter().map(|block| block.0 / 8).collect();
        let of_planes: HashSet<u32> = blocks.iter().map(|block| block.0 % 2).collect();
        assert_eq!((luns.len(), of_planes.len()), (1, 2));
    }
    let channels = libssd(SegmentShape::Channels, Endurance::unlimited());
    for segment in (0..channels.geometry().blocks()).map(BlockId) {
        let blocks = channels.blocks_of(segment);
        let on: HashSet<u32> = blocks.iter().map(|&block| raw.channel_of(block)).collect();
        assert_eq!(on.len(), 2);
    }
}

#[test]
fn a_bad_block_hides_its_segment() {
    let endurance = Endurance {
        factory_bad: 0.15,
        ..Endurance::unlimited()
    };
    for shape in SHAPES {
        let flash = libssd(shape, endurance);
        Sim::new(1).block_on(async {
            let bad: HashSet<BlockId> = flash.nand().bad_blocks().into_iter().collect();
            let hidden = flash.bad_blocks();
            assert!(!hidden.is_empty());
            for segment in (0..flash.geometry().blocks()).map(BlockId) {
                let has_bad = flash
                    .blocks_of(segment)
                    .iter()
                    .any(|block| bad.contains(block));
                assert_eq!(has_bad, hidden.contains(&segment), "{shape:?}");
                assert_eq!(has_bad, flash.health(segment) == BlockHealth::Bad);
                let erased = flash.erase(segment).await;
                assert_eq!(has_bad, erased.is_err(), "{shape:?}");
            }
        });
    }
}

#[test]
fn erases_and_load_are_told_for_each_segment_and_channel() {
    Sim::new(1).block_on(async {
        let timing = NandTiming {
            read_ns: vec![10],
            program_ns: vec![100],
            erase_ns: 1000,
            transfer_ns: 1,
        };
        let nand = Nand::new(small(timing, Endurance::unlimited())).unwrap();
        let flash = Libssd::new(Arc::new(nand), SegmentShape::Planes).unwrap();
        flash.erase(BlockId(9)).await.unwrap();
        flash.erase(BlockId(9)).await.unwrap();
        flash.program(BlockId(9), 0, pages(0, 2)).await.unwrap();
        assert_eq!(flash.erase_count(BlockId(9)), 2);
        assert_eq!(flash.erase_count(BlockId(8)), 0);
        assert_eq!(flash.channel_load(0), 0);
        assert_eq!(flash.channel_load(1), 2 * 1000 + 100 + 2);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_segment_reads_like_the_bytes_written(
        shape in 0..3usize,
        segment in 0..8u32,
        runs in proptest::collection::vec(1..5usize, 1..6),
        reads in proptest::collection::vec((0..8usize, 1..9usize), 1..8),
    ) {
        let flash = libssd(SHAPES[shape], Endurance::unlimited());
        Sim::new(1).block_on(async {
            let all = flash.geometry().pages_per_block as usize;
            let mut model = vec![0xFF; all];
            let mut next = 0;
            flash.erase(BlockId(segment)).await.unwrap();
            for run in runs {
                let run = run.min(all - next);
                if run == 0 {
                    break;
                }
                flash.program(BlockId(segment), next as u32, pages(next as u8, run)).await.unwrap();
                for page in &mut model[next..next + run] {
                    *page = next as u8;
                    next += 1;
                }
            }
            for (first, count) in reads {
                let first = first.min(all - 1);
                let count = count.min(all - first);
                let offset = (first * PAGE) as u32;
                let buf = flash.read(BlockId(segment), offset, AlignedBuf::new(count * PAGE)).await.unwrap();
                let read: Vec<u8> = buf.chunks_exact(PAGE).map(|page| page[0]).collect();
                assert_eq!(read, &model[first..first + count]);
            }
        });
    }
}
