//! `twitter:NN`: a cluster of [`CLUSTERS`] as a workload.
//!
//! Assumptions where the statistics leave details open: value sizes are geometric with the cluster's mean,
//! all keys have its mean length, a key keeps its time to live, and an object requested once is as likely to
//! be read as any other. If no exponent is published (clusters 43 and 46), the preset uses that of their
//! likeliest siblings: 40 and 41, with the same key length and the same share of writes.

use crate::error::WorkloadError;
use crate::keys::KeySize;
use crate::mix::Mix;
use crate::popularity::Popularity;
use crate::settings::Settings;
use crate::sizes::{Geometric, ValueSize};
use crate::tenant::{Churn, Preset, Share};
use crate::weighted::Weighted;

use super::twitter_clusters::{CLUSTERS, Objects};

/// Exponent of clusters for which none is published.
const UNKNOWN_ALPHA: f64 = 0.855;

pub(super) fn preset(number: u16, settings: &Settings) -> Result<Preset, WorkloadError> {
    let cluster = CLUSTERS
        .iter()
        .find(|cluster| cluster.number == number)
        .ok_or_else(|| WorkloadError::NotOneOf {
            what: "cluster of Twitter with published statistics",
            given: number.to_string(),
            known: "1 to 54, without 5".to_owned(),
        })?;
    let [gets, sets, deletes] = cluster.percents;
    let theta = settings
        .theta
        .unwrap_or(cluster.objects.zipf_alpha.unwrap_or(UNKNOWN_ALPHA));
    let once = once_share(&cluster.objects);
    let value_size = ValueSize::Geometric(Geometric::new(cluster.value_bytes));
    Ok(Preset {
        shares: vec![Share {
            mix: Mix::new(gets, sets, deletes)?,
            ttls: Weighted::new(cluster.ttls.iter().copied()),
            churn: Churn {
                unread_sets: once,
                once_gets: once,
                renewing_sets: 0.0,
            },
            ..Share::reading(settings.keys, Popularity::Ranked { theta }, value_size)
        }],
        key_size: KeySize::Fixed(usize::from(cluster.key_bytes)),
        set_on_miss: true,
    })
}

/// Returns the share of the requests that go to objects requested once: the number of such objects per
/// object, divided by the requests per object.
fn once_share(objects: &Objects) -> f64 {
    objects.once_percent / 100.0 / objects.mean_frequency.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::assert_refused;

    #[test]
    fn every_cluster_makes_a_preset() {
        for cluster in &CLUSTERS {
            let preset = preset(cluster.number, &Settings::default()).unwrap();
            assert!(preset.shares[0].ttls.is_some(), "{}", cluster.number);
            let all: f64 = cluster.percents.iter().sum();
            assert!((96.0..104.1).contains(&all), "{}: {all} %", cluster.number);
        }
    }

    #[test]
    fn clusters_without_statistics_are_refused() {
        for number in [0, 5, 55] {
            let refused = preset(number, &Settings::default());
            assert_refused(refused, "1 to 54, without 5");
        }
    }
}
