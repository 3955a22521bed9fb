//! Cost of an idle worker, alone in its process.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use flowstone_runtime::live::{IoChoice, LiveConfig, Workers};

fn reach(workers: &Workers, worker: usize) {
    let (give, take) = std::sync::mpsc::channel();
    workers.spawn_on(worker, move || async move { give.send(()).unwrap() });
    take.recv_timeout(Duration::from_secs(20)).unwrap();
}

#[test]
fn an_idle_worker_is_woken_at_once_and_uses_no_processor_time() {
    for io in [IoChoice::IoUring, IoChoice::Fallback] {
        let workers = Workers::start(&LiveConfig {
            threads: 2,
            io,
            ..LiveConfig::default()
        })
        .unwrap();
        reach(&workers, 0);
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(500));
        let used = processor_time() - before;
        assert!(
            used < Duration::from_millis(5),
            "{io:?}: idle used {used:?}"
        );
        let asked = Instant::now();
        reach(&workers, 1);
        assert!(asked.elapsed() < Duration::from_millis(200));
        workers.shutdown();
    }
}

/// Returns the processor time of this process's worker threads.
fn processor_time() -> Duration {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else {
            continue;
        };
        if name.starts_with("flowstone-")
            && let Ok(schedstat) = std::fs::read_to_string(task.join("schedstat"))
        {
            nanos += schedstat.split(' ').next().unwrap().parse::<u64>().unwrap();
        }
    }
    Duration::from_nanos(nanos)
}
