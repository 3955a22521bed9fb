//! Prints how many operations of the emulated devices one core executes in a second of its time, under virtual time:
//! `cargo run --release --manifest-path product/Cargo.toml -p flowstone-device --example emulator_speed`.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

use device::{AlignedBuf, BlockId, Disk, Flash, PAGE_BYTES, SharedBuf};
use flowstone_emulated::{DeviceSpec, Emulated};
use runtime::sim::Sim;
use runtime::spawn;

const FLASH: &str = "didacache,size=3GiB";
const CLIENTS: u64 = 32;
const READS: u64 = 1_000_000;
const CHUNK_BYTES: usize = 256 << 10;

/// Returns the seconds of processor time so far.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the seconds of processor time that `work` takes in a simulation.
fn seconds<F: Future>(work: F) -> f64 {
    let begin = processor_seconds();
    Sim::new(1).block_on(work);
    processor_seconds() - begin
}

async fn read_flash(flash: Arc<dyn Flash>, bytes: u64) {
    let blocks = bytes / flash.geometry().block_bytes();
    let pages = flash.geometry().block_bytes() / PAGE_BYTES as u64;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let flash = Arc::clone(&flash);
            spawn(async move {
                for _ in 0..READS / CLIENTS {
                    let random = runtime::random_u64();
                    let block = BlockId((random % blocks) as u32);
                    let offset = (random >> 32) % pages * PAGE_BYTES as u64;
                    let buf = AlignedBuf::new(PAGE_BYTES);
                    let read = flash.read(block, offset as u32, buf).await;
                    read.expect("every page can be read");
                }
            })
        })
        .collect();
    for client in clients {
        client.await;
    }
}

async fn read_disk(disk: Arc<dyn Disk>, bytes: u64) {
    let pages = bytes / PAGE_BYTES as u64;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let disk = Arc::clone(&disk);
            spawn(async move {
                for _ in 0..READS / CLIENTS {
                    let offset = runtime::random_u64() % pages * PAGE_BYTES as u64;
                    let read = disk.read(offset, AlignedBuf::new(PAGE_BYTES)).await;
                    read.expect("every page can be read");
                }
            })
        })
        .collect();
    for client in clients {
        client.await;
    }
}

/// Writes the first `bytes` of the flash, a block at a time.
async fn write_flash(flash: Arc<dyn Flash>, bytes: u64) {
    let data = SharedBuf::from(AlignedBuf::new(CHUNK_BYTES));
    let chunk_pages = CHUNK_BYTES as u32 / flash.geometry().page_bytes;
    let blocks = (bytes / flash.geometry().block_bytes()) as u32;
    for block in (0..blocks).map(BlockId) {
        if flash.erase(block).await.is_err() {
            continue;
        }
        for page in (0..flash.geometry().pages_per_block).step_by(chunk_pages as usize) {
            if flash.program(block, page, data.clone()).await.is_err() {
                break;
            }
        }
    }
}

async fn write_disk(disk: Arc<dyn Disk>, bytes: u64) {
    let data = SharedBuf::from(AlignedBuf::new(CHUNK_BYTES));
    for offset in (0..bytes).step_by(CHUNK_BYTES) {
        let written = disk.write(offset, data.clone()).await;
        written.expect("the drive has room");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
    let mut row = |what: &str, count: f64, seconds: f64| {
        writeln!(out, "{what:<44} {:>10.0} a second", count / seconds)
    };
    let written = 1u64 << 30;
    let pages = (written / PAGE_BYTES as u64) as f64;
    if let Emulated::Nand(flash) = format!("nand:{FLASH}").parse::<DeviceSpec>()?.open(1)? {
        let first = seconds(write_flash(Arc::clone(&flash) as _, written));
        row("nand: 4 KiB programmed, fresh memory", pages, first)?;
        let again = seconds(write_flash(Arc::clone(&flash) as _, written));
        row("nand: 4 KiB programmed, after an erase", pages, again)?;
        let reads = seconds(read_flash(flash, written));
        row("nand: reads of 4 KiB", READS as f64, reads)?;
    }
    if let Emulated::Ftl(disk) = format!("ftl:{FLASH}").parse::<DeviceSpec>()?.open(1)? {
        let first = seconds(write_disk(Arc::clone(&disk) as _, written));
        row("ftl: 4 KiB written, fresh memory", pages, first)?;
        let again = seconds(write_disk(Arc::clone(&disk) as _, written));
        row("ftl: 4 KiB written, again", pages, again)?;
        let reads = seconds(read_disk(disk, written));
        row("ftl: reads of 4 KiB", READS as f64, reads)?;
    }
    Ok(())
}
