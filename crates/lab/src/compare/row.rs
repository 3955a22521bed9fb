//! The figures of one run.

use serde::{Deserialize, Serialize};

/// What one preset did in one run: the fields of `compare`, in their order. A field
/// that makes no sense for a run is absent. `docs/compare.md` says what each means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/compare.md has the table")]
pub struct CompareRow {
    pub preset: String,
    pub workload: String,
    pub requests: u64,
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
    pub hits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_reads_per_hit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_reads_per_miss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_bytes_set: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_bytes_written: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_bytes_written: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clwa: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nand_bytes_programmed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dlwa: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erases: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase_min: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc_items_copied: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc_bytes_copied: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects_on_flash: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_dram_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram_bits_per_object: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier1_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier2_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier3_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier2_reads: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier3_reads: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_watermark: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_watermark: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_op: Option<f64>,
    pub virtual_time: bool,
    pub seed: u64,
}

/// The names of all fields, in their order.
pub const FIELDS: [&str; 42] = [
    "preset",
    "workload",
    "requests",
    "gets",
    "sets",
    "deletes",
    "hits",
    "hit_ratio",
    "dram_hits",
    "flash_hits",
    "flash_reads_per_hit",
    "flash_reads_per_miss",
    "ops_per_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "item_bytes_set",
    "flash_bytes_written",
    "index_bytes_written",
    "clwa",
    "nand_bytes_programmed",
    "dlwa",
    "erases",
    "erase_min",
    "erase_max",
    "gc_items_copied",
    "gc_bytes_copied",
    "objects_on_flash",
    "index_dram_bytes",
    "dram_bits_per_object",
    "tier1_hits",
    "tier2_hits",
    "tier3_hits",
    "tier2_reads",
    "tier3_reads",
    "low_watermark",
    "high_watermark",
    "recovery_ms",
    "peak_rss_bytes",
    "cpu_us_per_op",
    "virtual_time",
    "seed",
];

/// `part / whole` to six digits after the point; nothing where there is no whole.
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
    fn every_field_is_listed_in_its_order() {
        let text = format!("{:?}", CompareRow::default());
        let mut rest = text.as_str();
        for name in FIELDS {
            let at = rest.find(&format!("{name}: ")).expect(name);
            rest = &rest[at..];
        }
        assert_eq!(text.matches(": ").count(), FIELDS.len());
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
