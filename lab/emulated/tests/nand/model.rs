//! The device against a plain array, with power cuts and restarts from a file.

use std::sync::Arc;
use std::time::Duration;

use device::{BlockId, DeviceError, Flash, PathError};
use flowstone_emulated::{Endurance, Nand, NandCrash, NandFileProblem, NandTiming};
use proptest::prelude::*;
use runtime::sim::Sim;

use super::{bytes_of, pages, small};

const BLOCKS: u32 = 6;
const PAGES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Erase {
        block: u32,
    },
    Program {
        block: u32,
        count: usize,
    },
    Read {
        block: u32,
    },
    /// A program that a power cut interrupts this many nanoseconds after it began.
    CutProgram {
        block: u32,
        count: usize,
        after: u64,
    },
    /// An erase that a power cut interrupts this many nanoseconds after it began.
    CutErase {
        block: u32,
        after: u64,
    },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let block = 0..BLOCKS;
    let count = 1..=PAGES;
    let step = prop_oneof![
        3 => block.clone().prop_map(|block| Step::Erase { block }),
        6 => (block.clone(), count.clone()).prop_map(|(block, count)| Step::Program { block, count }),
        3 => block.clone().prop_map(|block| Step::Read { block }),
        3 => (block.clone(), count, 0u64..500)
            .prop_map(|(block, count, after)| Step::CutProgram { block, count, after }),
        1 => (block, 0u64..200).prop_map(|(block, after)| Step::CutErase { block, after }),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Expected contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Byte(u8),
    Lost,
}

#[derive(Clone, Debug, Default)]
struct Block {
    pages: Vec<Page>,
    is_torn: bool,
}

fn timing() -> NandTiming {
    NandTiming {
        read_ns: vec![10],
        program_ns: vec![100],
        erase_ns: 150,
        transfer_ns: 5,
    }
}

async fn check(nand: &Nand, number: u32, block: &Block) {
    for page in 0..PAGES {
        let read = bytes_of(nand, BlockId(number), page as u32, 1).await;
        match (block.is_torn, block.pages.get(page)) {
            (true, _) | (false, Some(Page::Lost)) => {
                assert!(
                    matches!(read, Err(DeviceError::Unreadable { .. })),
                    "{read:?}"
                );
            }
            (false, Some(Page::Byte(byte))) => assert_eq!(read.unwrap(), [*byte]),
            (false, None) => assert_eq!(read.unwrap(), [0xFF]),
        }
    }
}

