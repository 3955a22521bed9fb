//! Influence of the channels on which concurrent reads fall: "slice indexes" (ANCS '14), figure 2. All in virtual time.

use std::sync::Arc;

use runtime::sim::Sim;
use runtime::{Instant, JoinHandle, now, spawn};

use crate::{ConfigError, Ftl, FtlConfig, Nand, Preset};
use device::{AlignedBuf, Disk, PAGE_BYTES, SharedBuf};

/// Bytes of one write when a drive is filled before the measurement.
const FILL_BYTES: usize = 1 << 20;

/// Placement of concurrent reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Every thread reads from a channel of its own.
    Best,
    /// Every thread reads from any channel.
    Random,
    /// All threads read from one channel.
    Worst,
}

impl Placement {
    /// All placements.
    pub const ALL: [Self; 3] = [Self::Best, Self::Random, Self::Worst];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Random => "random",
            Self::Worst => "worst",
        }
    }
}

/// Setup of a measurement: a drive and a number of operations.
#[derive(Clone, Debug)]
pub struct ChannelPlacement {
    /// The preset of the NAND.
    pub preset: Preset,
    /// The drive around the NAND.
    pub ftl: FtlConfig,
    /// Bytes of flash.
    pub flash_bytes: u64,
    /// Bytes written before the measurement, and read during it.
    pub filled_bytes: u64,
    /// Operations of each thread.
    pub operations: u32,
    /// Seed of the reads' offsets and of the order of tasks.
    pub seed: u64,
}

/// Returns the paper's drive, with as much of its flash as the measurement needs.
pub fn crucial_m4() -> ChannelPlacement {
    ChannelPlacement {
        preset: Preset::CrucialM4,
        ftl: FtlConfig::of(Preset::CrucialM4),
        flash_bytes: 4 << 30,
        filled_bytes: 256 << 20,
        operations: 500,
        seed: 1,
    }
}

impl ChannelPlacement {
    /// Creates the drive and fills it from its start in large writes.
    async fn filled(&self) -> Result<Arc<Ftl>, ConfigError> {
        let nand = self.ftl.nand(self.preset.full(self.seed), self.flash_bytes);
        let ftl = Arc::new(Ftl::open(Arc::new(Nand::new(nand)?), self.ftl.clone())?);
        let data = SharedBuf::from(AlignedBuf::new(FILL_BYTES));
        let end = self.filled_bytes.min(ftl.len_bytes());
        for offset in (0..end).step_by(FILL_BYTES) {
            let written = ftl.write(offset, data.clone()).await;
            written.expect("an emulated drive takes what fits it");
        }
        Ok(ftl)
    }

    /// Returns the offsets of the pages on each channel.
    fn pages_of_channels(&self, ftl: &Ftl) -> Vec<Vec<u64>> {
        let mut channels = vec![Vec::new(); ftl.nand().config().geometry.channels as usize];
        for offset in (0..self.filled_bytes).step_by(PAGE_BYTES) {
            if let Some(channel) = ftl.channel_of(offset) {
                channels[channel as usize].push(offset);
            }
        }
        channels
    }
}

/// Waits for tasks; returns their operations a second together.
async fn per_second(tasks: Vec<JoinHandle<()>>, operations: u64, begin: Instant) -> f64 {
    for task in tasks {
        task.await;
    }
    operations as f64 / now().since(begin).as_secs_f64()
}

/// Returns reads of `read_bytes` a second by `threads` threads, each with one read in flight.
pub fn read_rate(
    setup: &ChannelPlacement,
    placement: Placement,
    threads: u32,
    read_bytes: usize,
) -> Result<f64, ConfigError> {
    Sim::new(setup.seed).block_on(async {
        let ftl = setup.filled().await?;
        let channels = setup.pages_of_channels(&ftl);
        let all: Vec<u64> = (0..setup.filled_bytes - read_bytes as u64 + 1)
            .step_by(read_bytes)
            .collect();
        let begin = now();
        let mut readers = Vec::new();
        for thread in 0..threads as usize {
            let ftl = Arc::clone(&ftl);
            let offsets = match placement {
                Placement::Best => channels[thread % channels.len()].clone(),
                Placement::Random => all.clone(),
                Placement::Worst => channels[0].clone(),
            };
            let operations = setup.operations;
            readers.push(spawn(async move {
                for _ in 0..operations {
                    let pick = runtime::random_u64() as usize % offsets.len();
                    let buf = AlignedBuf::new(read_bytes);
                    let read = ftl.read(offsets[pick], buf).await;
                    read.expect("what was written can be read");
                }
            }));
        }
        let operations = u64::from(threads) * u64::from(setup.operations);
        Ok(per_second(readers, operations, begin).await)
    })
}

/// Returns writes of `write_bytes` a second by `threads` threads, to regions chosen at random.
pub fn write_rate(
    setup: &ChannelPlacement,
    threads: u32,
    write_bytes: usize,
) -> Result<f64, ConfigError> {
    Sim::new(setup.seed).block_on(async {
        let ftl = setup.filled().await?;
        let regions = setup.filled_bytes / write_bytes as u64;
        // At most as many bytes as the drive was filled with.
        let operations = u64::from(setup.operations).min(regions) / u64::from(threads);
        let begin = now();
        let mut writers = Vec::new();
        for thread in 0..threads {
            let ftl = Arc::clone(&ftl);
            // Threads never write to the same bytes at once.
            let (first, count) = (
                regions * u64::from(thread) / u64::from(threads),
                regions / u64::from(threads),
            );
            let data = SharedBuf::from(AlignedBuf::new(write_bytes));
            writers.push(spawn(async move {
                for _ in 0..operations {
                    let region = first + runtime::random_u64() % count;
                    let written = ftl.write(region * data.len() as u64, data.clone()).await;
                    written.expect("an emulated drive takes what fits it");
                }
            }));
        }
        Ok(per_second(writers, operations * u64::from(threads), begin).await)
    })
}
