//! Threads that the system refuses. Alone in its process, which has one pool of threads.

#![allow(clippy::unwrap_used)]

mod refuse;

use std::sync::Arc;

use flowstone_runtime::buffer::{AlignedBuf, PAGE_BYTES};
use flowstone_runtime::file::{DirectFile, OpenFlags};
use flowstone_runtime::live::{IoChoice, LiveConfig, Workers};
use flowstone_runtime::spawn;
use refuse::refuse;

const PAGES: u64 = 100;

/// Writes a file, and reads its pages all at once.
async fn write_and_read(file: Arc<DirectFile>) {
    for page in 0..PAGES {
        let mut data = AlignedBuf::new(PAGE_BYTES);
        data[0] = page as u8;
        file.write_at(data, page * PAGE_BYTES as u64)
            .await
            .0
            .unwrap();
    }
    file.sync_data().await.unwrap();
    let reads: Vec<_> = (0..PAGES)
        .map(|page| {
            let file = Arc::clone(&file);
            spawn(async move {
                let read = file.read_at(AlignedBuf::new(PAGE_BYTES), page * PAGE_BYTES as u64);
                let (count, data) = read.await;
                assert_eq!((count.unwrap(), data[0]), (PAGE_BYTES, page as u8));
            })
        })
        .collect();
    for read in reads {
        read.await;
    }
    file.discard(0, PAGE_BYTES as u64).await.unwrap();
}

#[test]
fn files_are_read_and_written_by_the_threads_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let flags = OpenFlags {
        read_only: false,
        create_new: true,
        direct: false,
        exclusive_device: false,
    };
    let file = DirectFile::open(&directory.path().join("flash"), flags).unwrap();
    file.set_len(PAGES * PAGE_BYTES as u64).unwrap();
    let file = Arc::new(file);
    let config = LiveConfig {
        threads: 2,
        io: IoChoice::Fallback,
        ..LiveConfig::default()
    };
    let workers = Workers::start(&config).unwrap();
    // On the one worker no thread can be started; on the other they can.
    for (worker, is_refused) in [(0, true), (1, false), (0, true)] {
        let file = Arc::clone(&file);
        let done = workers.run_on(worker, move || async move {
            if is_refused {
                refuse(libc::SYS_clone3, libc::EAGAIN);
            }
            write_and_read(file).await;
        });
        done.unwrap();
    }
    workers.shutdown();
}

#[test]
fn without_a_thread_for_the_first_worker_the_start_fails_and_names_the_limit() {
    refuse(libc::SYS_clone3, libc::EAGAIN);
    let refused = Workers::start(&LiveConfig::default())
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("pids limit"), "{refused}");
}
