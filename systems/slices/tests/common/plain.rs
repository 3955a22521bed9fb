//! A structure on a plain drive in memory, and tasks that use a structure at once.

use std::sync::Arc;

use device::{MemoryDisk, MemoryJournal};
use runtime::sim::Sim;

use crate::common::structure::{Log, Settings};

/// Runs a test with a new structure on a drive of `bytes` bytes that takes no time.
pub(crate) fn with_bytes<T: Settings, R>(
    settings: &T,
    bytes: u64,
    test: impl AsyncFnOnce(T::Structure, &MemoryJournal) -> R,
) -> R {
    Sim::new(1).block_on(async {
        let disk = Arc::new(MemoryDisk::new(bytes));
        let words = settings.log_words(&[bytes]).expect("they can be");
        let journal = Arc::new(MemoryJournal::new(words));
        let made = settings
            .create(vec![disk], Arc::clone(&journal) as Log)
            .await;
        test(made.expect("drives work"), &journal).await
    })
}

/// Runs `count` tasks at once, and waits for all. `task` gets the number of a task.
pub(crate) async fn at_once<F: Future<Output = ()> + 'static>(count: u64, task: impl Fn(u64) -> F) {
    let spawn = |number| runtime::spawn(task(number));
    let tasks: Vec<_> = (0..count).map(spawn).collect();
    for task in tasks {
        task.await.expect("tasks end");
    }
}
