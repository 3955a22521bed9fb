//! Devices by name. `docs/internals/devices.md` has their figures and the sources of the figures.

use std::fmt;

use super::config::{Endurance, NandConfig, NandTiming};
use device::Geometry;

/// Share of factory-bad blocks; data sheets allow up to 2 %.
const FACTORY_BAD: f64 = 0.002;

/// Share of blocks that fail before their cycles are used up.
const GROWN_BAD: f64 = 0.01;

/// Name of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// The open-channel SSD of `DIDACache` (TOS '18, sections 4.3 and 6).
    Didacache,
    /// The Crucial M4 of "slice indexes" (ANCS '14, section 4), calibrated against its figure 2.
    CrucialM4,
    /// Two bits a cell.
    Mlc,
    /// Three bits a cell.
    Tlc,
    /// Four bits a cell.
    Qlc,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 5] = [
        Self::Didacache,
        Self::CrucialM4,
        Self::Mlc,
        Self::Tlc,
        Self::Qlc,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Didacache => "didacache",
            Self::CrucialM4 => "crucial-m4",
            Self::Mlc => "mlc",
            Self::Tlc => "tlc",
            Self::Qlc => "qlc",
        }
    }

    /// Returns the preset with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Returns the device in its full size.
    pub fn full(self, seed: u64) -> NandConfig {
        let shape = |channels, luns, blocks, pages, page_kib: u32| Geometry {
            channels,
            luns_per_channel: luns,
            blocks_per_lun: blocks,
            pages_per_block: pages,
            page_bytes: page_kib << 10,
        };
        let (geometry, planes, cycles) = match self {
            // A LUN is the unit that does one operation at a time.
            Self::Didacache => (shape(12, 16, 984, 512, 16), 1, 3000),
            Self::CrucialM4 => (shape(32, 2, 2048, 256, 4), 2, 3000),
            Self::Mlc => (shape(8, 4, 2048, 256, 16), 2, 3000),
            Self::Tlc => (shape(8, 4, 2048, 384, 16), 2, 1000),
            Self::Qlc => (shape(8, 4, 4096, 512, 16), 4, 500),
        };
        let timing = match self {
            Self::Didacache => times(&[318], &[643], 7_000, 52),
            Self::CrucialM4 => times(&[50], &[1300], 3_000, 25),
            Self::Mlc => times(&[48, 64], &[850, 2300], 3_000, 52),
            Self::Tlc => times(&[56, 78, 101], &[800, 2200, 3600], 5_000, 40),
            Self::Qlc => times(&[70, 100, 130, 160], &[1000, 2600, 4500, 6800], 10_000, 32),
        };
        NandConfig {
            geometry,
            planes,
            timing,
            endurance: Endurance {
                cycles,
                factory_bad: FACTORY_BAD,
                grown_bad: GROWN_BAD,
            },
            seed,
        }
    }

    /// Returns the device with blocks of `pages` pages. The time of an erase scales with the block, and so stays the same share
    /// of the time to fill it.
    pub fn with_blocks_of(self, pages: u32, seed: u64) -> NandConfig {
        let mut config = self.full(seed);
        let (usual, pages) = (config.geometry.pages_per_block, pages.max(1));
        config.geometry.pages_per_block = pages;
        config.timing.erase_ns = config.timing.erase_ns * u64::from(pages) / u64::from(usual);
        config
    }
}

fn times(read_us: &[u64], program_us: &[u64], erase_us: u64, transfer_us: u64) -> NandTiming {
    let in_ns = |times: &[u64]| times.iter().map(|us| us * 1000).collect();
    NandTiming {
        read_ns: in_ns(read_us),
        program_ns: in_ns(program_us),
        erase_ns: erase_us * 1000,
        transfer_ns: transfer_us * 1000,
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
