//! The compared indexes, on drives of their own.

use std::sync::Arc;

use device::{Disk, MemoryJournal};
use emulated::{Ftl, FtlConfig, Nand, Preset};
use systems::slices::{Channels, HashSettings, Scheduling, SliceHash};

use super::buffer_hash::BufferHash;
use crate::experiment::{ExperimentError, Setting};

/// A compared index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    SliceHash,
    /// SliceHash with buckets of three, as in the paper.
    Paper,
    /// SliceHash without channel awareness.
    Unaware,
    BufferHash,
    /// BufferHash without Bloom filters.
    BareBufferHash,
}

impl System {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SliceHash => "slicehash",
            Self::Paper => "slicehash, buckets of 3",
            Self::Unaware => "slicehash without channels",
            Self::BufferHash => "bufferhash",
            Self::BareBufferHash => "bufferhash without filters",
        }
    }
}

/// Settings of an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Make {
    pub(super) system: System,
    /// Number of slicetables of 32 incarnations that the flash has space for.
    pub(super) slicetables: u32,
    /// Maximum bytes of a table in memory.
    pub(super) table_bytes: usize,
    pub(super) incarnations: u32,
    pub(super) drives: usize,
    pub(super) spread: bool,
    /// Share of a table that is filled.
    pub(super) fill: f64,
    /// Number of full tables that may wait for their flush.
    pub(super) side_tables: u32,
    /// Whether a read that waits for its channel holds up the reads behind it in the drive.
    pub(super) in_order: bool,
    pub(super) seed: u64,
}

/// An index, filled or not.
pub(super) enum Index {
    Slices(SliceHash),
    Buffers(BufferHash),
}

/// Channels of the paper's drive.
pub(super) const CHANNELS: Channels = Channels {
    count: 32,
    chunk_bytes: 8 << 10,
};
/// Number of incarnations for which flash is counted.
pub(super) const USUAL_INCARNATIONS: u32 = 32;

/// Returns the paper's drive, with at least `bytes` of usable space.
pub(super) fn crucial_m4(
    bytes: u64,
    in_order: bool,
    seed: u64,
) -> Result<Arc<Ftl>, ExperimentError> {
    let mut config = FtlConfig::of(Preset::CrucialM4);
    if !in_order {
        config.link.channel_depth = None;
    }
    let flash_bytes = (bytes as f64 / (1.0 - config.over_provisioning) * 1.05) as u64;
    let nand = config.nand(Preset::CrucialM4.full(seed), flash_bytes);
    Ok(Arc::new(Ftl::open(Arc::new(Nand::new(nand)?), config)?))
}

impl Make {
    pub(super) fn usual(system: System, slicetables: u32, setting: &Setting<'_>) -> Self {
        Self {
            system,
            slicetables,
            // Most of the time goes to filling the tables.
            table_bytes: setting.scale.tiny_or(32 << 10, 128 << 10),
            incarnations: USUAL_INCARNATIONS,
            drives: 1,
            spread: false,
            fill: systems::slices::FILL,
            side_tables: 0,
            in_order: true,
            seed: setting.seed,
        }
    }

    /// Returns the number of incarnations of a partition in one slicetable.
    pub(super) fn system_incarnations(&self) -> u32 {
        match self.system {
            System::BufferHash | System::BareBufferHash => BufferHash::INCARNATIONS as u32,
            _ => self.incarnations,
        }
    }

    fn settings(&self) -> HashSettings {
        // The flash is the same for every number of incarnations. Spread slices take as much on each drive.
        let share = if self.spread { 1 } else { self.drives as u32 };
        let partitions = (self.slicetables * USUAL_INCARNATIONS / self.incarnations).max(1) * share;
        HashSettings {
            partitions: Some(partitions),
            table_bytes: self.table_bytes,
            incarnations: self.incarnations,
            bucket_entries: (self.system == System::Paper).then_some(3),
            channels: CHANNELS,
            scheduling: Scheduling {
                is_channel_aware: self.system != System::Unaware,
                ..Scheduling::default()
            },
            spread: self.spread,
            fill: self.fill,
            side_tables: self.side_tables,
            ..HashSettings::default()
        }
    }