/// Runs `steps` on `nand`, which `restart` may replace.
fn run(steps: Vec<Step>, mut nand: Arc<Nand>, restart: impl Fn(Arc<Nand>) -> Arc<Nand>) {
    let sim = Sim::new(1);
    sim.block_on(async {
        let mut model = vec![Block::default(); BLOCKS as usize];
        let mut next_byte = 0u8;
        for step in steps {
            match step {
                Step::Erase { block } => {
                    nand.erase(BlockId(block)).await.unwrap();
                    model[block as usize] = Block::default();
                }
                Step::Program { block, count } => {
                    let state = &mut model[block as usize];
                    let first = state.pages.len();
                    let count = count.min(PAGES - first);
                    if count == 0 {
                        continue;
                    }
                    let wrote = nand
                        .program(BlockId(block), first as u32, pages(next_byte, count))
                        .await;
                    if state.is_torn {
                        assert!(matches!(wrote, Err(DeviceError::NotErased { .. })));
                        continue;
                    }
                    wrote.unwrap();
                    for _ in 0..count {
                        state.pages.push(Page::Byte(next_byte));
                        next_byte = next_byte.wrapping_add(1);
                    }
                }
                Step::Read { block } => check(&nand, block, &model[block as usize]).await,
                Step::CutProgram {
                    block,
                    count,
                    after,
                } => {
                    let state = &mut model[block as usize];
                    let first = state.pages.len();
                    let count = count.min(PAGES - first);
                    if state.is_torn || count == 0 {
                        continue;
                    }
                    let data = pages(next_byte, count);
                    let program = nand.program(BlockId(block), first as u32, data);
                    let _ = runtime::timeout(Duration::from_nanos(after), program).await;
                    let image = (!nand.is_in_file()).then(|| nand.crash(NandCrash::PowerCut));
                    nand.power_cut().unwrap();
                    // A page takes 5 ns on the bus and 100 in the cells.
                    let whole = (after / 105).min(count as u64);
                    for page in 0..whole {
                        state
                            .pages
                            .push(Page::Byte(next_byte.wrapping_add(page as u8)));
                    }
                    if whole < count as u64 && after % 105 >= 5 {
                        state.pages.push(Page::Lost);
                    }
                    next_byte = next_byte.wrapping_add(count as u8);
                    check(&nand, block, &model[block as usize]).await;
                    if let Some(image) = image {
                        let left = Nand::from_image(image);
                        check(&left, block, &model[block as usize]).await;
                    }
                }
                Step::CutErase { block, after } => {
                    let erase = nand.erase(BlockId(block));
                    let _ = runtime::timeout(Duration::from_nanos(after), erase).await;
                    nand.power_cut().unwrap();
                    model[block as usize] = Block {
                        pages: Vec::new(),
                        is_torn: after < 150,
                    };
                }
                Step::Restart => nand = restart(nand),
            }
        }
        for (number, block) in model.iter().enumerate() {
            check(&nand, number as u32, block).await;
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_device_in_memory_reads_like_what_was_programmed(steps in steps()) {
        let nand = Nand::new(small(timing(), Endurance::unlimited())).unwrap();
        // No command is in progress: every kind of crash leaves all contents.
        run(steps, Arc::new(nand), |nand| {
            let all = [NandCrash::PowerCut, NandCrash::Killed, NandCrash::Finished];
            all.into_iter().fold(nand, |nand, how| Arc::new(Nand::from_image(nand.crash(how))))
        });
    }

    #[test]
    fn a_device_in_a_file_reads_like_what_was_programmed(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nand");
        let open = || Arc::new(Nand::open_file(small(timing(), Endurance::unlimited()), &path).unwrap());
        run(steps, open(), |nand| {
            drop(Arc::try_unwrap(nand).unwrap());
            open()
        });
    }
}

#[test]
fn erases_and_bad_blocks_survive_a_restart_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nand");
    let endurance = Endurance {
        cycles: 2,
        factory_bad: 0.1,
        grown_bad: 0.0,
    };
    let open = || Nand::open_file(small(timing(), endurance), &path).unwrap();
    let bad = Sim::new(1).block_on(async {
        let nand = open();
        let good = (0..32)
            .map(BlockId)
            .find(|&block| nand.health(block) == device::BlockHealth::Good);
        let block = good.unwrap();
        for _ in 0..2 {
            nand.erase(block).await.unwrap();
        }
        nand.erase(block).await.unwrap_err();
        nand.erase(BlockId(31)).await.unwrap();
        nand.sync().await.unwrap();
        nand.bad_blocks()
    });
    let nand = open();
    assert_eq!(nand.bad_blocks(), bad);
    assert_eq!(nand.erases(BlockId(31)), 1);
}

#[test]
fn a_process_that_dies_leaves_what_a_power_cut_would() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nand");
    let open = || Nand::open_file(small(timing(), Endurance::unlimited()), &path).unwrap();
    let sim = Sim::new(1);
    let nand = Arc::new(open());
    let writer = Arc::clone(&nand);
    sim.block_on(async move {
        runtime::spawn_detached(async move {
            let _ = writer.program(BlockId(0), 0, pages(1, 3)).await;
        });
        runtime::sleep(Duration::from_nanos(150)).await;
    });
    sim.crash();
    drop(Arc::try_unwrap(nand).unwrap());
    sim.block_on(async {
        let nand = open();
        for page in 0..3 {
            let read = bytes_of(&nand, BlockId(0), page, 1).await;
            assert!(
                matches!(read, Err(DeviceError::Unreadable { .. })),
                "page {page}: {read:?}"
            );
        }
        let refused = nand.program(BlockId(0), 0, pages(1, 1)).await;
        assert!(matches!(refused, Err(DeviceError::NotErased { .. })));
        nand.erase(BlockId(0)).await.unwrap();
        nand.program(BlockId(0), 0, pages(1, 1)).await.unwrap();
    });
}

#[test]
fn a_file_of_another_kind_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nand");
    let config = || small(timing(), Endurance::unlimited());
    let open = |config| match Nand::open_file(config, &path) {
        Err(flowstone_emulated::NandError::File(error)) => error.problem,
        other => panic!("{other:?}"),
    };
    std::fs::write(&path, b"a letter").unwrap();
    assert!(matches!(open(config()), NandFileProblem::Foreign));
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
    std::fs::remove_file(&path).unwrap();
    let first = Nand::open_file(config(), &path).unwrap();
    assert!(matches!(open(config()), NandFileProblem::InUse));
    drop(first);
    assert!(!path.exists(), "nothing has happened in it");
    Sim::new(1).block_on(async {
        let first = Nand::open_file(config(), &path).unwrap();
        first.erase(BlockId(0)).await.unwrap();
    });
    let mut larger = config();
    larger.geometry.blocks_per_lun = 16;
    let refused = open(larger);
    assert!(matches!(refused, NandFileProblem::Other { .. }));
    assert!(refused.to_string().contains("8 blocks"), "{refused}");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[12] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(open(config()), NandFileProblem::Damaged { .. }));
    assert!(matches!(
        Nand::open_file(config(), dir.path()),
        Err(flowstone_emulated::NandError::File(PathError {
            problem: NandFileProblem::NotFile,
            ..
        }))
    ));
}
