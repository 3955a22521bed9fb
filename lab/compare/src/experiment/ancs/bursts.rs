//! Section 7.2, "bursts of writes": a side buffer of full tables, in bursts and in a steady stream of inserts.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::Sim;
use runtime::{now, sleep};

use super::fig5::extent;
use super::index::{Make, System};
use super::work::{CLIENTS, Filled, key_of, measure, send_all};
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::Row;

/// Numbers of full tables that may wait, for each partition.
const SIDE_SHARES: [f64; 6] = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0];
/// Number of tables that a burst fills, for each partition.
const BURST_TABLES: f64 = 3.0;
/// Time between two inserts of a burst.
const ARRIVAL: Duration = Duration::from_micros(1);

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let (slicetables, requests) = extent(setting.scale);
    let make_of = |share: f64| Make {
        side_tables: (share * f64::from(slicetables)) as u32,
        ..Make::usual(System::SliceHash, slicetables, setting)
    };
    let row = |&share: &f64| {
        let make = make_of(share);
        let steady = measure(&make, |filled, random| {
            filled.requests(2 * requests, 100, random)
        })?;
        let written = steady.bytes_written as f64 / steady.flushed_entries as f64;
        Ok(Row::new()
            .with("side_tables_per_partition", share)
            .and(burst(&make, steady.entries)?)
            .with("steady_inserts_per_s", steady.inserts_per_s)
            .with("steady_bytes_written_per_insert", written)
            .with("virtual_time", true))
    };
    setting.told(&SIDE_SHARES, row, TOLD)
}

/// Fills an index of `entries` entries, flushes its full tables, and sends it a burst. The bytes written are those until all full
/// tables have been flushed, and the memory is the highest.
fn burst(make: &Make, entries: u64) -> Result<Row, ExperimentError> {
    Sim::new(make.seed).block_on(async {
        let filled = Filled::of(make.index().await?).await?;
        let table = filled.index.slices().cloned();
        let table = table.expect("the index that is made has slices");
        table.clone().close().await?;
        let tables = BURST_TABLES * f64::from(table.shape().partitions);
        let inserts = (tables * f64::from(table.shape().table_entries)) as u64;
        let before = table.stats();
        let begin = now();
        let (longest, memory) = (Rc::new(Cell::new(0.0_f64)), Rc::new(Cell::new(0)));
        let serve = {
            let (longest, memory) = (Rc::clone(&longest), Rc::clone(&memory));
            let (index, first) = (Rc::clone(&filled.index), filled.keys.end);
            async move |nth: u64| {
                let arrival = ARRIVAL * nth as u32;
                if let Some(early) = arrival.checked_sub(now().since(begin)) {
                    sleep(early).await;
                }
                index.insert(key_of(first + nth), 1).await?;
                let taken = now().since(begin).saturating_sub(arrival);
                longest.set(longest.get().max(taken.as_secs_f64() * 1e6));
                memory.set(memory.get().max(index.memory_bytes()));
                Ok(())
            }
        };
        let seconds = send_all(CLIENTS, 0..inserts, serve).await?;
        table.clone().close().await?;
        let after = table.stats();
        let written = (after.bytes_written - before.bytes_written) as f64;
        let flushed = (after.flushed_entries - before.flushed_entries) as f64;
        Ok(Row::new()
            .with("burst_inserts", inserts)
            .with("burst_inserts_per_s", inserts as f64 / seconds)
            .with("burst_insert_longest_us", longest.get())
            .with("burst_bytes_written_per_insert", written / flushed)
            .with("burst_memory_bytes", memory.get())
            .with(
                "burst_bytes_per_entry",
                memory.get() as f64 / entries as f64,
            ))
    })
}

const TOLD: &str = "
for side_tables_per_partition
 for $of = {side_tables_per_partition} tables on the side for a partition
  {of}: inserts of a burst a second | burst_inserts_per_s
  {of}: longest of these, microseconds | burst_insert_longest_us
  {of}: bytes written for one | burst_bytes_written_per_insert
  {of}: bytes of memory an entry in the burst | burst_bytes_per_entry
  {of}: steady inserts a second | steady_inserts_per_s
  {of}: bytes written for one of these | steady_bytes_written_per_insert
";
