//! Kinds of admission by name, as settings write them: `all`, `random:30`, `ghosts:2`, `reread:2`,
//! `adaptive:2`.

use std::sync::Arc;

use super::adaptive::AdmitAdaptive;
use super::kinds::{AdmitAll, AdmitGhosts, AdmitRandom, AdmitReread};
use super::policy::AdmissionKind;

/// Reads that S3-FIFO asks for: two, since one read may follow a store at once.
const ENOUGH_READS: u32 = 2;

/// A kind of admission by its name.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionName {
    /// Form of the text: the name, and a word for the number behind its colon, if the kind takes one.
    pub form: &'static str,
    /// Returns the kind with this number; `None` if the kind needs a number, takes none, or cannot have this one.
    pub kind: fn(Option<u32>) -> Option<Arc<dyn AdmissionKind>>,
}

/// The kinds that every program has.
pub const ADMISSIONS: &[AdmissionName] = &[
    AdmissionName {
        form: "all",
        kind: |number| number.is_none().then(|| Arc::new(AdmitAll) as _),
    },
    AdmissionName {
        form: "random:PERCENT",
        kind: |number| {
            let percent = number.filter(|percent| *percent <= 100)?;
            let per_mille = percent * 10;
            Some(Arc::new(AdmitRandom { per_mille }))
        },
    },
    AdmissionName {
        form: "ghosts:READS",
        kind: |number| {
            let reads = number.unwrap_or(ENOUGH_READS);
            Some(Arc::new(AdmitGhosts { reads }))
        },
    },
    AdmissionName {
        form: "reread:READS",
        kind: |number| {
            let reads = number.unwrap_or(ENOUGH_READS);
            Some(Arc::new(AdmitReread { reads }))
        },
    },
    AdmissionName {
        form: "adaptive:READS",
        kind: |number| {
            let reads = number.unwrap_or(ENOUGH_READS);
            Some(Arc::new(AdmitAdaptive { reads }))
        },
    },
];

/// No kind of admission of the program is written like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no admission; write {known}")]
pub struct UnknownAdmission {
    text: String,
    known: String,
}

/// Returns the kind among `known` that `text` names.
///
/// # Errors
/// [`UnknownAdmission`], which lists the known forms.
pub fn parse(
    text: &str,
    known: impl Iterator<Item = &'static AdmissionName> + Clone,
) -> Result<Arc<dyn AdmissionKind>, UnknownAdmission> {
    find(text, known.clone()).ok_or_else(|| {
        let mut forms: Vec<&str> = known.map(|admission| admission.form).collect();
        let last = forms.pop().unwrap_or_default();
        let known = match forms.as_slice() {
            [] => last.to_owned(),
            others => format!("{} or {last}", others.join(", ")),
        };
        let text = text.to_owned();
        UnknownAdmission { text, known }
    })
}

fn find(
    text: &str,
    mut known: impl Iterator<Item = &'static AdmissionName>,
) -> Option<Arc<dyn AdmissionKind>> {
    let (name, number) = match text.split_once(':') {
        Some((name, number)) => (name, Some(number.parse().ok()?)),
        None => (text, None),
    };
    let found = known.find(|admission| admission.form.split(':').next() == Some(name))?;
    (found.kind)(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_names_and_other_texts_are_told_the_forms() {
        let found = |text: &str| parse(text, ADMISSIONS.iter());
        assert!(found("all").unwrap().settings::<AdmitAll>().is_some());
        let random = found("random:30").unwrap();
        assert_eq!(random.settings(), Some(&AdmitRandom { per_mille: 300 }));
        for (text, reads) in [("ghosts", 2), ("ghosts:1", 1)] {
            let ghosts = found(text).unwrap();
            assert_eq!(ghosts.settings(), Some(&AdmitGhosts { reads }));
        }
        let reread = found("reread").unwrap();
        assert_eq!(reread.settings(), Some(&AdmitReread { reads: 2 }));
        for wrong in [
            "",
            "none",
            "all:1",
            "random",
            "random:101",
            "ghosts:",
            "ghosts:-1",
        ] {
            let error = found(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
            assert!(error.ends_with(
                "write all, random:PERCENT, ghosts:READS, reread:READS or adaptive:READS"
            ));
        }
    }
}
