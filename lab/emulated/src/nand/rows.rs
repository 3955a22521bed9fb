//! [`Rows`]: the pages of one command of a LUN.

use device::BlockId;

/// Pages of `planes` neighbouring blocks of a LUN, in rows of one page of each plane. Page `q` is page `q / planes` of block
/// `first_block + q % planes`. With one plane, the rows are the pages of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) first_block: BlockId,
    pub(crate) planes: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Rows {
    /// Returns (block, page) of page `q`.
    #[inline]
    pub(crate) fn place(&self, q: u32) -> (BlockId, u32) {
        let block = self.first_block.0 + q % self.planes;
        (BlockId(block), q / self.planes)
    }

    /// Returns the blocks, one of each plane.
    #[inline]
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> + use<> {
        (self.first_block.0..self.first_block.0 + self.planes).map(BlockId)
    }

    /// Returns (block, page) of each page.
    #[inline]
    pub(super) fn pages(self) -> impl Iterator<Item = (BlockId, u32)> {
        (self.first..self.first + self.count).map(move |q| self.place(q))
    }

    /// Returns the number of pages in the first row.
    #[inline]
    pub(super) fn row(&self) -> u32 {
        (self.planes - self.first % self.planes).min(self.count)
    }

    /// Returns (block, page) of each page of the first row.
    #[inline]
    pub(super) fn row_pages(self) -> impl Iterator<Item = (BlockId, u32)> {
        let count = self.row();
        Self { count, ..self }.pages()
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> u32 {
        (self.first % self.planes + self.count).div_ceil(self.planes)
    }

    /// Returns the first rows, at most `rows`.
    pub(super) fn first_rows(self, rows: u32) -> Self {
        let most = u64::from(rows) * u64::from(self.planes);
        let most = most.saturating_sub(u64::from(self.first % self.planes));
        Self {
            count: u64::from(self.count).min(most) as u32,
            ..self
        }
    }

    /// Returns the rows after the first row.
    #[inline]
    pub(super) fn rest(self) -> Self {
        let row = self.row();
        Self {
            first: self.first + row,
            count: self.count - row,
            ..self
        }
    }
}
