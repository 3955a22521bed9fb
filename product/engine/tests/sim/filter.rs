//! Harness: memory as a filter before flash, with an admission.

use std::sync::Arc;
use std::time::Duration;

use flowstone_engine::{AdmissionKind, Dram, EngineConfig, ReclaimPolicy, Victim};
use rand::Rng;

use crate::support::{get, memory_disk, random, roomy, set, simulate, start, value};

/// Bytes of the values.
pub(crate) const VALUE_BYTES: usize = 1000;

/// Returns the settings of a filter with this admission.
pub(crate) fn filter(admission: Arc<dyn AdmissionKind>) -> EngineConfig {
    filtered(admission, roomy())
}

/// Returns these settings with memory as a filter.
pub(crate) fn filtered(admission: Arc<dyn AdmissionKind>, config: EngineConfig) -> EngineConfig {
    let mut config = EngineConfig {
        admission,
        dram: Dram::Filter,
        write_back: None,
        ..config
    };
    config.reclaim.policy = ReclaimPolicy::ReturnRecent {
        victim: Victim::Oldest,
    };
    config
}

/// Checks that a get finds the newest value or none, across stops and starts.
pub(crate) fn nothing_older_comes_back(seed: u64, config: &EngineConfig) {
    simulate(seed, async {
        let media = memory_disk(33 << 20);
        let random = &mut random(seed);
        let mut newest = vec![0; 30_000];
        for _ in 0..3 {
            let engine = start(&media, config).await;
            engine.recovered().await;
            for step in 0..40_000 {
                let number = random.random_range(0..newest.len());
                let key = format!("key{number}").into_bytes();
                let found = get(&engine, &key).await;
                if let Some(found) = &found {
                    assert!(*found == value(newest[number], VALUE_BYTES), "{number}");
                }
                if found.is_none() || random.random_range(0..8) == 0 {
                    newest[number] += 1;
                    let newest = value(newest[number], VALUE_BYTES);
                    set(&engine, &key, &newest).await.unwrap();
                }
                if step % 1000 == 0 {
                    runtime::sleep(Duration::from_secs(1)).await;
                }
            }
            engine.stop().await;
        }
    });
}
