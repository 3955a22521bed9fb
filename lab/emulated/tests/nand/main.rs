//! The emulated NAND device: its rules, its wear, its times, power cuts and files.

#![allow(clippy::unwrap_used)]

mod crash;
mod model;
mod rules;
mod segments;
mod timing;

use device::{AlignedBuf, BlockId, DeviceError, Flash, Geometry, SharedBuf};
use flowstone_emulated::{Endurance, NandConfig, NandTiming};

/// Bytes of a page in these tests.
const PAGE: usize = 4096;

/// Returns two channels of two LUNs with two planes, with 8 blocks of 4 pages in each LUN.
fn small(timing: NandTiming, endurance: Endurance) -> NandConfig {
    NandConfig {
        geometry: Geometry {
            channels: 2,
            luns_per_channel: 2,
            blocks_per_lun: 8,
            pages_per_block: 4,
            page_bytes: PAGE as u32,
        },
        planes: 2,
        timing,
        endurance,
        seed: 7,
    }
}

/// Returns `count` pages, each full of its own byte, from `first` up.
fn pages(first: u8, count: usize) -> SharedBuf {
    let mut buf = AlignedBuf::new(count * PAGE);
    for (page, bytes) in buf.chunks_exact_mut(PAGE).enumerate() {
        bytes.fill(first.wrapping_add(page as u8));
    }
    buf.into()
}

/// Returns the byte that each of a block's pages is full of.
async fn bytes_of(
    flash: &dyn Flash,
    block: BlockId,
    first: u32,
    count: usize,
) -> Result<Vec<u8>, DeviceError> {
    let offset = first * PAGE as u32;
    let buf = flash
        .read(block, offset, AlignedBuf::new(count * PAGE))
        .await?;
    Ok(buf
        .chunks_exact(PAGE)
        .map(|page| {
            assert!(page.iter().all(|&byte| byte == page[0]), "a page is whole");
            page[0]
        })
        .collect())
}
