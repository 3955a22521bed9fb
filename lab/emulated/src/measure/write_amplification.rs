//! Bytes that a conventional SSD programs for each byte written, by write size, pattern and utilization: Flashield (NSDI '19),
//! figure 1.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::ftl::UntimedFtl;
use crate::{ConfigError, Endurance, FtlConfig, NandConfig, NandTiming};
use device::Geometry;

/// Order in which regions of the drive are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A random region next.
    Random,
    /// The next region, and the first region after the last.
    Sequential,
}

impl Pattern {
    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
        }
    }
}

/// Setup of a measurement: a drive and the amounts to write.
#[derive(Clone, Debug)]
pub struct WriteAmplification {
    /// The NAND of the drive.
    pub nand: NandConfig,
    /// The drive around the NAND.
    pub ftl: FtlConfig,
    /// Bytes written before the measurement, as a multiple of the used part of the drive.
    pub warm_up: f64,
    /// Bytes written during the measurement, as a multiple of the used part of the drive.
    pub measured: f64,
    /// Seed of the choice of regions.
    pub seed: u64,
}

impl WriteAmplification {
    /// Returns a drive like the paper's, an eighth of its size: 128 stripes over 128 LUNs with erase units of 4 MiB, so that a
    /// stripe has 512 MiB. A page of 64 KiB stands for four pages of 16 KiB on four planes. `over_provisioning` is the share of
    /// the flash that is not offered.
    pub fn paper(over_provisioning: f64) -> Self {
        Self::with_luns(16, 8, over_provisioning)
    }

    /// Returns the same drive with other numbers of channels and LUNs; its stripe shrinks in proportion.
    pub fn with_luns(channels: u32, luns_per_channel: u32, over_provisioning: f64) -> Self {
        Self {
            nand: NandConfig {
                geometry: Geometry {
                    channels,
                    luns_per_channel,
                    blocks_per_lun: 128,
                    pages_per_block: 64,
                    page_bytes: 64 << 10,
                },
                planes: 1,
                timing: NandTiming::instant(),
                endurance: Endurance::unlimited(),
                seed: 0,
            },
            ftl: FtlConfig {
                chunk_bytes: 64 << 10,
                over_provisioning,
                ..FtlConfig::default()
            },
            warm_up: 2.0,
            measured: 3.0,
            seed: 1,
        }
    }

    /// Returns the bytes programmed for each byte written, in writes of `write_bytes` to the first `utilization` of the drive.
    ///
    /// # Errors
    /// When such a drive is impossible, or `write_bytes` is not a multiple of its page or exceeds the used part.
    pub fn measure(
        &self,
        pattern: Pattern,
        write_bytes: u64,
        utilization: f64,
    ) -> Result<f64, ConfigError> {
        let mut drive = UntimedFtl::new(&self.nand, &self.ftl)?;
        let unit_bytes = u64::from(self.nand.geometry.page_bytes);
        if write_bytes == 0 || !write_bytes.is_multiple_of(unit_bytes) {
            return Err(ConfigError::NotWhole {
                what: "a write",
                bytes: write_bytes,
                unit_bytes,
            });
        }
        let pages = u32::try_from(write_bytes / unit_bytes).unwrap_or(u32::MAX);
        let regions = (f64::from(drive.pages()) * utilization) as u32 / pages;
        if regions == 0 {
            return Err(ConfigError::TooMany {
                what: "bytes a write",
                value: write_bytes,
                limit: u64::from(drive.pages()) * unit_bytes,
            });
        }
        let mut random = SmallRng::seed_from_u64(self.seed);
        let mut written = 0u64;
        let mut write = |drive: &mut UntimedFtl, times: f64| {
            for _ in 0..(f64::from(regions) * times) as u64 {
                let region = match pattern {
                    Pattern::Random => random.random_range(0..regions),
                    Pattern::Sequential => (written % u64::from(regions)) as u32,
                };
                drive.write(region * pages, pages);
                written += 1;
            }
        };
        // One pass in order, so that the used part is full.
        for region in 0..regions {
            drive.write(region * pages, pages);
        }
        write(&mut drive, self.warm_up);
        let before = drive.programmed();
        write(&mut drive, self.measured);
        let writes = (f64::from(regions) * self.measured) as u64;
        let host_pages = writes * u64::from(pages);
        Ok((drive.programmed() - before) as f64 / host_pages as f64)
    }
}
