//! [`Learning`] as a kind of admission: its name, its settings by name, and the policy of a cache.

use std::sync::Arc;
use std::time::Duration;

use engine::ConfigError;
use engine::admission::{
    AdmissionKind, AdmissionName, AdmissionRoom, Ghosts, Observed, Policy, SettingError,
};

use super::learner::Learner;
use super::worth::Learning;

/// Largest value of `hits_per_100_writes`. The number of hits that a key counts for is limited, so few keys would meet a
/// larger one.
const MOST_HITS_PER_100_WRITES: u32 = 1000;

/// Learned admission by its name.
pub const ADMISSIONS: &[AdmissionName] = &[AdmissionName {
    form: "learned:READS",
    kind: |number| {
        let usual = Learning::default();
        Some(Arc::new(Learning {
            reads: number.unwrap_or(usual.reads),
            ..usual
        }))
    },
}];

/// Parses a delimiter: one byte, or nothing if all keys are of one application.
fn delimiter(text: &str) -> Option<Option<u8>> {
    match text.as_bytes() {
        [] => Some(None),
        [byte] => Some(Some(*byte)),
        _ => None,
    }
}

impl AdmissionKind for Learning {
    fn name(&self) -> &'static str {
        "learned"
    }

    /// The settings: `reads`, `window` in seconds, `delimiter` (empty for one application), `hits_per_100_writes`, `remembers`.
    fn with(&self, name: &str, value: &str) -> Result<Arc<dyn AdmissionKind>, SettingError> {
        let wrong = || SettingError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let number = || value.parse::<u32>().map_err(|_| wrong());
        let mut changed = *self;
        match name {
            "reads" => changed.reads = number()?,
            "window" => changed.window = Duration::from_secs(number()?.into()),
            "delimiter" => changed.delimiter = delimiter(value).ok_or_else(wrong)?,
            "hits_per_100_writes" => changed.hits_per_100_writes = number()?,
            "remembers" => changed.remembers = value.parse().map_err(|_| wrong())?,
            _ => {
                return Err(SettingError::Unknown {
                    kind: self.name(),
                    name: name.to_owned(),
                });
            }
        }
        Ok(Arc::new(changed))
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (fits, name, range) in [
            (
                self.reads >= 1,
                "reads",
                "1 or more, and 255 at most where none are learned",
            ),
            (!self.window.is_zero(), "window", "longer than nothing"),
            (
                self.hits_per_100_writes <= MOST_HITS_PER_100_WRITES,
                "hits_per_100_writes",
                "0 to 1000",
            ),
        ] {
            if !fits {
                return Err(ConfigError::Range { name, range });
            }
        }
        Ok(())
    }

    fn open(&self, room: AdmissionRoom) -> Policy {
        let AdmissionRoom {
            memory_bytes,
            flash_bytes,
        } = room;
        let ghosts = self
            .remembers
            .then(|| Arc::new(Ghosts::new(memory_bytes, flash_bytes)));
        let learner = Arc::new(Learner::new(*self, memory_bytes, flash_bytes));
        let of_ghosts = ghosts.as_ref().map_or(0, |ghosts| ghosts.memory_bytes());
        Policy {
            memory_bytes: of_ghosts + learner.memory_bytes(),
            ghosts,
            observer: Some(Observed {
                keys: learner.keys(),
                observer: Arc::clone(&learner) as _,
            }),
            counts_come_back: self.remembers,
            admission: Some(learner),
            ..Policy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_names_and_unknown_ones_are_refused() {
        let learning = Learning::default();
        let kind: Arc<dyn AdmissionKind> = Arc::new(learning);
        let changed = [
            ("reads", "10"),
            ("window", "60"),
            ("delimiter", ""),
            ("hits_per_100_writes", "0"),
            ("remembers", "false"),
        ]
        .into_iter()
        .fold(kind, |kind, (name, value)| kind.with(name, value).unwrap());
        let expected = Learning {
            reads: 10,
            window: Duration::from_secs(60),
            delimiter: None,
            hits_per_100_writes: 0,
            remembers: false,
        };
        assert_eq!(changed.settings(), Some(&expected));
        for (name, value) in [
            ("window", "-1"),
            ("delimiter", "::"),
            ("remembers", "perhaps"),
        ] {
            let error = learning.with(name, value).unwrap_err();
            assert!(matches!(error, SettingError::Value { .. }), "{error}");
        }
        let error = learning.with("reed", "1").unwrap_err();
        assert!(matches!(error, SettingError::Unknown { .. }), "{error}");
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let name = |learning: Learning| match learning.check() {
            Err(ConfigError::Range { name, .. }) => Some(name),
            _ => None,
        };
        let usual = Learning::default();
        assert_eq!(name(usual), None);
        assert_eq!(name(Learning { reads: 0, ..usual }), Some("reads"));
        let window = Duration::ZERO;
        assert_eq!(name(Learning { window, ..usual }), Some("window"));
        let demanding = Learning {
            hits_per_100_writes: 1001,
            ..usual
        };
        assert_eq!(name(demanding), Some("hits_per_100_writes"));
    }
}
