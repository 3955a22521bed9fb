//! Words of a log.

use std::ops::Range;

use device::Journal;

use crate::error::SliceError;

/// Refuses a log with fewer words than its structure needs.
pub(crate) fn refuse_short(journal: &dyn Journal, needs: usize) -> Result<(), SliceError> {
    let has = journal.words();
    match has < needs {
        true => Err(SliceError::ShortLog { has, needs }),
        false => Ok(()),
    }
}

/// Returns words as they are on the drive of the log, if they are not in memory. A page that the drive does not return is an error
/// here; in a load it would end the process.
pub(crate) fn read(journal: &dyn Journal, words: Range<usize>) -> Result<Vec<u64>, SliceError> {
    let mut found = vec![0; words.len()];
    let read = journal.read(words.start, &mut found);
    read.map_err(SliceError::log)?;
    Ok(found)
}

/// Stores words again. A failed sync may have left pages that count as written and are not.
pub(crate) fn store_again(journal: &dyn Journal, words: impl IntoIterator<Item = usize>) {
    for word in words {
        journal.store(word, journal.load(word));
    }
}
