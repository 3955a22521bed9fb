//! Section 7.5: the gain of slices for a Bloom filter and for a similarity index.

use systems::slices::BitPlacement;

use super::bloom::BloomMake;
use super::lsh::LshMake;
use crate::experiment::{ExperimentError, Outcome, Setting};

const PLACEMENTS: [BitPlacement; 2] = [BitPlacement::Spread, BitPlacement::OnePage];

/// Most vectors that a query reads, and fill of the tables: hardly any vectors, as the paper counts; the same with emptier
/// tables; the vectors of the query's cluster; and all named vectors.
const QUERIES: [(usize, f64); 4] = [(1, 0.8), (1, 0.5), (40, 0.8), (1_000, 0.8)];

enum Cell {
    Bloom(BloomMake),
    Lsh(LshMake),
}

fn cells(setting: &Setting<'_>) -> Vec<Cell> {
    let seed = setting.seed;
    let (filter_bytes, partitions, requests) = setting.scale.pick(
        (1 << 10, 1, 2_000),
        (8 << 10, 2, 200_000),
        (128 << 10, 4, 1_000_000),
    );
    let (table_bytes, queries, checked) = setting.scale.pick(
        (1_344, 200, 20),
        (32 << 10, 5_000, 100),
        (256 << 10, 20_000, 200),
    );
    let mut cells = Vec::new();
    for is_channel_aware in [true, false] {
        for placement in PLACEMENTS {
            cells.push(Cell::Bloom(BloomMake {
                placement,
                is_channel_aware,
                filter_bytes,
                partitions,
                requests,
                seed,
            }));
        }
        for (most_candidates, fill) in QUERIES {
            cells.push(Cell::Lsh(LshMake {
                most_candidates,
                fill,
                is_channel_aware,
                table_bytes,
                queries,
                checked,
                seed,
            }));
        }
    }
    cells
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let cells = cells(setting);
    let rows = setting.cells.run(&cells, |cell| match cell {
        Cell::Bloom(make) => make.measure(),
        Cell::Lsh(make) => make.measure(),
    })?;
    let outcome = Outcome::told(rows.concat(), TOLD);
    let denied = outcome
        .rows
        .iter()
        .filter_map(|row| row.number("false_negatives"));
    let denied: f64 = denied.sum();
    let wrong = (denied > 0.0).then(|| format!("a Bloom filter denied {denied} keys that it has"));
    Ok(Outcome { wrong, ..outcome })
}

/// A query that reads one vector cannot find ten.
const TOLD: &str = "
for part = slicebloom
 for placement = spread; one page
  for inserts_percent, order, $what, $aware, $unaware = 50 | random | half inserts, operations a second | 15,000; \
    50 | ordered 32 | half inserts, 32 look-ups in a row to one channel | | 5,000; \
    0 | random | look-ups a second; 0 | ordered 32 | look-ups, 32 in a row to one channel
   SliceBloom, {placement}: {what} | ops_per_s[channel_aware=true] | {aware} if placement=spread
   SliceBloom, {placement}: the same without channels | ops_per_s[channel_aware=false] | {unaware} if placement=spread
  for channel_aware, inserts_percent, order = true | 0 | random
   SliceBloom, {placement}: pages read for a look-up | page_reads_per_get
   SliceBloom, {placement}: false positives | false_positives
   SliceBloom, {placement}: the same, by formula | false_positives_formula
   SliceBloom, {placement}: false positives of an incarnation | of_an_incarnation | 0.0008 if placement=spread
   SliceBloom, {placement}: the same, by formula | of_an_incarnation_formula
   SliceBloom, {placement}: bits of memory a key | memory_bits_per_key | 0.1 if placement=spread
for part = slicelsh
 for most_candidates, fill = 1 | 0.8; 1 | 0.5; 40 | 0.8; 1000 | 0.8
  for $of = SliceLSH, {most_candidates} vectors at most, tables filled to {fill}
   for order, $what, $paper = random | queries a second | 6,900; ordered 32 | 32 in a row for one cluster | about 6,900
    {of}: {what} | queries_per_s[channel_aware=true] | {paper} if most_candidates=1
    {of}: the same without channels | queries_per_s[channel_aware=false]
   for channel_aware, order = true | random
    {of}: pages read a second | pages_per_s | 69,000 if most_candidates=1
    {of}: pages of tables a query | table_pages_per_query | 10 if most_candidates=1
    {of}: pages of vectors a query | vector_pages_per_query | 0 if most_candidates=1
    {of}: pages of the fullest channel over the mean | channel_load
    {of}: the same, pages of tables | table_channel_load
    {of}: bytes of memory a vector | memory_bytes_per_vector
    {of}: recall of the 10 nearest | recall_at_10[most_candidates=!1]
";
