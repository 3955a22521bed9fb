//! [`NandImage`]: a device in memory as a value, as a crash leaves it.

use super::block::Block;
use super::config::{ConfigError, NandConfig};
use super::contents::BlockBytes;
use super::fate::Fate;

/// Kind of crash of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NandCrash {
    /// The power fails, as in [`Nand::power_cut`](super::Nand::power_cut).
    PowerCut,
    /// The emulating process dies. A page whose program was requested and has not ended cannot be read, as in the file of a
    /// device.
    Killed,
    /// The user of the device dies, and the device finishes all its commands.
    Finished,
}

/// Contents of a device, with its bad blocks and its wear. Clones and the original device share the bytes of a block until one of
/// the copies writes the block.
#[derive(Clone, Debug)]
pub struct NandImage {
    pub(super) config: NandConfig,
    pub(super) blocks: Vec<Block>,
    pub(super) bytes: Vec<BlockBytes>,
}

impl NandImage {
    /// Creates the image of a device fresh from the factory.
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

/// Returns the blocks of a device fresh from the factory.
pub(super) fn fresh_blocks(config: &NandConfig) -> Vec<Block> {
    let (shape, endurance) = (&config.geometry, &config.endurance);
    (0..shape.blocks())
        .map(|number| {
            let fate = Fate::of(config.seed, number, endurance, shape.pages_per_block);
            Block::new(number, fate)
        })
        .collect()
}
