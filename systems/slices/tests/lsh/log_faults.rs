//! A log whose pages decay: an unreliable log is an error, not a shorter log.

use flowstone_slices::SliceError;
use runtime::sim::Sim;

use crate::common::structure::{fill, fill_drives};
use crate::life::{small, used, vector};

#[test]
fn a_log_that_has_decayed_is_no_shorter_log() {
    let settings = small(20);
    for kind in [
        "flipped bit of a vector",
        "head of zeros",
        "flipped bit of a segment's number",
        "segment of zeros",
        "pointers of zeros",
    ] {
        let (hardware, _) = used(&settings, 1, 1, async |index, _| {
            fill_drives(&index, 0..10).await;
            fill(&index, 10..20).await;
            for _ in 0..2 {
                index.sync().await.expect("it works");
            }
        });
        let mut words = hardware.journal.crash();
        // The half of generation 2. Its head begins with the count of its vectors.
        let first = u64::from(vector(10)[0].to_bits()) | u64::from(vector(10)[1].to_bits()) << 32;
        let at = (4..words.len())
            .find(|&at| words[at] == first && words[at - 4] >> 32 == 10)
            .expect("it is there");
        assert_eq!(words[at - 1] >> 32, 2);
        match kind {
            "flipped bit of a vector" => words[at + 300] ^= 4,
            "head of zeros" => words[at - 4..at].fill(0),
            "flipped bit of a segment's number" => words[at - 1] ^= 1 << 33,
            "segment of zeros" => words[at - 4..at + 600].fill(0),
            _ => words[8] = 0,
        }
        let again = hardware.with_words(words);
        Sim::new(2).block_on(async {
            let opened = again.open(&settings).await;
            let is_told = matches!(
                opened,
                Err(SliceError::DamagedSegment { generation: 2, .. }
                    | SliceError::DamagedLog { partition: 0, .. })
            );
            assert!(is_told, "{kind}: {:?}", opened.err());
        });
    }
}
