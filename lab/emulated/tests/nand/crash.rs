//! Images of a device in memory after crashes.

use std::sync::Arc;
use std::time::Duration;

use device::{BlockHealth, BlockId, DeviceError, Flash};
use flowstone_emulated::{Endurance, Nand, NandCrash, NandTiming};
use runtime::sim::Sim;

use super::{bytes_of, pages, small};

fn device(endurance: Endurance) -> Arc<Nand> {
    let timing = NandTiming {
        read_ns: vec![10],
        program_ns: vec![100],
        erase_ns: 150,
        transfer_ns: 5,
    };
    Arc::new(Nand::new(small(timing, endurance)).unwrap())
}

/// Returns the byte of each of a block's first pages; `None` for an unreadable page.
async fn read(nand: &Nand, block: BlockId) -> [Option<u8>; 4] {
    let mut found = [None; 4];
    for (page, found) in (0..).zip(&mut found) {
        *found = match bytes_of(nand, block, page, 1).await {
            Ok(bytes) => Some(bytes[0]),
            Err(DeviceError::Unreadable { .. }) => None,
            Err(error) => panic!("{error}"),
        };
    }
    found
}

#[test]
fn a_crash_leaves_of_a_program_and_an_erase_what_its_kind_does() {
    Sim::new(1).block_on(async {
        let nand = device(Endurance::unlimited());
        let (written, erased) = (BlockId(0), BlockId(31));
        nand.program(erased, 0, pages(7, 4)).await.unwrap();
        let writer = Arc::clone(&nand);
        let program = runtime::spawn(async move {
            writer.program(written, 0, pages(1, 3)).await.unwrap();
        });
        let eraser = Arc::clone(&nand);
        let erase = runtime::spawn(async move { eraser.erase(erased).await.unwrap() });
        // The second page is being programmed in the cells.
        runtime::sleep(Duration::from_nanos(130)).await;
        let all = [NandCrash::PowerCut, NandCrash::Killed, NandCrash::Finished];
        let images = all.map(|how| nand.crash(how));
        program.await;
        erase.await;
        nand.erase(written).await.unwrap();
        nand.program(written, 0, pages(50, 4)).await.unwrap();
        let expected = [
            ([Some(1), None, Some(0xFF), Some(0xFF)], [None; 4], 2),
            ([Some(1), None, None, Some(0xFF)], [None; 4], 3),
            ([Some(1), Some(2), Some(3), Some(0xFF)], [Some(0xFF); 4], 3),
        ];
        for (image, (of_program, of_erase, next)) in images.into_iter().zip(expected) {
            let left = Nand::from_image(image);
            assert_eq!(read(&left, written).await, of_program);
            assert_eq!(read(&left, erased).await, of_erase);
            let erases = u32::from(of_erase != [None; 4]);
            assert_eq!(left.erases(erased), erases);
            left.program(written, next, pages(9, 1)).await.unwrap();
            left.erase(erased).await.unwrap();
            left.program(erased, 0, pages(20, 4)).await.unwrap();
            assert_eq!(read(&left, erased).await, [20, 21, 22, 23].map(Some));
        }
        let own = [50, 51, 52, 53].map(Some);
        assert_eq!(read(&nand, written).await, own, "it goes on");
    });
}

#[test]
fn wear_and_bad_blocks_are_in_an_image_and_each_goes_on_by_itself() {
    let endurance = Endurance {
        cycles: 2,
        ..Endurance::unlimited()
    };
    Sim::new(1).block_on(async {
        let nand = device(endurance);
        let (worn, other) = (BlockId(3), BlockId(4));
        for block in [worn, worn, other] {
            nand.erase(block).await.unwrap();
        }
        nand.program(other, 0, pages(1, 2)).await.unwrap();
        nand.erase(worn).await.unwrap_err();
        let image = nand.crash(NandCrash::PowerCut);
        let (first, second) = (Nand::from_image(image.clone()), Nand::from_image(image));
        assert_eq!(first.bad_blocks(), [worn]);
        assert_eq!((first.erases(worn), first.erases(other)), (3, 1));
        first.program(other, 2, pages(5, 1)).await.unwrap();
        second.program(other, 2, pages(8, 2)).await.unwrap();
        assert_eq!(
            read(&first, other).await,
            [Some(1), Some(2), Some(5), Some(0xFF)]
        );
        assert_eq!(read(&second, other).await, [1, 2, 8, 9].map(Some));
        first.erase(other).await.unwrap();
        first.erase(other).await.unwrap_err();
        assert_eq!(first.health(other), BlockHealth::Bad);
        assert_eq!(second.health(other), BlockHealth::Good);
    });
}
