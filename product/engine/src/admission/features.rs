//! [`Features`]: the counts by which admission judges an item.

use crate::format::item::ItemHeader;

/// Features by which a key is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Features {
    /// Number of reads.
    pub reads: u16,
    /// Number of updates since the key was first stored.
    pub updates: u16,
    /// Number of reads before the key was stored, as far as that is remembered.
    pub reads_before: u16,
}

impl Features {
    /// Returns the features of an item in memory.
    pub fn of(header: &ItemHeader) -> Self {
        Self {
            reads: header.reads().into(),
            updates: header.updates().into(),
            reads_before: header.reads_before().into(),
        }
    }

    /// Writes the features into the header of an item that comes into memory.
    pub(crate) fn note_in(self, header: &mut ItemHeader) {
        let count = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
        header.set_reads(count(self.reads));
        header.count_on(count(self.reads_before), count(self.updates));
    }

    /// Returns whether the key has ever been read.
    pub fn is_read(self) -> bool {
        self.reads > 0 || self.reads_before > 0
    }
}
