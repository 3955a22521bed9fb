//! The presets of the named workloads.

mod memcachier;
mod twitter;
mod twitter_clusters;

pub(crate) use memcachier::KEY_BYTES as MEMCACHIER_KEY_BYTES;
pub(crate) use twitter_clusters::CLUSTERS as TWITTER_CLUSTERS;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::WorkloadError;
use crate::histogram::{PopularityHistogram, SizeHistogram};
use crate::keys::KeySize;
use crate::mix::Mix;
use crate::name::Name;
use crate::popularity::Popularity;
use crate::settings::Settings;
use crate::sizes::{DEFAULT_MAX_VALUE_BYTES, ValueSize};
use crate::tenant::{Preset, Share};

/// Default lengths of keys and values, in bytes.
const KEY_BYTES: usize = 30;
const VALUE_BYTES: u32 = 270;

/// Default exponent of Zipf's law: YCSB's.
const THETA: f64 = 0.99;

/// Reads to each write of Facebook's ETC pool (Atikoglu et al., SIGMETRICS 2012, section 3.2).
const ETC_READS_PER_WRITE: f64 = 30.0;

/// Returns the preset called `name`; for a trace, whose requests come from a file, one whose parts are not used.
pub(crate) fn preset(name: &Name, settings: &Settings) -> Result<Preset, WorkloadError> {
    let theta = settings.theta.unwrap_or(THETA);
    let popularity = match name {
        Name::Uniform => Popularity::Uniform,
        Name::Zipfian | Name::Etc => Popularity::Zipfian { theta },
        Name::Hotspot => Popularity::Hotspot {
            data: settings.hot_data,
            operations: settings.hot_operations,
        },
        Name::Normal => Popularity::Normal {
            deviation: settings.deviation,
            drift: settings.drift,
        },
        Name::Latest => Popularity::Latest { theta },
        Name::Single => Popularity::Single,
        Name::CacheLib(prefix) => return cachelib(prefix, settings),
        Name::Memcachier(application) => return memcachier::preset(*application, settings),
        Name::Twitter(cluster) => return twitter::preset(*cluster, settings),
        // A trace has only the keys that its requests name.
        Name::Trace(..) => Popularity::Single,
    };
    let share = Share::reading(settings.keys, popularity, ValueSize::Fixed(VALUE_BYTES));
    let mut preset = Preset::of_one(share);
    if *name == Name::Etc {
        preset.key_size = KeySize::Etc;
        preset.set_on_miss = true;
        preset.shares[0].mix = Mix::new(ETC_READS_PER_WRITE, 1.0, 0.0)?;
        preset.shares[0].value_size = ValueSize::Etc {
            max_bytes: DEFAULT_MAX_VALUE_BYTES,
        };
    }
    Ok(preset)
}

impl Preset {
    fn of_one(share: Share) -> Self {
        Self {
            shares: vec![share],
            key_size: KeySize::Fixed(KEY_BYTES),
            set_on_miss: false,
        }
    }
}

/// Returns the preset of the histograms `PREFIX_sizes.json` and `PREFIX_pop.json`, with look-aside clients.
fn cachelib(prefix: &Path, settings: &Settings) -> Result<Preset, WorkloadError> {
    let file = |suffix: &str| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let sizes = SizeHistogram::read(&file("_sizes.json"))?;
    let popularity = PopularityHistogram::read(&file("_pop.json"))?;
    let share = Share::reading(
        settings.keys,
        Popularity::Measured(Arc::new(popularity)),
        ValueSize::Measured(Arc::new(sizes)),
    );
    Ok(Preset {
        set_on_miss: true,
        ..Preset::of_one(share)
    })
}
