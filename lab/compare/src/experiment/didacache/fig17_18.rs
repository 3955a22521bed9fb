//! `DIDACache` (TOS 2018), figures 17 and 18: SET and GET against the memory for slabs being filled.

use workload::Mix;

use super::cell::{Cell, Spare};
use super::machine::{Machine, etc};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::Row;

const PRESET: &str = "didacache";
/// Ratios of flash to write buffers. The paper has 128 MB to 1 GB for each of eight servers, over 32 GB of flash.
const FLASH_OVER_BUFFERS: [u64; 4] = [32, 16, 8, 4];
/// Operations, with their weights of GET and SET.
const OPERATIONS: [(&str, f64, f64); 2] = [("SET", 0.0, 1.0), ("GET", 1.0, 0.0)];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    // 25 of 30 GB are filled.
    let keys = machine.etc_keys(setting.scale.tiny_or(1.0 / 30.0, 25.0 / 30.0));
    let mut cells = Vec::new();
    for (operation, gets, sets) in OPERATIONS {
        let workload = etc(setting, keys, Mix::new(gets, sets, 0.0)?)?;
        for part in FLASH_OVER_BUFFERS {
            let plan = Plan {
                warmup: keys / 4,
                buffer_bytes: Some(machine.flash_bytes() / part),
                ..machine.plan(workload.clone(), keys / 4)
            };
            let head = Row::new()
                .with("operation", operation)
                .with("flash_over_buffers", part);
            cells.extend(Cell::of_each(
                &machine,
                Spare::Within,
                &[PRESET],
                &plan,
                &head,
            ));
        }
    }
    setting.told(&cells, Cell::row, TOLD)
}

const TOLD: &str = "
for operation = SET; GET
 plot Throughput of {operation} | flash_over_buffers: log2 write buffers (parts of the flash) | ops_per_s: requests (1/s) \
   | preset
 plot Mean latency of {operation} | flash_over_buffers: log2 write buffers (parts of the flash) | mean_us: latency (us) \
   | preset
 for $part = 32; 16; 8
  for $what, $field = throughput | ops_per_s; mean latency | mean_us
   {what} of {operation}, buffers of 1/{part} of the flash / of a fourth \
     | {field}[flash_over_buffers={part}] / {field}[flash_over_buffers=4] | about 1
";
