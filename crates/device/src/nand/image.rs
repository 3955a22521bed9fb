//! [`NandImage`]: a device in memory as a value, as a crash leaves it.

use super::Nand;
use super::block::Block;
use super::config::{ConfigError, NandConfig};
use super::contents::{BlockBytes, Contents};
use super::fate::Fate;

/// How the life of a device ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NandCrash {
    /// The power fails, as in [`Nand::power_cut`].
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
    ///
    /// # Errors
    /// One line about what is impossible.
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

impl Nand {
    /// The device in memory that `image` is of, as after a restart.
    #[must_use]
    pub fn from_image(image: NandImage) -> Self {
        let NandImage {
            config,
            blocks,
            bytes,
        } = image;
        let shape = config.geometry;
        let stored = blocks.iter().map(|block| block.programmed);
        let contents = Contents::in_memory(bytes, stored, shape.block_bytes(), shape.page_bytes);
        Self::with_contents(config, contents, blocks)
    }

    /// What a crash now would leave. The device itself goes on.
    ///
    /// # Panics
    /// When the device is in a file, which is such an image itself.
    #[must_use]
    pub fn crash(&self, how: NandCrash) -> NandImage {
        let mut blocks = Vec::with_capacity(self.config.geometry.blocks() as usize);
        for channel in 0..self.config.geometry.channels {
            let mut left = self.up_to_date(channel).clone();
            match how {
                NandCrash::PowerCut => left.cut_power(runtime::now().as_nanos()),
                NandCrash::Killed => left.kill(),
                NandCrash::Finished => left.finish_all(),
            }
            blocks.extend(left.blocks.into_iter().map(Block::restarted));
        }
        NandImage {
            config: self.config.clone(),
            blocks,
            bytes: self.contents.shared(),
        }
    }
}

/// The blocks of a device fresh from the factory.
pub(super) fn fresh_blocks(config: &NandConfig) -> Vec<Block> {
    let (shape, endurance) = (&config.geometry, &config.endurance);
    (0..shape.blocks())
        .map(|number| {
            let fate = Fate::of(config.seed, number, endurance, shape.pages_per_block);
            Block::new(fate)
        })
        .collect()
}
