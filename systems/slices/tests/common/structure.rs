//! A structure of slices as the shared tests use it: items with numbers are inserted and looked up.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use device::{Disk, Journal};
use flowstone_slices::SliceError;

pub(crate) type Disks = Vec<Arc<dyn Disk>>;
pub(crate) type Log = Arc<dyn Journal>;

/// Settings, with which a structure is created and opened.
pub(crate) trait Settings: Clone + 'static {
    type Structure: Structure;
    /// Bytes of a drive.
    const DRIVE_BYTES: u64;

    fn log_words(&self, drive_bytes: &[u64]) -> Result<usize, SliceError>;

    async fn create(&self, disks: Disks, log: Log) -> Result<Self::Structure, SliceError>;

    async fn open(&self, disks: Disks, log: Log) -> Result<Self::Structure, SliceError>;
}

/// An open structure. Clones are the same structure.
pub(crate) trait Structure: Clone + 'static {
    /// An inserted item.
    type Item: Copy + Debug + 'static;

    /// Inserts the item with a number. In structures of keys, numbers with the same lower half have the same key.
    async fn put(&self, number: u64) -> Result<Self::Item, SliceError>;

    async fn look_up(&self, item: Self::Item) -> Result<Answer, SliceError>;

    /// Writes all items to the drives, and makes them durable.
    async fn flush(&self) -> Result<(), SliceError>;

    async fn sync(&self) -> Result<(), SliceError>;

    /// Returns the number of pages that flushes have found damaged.
    fn pages_lost(&self) -> u64;
}

/// The answer to a look-up of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Present,
    Absent,
    #[allow(dead_code, reason = "a Bloom filter has no such answer")]
    /// The answer is that of another item.
    Wrong,
}

/// Returns the number of the item that changes a key for the `round`th time.
pub(crate) fn changed(key: u64, round: u64) -> u64 {
    round << 32 | key
}

/// Inserts the items with these numbers.
pub(crate) async fn fill<S: Structure>(
    structure: &S,
    numbers: impl IntoIterator<Item = u64>,
) -> Vec<S::Item> {
    let mut items = Vec::new();
    for number in numbers {
        items.push(structure.put(number).await.expect("drives work"));
    }
    items
}

/// Inserts the items with these numbers, and flushes the structure.
pub(crate) async fn fill_drives<S: Structure>(
    structure: &S,
    numbers: impl IntoIterator<Item = u64>,
) -> Vec<S::Item> {
    let items = fill(structure, numbers).await;
    structure.flush().await.expect("drives work");
    items
}

/// Inserts the items with these numbers, as often as it takes.
pub(crate) async fn fill_again<S: Structure>(
    structure: &S,
    numbers: impl IntoIterator<Item = u64>,
) -> Vec<S::Item> {
    let mut items = Vec::new();
    for number in numbers {
        let mut tries = 0;
        items.push(loop {
            match structure.put(number).await {
                Ok(item) => break item,
                Err(error) => {
                    tries += 1;
                    assert!(tries < 100, "the drive works, and still: {error}");
                    runtime::sleep(Duration::from_secs(1)).await;
                }
            }
        });
    }
    items
}

/// Returns how many of the items are absent, wrong or damaged.
pub(crate) async fn missing<S: Structure>(
    structure: &S,
    items: impl IntoIterator<Item = S::Item>,
) -> usize {
    let mut missing = 0;
    for item in items {
        missing += usize::from(!matches!(
            structure.look_up(item).await,
            Ok(Answer::Present)
        ));
    }
    missing
}

/// Checks that all items are present.
pub(crate) async fn check_all<S: Structure>(
    structure: &S,
    items: impl IntoIterator<Item = S::Item>,
    when: &str,
) {
    for item in items {
        let found = structure.look_up(item).await;
        assert!(
            matches!(found, Ok(Answer::Present)),
            "{item:?}, {when}: {found:?}"
        );
    }
}

/// Checks that each item is present, or damaged, or absent if it `may_be_absent`. Returns how many are damaged.
pub(crate) async fn damaged<S: Structure>(
    structure: &S,
    items: impl IntoIterator<Item = S::Item>,
    may_be_absent: bool,
    when: &str,
) -> u64 {
    let mut damaged = 0;
    for item in items {
        match structure.look_up(item).await {
            Ok(Answer::Present) => {}
            Ok(Answer::Absent) if may_be_absent => {}
            Err(SliceError::Damaged { drive: 0, .. }) => damaged += 1,
            other => panic!("{item:?}, {when}: {other:?}"),
        }
    }
    damaged
}