    /// Creates the index on emulated drives. Call it in a simulation.
    pub(super) async fn index(&self) -> Result<Index, ExperimentError> {
        let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
        for drive in 0..self.drives {
            disks.push(crucial_m4(
                self.drive_bytes(),
                self.in_order,
                self.seed + drive as u64,
            )?);
        }
        self.index_on(disks, self.settings()).await
    }

    /// Creates the index in a file of [`drive_bytes`](Self::drive_bytes), whose channels are not known.
    pub(super) async fn index_in(&self, file: Arc<dyn Disk>) -> Result<Index, ExperimentError> {
        let usual = self.settings();
        let settings = HashSettings {
            channels: Channels::default(),
            scheduling: Scheduling {
                channel_depth: usual.scheduling.queue_depth,
                ..usual.scheduling
            },
            ..usual
        };
        self.index_on(vec![file], settings).await
    }

    /// Returns the bytes of a drive with space for the index.
    pub(super) fn drive_bytes(&self) -> u64 {
        let slicetable_bytes = 6 << 20;
        let incarnations = u64::from(self.incarnations.max(USUAL_INCARNATIONS));
        u64::from(self.slicetables + 8) * slicetable_bytes * incarnations
            / u64::from(USUAL_INCARNATIONS)
    }

    async fn index_on(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        settings: HashSettings,
    ) -> Result<Index, ExperimentError> {
        if let System::BufferHash | System::BareBufferHash = self.system {
            let tables = self.slicetables * USUAL_INCARNATIONS;
            let partitions = tables as usize / BufferHash::INCARNATIONS;
            let has_filters = self.system == System::BufferHash;
            let disk = Arc::clone(&disks[0]);
            return Ok(Index::Buffers(BufferHash::new(
                disk,
                partitions,
                has_filters,
            )));
        }
        let sizes: Vec<u64> = disks.iter().map(|disk| disk.len_bytes()).collect();
        let words = SliceHash::log_words(&settings, &sizes)?;
        let journal = Arc::new(MemoryJournal::new(words));
        Ok(Index::Slices(
            SliceHash::create(disks, journal, &settings).await?,
        ))
    }
}

impl Index {
    pub(super) async fn get(&self, key: u64) -> Result<Option<u64>, ExperimentError> {
        Ok(match self {
            Self::Slices(table) => table.get(key).await?,
            Self::Buffers(table) => table.get(key).await?,
        })
    }

    pub(super) async fn insert(&self, key: u64, value: u64) -> Result<(), ExperimentError> {
        match self {
            Self::Slices(table) => table.insert(key, value).await?,
            Self::Buffers(table) => table.insert(key, value).await?,
        }
        Ok(())
    }

    /// Returns the number of youngest keys that are certainly present once as many have been inserted.
    pub(super) fn certain_keys(&self) -> u64 {
        match self {
            Self::Slices(table) => {
                let shape = table.shape();
                let incarnations = shape.page.incarnations * table.slicetables_of_a_partition();
                let tables = f64::from(shape.partitions) * (incarnations - 1) as f64;
                (tables * f64::from(shape.table_entries) * 0.95) as u64
            }
            Self::Buffers(table) => BufferHash::certain_keys(table.partitions()),
        }
    }

    /// Returns the number of entries in the full index.
    pub(super) fn entries(&self) -> u64 {
        match self {
            Self::Slices(table) => {
                let shape = table.shape();
                let incarnations = shape.page.incarnations * table.slicetables_of_a_partition();
                let tables = f64::from(shape.partitions) * (1 + incarnations) as f64;
                (tables * f64::from(shape.table_entries)) as u64
            }
            Self::Buffers(table) => table.entries(),
        }
    }

    /// Returns the bytes of memory that grow with the index.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Slices(table) => {
                let memory = table.memory();
                memory.tables + memory.partitions + memory.filters
            }
            Self::Buffers(table) => table.memory_bytes(),
        }
    }

    pub(super) fn page_reads(&self) -> u64 {
        match self {
            Self::Slices(table) => table.stats().page_reads,
            Self::Buffers(table) => table.page_reads(),
        }
    }

    pub(super) fn slices(&self) -> Option<&SliceHash> {
        match self {
            Self::Slices(table) => Some(table),
            Self::Buffers(_) => None,
        }
    }
}
