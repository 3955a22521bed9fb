//! The read loop for placements whose index names a single copy of a key: pin the segment, read, compare the key, look again.

use super::{Found, Located, Probe};
use crate::format::item::state;
use crate::key::Key;
use crate::store::{Patience, ReadError, SegmentStore};

/// Reads the item of `key`, for which the index answered `probe`. `look` asks the part of the index in memory again, and
/// `locate` asks the part on flash. No segment is pinned while the read waits for memory.
///
/// The copy may be moved or removed during the read. The index then names another copy, or none. The loop ends as soon as the
/// index names the same copy twice.
///
/// # Errors
/// If the copy cannot be read and the index names no other.
pub async fn read_copy(
    store: &SegmentStore,
    key: Key<'_>,
    mut probe: Probe,
    patience: Patience,
    look: impl Fn() -> Probe,
    locate: impl AsyncFn() -> Result<Option<Located>, ReadError>,
) -> Result<Found, ReadError> {
    let mut last = None;
    loop {
        let located = match probe {
            Probe::Absent => None,
            Probe::At(located) => Some(located),
            Probe::Perhaps => locate().await?,
        };
        let Some(located) = located.filter(|located| last != Some(located.place)) else {
            return Ok(Found::Absent);
        };
        let place = located.place;
        last = Some(place);
        let memory = store
            .reader()
            .read_memory(place.segment, place.position, patience)
            .await?;
        let Some(pin) = store.table().pin(place.segment, place.generation) else {
            // The segment was reclaimed after the look-up: the item has moved or is gone.
            probe = look();
            continue;
        };
        match store.reader().read_into(&pin, place.position, memory).await {
            Ok(item) if item.item().key != key.bytes() => return Ok(Found::Absent),
            Ok(mut item) => {
                if located.fetched {
                    item.mark(state::FETCHED);
                }
                return Ok(Found::Item(item));
            }
            Err(error) => {
                probe = look();
                let is_other = matches!(probe, Probe::At(now) if now.place != place);
                if !is_other {
                    return Err(error);
                }
                // The item has been overwritten since, or moved because its block failed.
            }
        }
    }
}
