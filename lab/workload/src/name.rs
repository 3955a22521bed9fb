//! The name of a workload, parsed and written.

use std::fmt;
use std::path::PathBuf;

use crate::error::WorkloadError;
use crate::known::NAMES;
use crate::trace::Format;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Uniform,
    Zipfian,
    Hotspot,
    Normal,
    Latest,
    Single,
    Etc,
    /// All applications, or one.
    Memcachier(Option<u16>),
    Twitter(u16),
    /// Path of the histograms, without `_sizes.json` and `_pop.json`.
    CacheLib(PathBuf),
    /// Without a format, name and content of the file decide.
    Trace(Option<Format>, PathBuf),
}

/// The workload of each of [`NAMES`].
static PLAIN: [Name; NAMES.len()] = [
    Name::Uniform,
    Name::Zipfian,
    Name::Hotspot,
    Name::Normal,
    Name::Latest,
    Name::Single,
    Name::Etc,
    Name::Memcachier(None),
];

impl Name {
    pub(crate) fn parse(text: &str) -> Result<Self, WorkloadError> {
        let unknown = || WorkloadError::UnknownName(text.to_owned());
        let number = |digits: &str| digits.parse().map_err(|_| unknown());
        let Some((family, rest)) = text.split_once(':') else {
            let known = NAMES.iter().position(|known| *known == text);
            return known.map(|at| PLAIN[at].clone()).ok_or_else(unknown);
        };
        match family {
            "memcachier" => {
                let digits = rest.strip_prefix("app").unwrap_or(rest);
                Ok(Self::Memcachier(Some(number(digits)?)))
            }
            "twitter" => {
                let digits = rest.strip_prefix("cluster").unwrap_or(rest);
                Ok(Self::Twitter(number(digits)?))
            }
            "cachelib" if !rest.is_empty() => Ok(Self::CacheLib(PathBuf::from(rest))),
            "trace" if !rest.is_empty() => {
                let explicit = rest.split_once(':').and_then(|(name, path)| {
                    let format = Format::by_name(name)?;
                    (!path.is_empty()).then(|| Self::Trace(Some(format), PathBuf::from(path)))
                });
                Ok(explicit.unwrap_or_else(|| Self::Trace(None, PathBuf::from(rest))))
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memcachier(Some(application)) => write!(f, "memcachier:app{application}"),
            Self::Twitter(cluster) => write!(f, "twitter:{cluster}"),
            Self::CacheLib(prefix) => write!(f, "cachelib:{}", prefix.display()),
            Self::Trace(None, path) => write!(f, "trace:{}", path.display()),
            Self::Trace(Some(format), path) => write!(f, "trace:{format}:{}", path.display()),
            plain => {
                let known = PLAIN.iter().position(|known| known == plain);
                f.write_str(known.map_or("", |at| NAMES[at]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::assert_refused;
    use crate::known::CATALOG;

    #[test]
    fn names_are_read_and_written() {
        let filled_in = [
            "memcachier:app19",
            "twitter:52",
            "cachelib:some/where",
            "trace:a.csv",
            "trace:be64:a:b.trace",
            "trace:odd:name",
        ];
        for text in NAMES.into_iter().chain(filled_in) {
            assert_eq!(Name::parse(text).unwrap().to_string(), text);
        }
        let other_forms = ["memcachier:19", "twitter:cluster7"];
        let expected = [Name::Memcachier(Some(19)), Name::Twitter(7)];
        assert_eq!(other_forms.map(|text| Name::parse(text).unwrap()), expected);
    }

    #[test]
    fn a_name_that_is_none_lists_those_there_are() {
        for text in [
            "",
            "pareto",
            "twitter",
            "twitter:x",
            "memcachier:",
            "trace:",
            "cachelib:",
            "x:y",
        ] {
            for known in CATALOG {
                assert_refused(Name::parse(text), known.form);
            }
        }
    }
}
