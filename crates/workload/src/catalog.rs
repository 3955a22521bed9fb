//! Workloads by name: settings in, streams of requests out.

use thiserror::Error;

use crate::keys::{KeyId, KeyNames, KeySize, MAX_KEY_BYTES};
use crate::mix::{Mix, Op};
use crate::popularity::{Picker, Popularity};
use crate::sizes::ValueSize;
use crate::stream::Stream;

/// The names [`Workload::by_name`] knows.
pub const NAMES: [&str; 6] = [
    "uniform", "zipfian", "hotspot", "normal", "latest", "single",
];

/// What a workload is made of. [`Settings::default`] reads a million 30-byte keys with 270-byte
/// values.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of keys.
    pub keys: u64,
    /// Number of clients that share the work (only `latest` depends on it).
    pub clients: u64,
    /// All randomness comes from here.
    pub seed: u64,
    /// Shares of the operations.
    pub mix: Mix,
    /// Lengths of names.
    pub key_size: KeySize,
    /// Lengths of values.
    pub value_size: ValueSize,
    /// Skew of `zipfian` and `latest`, between 0 and 1.
    pub theta: f64,
    /// `hotspot`: share of the keys that are hot.
    pub hot_data: f64,
    /// `hotspot`: share of the operations that go to hot keys.
    pub hot_operations: f64,
    /// `normal`: standard deviation as a share of the keys.
    pub deviation: f64,
    /// `normal`: keys by which the mean moves with each request of a client.
    pub drift: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keys: 1_000_000,
            clients: 1,
            seed: 1,
            mix: Mix::READS,
            key_size: KeySize::Fixed(30),
            value_size: ValueSize::Fixed(270),
            theta: 0.99,
            hot_data: 0.2,
            hot_operations: 0.8,
            deviation: 0.1,
            drift: 0.0,
        }
    }
}

/// A setting that cannot be carried out; the message says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("no workload is called '{0}'; choose one of {names}", names = NAMES.join(", "))]
    UnknownName(String),
    /// The operation mix does not parse or holds no operation.
    #[error("'{0}' is no operation ratio; write GET:SET or GET:SET:DELETE, for example 9:1")]
    Ratio(String),
    /// A number is outside its range.
    #[error("{name} is {value}, but must be {allowed}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// What was asked for.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

/// Settings that have been checked. Immutable; clients on any thread may share it.
#[derive(Clone, Debug)]
pub struct Workload {
    name: &'static str,
    settings: Settings,
    names: KeyNames,
    picker: Picker,
}

impl Workload {
    /// The workload called `name`, one of [`NAMES`], with `settings`.
    pub fn by_name(name: &str, settings: Settings) -> Result<Self, WorkloadError> {
        let position = NAMES.iter().position(|known| *known == name);
        let name = NAMES[position.ok_or_else(|| WorkloadError::UnknownName(name.to_owned()))?];
        check(&settings)?;
        let popularity = match name {
            "uniform" => Popularity::Uniform,
            "zipfian" => Popularity::Zipfian {
                theta: settings.theta,
            },
            "hotspot" => Popularity::Hotspot {
                data: settings.hot_data,
                operations: settings.hot_operations,
            },
            "normal" => Popularity::Normal {
                deviation: settings.deviation,
                drift: settings.drift,
            },
            "latest" => Popularity::Latest {
                theta: settings.theta,
            },
            _ => Popularity::Single,
        };
        let names = KeyNames::new(settings.key_size, settings.seed);
        let picker = Picker::new(&popularity, settings.keys, settings.clients);
        Ok(Self {
            name,
            settings,
            names,
            picker,
        })
    }

    /// The name it was made by.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The settings it was made from.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Makes the names of keys.
    #[must_use]
    pub fn key_names(&self) -> KeyNames {
        self.names
    }

    /// The length of the value of `id`, in bytes; the same for every writer and reader.
    #[inline]
    #[must_use]
    pub fn value_len(&self, id: KeyId) -> usize {
        self.settings.value_size.of(self.settings.seed, id) as usize
    }

    /// The requests of client `client`, from the beginning.
    #[must_use]
    pub fn client(&self, client: u64) -> ClientStream {
        ClientStream {
            stream: Stream::new(self.settings.seed, client),
            mix: self.settings.mix,
            picker: self.picker.for_client(client),
        }
    }
}

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is done.
    pub op: Op,
    /// To which key.
    pub key: KeyId,
}

/// The endless requests of one client. Not shared between threads.
#[derive(Clone, Debug)]
pub struct ClientStream {
    stream: Stream,
    mix: Mix,
    picker: Picker,
}

impl ClientStream {
    /// The next request.
    #[inline]
    pub fn next_request(&mut self) -> Request {
        let op = self.mix.pick(&mut self.stream);
        let key = self.picker.pick(op, &mut self.stream);
        Request { op, key }
    }

    /// One more key for an operation that takes several.
    #[inline]
    pub fn another_key(&mut self, op: Op) -> KeyId {
        self.picker.pick(op, &mut self.stream)
    }
}

