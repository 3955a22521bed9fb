//! Learns how a drive divides its bytes among channels (section 4.2, after the paper's reference 18).
//!
//! Two pages on one channel are read one after the other, two pages on different channels side by side. So the first page that
//! does not slow down page 0 lies behind its chunk, and the first chunk that slows it down again begins the next stripe. The
//! drive is written from start to end beforehand, so that a stripe begins where slicetables will begin theirs.

use device::{AlignedBuf, DeviceError, Disk, PAGE_BYTES, SharedBuf};
use futures_util::future::join;
use runtime::now;

use crate::channel::Channels;

/// Maximum pages of a chunk, and maximum chunks of a stripe.
const MOST_CHUNK_PAGES: u64 = 64;
const MOST_CHANNELS: u64 = 256;
/// Number of reads of a pair, whose median counts.
const TRIES: usize = 15;
/// Minimum ratio of the times of a pair on one channel and a pair side by side.
const SLOWER: f64 = 1.25;
/// Bytes of a write that prepares the drive for the measurement.
const WRITE_BYTES: usize = 1 << 20;

/// Maximum bytes from the start of a drive that a probe overwrites.
pub const PROBED_BYTES: u64 = 2 * MOST_CHANNELS * MOST_CHUNK_PAGES * PAGE_BYTES as u64;

/// Measures the channels of a drive. Returns `None` if they cannot be seen. Overwrites the beginning of the drive
/// ([`PROBED_BYTES`]), and needs the drive to be idle.
///
/// # Errors
/// Errors of the drive.
pub async fn probe_channels(disk: &dyn Disk) -> Result<Option<Channels>, DeviceError> {
    let stripe = WRITE_BYTES as u64;
    let bytes = PROBED_BYTES.min(disk.len_bytes()) / stripe * stripe;
    for offset in (0..bytes).step_by(WRITE_BYTES) {
        disk.write(offset, SharedBuf::from(AlignedBuf::new(WRITE_BYTES)))
            .await?;
    }
    disk.sync().await?;
    let pages = bytes / PAGE_BYTES as u64;
    let mut times = Vec::new();
    for page in 1..=MOST_CHUNK_PAGES.min(pages.saturating_sub(1)) {
        times.push(pair_time(disk, page).await?);
    }
    let Some(side_by_side) = times.iter().copied().reduce(f64::min) else {
        return Ok(None);
    };
    let is_slow = |time: f64| time > SLOWER * side_by_side;
    let Some(chunk_pages) = times
        .iter()
        .position(|&time| !is_slow(time))
        .map(|at| at as u64 + 1)
    else {
        return Ok(None);
    };
    let most = MOST_CHANNELS.min((pages - 1) / chunk_pages / 2);
    for channels in 2..=most {
        let chunk = channels * chunk_pages;
        // The second next stripe must slow it down, too.
        if is_slow(pair_time(disk, chunk).await?) && is_slow(pair_time(disk, 2 * chunk).await?) {
            return Ok(Some(Channels {
                count: channels as u32,
                chunk_bytes: (chunk_pages * PAGE_BYTES as u64) as u32,
            }));
        }
    }
    Ok(None)
}

/// Returns the median time to read page 0 and another page at once, in seconds.
async fn pair_time(disk: &dyn Disk, page: u64) -> Result<f64, DeviceError> {
    let mut times = [0.0; TRIES];
    for time in &mut times {
        let begin = now();
        let read = |page: u64| disk.read(page * PAGE_BYTES as u64, AlignedBuf::new(PAGE_BYTES));
        let (one, other) = join(read(0), read(page)).await;
        one?;
        other?;
        *time = now().since(begin).as_secs_f64();
    }
    times.sort_by(f64::total_cmp);
    Ok(times[TRIES / 2])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use device::{Latency, MemoryDisk};
    use emulated::{Ftl, FtlConfig, Nand, Preset, Striping};
    use runtime::sim::Sim;

    use super::*;

    fn probed(disk: &dyn Disk) -> Option<Channels> {
        Sim::new(1)
            .block_on(probe_channels(disk))
            .expect("the drive works")
    }

    fn drive(preset: Preset, config: FtlConfig) -> Ftl {
        let nand = config.nand(preset.full(1), 1 << 30);
        Ftl::open(Arc::new(Nand::new(nand).expect("it can be")), config).expect("it can be")
    }

    #[test]
    fn the_channels_of_emulated_drives_are_found() {
        let crucial = drive(Preset::CrucialM4, FtlConfig::of(Preset::CrucialM4));
        let found = Some(Channels {
            count: 32,
            chunk_bytes: 8 << 10,
        });
        assert_eq!(probed(&crucial), found);
        let by_address = FtlConfig {
            striping: Striping::Address,
            chunk_bytes: 16 << 10,
            ..FtlConfig::of(Preset::CrucialM4)
        };
        let found = Some(Channels {
            count: 32,
            chunk_bytes: 16 << 10,
        });
        assert_eq!(probed(&drive(Preset::CrucialM4, by_address)), found);
    }

    #[test]
    fn where_nothing_can_be_seen_nothing_is_found() {
        let latency = Latency {
            read: Duration::from_micros(80),
            ..Latency::default()
        };
        assert_eq!(probed(&MemoryDisk::with_latency(64 << 20, latency)), None);
        assert_eq!(probed(&MemoryDisk::new(PAGE_BYTES as u64)), None);
    }
}
