//! [`NandImage`]: a device in memory as a value, as a crash leaves it.

use super::block::Block;
use super::config::{ConfigError, NandConfig};
use super::contents::BlockBytes;
use super::fate::Fate;

/// How the life of a device ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NandCrash {
    /// The power fails, as in [`Nand::power_cut`](super::Nand::power_cut).
    PowerCut,
    /// The process that emulates it dies: no page whose program had been asked for and had not ended can be
    /// read, as in the file of a device that is in one.
    Killed,
    /// Whoever uses it dies, and the device does all that it has been asked for.
    Finished,
}

/// What a device holds, with its bad blocks and its wear. Clones, and the device it is of, share the
/// bytes of a block until one of them writes there.
#[derive(Clone, Debug)]
pub struct NandImage {
    pub(super) config: NandConfig,
    pub(super) blocks: Vec<Block>,
    pub(super) bytes: Vec<BlockBytes>,
}

impl NandImage {
    /// A device fresh from the factory.
    pub fn new(config: NandConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let blocks = fresh_blocks(&config);
        let bytes = vec![None; blocks.len()];
        Ok(Self {
            config,
            blocks,
            bytes,
        })
    }
}

/// The blocks of a device fresh from the factory.
pub(super) fn fresh_blocks(config: &NandConfig) -> Vec<Block> {
    let (shape, endurance) = (&config.geometry, &config.endurance);
    (0..shape.blocks())
        .map(|number| {
            let fate = Fate::of(config.seed, number, endurance, shape.pages_per_block);
            Block::new(number, fate)
        })
        .collect()
}