fn check(settings: &Settings) -> Result<(), WorkloadError> {
    let range = |name, value: String, valid: bool, allowed: &str| {
        let allowed = allowed.to_owned();
        if valid {
            Ok(())
        } else {
            Err(WorkloadError::OutOfRange {
                name,
                value,
                allowed,
            })
        }
    };
    let share = |name, value: f64| {
        let valid = value > 0.0 && value <= 1.0;
        range(name, value.to_string(), valid, "above 0 and at most 1")
    };
    range(
        "keys",
        settings.keys.to_string(),
        settings.keys > 0,
        "at least 1",
    )?;
    range(
        "clients",
        settings.clients.to_string(),
        settings.clients > 0,
        "at least 1",
    )?;
    let theta = settings.theta;
    range(
        "theta",
        theta.to_string(),
        theta > 0.0 && theta < 1.0,
        "between 0 and 1",
    )?;
    share("hot data", settings.hot_data)?;
    share("hot operations", settings.hot_operations)?;
    share("deviation", settings.deviation)?;
    range(
        "drift",
        settings.drift.to_string(),
        settings.drift.is_finite(),
        "a finite number",
    )?;
    if let KeySize::Fixed(bytes) = settings.key_size {
        let needed = KeyNames::new(settings.key_size, settings.seed).longest(settings.keys);
        let valid = bytes >= needed && bytes <= MAX_KEY_BYTES;
        let allowed = format!(
            "{} to {MAX_KEY_BYTES} bytes for {} keys",
            needed, settings.keys
        );
        range("key size", bytes.to_string(), valid, &allowed)?;
    }
    let longest = settings.value_size.longest();
    range(
        "value size",
        longest.to_string(),
        longest <= MAX_VALUE_BYTES,
        "at most 1 GiB",
    )
}

/// The longest value that can be asked for: memcached's own bound on items.
const MAX_VALUE_BYTES: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(workload: &Workload, client: u64, count: usize) -> Vec<Request> {
        let mut stream = workload.client(client);
        (0..count).map(|_| stream.next_request()).collect()
    }

    #[test]
    fn every_name_makes_a_repeatable_workload_with_keys_in_range() {
        for name in NAMES {
            let settings = Settings {
                keys: 500,
                mix: Mix::parse("8:1:1").unwrap(),
                ..Settings::default()
            };
            let workload = Workload::by_name(name, settings).unwrap();
            assert_eq!(workload.name(), name);
            let drawn = requests(&workload, 3, 2000);
            assert_eq!(drawn, requests(&workload, 3, 2000), "{name}");
            let bound = if name == "latest" { 500 + 2000 } else { 500 };
            assert!(drawn.iter().all(|request| request.key.0 < bound), "{name}");
        }
    }

    #[test]
    fn clients_ask_for_different_keys() {
        let settings = Settings {
            keys: 1_000_000,
            ..Settings::default()
        };
        let workload = Workload::by_name("uniform", settings).unwrap();
        let own: std::collections::HashSet<_> = requests(&workload, 0, 1000)
            .into_iter()
            .map(|request| request.key)
            .collect();
        let shared = requests(&workload, 1, 1000)
            .iter()
            .filter(|request| own.contains(&request.key))
            .count();
        assert!(shared < 10, "{shared} of 1000 keys, 1 expected by chance");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Workload::by_name("pareto", Settings::default())
            .unwrap_err()
            .to_string();
        assert!(NAMES.iter().all(|name| error.contains(name)), "{error}");
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let refused = |settings, named: &str| {
            let error = Workload::by_name("uniform", settings)
                .unwrap_err()
                .to_string();
            assert!(error.contains(named), "{error}");
        };
        let base = Settings::default;
        refused(Settings { keys: 0, ..base() }, "keys");
        refused(
            Settings {
                clients: 0,
                ..base()
            },
            "clients",
        );
        refused(
            Settings {
                theta: 1.0,
                ..base()
            },
            "theta",
        );
        refused(
            Settings {
                theta: f64::NAN,
                ..base()
            },
            "theta",
        );
        refused(
            Settings {
                hot_data: 0.0,
                ..base()
            },
            "hot data",
        );
        refused(
            Settings {
                hot_operations: 1.1,
                ..base()
            },
            "hot operations",
        );
        refused(
            Settings {
                deviation: -1.0,
                ..base()
            },
            "deviation",
        );
        refused(
            Settings {
                drift: f64::INFINITY,
                ..base()
            },
            "drift",
        );
        refused(
            Settings {
                key_size: KeySize::Fixed(5),
                ..base()
            },
            "6 to 250 bytes",
        );
        refused(
            Settings {
                key_size: KeySize::Fixed(251),
                ..base()
            },
            "key size",
        );
        refused(
            Settings {
                value_size: ValueSize::Fixed(u32::MAX),
                ..base()
            },
            "value size",
        );
    }
}
