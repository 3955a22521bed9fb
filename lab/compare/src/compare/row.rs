//! The figures of one run.

use serde::{Deserialize, Serialize};

use crate::row::Row;

/// Defines the row and the list of its field names, each field written once. Fields in brackets are absent from runs for which
/// they have no meaning.
macro_rules! row {
    (
        $($first:ident: $is:ty,)* [$($may_be:ident: $kind:ty,)*] $($last:ident: $end:ty,)*
    ) => {
        /// Figures of one preset in one run: the fields of `compare`, in order. `docs/papers/compare.md` explains each field.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        #[allow(missing_docs, reason = "docs/papers/compare.md has the table")]
        pub struct CompareRow {
            $(pub $first: $is,)*
            $(#[serde(skip_serializing_if = "Option::is_none")] pub $may_be: Option<$kind>,)*
            $(pub $last: $end,)*
        }

        /// Names of all fields, in order.
        pub const FIELDS: &[&str] = &[
            $(stringify!($first),)* $(stringify!($may_be),)* $(stringify!($last),)*
        ];

        impl CompareRow {
            /// Returns the named fields that have a value in this run.
            pub(crate) fn figures(&self, names: &[&'static str]) -> Row {
                names.iter().fold(Row::new(), |row, &name| match name {
                    $(stringify!($first) => row.with(name, self.$first.clone()),)*
                    $(stringify!($may_be) => row.with(name, self.$may_be),)*
                    $(stringify!($last) => row.with(name, self.$last),)*
                    _ => unreachable!("{name} is no figure of a run"),
                })
            }
        }
    };
}

row! {
    preset: String,
    workload: String,
    requests: u64,
    gets: u64,
    sets: u64,
    deletes: u64,
    hits: u64,
    [
        hit_ratio: f64,
        byte_hit_ratio: f64,
        dram_hits: u64,
        flash_hits: u64,
        flash_reads_per_hit: f64,
        flash_reads_per_miss: f64,
        ops_per_s: f64,
        p50_us: f64,
        p99_us: f64,
        p999_us: f64,
        item_bytes_set: u64,
        flash_bytes_written: u64,
        index_bytes_written: u64,
        clwa: f64,
        nand_bytes_programmed: u64,
        dlwa: f64,
        erases: u64,
        erase_min: u64,
        erase_max: u64,
        gc_items_copied: u64,
        gc_bytes_copied: u64,
        objects_on_flash: u64,
        index_dram_bytes: u64,
        dram_bits_per_object: f64,
        tier1_hits: u64,
        tier2_hits: u64,
        tier3_hits: u64,
        tier2_reads: u64,
        tier3_reads: u64,
        low_watermark: u64,
        high_watermark: u64,
        recovery_ms: f64,
        peak_rss_bytes: u64,
        cpu_us_per_op: f64,
    ]
    virtual_time: bool,
    seed: u64,
}

/// Returns `part / whole` rounded to six decimals, or `None` if `whole` is not positive.
pub(super) fn ratio(part: f64, whole: f64) -> Option<f64> {
    const STEPS: f64 = 1e6;
    (whole > 0.0).then(|| (part / whole * STEPS).round() / STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_absent_and_the_order_is_the_documented_one() {
        let row = CompareRow {
            preset: "flowstone".to_owned(),
            workload: "etc".to_owned(),
            hit_ratio: Some(0.5),
            erases: Some(0),
            virtual_time: true,
            seed: 7,
            ..CompareRow::default()
        };
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            r#"{"preset":"flowstone","workload":"etc","requests":0,"gets":0,"sets":0,"deletes":0,"#
                .to_owned()
                + r#""hits":0,"hit_ratio":0.5,"erases":0,"virtual_time":true,"seed":7}"#
        );
    }

    #[test]
    fn a_row_is_read_as_it_is_written() {
        let row = CompareRow {
            ops_per_s: Some(1.0 / 3.0),
            peak_rss_bytes: Some(1),
            ..CompareRow::default()
        };
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<CompareRow>(&text).unwrap(), row);
    }

    #[test]
    fn ratios_have_six_digits() {
        assert_eq!(ratio(2.0, 3.0), Some(0.666_667));
        assert_eq!(ratio(2.0, 0.0), None);
    }
}
