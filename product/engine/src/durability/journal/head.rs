//! The head of a log: which journal it is, the latest time, and how far the last two syncs had come.

use device::{DeviceError, Journal as Log};

use crate::format::FormatError;
use crate::format::journal::{
    CLOCK_WORD, HEAD_WORDS, Head, SYNCED_WORDS, Synced, VOID_WORD, decode_clock, encode_clock,
};

/// Returns the latest Unix second that a journal has seen.
pub(crate) fn clock(log: &dyn Log) -> u32 {
    decode_clock(log.load(CLOCK_WORD)).unwrap_or(0)
}

/// Empties the clock, before it begins anew.
pub(crate) fn forget_clock(log: &dyn Log) {
    log.store(CLOCK_WORD, 0);
}

/// Begins the clock anew, with the one of a run whose start has noted in the superblock how far the old one was ahead. An
/// image that starts empty needs no note.
pub(crate) fn set_clock(log: &dyn Log, now: u32) {
    log.store(CLOCK_WORD, encode_clock(now));
}

/// Notes the time. During a run the clock never goes back.
pub(super) fn note_time(log: &dyn Log, now: u32) {
    if now > clock(log) {
        log.store(CLOCK_WORD, encode_clock(now));
    }
}

/// Reads the head of a journal.
///
/// [`FormatError`]; a head that cannot be read counts as one that does not verify.
pub(crate) fn read(log: &dyn Log) -> Result<Option<Head>, FormatError> {
    let mut words = [0; HEAD_WORDS];
    let read = log.read(0, &mut words);
    read.map_err(|_| FormatError::Checksum)?;
    Head::decode(&std::array::from_fn(|word| words[word]))
}

/// Returns whether the other words of the head verify, beside [`Head`]. A crash may leave one of the two notes of
/// the last syncs half written.
pub(crate) fn is_sound(log: &dyn Log) -> bool {
    let is_written = |at: &usize| (*at..at + Synced::WORDS).any(|word| log.load(word) != 0);
    decode_clock(log.load(CLOCK_WORD)).is_ok()
        && (last_synced(log).is_some() || !SYNCED_WORDS.iter().all(is_written))
}

/// Durably makes a log the journal of a run. From one run to the next a single word changes, so that a crash leaves
/// one run or the other.
pub(crate) async fn write(log: &dyn Log, head: Head) -> Result<(), DeviceError> {
    store(log, head);
    log.sync().await
}

/// Stores the words of a head that the log does not have. Returns whether there were such words.
pub(super) fn store(log: &dyn Log, head: Head) -> bool {
    let mut has_changed = false;
    for (number, word) in head.encode().into_iter().enumerate() {
        if log.load(number) != word {
            log.store(number, word);
            has_changed = true;
        }
    }
    has_changed
}

/// Zeros the head if it cannot be read, so that it can be used again.
pub(crate) fn renew(log: &dyn Log) {
    if log.read(0, &mut [0; HEAD_WORDS]).is_err() {
        log.clear(0..HEAD_WORDS);
    }
}

/// Clears the mark of lost records and the notes of the last syncs: the image starts empty.
pub(crate) fn start_empty(log: &dyn Log) {
    for at in SYNCED_WORDS {
        log.clear(at..at + Synced::WORDS);
    }
    log.store(VOID_WORD, 0);
}

/// Returns the slot of the head with the note of the latest sync.
pub(super) fn newest_slot(log: &dyn Log) -> Option<usize> {
    let [first, second] = SYNCED_WORDS.map(|at| synced_at(log, at));
    match (first, second) {
        (None, None) => None,
        (Some(first), Some(second)) => Some(usize::from(second.is_beyond(&first))),
        (first, _) => Some(usize::from(first.is_none())),
    }
}

/// Returns how far the last sync noted in the head had come.
pub(super) fn last_synced(log: &dyn Log) -> Option<Synced> {
    newest_slot(log).and_then(|slot| synced_at(log, SYNCED_WORDS[slot]))
}

fn synced_at(log: &dyn Log, at: usize) -> Option<Synced> {
    Synced::decode(&std::array::from_fn(|word| log.load(at + word)))
}
